//! Whole pages of memory that packets are built in and that the kernel may go on reading.

use std::ops::{Deref, DerefMut};
use std::ptr::NonNull;
use std::sync::atomic::{AtomicU64, Ordering};

/// Private, zeroed memory that begins on a page. When it is dropped, whoever still reads its pages
/// (the kernel, for a packet in some queue) keeps them as they were.
pub struct Pages {
    base: NonNull<u8>,
    len: usize,
    id: u64,
}

/// The next one's id.
static NEXT_ID: AtomicU64 = AtomicU64::new(1);

// SAFETY: memory that nothing else points to, as in a Box.
unsafe impl Send for Pages {}

impl Pages {
    /// `len` bytes, in memory from the start; `None` when there is no memory.
    pub fn new(len: usize) -> Option<Pages> {
        let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_POPULATE;
        let access = libc::PROT_READ | libc::PROT_WRITE;
        // SAFETY: a new mapping at a place of the kernel's choice touches nothing that is there.
        let base = unsafe { libc::mmap(std::ptr::null_mut(), len, access, flags, -1, 0) };
        if base == libc::MAP_FAILED {
            return None;
        }
        let base = NonNull::new(base.cast())?;
        let id = NEXT_ID.fetch_add(1, Ordering::Relaxed);
        Some(Pages { base, len, id })
    }

    /// A name that no others have had in this process, whatever their address.
    pub fn id(&self) -> u64 {
        self.id
    }
}

impl Drop for Pages {
    fn drop(&mut self) {
        // SAFETY: the mapping that `new` made, of which no borrow is left.
        unsafe { libc::munmap(self.base.as_ptr().cast(), self.len) };
    }
}

impl Deref for Pages {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        // SAFETY: `len` initialised bytes that live as long as self.
        unsafe { std::slice::from_raw_parts(self.base.as_ptr(), self.len) }
    }
}

impl DerefMut for Pages {
    fn deref_mut(&mut self) -> &mut [u8] {
        // SAFETY: as above, and borrowed from nobody else.
        unsafe { std::slice::from_raw_parts_mut(self.base.as_ptr(), self.len) }
    }
}
