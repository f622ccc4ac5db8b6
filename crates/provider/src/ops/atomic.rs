//! `fi_ops_atomic`: atomic operations on remote memory, and queries of supported ones.

use crate::abi::ep::*;
use crate::abi::*;
use crate::base::boundary::{guard, Errno};
use crate::info::hints::{IOV_TAKEN, RMA_IOV_LIMIT};
use crate::objects::ep::{ep_of, Ep};
use crate::ops::requests::Outgoing;
use marline_engine::atomic::{is_valid, size_of_type};
use marline_engine::{atomic_max, AtomicKind, AtomicReq, IoVec};
use std::ffi::{c_int, c_void};
use std::mem::size_of;

pub(crate) static OPS: fi_ops_atomic = fi_ops_atomic {
    size: size_of::<fi_ops_atomic>(),
    write,
    writev,
    writemsg,
    inject,
    readwrite,
    readwritev,
    readwritemsg,
    compwrite,
    compwritev,
    compwritemsg,
    writevalid,
    readwritevalid,
    compwritevalid,
};

/// Up to [`IOV_TAKEN`] segments, lengths in bytes.
struct Bytes {
    pieces: [IoVec; IOV_TAKEN],
    count: usize,
}

impl Bytes {
    /// # Safety
    /// `ioc` has `count` entries (it may be null if there are none).
    unsafe fn of(ioc: *const fi_ioc, count: usize, size: usize) -> Result<Bytes, Errno> {
        let none = IoVec {
            base: std::ptr::null_mut(),
            len: 0,
        };
        let mut pieces = [none; IOV_TAKEN];
        if count > IOV_TAKEN || (ioc.is_null() && count > 0) {
            return Err(Errno::INVAL);
        }
        for (i, piece) in pieces[..count].iter_mut().enumerate() {
            // SAFETY: the caller's promise.
            let from = unsafe { &*ioc.add(i) };
            piece.base = from.addr.cast();
            piece.len = from.count.checked_mul(size).ok_or(Errno::INVAL)?;
        }
        Ok(Bytes { pieces, count })
    }

    fn as_slice(&self) -> &[IoVec] {
        &self.pieces[..self.count]
    }
}

/// Segments as the application passed them: pointer and count.
type Given = (*const fi_ioc, usize);

const NONE: Given = (std::ptr::null(), 0);

/// An operation with its parameters, independent of the call's variant.
struct AtomicRequest<'a> {
    kind: AtomicKind,
    datatype: c_int,
    op: c_int,
    /// Remote addresses, element counts and keys.
    there: &'a [(u64, usize, u64)],
    /// Segments beyond the operands: results of [`AtomicKind::Fetch`]; operands to compare with and
    /// results of [`AtomicKind::Compare`].
    further: &'a [Given],
}

/// Submits an operation; `out` is an error if the options were refused.
///
/// # Safety
/// `ep` is ours, and each given array has its count of entries.
unsafe fn submit(
    ep: *mut fid_ep,
    request: &AtomicRequest<'_>,
    operands: Given,
    out: Result<Outgoing, Errno>,
) -> isize {
    let (compare, result) = match *request.further {
        [] => (NONE, NONE),
        [result] => (NONE, result),
        [compare, result, ..] => (compare, result),
    };
    // SAFETY: the caller's promise.
    let ep: &Ep = unsafe { ep_of(ep) };
    guard(&ep.shared().health, || {
        let out = out?;
        let (datatype, op) = numbers(request.datatype, request.op)?;
        let size = size_of_type(datatype).ok_or(Errno::OPNOTSUPP)?;
        if !is_valid(request.kind, datatype, op) {
            return Err(Errno::OPNOTSUPP);
        }
        // SAFETY: the caller's promise.
        let (operands, compare, result) = unsafe {
            (
                Bytes::of(operands.0, operands.1, size)?,
                Bytes::of(compare.0, compare.1, size)?,
                Bytes::of(result.0, result.1, size)?,
            )
        };
        let req = AtomicReq {
            dest: out.dest,
            kind: request.kind,
            datatype,
            op,
            operands: operands.as_slice(),
            compare: compare.as_slice(),
            result: result.as_slice(),
            remote: request.there,
            context: out.context as usize,
            flags: out.flags,
        };
        let done = ep.engine().atomic(ep.id, &req);
        crate::base::log::trace!("{:?} {req:?} -> {done:?}", ep.id);
        done.map(|()| 0).map_err(Errno::from)
    })
}

