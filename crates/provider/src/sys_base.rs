//! The part of the libfabric ABI (see `sys.rs`) that all objects have.

#![allow(non_camel_case_types, dead_code)]

use std::ffi::{c_int, c_void};

/// A slot that answers `-FI_ENOSYS` whatever its arguments are. The C calling conventions of
/// x86-64 and AArch64 leave arguments to the caller, so one function fits every signature, and
/// the low half of its result is right for slots that return `int`.
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
    pub tostr: Absent,
    pub ops_set: Absent,
}
