//! The part of libfabric's core that the tests simulate.

#![allow(dead_code)] // each test binary uses only a part

pub mod elements;
pub mod pair;
pub mod target;

use crate::abi::*;
use std::ffi::{c_int, c_void, CStr, CString};
use std::path::PathBuf;
use std::ptr::null_mut;

/// The library built by this `cargo test`.
pub fn path() -> PathBuf {
    let exe = std::env::current_exe().expect("own path");
    let deps = exe.parent().expect("directory of the test binary");
    deps.join("libmarline_fi.so")
}

/// The loaded provider.
pub struct Library {
    handle: *mut c_void,
}

impl Library {
    pub fn open() -> Library {
        let path = path();
        let name = CString::new(path.to_str().expect("UTF-8 path")).expect("no NUL");
        // SAFETY: loads our own library.
        let handle = unsafe { libc::dlopen(name.as_ptr(), libc::RTLD_NOW | libc::RTLD_LOCAL) };
        assert!(!handle.is_null(), "cannot load {path:?}");
        Library { handle }
    }

    pub fn provider(&self) -> *mut fi_provider {
        // SAFETY: the symbol has this type.
        unsafe {
            let symbol = libc::dlsym(self.handle, c"fi_prov_ini".as_ptr());
            assert!(!symbol.is_null());
            let ini: extern "C" fn() -> *mut fi_provider = std::mem::transmute(symbol);
            ini()
        }
    }

    /// `fi_getinfo` without node and service.
    pub fn getinfo(&self, version: u32, hints: *const fi_info) -> Result<*mut fi_info, c_int> {
        self.resolve(version, [None, None], 0, hints)
    }

    /// `fi_getinfo` with optional node and service.
    pub fn resolve(
        &self,
        version: u32,
        names: [Option<&CStr>; 2],
        flags: u64,
        hints: *const fi_info,
    ) -> Result<*mut fi_info, c_int> {
        let mut info = null_mut();
        let [node, service] = names.map(|name| name.map_or(std::ptr::null(), CStr::as_ptr));
        // SAFETY: valid pointers.
        let rc = unsafe {
            let getinfo = (*self.provider()).getinfo;
            getinfo(version, node, service, flags, hints, &mut info)
        };
        if rc == 0 {
            Ok(info)
        } else {
            Err(rc)
        }
    }

    /// Opens the fabric as libfabric's core does, which writes the API version afterwards.
    pub fn fabric(&self, api_version: u32) -> *mut fid_fabric {
        let mut attr = fi_fabric_attr {
            fabric: null_mut(),
            name: c"marline".as_ptr().cast_mut(),
            prov_name: null_mut(),
            prov_version: 0,
            api_version,
        };
        let mut fabric = null_mut();
        // SAFETY: valid pointers.
        unsafe {
            let rc = ((*self.provider()).fabric)(&mut attr, &mut fabric, null_mut());
            assert_eq!(rc, 0);
            (*fabric).api_version = api_version;
        }
        fabric
    }
}

impl Drop for Library {
    fn drop(&mut self) {
        // SAFETY: opened in `open`.
        unsafe { libc::dlclose(self.handle) };
    }
}

/// `fi_close`.
///
/// # Safety
/// An object of the provider, not used afterwards unless closing fails.
pub unsafe fn close(fid: *mut fid) -> c_int {
    // SAFETY: the caller's promise.
    unsafe { ((*(*fid).ops).close)(fid) }
}

/// `fi_freeinfo`: frees everything but the NIC.
///
/// # Safety
/// One fi_info of the provider.
pub unsafe fn free_info(info: *mut fi_info) {
    // SAFETY: all of it came from malloc's family.
    unsafe {
        libc::free((*(*info).domain_attr).name.cast());
        libc::free((*(*info).fabric_attr).name.cast());
        if !(*info).nic.is_null() {
            assert_eq!(close((*info).nic.cast()), 0);
        }
        libc::free((*info).src_addr);
        libc::free((*info).dest_addr);
        libc::free((*info).tx_attr.cast());
        libc::free((*info).rx_attr.cast());
        libc::free((*info).ep_attr.cast());
        libc::free((*info).domain_attr.cast());
        libc::free((*info).fabric_attr.cast());
        libc::free(info.cast());
    }
}
