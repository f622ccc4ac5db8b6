//! `fi_ops_rma`: remote reads. FI_RMA is not offered, but Intel MPI reads large payloads with
//! `fi_readmsg` all the same.

use crate::boundary::Errno;
use crate::ep::ep_of;
use crate::info::IOV_LIMIT;
use crate::object::absent;
use crate::sys::*;
use crate::sys_ep::*;
use std::ffi::c_void;
use std::mem::size_of;

pub(crate) static OPS: fi_ops_rma = fi_ops_rma {
    size: size_of::<fi_ops_rma>(),
    read,
    readv,
    readmsg,
    writes: [absent; 6],
};

unsafe extern "C" fn read(
    ep: *mut fid_ep,
    buf: *mut c_void,
    len: usize,
    _desc: *mut c_void,
    source: fi_addr_t,
    address: u64,
    key: u64,
    context: *mut c_void,
) -> isize {
    let iov = libc::iovec {
        iov_base: buf,
        iov_len: len,
    };
    // SAFETY: ours, with one entry on the stack.
    unsafe {
        let ep = ep_of(ep);
        ep.read_pieces(
            &iov,
            1,
            &[(address, len, key)],
            Ok(ep.outgoing(source, None, None, context)),
        )
    }
}

unsafe extern "C" fn readv(
    ep: *mut fid_ep,
    iov: *const libc::iovec,
    _desc: *mut *mut c_void,
    count: usize,
    source: fi_addr_t,
    address: u64,
    key: u64,
    context: *mut c_void,
) -> isize {
    if count > IOV_LIMIT || (iov.is_null() && count > 0) {
        return -(Errno::INVAL.0 as isize);
    }
    let mut len = 0;
    for i in 0..count {
        // SAFETY: the application passes `count` entries.
        len += unsafe { (*iov.add(i)).iov_len };
    }
    // SAFETY: ours; as above.
    unsafe {
        let ep = ep_of(ep);
        ep.read_pieces(
            iov,
            count,
            &[(address, len, key)],
            Ok(ep.outgoing(source, None, None, context)),
        )
    }
}

unsafe extern "C" fn readmsg(ep: *mut fid_ep, msg: *const fi_msg_rma, flags: u64) -> isize {
    // SAFETY: ours, and the application passes a valid message.
    unsafe {
        let (ep, msg) = (ep_of(ep), &*msg);
        let count = msg.rma_iov_count;
        if count > IOV_LIMIT || (msg.rma_iov.is_null() && count > 0) {
            return -(Errno::INVAL.0 as isize);
        }
        let mut remote = [(0, 0, 0); IOV_LIMIT];
        for (i, slot) in remote[..count].iter_mut().enumerate() {
            let piece = &*msg.rma_iov.add(i);
            *slot = (piece.addr, piece.len, piece.key);
        }
        let out = ep.outgoing(msg.addr, None, None, msg.context);
        let flags = ep.tx.sendmsg(flags & !FI_READ);
        let out = flags.map(|flags| out.with(flags));
        ep.read_pieces(msg.msg_iov, msg.iov_count, &remote[..count], out)
    }
}
