//! `fi_ops_rma`: remote reads and writes. MPICH and Intel MPI use them even without FI_RMA: MPICH's
//! rendezvous reads or writes if one side's data is noncontiguous; Intel MPI reads large payloads
//! of active messages.

use crate::abi::ep::*;
use crate::abi::*;
use crate::base::boundary::Errno;
use crate::info::hints::RMA_IOV_LIMIT;
use crate::objects::ep::{ep_of, Ep};
use crate::ops::requests::{Access, Outgoing};
use std::ffi::c_void;
use std::mem::size_of;

pub(crate) static OPS: fi_ops_rma = fi_ops_rma {
    size: size_of::<fi_ops_rma>(),
    read,
    readv,
    readmsg,
    write,
    writev,
    writemsg,
    inject,
    writedata,
    injectdata,
};

/// An operation with one local and one remote segment.
///
/// # Safety
/// `ep` is ours, and the application's buffer has `len` bytes.
unsafe fn one(
    ep: *mut fid_ep,
    access: Access,
    (base, len): (*const c_void, usize),
    (address, key): (u64, u64),
    out: Outgoing,
) -> isize {
    let iov = libc::iovec {
        iov_base: base.cast_mut(),
        iov_len: len,
    };
    // SAFETY: the caller's promise, with one entry on the stack.
    unsafe { ep_of(ep).remote_pieces(access, (&iov, 1), &[(address, len, key)], Ok(out)) }
}

/// An operation with several local segments and one remote segment.
///
/// # Safety
/// `ep` is ours, and the application passes `count` entries.
unsafe fn pieces(
    ep: *mut fid_ep,
    access: Access,
    (iov, count): (*const libc::iovec, usize),
    (peer, address, key): (fi_addr_t, u64, u64),
    context: *mut c_void,
) -> isize {
    // SAFETY: the caller's promise.
    unsafe {
        let ep = ep_of(ep);
        let len = match ep.length(iov, count) {
            Ok(len) => len,
            Err(e) => return -(e.0 as isize),
        };
        let out = ep.outgoing(peer, None, None, context);
        ep.remote_pieces(access, (iov, count), &[(address, len, key)], Ok(out))
    }
}

/// `fi_readmsg` or `fi_writemsg`.
///
/// # Safety
/// `ep` is ours, and the application passes a valid message.
unsafe fn message(ep: *mut fid_ep, access: Access, msg: *const fi_msg_rma, flags: u64) -> isize {
    // SAFETY: the caller's promise.
    unsafe {
        let (ep, msg): (&Ep, _) = (ep_of(ep), &*msg);
        let count = msg.rma_iov_count;
        if count > RMA_IOV_LIMIT || (msg.rma_iov.is_null() && count > 0) {
            return -(Errno::INVAL.0 as isize);
        }
        let mut remote = [(0, 0, 0); RMA_IOV_LIMIT];
        for (i, slot) in remote[..count].iter_mut().enumerate() {
            let piece = &*msg.rma_iov.add(i);
            *slot = (piece.addr, piece.len, piece.key);
        }
        let data = (flags & FI_REMOTE_CQ_DATA != 0).then_some(msg.data);
        let out = ep.outgoing(msg.addr, None, data, msg.context);
        let options = match access {
            Access::Read => ep.tx.readmsg(flags),
            Access::Write => ep.tx.writemsg(flags),
        };
        let out = ep.flagged(out, options, flags);
        ep.remote_pieces(access, (msg.msg_iov, msg.iov_count), &remote[..count], out)
    }
}

/// The functions of one kind of access: with one local segment, with several, and with several
/// remote ones, too.
macro_rules! accesses {
    ($access:expr, $buffer:ty: $one:ident, $pieces:ident, $message:ident) => {
        unsafe extern "C" fn $one(
            ep: *mut fid_ep,
            buf: $buffer,
            len: usize,
            _desc: *mut c_void,
            peer: fi_addr_t,
            address: u64,
            key: u64,
            context: *mut c_void,
        ) -> isize {
            // SAFETY: as libfabric calls it.
            unsafe {
                let out = ep_of(ep).outgoing(peer, None, None, context);
                one(ep, $access, (buf, len), (address, key), out)
            }
        }

        unsafe extern "C" fn $pieces(
            ep: *mut fid_ep,
            iov: *const libc::iovec,
            _desc: *mut *mut c_void,
            count: usize,
            peer: fi_addr_t,
            address: u64,
            key: u64,
            context: *mut c_void,
        ) -> isize {
            let there = (peer, address, key);
            // SAFETY: as libfabric calls it.
            unsafe { pieces(ep, $access, (iov, count), there, context) }
        }

        unsafe extern "C" fn $message(
            ep: *mut fid_ep,
            msg: *const fi_msg_rma,
            flags: u64,
        ) -> isize {
            // SAFETY: as libfabric calls it.
            unsafe { message(ep, $access, msg, flags) }
        }
    };
}

accesses!(Access::Read, *mut c_void: read, readv, readmsg);
accesses!(Access::Write, *const c_void: write, writev, writemsg);

unsafe extern "C" fn inject(
    ep: *mut fid_ep,
    buf: *const c_void,
    len: usize,
    dest: fi_addr_t,
    address: u64,
    key: u64,
) -> isize {
    let out = Outgoing::injected(dest, None, None);
    // SAFETY: as libfabric calls it.
    unsafe { one(ep, Access::Write, (buf, len), (address, key), out) }
}

unsafe extern "C" fn writedata(
    ep: *mut fid_ep,
    buf: *const c_void,
    len: usize,
    _desc: *mut c_void,
    data: u64,
    dest: fi_addr_t,
    address: u64,
    key: u64,
    context: *mut c_void,
) -> isize {
    // SAFETY: as libfabric calls it.
    unsafe {
        let out = ep_of(ep).outgoing(dest, None, Some(data), context);
        one(ep, Access::Write, (buf, len), (address, key), out)
    }
}

unsafe extern "C" fn injectdata(
    ep: *mut fid_ep,
    buf: *const c_void,
    len: usize,
    data: u64,
    dest: fi_addr_t,
    address: u64,
    key: u64,
) -> isize {
    let out = Outgoing::injected(dest, None, Some(data));
    // SAFETY: as libfabric calls it.
    unsafe { one(ep, Access::Write, (buf, len), (address, key), out) }
}