fn numbers(datatype: c_int, op: c_int) -> Result<(u8, u8), Errno> {
    match (u8::try_from(datatype), u8::try_from(op)) {
        (Ok(datatype), Ok(op)) => Ok((datatype, op)),
        _ => Err(Errno::OPNOTSUPP),
    }
}

/// `fi_atomicmsg` and its variants.
///
/// # Safety
/// The conditions of [`submit`] hold, and `msg` is valid.
unsafe fn message(
    ep: *mut fid_ep,
    kind: AtomicKind,
    msg: *const fi_msg_atomic,
    further: &[Given],
    flags: u64,
) -> isize {
    // SAFETY: the caller's promise.
    unsafe {
        let (own, msg): (&Ep, _) = (ep_of(ep), &*msg);
        let count = msg.rma_iov_count;
        if count > RMA_IOV_LIMIT || (msg.rma_iov.is_null() && count > 0) {
            return -(Errno::INVAL.0 as isize);
        }
        let mut there = [(0, 0, 0); RMA_IOV_LIMIT];
        for (i, slot) in there[..count].iter_mut().enumerate() {
            let piece = &*msg.rma_iov.add(i);
            *slot = (piece.addr, piece.count, piece.key);
        }
        let request = AtomicRequest {
            kind,
            datatype: msg.datatype,
            op: msg.op,
            there: &there[..count],
            further,
        };
        let out = own.outgoing(msg.addr, None, None, msg.context);
        let out = own.flagged(out, own.tx.readmsg(flags), flags);
        submit(ep, &request, (msg.msg_iov, msg.iov_count), out)
    }
}

/// An operation with one remote segment.
///
/// # Safety
/// The conditions of [`submit`] hold.
unsafe fn pieces(
    ep: *mut fid_ep,
    (kind, datatype, op): (AtomicKind, c_int, c_int),
    operands: Given,
    further: &[Given],
    (address, key): (u64, u64),
    out: Outgoing,
) -> isize {
    let (ioc, count) = *further.last().unwrap_or(&operands);
    // SAFETY: the caller's promise.
    unsafe {
        let request = AtomicRequest {
            kind,
            datatype,
            op,
            there: &[(address, elements(ioc, count), key)],
            further,
        };
        submit(ep, &request, operands, Ok(out))
    }
}

fn lone(addr: *const c_void, count: usize) -> fi_ioc {
    fi_ioc {
        addr: addr.cast_mut(),
        count,
    }
}

/// # Safety
/// `ioc` has `count` entries.
unsafe fn elements(ioc: *const fi_ioc, count: usize) -> usize {
    if ioc.is_null() || count > IOV_TAKEN {
        return 0;
    }
    // SAFETY: the caller's promise.
    (0..count)
        .map(|i| unsafe { (*ioc.add(i)).count })
        .fold(0, usize::saturating_add)
}

unsafe extern "C" fn inject(
    ep: *mut fid_ep,
    buf: *const c_void,
    count: usize,
    dest: fi_addr_t,
    addr: u64,
    key: u64,
    datatype: c_int,
    op: c_int,
) -> isize {
    let (what, ioc) = ((AtomicKind::Plain, datatype, op), lone(buf, count));
    let out = Outgoing::injected(dest, None, None);
    // SAFETY: as libfabric calls it, with one entry on the stack.
    unsafe { pieces(ep, what, (&ioc, 1), &[], (addr, key), out) }
}

