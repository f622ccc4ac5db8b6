//! Memory that a device reads and writes.

use super::device::VerbsDevice;
use super::layout::{Mr, Pd};
use crate::sys::{errno, Errno};
use std::ptr::NonNull;
use std::sync::Arc;

/// The device may write into the memory for us.
const LOCAL_WRITE: i32 = 1;
/// Peers may write into it.
const REMOTE_WRITE: i32 = 2;
/// Peers may read it.
const REMOTE_READ: i32 = 4;
/// Offset within a page of any architecture, as verbs count addresses of memory.
const PAGE_MASK: u64 = 0xfff;

/// A protection domain: what is made in one works together.
pub(crate) struct Domain {
    pub(super) device: Arc<VerbsDevice>,
    pub(super) pd: *mut Pd,
}

// SAFETY: the library's functions may be called by any thread at any time.
unsafe impl Send for Domain {}
// SAFETY: see above.
unsafe impl Sync for Domain {}

impl Domain {
    /// A new one of a device.
    pub(crate) fn new(device: Arc<VerbsDevice>) -> Result<Arc<Domain>, Errno> {
        // SAFETY: the context is open.
        let pd = unsafe { (device.library.alloc_pd)(device.context) };
        match pd.is_null() {
            true => Err(errno()),
            false => Ok(Arc::new(Domain { device, pd })),
        }
    }

    /// Registers memory that the device may read, and write or let be written as `access` says.
    fn register(
        &self,
        base: *mut u8,
        len: usize,
        iova: u64,
        access: i32,
    ) -> Result<*mut Mr, Errno> {
        let library = self.device.library;
        // SAFETY: the domain is there. The device reads and writes nothing by this until it is told
        // to, and whoever tells it says what it may.
        let mr = unsafe { (library.reg_mr_iova)(self.pd, base.cast(), len, iova, access) };
        match mr.is_null() {
            true => Err(errno()),
            false => Ok(mr),
        }
    }
}

impl Drop for Domain {
    fn drop(&mut self) {
        // SAFETY: allocated once; all that was made in it holds it, and is gone.
        unsafe { (self.device.library.dealloc_pd)(self.pd) };
    }
}

/// Memory of ours that a device reads and writes.
pub(crate) struct Region {
    domain: Arc<Domain>,
    mr: *mut Mr,
    base: NonNull<u8>,
    len: usize,
}

// SAFETY: the memory is this value's alone, but for what the device is told to do with it.
unsafe impl Send for Region {}

impl Region {
    /// `len` bytes of zeros, registered.
    pub(crate) fn new(domain: &Arc<Domain>, len: usize) -> Result<Region, Errno> {
        Region::with(domain, len, |base| (base, LOCAL_WRITE))
    }

    /// The same, that peers may write into, at addresses from 0.
    pub(crate) fn to_be_written(domain: &Arc<Domain>, len: usize) -> Result<Region, Errno> {
        Region::with(domain, len, |_| (0, LOCAL_WRITE | REMOTE_WRITE))
    }

    /// Registers a new mapping; `how`: its addresses for the device and what may be done there, by
    /// its own.
    fn with(
        domain: &Arc<Domain>,
        len: usize,
        how: impl FnOnce(u64) -> (u64, i32),
    ) -> Result<Region, Errno> {
        let protection = libc::PROT_READ | libc::PROT_WRITE;
        let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS;
        // SAFETY: a new mapping at a place of the kernel's choice touches nothing that is there.
        let base = unsafe { libc::mmap(std::ptr::null_mut(), len, protection, flags, -1, 0) };
        let mapped = NonNull::new(base.cast::<u8>()).filter(|_| base != libc::MAP_FAILED);
        let base = mapped.ok_or_else(errno)?;
        let (address, access) = how(base.as_ptr() as u64);
        match domain.register(base.as_ptr(), len, address, access) {
            Ok(mr) => Ok(Region {
                domain: domain.clone(),
                mr,
                base,
                len,
            }),
            Err(errno) => {
                // SAFETY: mapped above, and used by nobody.
                unsafe { libc::munmap(base.as_ptr().cast(), len) };
                Err(errno)
            }
        }
    }

    /// Its bytes.
    pub(crate) fn len(&self) -> usize {
        self.len
    }

    /// The key by which the device finds it.
    #[inline]
    pub(super) fn lkey(&self) -> u32 {
        // SAFETY: registered until this is dropped.
        unsafe { (*self.mr).lkey }
    }

    /// The key that peers name.
    pub(crate) fn rkey(&self) -> u32 {
        // SAFETY: registered until this is dropped.
        unsafe { (*self.mr).rkey }
    }

