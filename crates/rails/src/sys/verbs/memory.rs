//! Memory that a device reads and writes.

use super::device::VerbsDevice;
use super::layout::{Mr, Pd};
use crate::sys::{errno, Errno};
use std::ptr::NonNull;
use std::sync::Arc;

/// The local device may write the memory.
const LOCAL_WRITE: i32 = 1;
/// Peers may write the memory.
const REMOTE_WRITE: i32 = 2;
/// Peers may read the memory.
const REMOTE_READ: i32 = 4;
/// Mask of the offset within a page of 4 KiB, the smallest of any architecture.
const PAGE_MASK: u64 = 0xfff;

/// A protection domain: only objects of one domain can be used together.
pub(crate) struct Domain {
    pub(super) device: Arc<VerbsDevice>,
    pub(super) pd: *mut Pd,
}

// SAFETY: the library's functions may be called by any thread at any time.
unsafe impl Send for Domain {}
// SAFETY: see above.
unsafe impl Sync for Domain {}

impl Domain {
    /// Allocates a domain of a device.
    pub(crate) fn new(device: Arc<VerbsDevice>) -> Result<Arc<Domain>, Errno> {
        // SAFETY: the context is open.
        let pd = unsafe { (device.library.alloc_pd)(device.context) };
        match pd.is_null() {
            true => Err(errno()),
            false => Ok(Arc::new(Domain { device, pd })),
        }
    }

    /// Registers memory that the device may read, and write or open to peers according to `access`.
    fn register(
        &self,
        base: *mut u8,
        len: usize,
        iova: u64,
        access: i32,
    ) -> Result<*mut Mr, Errno> {
        let library = self.device.library;
        // SAFETY: the domain exists. The registration alone causes no access; the code that posts
        // requests states what the device may access.
        let mr = unsafe { (library.reg_mr_iova)(self.pd, base.cast(), len, iova, access) };
        match mr.is_null() {
            true => Err(errno()),
            false => Ok(mr),
        }
    }
}

impl Drop for Domain {
    fn drop(&mut self) {
        // SAFETY: allocated once; all objects made in it hold a reference and are gone.
        unsafe { (self.device.library.dealloc_pd)(self.pd) };
    }
}

/// Memory of the rail that the device reads and writes.
pub(crate) struct Region {
    domain: Arc<Domain>,
    mr: *mut Mr,
    base: NonNull<u8>,
    len: usize,
}

// SAFETY: the memory belongs to this value alone, except for what the device is asked to do.
unsafe impl Send for Region {}

impl Region {
    /// Maps and registers `len` zeroed bytes.
    pub(crate) fn new(domain: &Arc<Domain>, len: usize) -> Result<Region, Errno> {
        Region::with(domain, len, |base| (base, LOCAL_WRITE))
    }

    /// Like `new`, writable by peers at addresses from 0.
    pub(crate) fn to_be_written(domain: &Arc<Domain>, len: usize) -> Result<Region, Errno> {
        Region::with(domain, len, |_| (0, LOCAL_WRITE | REMOTE_WRITE))
    }

