//! Mapped memory of an AF_XDP socket: the frames (UMEM), and the rings.

use crate::sys::{check, errno, Errno};
use std::os::fd::{AsRawFd, BorrowedFd};
use std::ptr::NonNull;

/// A mapping that is unmapped on drop.
pub(super) struct Area {
    base: NonNull<u8>,
    len: usize,
}

// SAFETY: an area is addresses; those who access its memory answer for it.
unsafe impl Send for Area {}
// SAFETY: as above.
unsafe impl Sync for Area {}

impl Drop for Area {
    fn drop(&mut self) {
        // SAFETY: this value owns the mapping, of which no borrow is left.
        unsafe { libc::munmap(self.base.as_ptr().cast(), self.len) };
    }
}

impl Area {
    /// Maps zeroed memory, which forked children do not get: the kernel writes into its pages.
    pub(super) fn anonymous(len: usize) -> Result<Area, Errno> {
        let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS;
        let area = Area::map(len, flags, -1, 0)?;
        // SAFETY: the range is the mapping just made.
        check(unsafe { libc::madvise(area.base.as_ptr().cast(), len, libc::MADV_DONTFORK) })?;
        Ok(area)
    }

    /// Maps a ring of a socket.
    pub(super) fn of_socket(
        socket: BorrowedFd<'_>,
        offset: u64,
        len: usize,
    ) -> Result<Area, Errno> {
        let flags = libc::MAP_SHARED | libc::MAP_POPULATE;
        Area::map(len, flags, socket.as_raw_fd(), offset as libc::off_t)
    }

    fn map(len: usize, flags: i32, fd: i32, offset: libc::off_t) -> Result<Area, Errno> {
        let access = libc::PROT_READ | libc::PROT_WRITE;
        // SAFETY: a new mapping at an address of the kernel's choice touches no existing memory.
        let base = unsafe { libc::mmap(std::ptr::null_mut(), len, access, flags, fd, offset) };
        let base = NonNull::new(base.cast()).filter(|_| base != libc::MAP_FAILED);
        let base = base.ok_or_else(errno)?;
        Ok(Area { base, len })
    }

    /// The address of `len` bytes at an offset; `None` beyond the area.
    #[inline]
    pub(super) fn at(&self, offset: u64, len: usize) -> Option<*mut u8> {
        let end = usize::try_from(offset).ok()?.checked_add(len)?;
        // SAFETY: the offset lies within the mapping.
        (end <= self.len).then(|| unsafe { self.base.as_ptr().add(offset as usize) })
    }

    /// Length in bytes.
    pub(super) fn len(&self) -> usize {
        self.len
    }
}
