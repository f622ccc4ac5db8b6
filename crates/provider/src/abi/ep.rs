//! The endpoint's part of the libfabric ABI (see `abi/mod.rs`).

#![allow(non_camel_case_types, dead_code)]

use crate::abi::base::*;
use libc::iovec;
use std::ffi::{c_int, c_void};

/// A table of functions whose first parameter is the endpoint.
macro_rules! ops_of_endpoint {
    ($table:ident { $($name:ident($($parameter:ty),*) -> $result:ty;)* }) => {
        #[repr(C)]
        pub struct $table {
            pub size: usize,
            $(pub $name: unsafe extern "C" fn(*mut fid_ep, $($parameter),*) -> $result,)*
        }
    };
}

/// Registration of a buffer, and of each piece of one: unused, as the provider requires none.
type desc = *mut c_void;
type descs = *mut desc;
type context = *mut c_void;

#[repr(C)]
pub struct fid_ep {
    pub fid: fid,
    pub ops: *const fi_ops_ep,
    pub cm: *const fi_ops_cm,
    pub msg: *const fi_ops_msg,
    pub rma: *const fi_ops_rma,
    pub tagged: *const fi_ops_tagged,
    pub atomic: *const fi_ops_atomic,
    pub collective: *const fi_ops_collective,
}

#[repr(C)]
pub struct fi_ops_ep {
    pub size: usize,
    pub cancel: unsafe extern "C" fn(*mut fid, *mut c_void) -> isize,
    pub getopt: unsafe extern "C" fn(*mut fid, c_int, c_int, *mut c_void, *mut usize) -> c_int,
    pub setopt: unsafe extern "C" fn(*mut fid, c_int, c_int, *const c_void, usize) -> c_int,
    pub tx_ctx: Absent,
    pub rx_ctx: Absent,
    pub rx_size_left: Absent,
    pub tx_size_left: Absent,
    pub export_xpu: Absent,
}

#[repr(C)]
pub struct fi_ops_cm {
    pub size: usize,
    pub setname: Absent,
    pub getname: unsafe extern "C" fn(*mut fid, *mut c_void, *mut usize) -> c_int,
    pub getpeer: Absent,
    pub connect: Absent,
    pub listen: Absent,
    pub accept: Absent,
    pub reject: Absent,
    pub shutdown: Absent,
    pub join: Absent,
}

#[repr(C)]
pub struct fi_msg {
    pub msg_iov: *const iovec,
    pub desc: *mut *mut c_void,
    pub iov_count: usize,
    pub addr: fi_addr_t,
    pub context: *mut c_void,
    pub data: u64,
}

ops_of_endpoint! { fi_ops_msg {
    recv(*mut c_void, usize, desc, fi_addr_t, context) -> isize;
    recvv(*const iovec, descs, usize, fi_addr_t, context) -> isize;
    recvmsg(*const fi_msg, u64) -> isize;
    send(*const c_void, usize, desc, fi_addr_t, context) -> isize;
    sendv(*const iovec, descs, usize, fi_addr_t, context) -> isize;
    sendmsg(*const fi_msg, u64) -> isize;
    inject(*const c_void, usize, fi_addr_t) -> isize;
    senddata(*const c_void, usize, desc, u64, fi_addr_t, context) -> isize;
    injectdata(*const c_void, usize, u64, fi_addr_t) -> isize;
} }

#[repr(C)]
pub struct fi_msg_tagged {
    pub msg_iov: *const iovec,
    pub desc: *mut *mut c_void,
    pub iov_count: usize,
    pub addr: fi_addr_t,
    pub tag: u64,
    pub ignore: u64,
    pub context: *mut c_void,
    pub data: u64,
}

ops_of_endpoint! { fi_ops_tagged {
    recv(*mut c_void, usize, desc, fi_addr_t, u64, u64, context) -> isize;
    recvv(*const iovec, descs, usize, fi_addr_t, u64, u64, context) -> isize;
    recvmsg(*const fi_msg_tagged, u64) -> isize;
    send(*const c_void, usize, desc, fi_addr_t, u64, context) -> isize;
    sendv(*const iovec, descs, usize, fi_addr_t, u64, context) -> isize;
    sendmsg(*const fi_msg_tagged, u64) -> isize;
    inject(*const c_void, usize, fi_addr_t, u64) -> isize;
    senddata(*const c_void, usize, desc, u64, fi_addr_t, u64, context) -> isize;
    injectdata(*const c_void, usize, u64, fi_addr_t, u64) -> isize;
} }