    /// Registers a new mapping. `how` converts its address to the address seen by the device and
    /// the access flags.
    fn with(
        domain: &Arc<Domain>,
        len: usize,
        how: impl FnOnce(u64) -> (u64, i32),
    ) -> Result<Region, Errno> {
        let protection = libc::PROT_READ | libc::PROT_WRITE;
        let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS;
        // SAFETY: a new mapping at an address of the kernel's choice touches no existing memory.
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
                // SAFETY: mapped above and unused.
                unsafe { libc::munmap(base.as_ptr().cast(), len) };
                Err(errno)
            }
        }
    }

    /// Length in bytes.
    pub(crate) fn len(&self) -> usize {
        self.len
    }

    /// The key for the local device.
    #[inline]
    pub(super) fn lkey(&self) -> u32 {
        // SAFETY: registered until this is dropped.
        unsafe { (*self.mr).lkey }
    }

    /// The key for peers.
    pub(crate) fn rkey(&self) -> u32 {
        // SAFETY: registered until this is dropped.
        unsafe { (*self.mr).rkey }
    }

    /// Bytes that peers have written, according to them. A late write can change only the bytes
    /// returned here, which the caller copies and sums.
    pub(crate) fn written(&self, at: usize, len: usize) -> &[u8] {
        self.bytes(at, len)
    }

    /// The address of a byte for the local device.
    #[inline]
    pub(super) fn address(&self, at: usize) -> u64 {
        debug_assert!(at < self.len);
        self.base.as_ptr() as u64 + at as u64
    }

    /// Bytes that the device does not write now.
    #[inline]
    pub(super) fn bytes(&self, at: usize, len: usize) -> &[u8] {
        assert!(at <= self.len && len <= self.len - at);
        // SAFETY: within the mapping, which started as zeros; the caller knows that the device is
        // done with these bytes.
        unsafe { std::slice::from_raw_parts(self.base.as_ptr().add(at), len) }
    }

    /// Bytes that the device does not write now; it may read them.
    #[inline]
    pub(crate) fn bytes_mut(&mut self, at: usize, len: usize) -> &mut [u8] {
        assert!(at <= self.len && len <= self.len - at);
        // SAFETY: within the mapping, and borrowed mutably here; see `bytes`.
        unsafe { std::slice::from_raw_parts_mut(self.base.as_ptr().add(at), len) }
    }
}

impl Drop for Region {
    fn drop(&mut self) {
        // SAFETY: registered once. On success the device is done with the memory.
        let released = unsafe { (self.domain.device.library.dereg_mr)(self.mr) };
        if released == 0 {
            // SAFETY: this value owns the mapping, of which no borrow is left.
            unsafe { libc::munmap(self.base.as_ptr().cast(), self.len) };
        }
    }
}

/// Registered application memory: the source of a write, or open to peers.
pub(crate) struct KeyedMemory {
    domain: Arc<Domain>,
    mr: *mut Mr,
    /// First address for the device; for peers, the offset within the page.
    start: u64,
    len: usize,
}

// SAFETY: the library's functions may be called by any thread at any time.
unsafe impl Send for KeyedMemory {}

impl KeyedMemory {
    /// Registers memory for peers' writes. The memory must stay valid until this is dropped.
    pub(crate) fn to_be_written(
        domain: &Arc<Domain>,
        base: *mut u8,
        len: usize,
    ) -> Result<KeyedMemory, Errno> {
        // Peers do not learn our addresses.
        let start = base as u64 & PAGE_MASK;
        KeyedMemory::new(domain, base, len, start, LOCAL_WRITE | REMOTE_WRITE)
    }

    /// Registers memory for reads by the local device. The memory must stay valid until this is
    /// dropped.
    pub(crate) fn to_be_read(
        domain: &Arc<Domain>,
        base: *const u8,
        len: usize,
    ) -> Result<KeyedMemory, Errno> {
        KeyedMemory::new(domain, base.cast_mut(), len, base as u64, 0)
    }

    /// Registers memory for peers' reads. The memory must stay valid until this is dropped.
    pub(crate) fn to_be_advertised(
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

    /// Returns whether the registration covers these addresses.
    pub(crate) fn holds(&self, address: u64, len: usize) -> bool {
        let from = address.checked_sub(self.start);
        from.is_some_and(|from| from + len as u64 <= self.len as u64)
    }

    /// The first address for peers.
    pub(crate) fn start(&self) -> u64 {
        self.start
    }

    /// The key for peers.
    pub(crate) fn rkey(&self) -> u32 {
        // SAFETY: registered until this is dropped.
        unsafe { (*self.mr).rkey }
    }

    /// The key for the local device.
    pub(crate) fn lkey(&self) -> u32 {
        // SAFETY: registered until this is dropped.
        unsafe { (*self.mr).lkey }
    }
}

impl Drop for KeyedMemory {
    fn drop(&mut self) {
        // SAFETY: registered once. After the return the device is done with the memory.
        unsafe { (self.domain.device.library.dereg_mr)(self.mr) };
    }
}
