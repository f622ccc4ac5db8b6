//! The part of the libfabric ABI (see `abi/mod.rs`) common to all objects.

#![allow(non_camel_case_types, dead_code)]

use std::ffi::{c_char, c_int, c_void};

/// A slot that answers `-FI_ENOSYS` for any arguments. In the C calling conventions of x86-64 and
/// AArch64 the caller removes the arguments, so that one function fits every signature; slots that
/// return `int` use the low half of the result.
pub type Absent = unsafe extern "C" fn() -> isize;

pub type fi_addr_t = u64;

#[repr(C)]
pub struct fid {
    pub fclass: usize,
    pub context: *mut c_void,
    pub ops: *const fi_ops,
}

#[repr(C)]
pub struct fi_ops {
    pub size: usize,
    pub close: unsafe extern "C" fn(*mut fid) -> c_int,
    pub bind: unsafe extern "C" fn(*mut fid, *mut fid, u64) -> c_int,
    pub control: unsafe extern "C" fn(*mut fid, c_int, *mut c_void) -> c_int,
    pub ops_open: Absent,
    pub tostr: unsafe extern "C" fn(*const fid, *mut c_char, usize) -> c_int,
    pub ops_set: Absent,
}

#[repr(C)]
pub struct fi_poll_attr {
    pub flags: u64,
}

#[repr(C)]
pub struct fid_poll {
    pub fid: fid,
    pub ops: *const fi_ops_poll,
}

#[repr(C)]
pub struct fi_ops_poll {
    pub size: usize,
    pub poll: unsafe extern "C" fn(*mut fid_poll, *mut *mut c_void, c_int) -> c_int,
    pub poll_add: unsafe extern "C" fn(*mut fid_poll, *mut fid, u64) -> c_int,
    pub poll_del: unsafe extern "C" fn(*mut fid_poll, *mut fid, u64) -> c_int,
}

#[repr(C)]
pub struct fid_av {
    pub fid: fid,
    pub ops: *const fi_ops_av,
}

#[repr(C)]
pub struct fi_ops_av {
    pub size: usize,
    pub insert: unsafe extern "C" fn(
        *mut fid_av,
        *const c_void,
        usize,
        *mut fi_addr_t,
        u64,
        *mut c_void,
    ) -> c_int,
    pub insertsvc: unsafe extern "C" fn(
        *mut fid_av,
        *const c_char,
        *const c_char,
        *mut fi_addr_t,
        u64,
        *mut c_void,
    ) -> c_int,
    pub insertsym: unsafe extern "C" fn(
        *mut fid_av,
        *const c_char,
        usize,
        *const c_char,
        usize,
        *mut fi_addr_t,
        u64,
        *mut c_void,
    ) -> c_int,
    pub remove: unsafe extern "C" fn(*mut fid_av, *mut fi_addr_t, usize, u64) -> c_int,
    pub lookup: unsafe extern "C" fn(*mut fid_av, fi_addr_t, *mut c_void, *mut usize) -> c_int,
    pub straddr:
        unsafe extern "C" fn(*mut fid_av, *const c_void, *mut c_char, *mut usize) -> *const c_char,
    pub av_set: Absent,
    pub insert_auth_key: Absent,
    pub lookup_auth_key: Absent,
    pub set_user_id: Absent,
    pub lookup2: Absent,
}