#[repr(C)]
#[derive(Clone, Copy)]
pub struct fi_rma_iov {
    pub addr: u64,
    pub len: usize,
    pub key: u64,
}

#[repr(C)]
pub struct fi_msg_rma {
    pub msg_iov: *const iovec,
    pub desc: *mut *mut c_void,
    pub iov_count: usize,
    pub addr: fi_addr_t,
    pub rma_iov: *const fi_rma_iov,
    pub rma_iov_count: usize,
    pub context: *mut c_void,
    pub data: u64,
}

ops_of_endpoint! { fi_ops_rma {
    read(*mut c_void, usize, desc, fi_addr_t, u64, u64, context) -> isize;
    readv(*const iovec, descs, usize, fi_addr_t, u64, u64, context) -> isize;
    readmsg(*const fi_msg_rma, u64) -> isize;
    write(*const c_void, usize, desc, fi_addr_t, u64, u64, context) -> isize;
    writev(*const iovec, descs, usize, fi_addr_t, u64, u64, context) -> isize;
    writemsg(*const fi_msg_rma, u64) -> isize;
    inject(*const c_void, usize, fi_addr_t, u64, u64) -> isize;
    writedata(*const c_void, usize, desc, u64, fi_addr_t, u64, u64, context) -> isize;
    injectdata(*const c_void, usize, u64, fi_addr_t, u64, u64) -> isize;
} }

#[repr(C)]
#[derive(Clone, Copy)]
pub struct fi_ioc {
    pub addr: *mut c_void,
    pub count: usize,
}

#[repr(C)]
#[derive(Clone, Copy)]
pub struct fi_rma_ioc {
    pub addr: u64,
    pub count: usize,
    pub key: u64,
}

#[repr(C)]
pub struct fi_atomic_attr {
    pub count: usize,
    pub size: usize,
}

#[repr(C)]
pub struct fi_msg_atomic {
    pub msg_iov: *const fi_ioc,
    pub desc: *mut *mut c_void,
    pub iov_count: usize,
    pub addr: fi_addr_t,
    pub rma_iov: *const fi_rma_ioc,
    pub rma_iov_count: usize,
    pub datatype: c_int,
    pub op: c_int,
    pub context: *mut c_void,
    pub data: u64,
}

// The parameters of the atomic functions end in address, key, datatype, operation, context.
ops_of_endpoint! { fi_ops_atomic {
    write(*const c_void, usize, desc, fi_addr_t, u64, u64, c_int, c_int, context) -> isize;
    writev(*const fi_ioc, descs, usize, fi_addr_t, u64, u64, c_int, c_int, context) -> isize;
    writemsg(*const fi_msg_atomic, u64) -> isize;
    inject(*const c_void, usize, fi_addr_t, u64, u64, c_int, c_int) -> isize;
    readwrite(*const c_void, usize, desc, *mut c_void, desc,
        fi_addr_t, u64, u64, c_int, c_int, context) -> isize;
    readwritev(*const fi_ioc, descs, usize, *mut fi_ioc, descs, usize,
        fi_addr_t, u64, u64, c_int, c_int, context) -> isize;
    readwritemsg(*const fi_msg_atomic, *mut fi_ioc, descs, usize, u64) -> isize;
    compwrite(*const c_void, usize, desc, *const c_void, desc, *mut c_void, desc,
        fi_addr_t, u64, u64, c_int, c_int, context) -> isize;
    compwritev(*const fi_ioc, descs, usize, *const fi_ioc, descs, usize, *mut fi_ioc, descs, usize,
        fi_addr_t, u64, u64, c_int, c_int, context) -> isize;
    compwritemsg(*const fi_msg_atomic, *const fi_ioc, descs, usize, *mut fi_ioc, descs, usize,
        u64) -> isize;
    writevalid(c_int, c_int, *mut usize) -> c_int;
    readwritevalid(c_int, c_int, *mut usize) -> c_int;
    compwritevalid(c_int, c_int, *mut usize) -> c_int;
} }

#[repr(C)]
pub struct fi_ops_collective {
    pub size: usize,
    pub slots: [Absent; 11],
}