/// The functions of one kind of operation, and the names of their parameters for each further array
/// ([`AtomicRequest::further`]): its segments, their descriptors, their count.
macro_rules! operations {
    (
        $kind:expr; $one:ident, $pieces:ident, $message:ident, $valid:ident;
        $($further:ident($desc:ident, $count:ident): *$access:tt;)*
    ) => {
        unsafe extern "C" fn $one(
            ep: *mut fid_ep,
            buf: *const c_void,
            count: usize,
            _desc: *mut c_void,
            $($further: *$access c_void, $desc: *mut c_void,)*
            dest: fi_addr_t,
            addr: u64,
            key: u64,
            datatype: c_int,
            op: c_int,
            context: *mut c_void,
        ) -> isize {
            let (what, ioc) = (($kind, datatype, op), lone(buf, count));
            $(let $further = lone($further, count);)*
            // SAFETY: as libfabric calls it, with entries on the stack.
            unsafe {
                let out = ep_of(ep).outgoing(dest, None, None, context);
                pieces(ep, what, (&ioc, 1), &[$((&$further, 1)),*], (addr, key), out)
            }
        }

        unsafe extern "C" fn $pieces(
            ep: *mut fid_ep,
            ioc: *const fi_ioc,
            _desc: *mut *mut c_void,
            count: usize,
            $($further: *$access fi_ioc, $desc: *mut *mut c_void, $count: usize,)*
            dest: fi_addr_t,
            addr: u64,
            key: u64,
            datatype: c_int,
            op: c_int,
            context: *mut c_void,
        ) -> isize {
            let what = ($kind, datatype, op);
            // SAFETY: as libfabric calls it.
            unsafe {
                let out = ep_of(ep).outgoing(dest, None, None, context);
                pieces(ep, what, (ioc, count), &[$(($further, $count)),*], (addr, key), out)
            }
        }

        unsafe extern "C" fn $message(
            ep: *mut fid_ep,
            msg: *const fi_msg_atomic,
            $($further: *$access fi_ioc, $desc: *mut *mut c_void, $count: usize,)*
            flags: u64,
        ) -> isize {
            // SAFETY: as libfabric calls it.
            unsafe { message(ep, $kind, msg, &[$(($further, $count)),*], flags) }
        }

        unsafe extern "C" fn $valid(
            _: *mut fid_ep,
            datatype: c_int,
            op: c_int,
            count: *mut usize,
        ) -> c_int {
            valid($kind, datatype, op, count)
        }
    };
}

operations! {
    AtomicKind::Plain; write, writev, writemsg, writevalid;
}

operations! {
    AtomicKind::Fetch; readwrite, readwritev, readwritemsg, readwritevalid;
    results(_result_desc, result_count): *mut;
}

operations! {
    AtomicKind::Compare; compwrite, compwritev, compwritemsg, compwritevalid;
    compare(_compare_desc, compare_count): *const;
    results(_result_desc, result_count): *mut;
}

/// Bytes per element, and the maximum of elements per operation.
fn limits(kind: AtomicKind, datatype: c_int, op: c_int) -> Option<(usize, usize)> {
    let (datatype, op) = numbers(datatype, op).ok()?;
    let size = size_of_type(datatype).filter(|_| is_valid(kind, datatype, op))?;
    Some((size, atomic_max(kind, size)))
}

fn valid(kind: AtomicKind, datatype: c_int, op: c_int, count: *mut usize) -> c_int {
    let Some((_, most)) = limits(kind, datatype, op) else {
        return -libc::EOPNOTSUPP;
    };
    if !count.is_null() {
        // SAFETY: the application's, checked for null.
        unsafe { *count = most };
    }
    0
}

/// `fi_query_atomic`.
pub(crate) unsafe extern "C" fn query(
    _: *mut fid_domain,
    datatype: c_int,
    op: c_int,
    attr: *mut fi_atomic_attr,
    flags: u64,
) -> c_int {
    let kind = match flags {
        0 | FI_TAGGED => AtomicKind::Plain,
        FI_FETCH_ATOMIC => AtomicKind::Fetch,
        FI_COMPARE_ATOMIC => AtomicKind::Compare,
        _ => return -libc::EINVAL,
    };
    let Some((size, count)) = limits(kind, datatype, op).filter(|_| flags != FI_TAGGED) else {
        return -libc::EOPNOTSUPP;
    };
    if !attr.is_null() {
        // SAFETY: the application's, checked for null.
        unsafe { *attr = fi_atomic_attr { count, size } };
    }
    0
}
