//! Marline's provider in this process, loaded by the MPI's libfabric: its functions for groups (the
//! other side of this interface is `crates/provider/src/collectives.rs`).

use std::ffi::{c_void, CString};
use std::sync::atomic::{AtomicPtr, Ordering};

/// Environment variable with the path of the provider; without it this library does nothing.
pub const VARIABLE: &str = "MARLINE_MULTICAST";

/// Returns whether multicast is wanted.
pub fn is_wanted() -> bool {
    std::env::var_os(VARIABLE).is_some_and(|path| !path.is_empty())
}

#[repr(C)]
pub struct GroupV1 {
    pub id: u64,
    pub token: u32,
    pub me: u32,
    pub members: u32,
    pub reserved: u32,
    pub descriptors: *const u8,
}

#[repr(C)]
pub(crate) struct ApiV1 {
    pub(crate) version: u32,
    pub(crate) size: u32,
    pub(crate) collectives: AtomicPtr<c_void>,
}

/// The provider's functions, documented in the provider.
#[repr(C)]
pub struct Provider {
    pub(crate) size: u32,
    pub descriptor_len: u32,
    pub(crate) descriptor: unsafe extern "C" fn(*mut u8) -> isize,
    pub(crate) open: unsafe extern "C" fn(*const GroupV1) -> isize,
    pub probe: extern "C" fn(isize) -> isize,
    pub heard: extern "C" fn(isize) -> isize,
    pub start: extern "C" fn(isize, u8) -> isize,
    pub(crate) post: unsafe extern "C" fn(isize, u32, *mut c_void, usize) -> isize,
    pub test: extern "C" fn(isize, isize) -> isize,
    pub is_idle: extern "C" fn(isize) -> isize,
    pub progress: extern "C" fn() -> isize,
    pub close: extern "C" fn(isize) -> isize,
    pub sleep_briefly: extern "C" fn() -> isize,
    pub look: extern "C" fn() -> isize,
    pub yield_cpu: extern "C" fn() -> isize,
    pub narrow: extern "C" fn(isize) -> isize,
}

/// Result code, documented in the provider.
pub const ENDED_WELL: isize = 1;
/// Result code, documented in the provider.
pub const ENDED_NOT_CARRIED: isize = 2;
/// Result code, documented in the provider.
pub const ENDED_MISMATCH: isize = 3;
/// Result code, documented in the provider; the dead member's number is added.
pub const ENDED_DEAD: isize = 16;

/// The provider, if it is loaded.
pub fn find() -> Option<&'static Provider> {
    static FOUND: AtomicPtr<Provider> = AtomicPtr::new(std::ptr::null_mut());
    let mut found = FOUND.load(Ordering::Relaxed);
    if found.is_null() {
        found = look()?;
        FOUND.store(found, Ordering::Relaxed);
    }
    // SAFETY: a table of a library that is never unmapped, because `look` keeps it open.
    Some(unsafe { &*found })
}

fn look() -> Option<*mut Provider> {
    let path = CString::new(std::env::var(VARIABLE).ok()?).ok()?;
    // SAFETY: C strings; the library is loaded already or the call fails. With version 1 the symbol
    // is a table of this type.
    unsafe {
        let library = libc::dlopen(path.as_ptr(), libc::RTLD_NOW | libc::RTLD_NOLOAD);
        if library.is_null() {
            return None;
        }
        let api = libc::dlsym(library, c"marline_api_v1".as_ptr()).cast::<ApiV1>();
        let api = api.as_ref().filter(|api| api.version == 1)?;
        if (api.size as usize) < size_of::<ApiV1>() {
            return None;
        }
        let table = api.collectives.load(Ordering::Acquire).cast::<Provider>();
        let size = table.as_ref()?.size as usize;
        (size >= size_of::<Provider>()).then_some(table)
    }
}

impl Provider {
    /// The member descriptor of this process's endpoint.
    pub fn descriptor(&self) -> Option<Vec<u8>> {
        let mut descriptor = vec![0; self.descriptor_len as usize];
        // SAFETY: there is room for a descriptor.
        let result = unsafe { (self.descriptor)(descriptor.as_mut_ptr()) };
        (result == 0).then_some(descriptor)
    }

    /// Opens a group and returns its number.
    pub fn open(&self, (id, token): (u64, u32), me: usize, descriptors: &[u8]) -> Option<isize> {
        let group = GroupV1 {
            id,
            token,
            me: me as u32,
            members: (descriptors.len() / self.descriptor_len as usize) as u32,
            reserved: 0,
            descriptors: descriptors.as_ptr(),
        };
        // SAFETY: `descriptors` has `members` descriptors.
        let number = unsafe { (self.open)(&group) };
        (number >= 0).then_some(number)
    }

    /// Posts the next broadcast and returns its number.
    ///
    /// # Safety
    /// The memory stays valid until the broadcast has ended.
    pub unsafe fn post(
        &self,
        group: isize,
        root: usize,
        base: *mut c_void,
        len: usize,
    ) -> Option<isize> {
        // SAFETY: the caller's promise.
        let number = unsafe { (self.post)(group, root as u32, base, len) };
        (number >= 0).then_some(number)
    }
}