    /// Bytes that peers wrote, by their word. One that writes again, late, changes no more than
    /// what is read here, whose copy is summed.
    pub(crate) fn written(&self, at: usize, len: usize) -> &[u8] {
        self.bytes(at, len)
    }

    /// Address of a byte.
    #[inline]
    pub(super) fn address(&self, at: usize) -> u64 {
        debug_assert!(at < self.len);
        self.base.as_ptr() as u64 + at as u64
    }

    /// Bytes that the device does not write now.
    #[inline]
    pub(super) fn bytes(&self, at: usize, len: usize) -> &[u8] {
        assert!(at <= self.len && len <= self.len - at);
        // SAFETY: within the mapping, which was zeros at first; the caller knows that the device
        // has done with these bytes.
        unsafe { std::slice::from_raw_parts(self.base.as_ptr().add(at), len) }
    }

    /// Bytes that the device does not write now; it may read them.
    #[inline]
    pub(crate) fn bytes_mut(&mut self, at: usize, len: usize) -> &mut [u8] {
        assert!(at <= self.len && len <= self.len - at);
        // SAFETY: within the mapping, and nobody else has it; see `bytes`.
        unsafe { std::slice::from_raw_parts_mut(self.base.as_ptr().add(at), len) }
    }
}

impl Drop for Region {
    fn drop(&mut self) {
        // SAFETY: registered once. When it returns well the device has done with the memory.
        let released = unsafe { (self.domain.device.library.dereg_mr)(self.mr) };
        if released == 0 {
            // SAFETY: the mapping that this owns, of which no borrow is left.
            unsafe { libc::munmap(self.base.as_ptr().cast(), self.len) };
        }
    }
}

/// Memory of a user: one that the device reads for a write, or that peers write into.
pub(crate) struct KeyedMemory {
    domain: Arc<Domain>,
    mr: *mut Mr,
    /// Where its addresses for the device begin: for peers, at its place within a page.
    start: u64,
    len: usize,
}

// SAFETY: the library's functions may be called by any thread at any time.
unsafe impl Send for KeyedMemory {}

impl KeyedMemory {
    /// Opens memory to writes of peers. It has to stay valid until this is dropped.
    pub(crate) fn to_be_written(
        domain: &Arc<Domain>,
        base: *mut u8,
        len: usize,
    ) -> Result<KeyedMemory, Errno> {
        // Peers know no addresses of ours.
        let start = base as u64 & PAGE_MASK;
        KeyedMemory::new(domain, base, len, start, LOCAL_WRITE | REMOTE_WRITE)
    }

    /// Lets the device read memory. It has to stay valid until this is dropped.
    pub(crate) fn to_be_read(
        domain: &Arc<Domain>,
        base: *const u8,
        len: usize,
    ) -> Result<KeyedMemory, Errno> {
        KeyedMemory::new(domain, base.cast_mut(), len, base as u64, 0)
    }

    /// Opens memory to reads of peers. It has to stay valid until this is dropped.
    pub(crate) fn to_be_offered(
        domain: &Arc<Domain>,
        base: *const u8,
        len: usize,
    ) -> Result<KeyedMemory, Errno> {
        let start = base as u64 & PAGE_MASK;
        KeyedMemory::new(domain, base.cast_mut(), len, start, REMOTE_READ)
    }

    fn new(
        domain: &Arc<Domain>,
        base: *mut u8,
        len: usize,
        start: u64,
        access: i32,
    ) -> Result<KeyedMemory, Errno> {
        Ok(KeyedMemory {
            mr: domain.register(base, len, start, access)?,
            domain: domain.clone(),
            start,
            len,
        })
    }

    /// Returns whether these addresses for the device lie in it.
    pub(crate) fn holds(&self, address: u64, len: usize) -> bool {
        let from = address.checked_sub(self.start);
        from.is_some_and(|from| from + len as u64 <= self.len as u64)
    }

    /// Where peers' addresses of it begin.
    pub(crate) fn start(&self) -> u64 {
        self.start
    }

    /// The key that peers name.
    pub(crate) fn rkey(&self) -> u32 {
        // SAFETY: registered until this is dropped.
        unsafe { (*self.mr).rkey }
    }

    /// The key by which the device finds it.
    pub(crate) fn lkey(&self) -> u32 {
        // SAFETY: registered until this is dropped.
        unsafe { (*self.mr).lkey }
    }
}

impl Drop for KeyedMemory {
    fn drop(&mut self) {
        // SAFETY: registered once. When it returns the device has done with the memory.
        unsafe { (self.domain.device.library.dereg_mr)(self.mr) };
    }
}
