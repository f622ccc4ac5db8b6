//! `fi_ops_atomic`: atomic operations on remote memory, and queries of supported ones.

use crate::abi::ep::*;
use crate::abi::*;
use crate::base::boundary::{guard, Errno};
use crate::info::hints::{IOV_TAKEN, RMA_IOV_LIMIT};
use crate::objects::ep::{ep_of, Ep, Outgoing};
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
struct Asked<'a> {
    kind: AtomicKind,
    datatype: c_int,
    op: c_int,
    /// Remote addresses, element counts and keys.
    there: &'a [(u64, usize, u64)],
}

/// Submits an operation; `out` is an error if the options were refused.
///
/// # Safety
/// `ep` is ours, and each given array has its count of entries.
unsafe fn submit(
    ep: *mut fid_ep,
    asked: &Asked<'_>,
    [operands, compare, result]: [Given; 3],
    out: Result<Outgoing, Errno>,
) -> isize {
    // SAFETY: the caller's promise.
    let ep: &Ep = unsafe { ep_of(ep) };
    guard(&ep.shared().health, || {
        let out = out?;
        let (datatype, op) = numbers(asked.datatype, asked.op)?;
        let size = size_of_type(datatype).ok_or(Errno::OPNOTSUPP)?;
        if !is_valid(asked.kind, datatype, op) {
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
            kind: asked.kind,
            datatype,
            op,
            operands: operands.as_slice(),
            compare: compare.as_slice(),
            result: result.as_slice(),
            remote: asked.there,
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
/// As for [`submit`], and `msg` is valid.
unsafe fn message(
    ep: *mut fid_ep,
    kind: AtomicKind,
    msg: *const fi_msg_atomic,
    [compare, result]: [Given; 2],
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
        let asked = Asked {
            kind,
            datatype: msg.datatype,
            op: msg.op,
            there: &there[..count],
        };
        let out = own.outgoing(msg.addr, None, None, msg.context);
        let out = own.tx.readmsg(flags).map(|flags| out.with(flags));
        let out = out.and_then(|out| own.fenced(flags).map(|()| out));
        submit(
            ep,
            &asked,
            [(msg.msg_iov, msg.iov_count), compare, result],
            out,
        )
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

unsafe extern "C" fn write(
    ep: *mut fid_ep,
    buf: *const c_void,
    count: usize,
    _desc: *mut c_void,
    dest: fi_addr_t,
    addr: u64,
    key: u64,
    datatype: c_int,
    op: c_int,
    context: *mut c_void,
) -> isize {
    let ioc = lone(buf, count);
    let desc = std::ptr::null_mut();
    // SAFETY: as libfabric calls it, with one entry on the stack.
    unsafe { writev(ep, &ioc, desc, 1, dest, addr, key, datatype, op, context) }
}

unsafe extern "C" fn writev(
    ep: *mut fid_ep,
    ioc: *const fi_ioc,
    _desc: *mut *mut c_void,
    count: usize,
    dest: fi_addr_t,
    addr: u64,
    key: u64,
    datatype: c_int,
    op: c_int,
    context: *mut c_void,
) -> isize {
    // SAFETY: as libfabric calls it.
    unsafe {
        let asked = Asked {
            kind: AtomicKind::Plain,
            datatype,
            op,
            there: &[(addr, elements(ioc, count), key)],
        };
        let out = ep_of(ep).outgoing(dest, None, None, context);
        submit(ep, &asked, [(ioc, count), NONE, NONE], Ok(out))
    }
}

unsafe extern "C" fn writemsg(ep: *mut fid_ep, msg: *const fi_msg_atomic, flags: u64) -> isize {
    // SAFETY: as libfabric calls it.
    unsafe { message(ep, AtomicKind::Plain, msg, [NONE, NONE], flags) }
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
    let ioc = lone(buf, count);
    let asked = Asked {
        kind: AtomicKind::Plain,
        datatype,
        op,
        there: &[(addr, count, key)],
    };
    let out = Outgoing::injected(dest, None, None);
    // SAFETY: as libfabric calls it, with one entry on the stack.
    unsafe { submit(ep, &asked, [(&ioc, 1), NONE, NONE], Ok(out)) }
}

unsafe extern "C" fn readwrite(
    ep: *mut fid_ep,
    buf: *const c_void,
    count: usize,
    _desc: *mut c_void,
    result: *mut c_void,
    _result_desc: *mut c_void,
    dest: fi_addr_t,
    addr: u64,
    key: u64,
    datatype: c_int,
    op: c_int,
    context: *mut c_void,
) -> isize {
    let (ioc, mut back) = (lone(buf, count), lone(result, count));
    let desc = std::ptr::null_mut();
    // SAFETY: as libfabric calls it, with entries on the stack.
    unsafe {
        readwritev(
            ep, &ioc, desc, 1, &mut back, desc, 1, dest, addr, key, datatype, op, context,
        )
    }
}

unsafe extern "C" fn readwritev(
    ep: *mut fid_ep,
    ioc: *const fi_ioc,
    _desc: *mut *mut c_void,
    count: usize,
    results: *mut fi_ioc,
    _result_desc: *mut *mut c_void,
    result_count: usize,
    dest: fi_addr_t,
    addr: u64,
    key: u64,
    datatype: c_int,
    op: c_int,
    context: *mut c_void,
) -> isize {
    // SAFETY: as libfabric calls it.
    unsafe {
        let asked = Asked {
            kind: AtomicKind::Fetch,
            datatype,
            op,
            there: &[(addr, elements(results, result_count), key)],
        };
        let out = ep_of(ep).outgoing(dest, None, None, context);
        let given = [(ioc, count), NONE, (results.cast_const(), result_count)];
        submit(ep, &asked, given, Ok(out))
    }
}

unsafe extern "C" fn readwritemsg(
    ep: *mut fid_ep,
    msg: *const fi_msg_atomic,
    results: *mut fi_ioc,
    _result_desc: *mut *mut c_void,
    result_count: usize,
    flags: u64,
) -> isize {
    let given = [NONE, (results.cast_const(), result_count)];
    // SAFETY: as libfabric calls it.
    unsafe { message(ep, AtomicKind::Fetch, msg, given, flags) }
}

unsafe extern "C" fn compwrite(
    ep: *mut fid_ep,
    buf: *const c_void,
    count: usize,
    _desc: *mut c_void,
    compare: *const c_void,
    _compare_desc: *mut c_void,
    result: *mut c_void,
    _result_desc: *mut c_void,
    dest: fi_addr_t,
    addr: u64,
    key: u64,
    datatype: c_int,
    op: c_int,
    context: *mut c_void,
) -> isize {
    let (ioc, with, mut back) = (lone(buf, count), lone(compare, count), lone(result, count));
    let desc = std::ptr::null_mut();
    // SAFETY: as libfabric calls it, with entries on the stack.
    unsafe {
        compwritev(
            ep, &ioc, desc, 1, &with, desc, 1, &mut back, desc, 1, dest, addr, key, datatype, op,
            context,
        )
    }
}

unsafe extern "C" fn compwritev(
    ep: *mut fid_ep,
    ioc: *const fi_ioc,
    _desc: *mut *mut c_void,
    count: usize,
    compare: *const fi_ioc,
    _compare_desc: *mut *mut c_void,
    compare_count: usize,
    results: *mut fi_ioc,
    _result_desc: *mut *mut c_void,
    result_count: usize,
    dest: fi_addr_t,
    addr: u64,
    key: u64,
    datatype: c_int,
    op: c_int,
    context: *mut c_void,
) -> isize {
    // SAFETY: as libfabric calls it.
    unsafe {
        let asked = Asked {
            kind: AtomicKind::Compare,
            datatype,
            op,
            there: &[(addr, elements(results, result_count), key)],
        };
        let out = ep_of(ep).outgoing(dest, None, None, context);
        let back = (results.cast_const(), result_count);
        submit(
            ep,
            &asked,
            [(ioc, count), (compare, compare_count), back],
            Ok(out),
        )
    }
}

unsafe extern "C" fn compwritemsg(
    ep: *mut fid_ep,
    msg: *const fi_msg_atomic,
    compare: *const fi_ioc,
    _compare_desc: *mut *mut c_void,
    compare_count: usize,
    results: *mut fi_ioc,
    _result_desc: *mut *mut c_void,
    result_count: usize,
    flags: u64,
) -> isize {
    let given = [
        (compare, compare_count),
        (results.cast_const(), result_count),
    ];
    // SAFETY: as libfabric calls it.
    unsafe { message(ep, AtomicKind::Compare, msg, given, flags) }
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

unsafe extern "C" fn writevalid(
    _: *mut fid_ep,
    datatype: c_int,
    op: c_int,
    count: *mut usize,
) -> c_int {
    valid(AtomicKind::Plain, datatype, op, count)
}

unsafe extern "C" fn readwritevalid(
    _: *mut fid_ep,
    datatype: c_int,
    op: c_int,
    count: *mut usize,
) -> c_int {
    valid(AtomicKind::Fetch, datatype, op, count)
}

unsafe extern "C" fn compwritevalid(
    _: *mut fid_ep,
    datatype: c_int,
    op: c_int,
    count: *mut usize,
) -> c_int {
    valid(AtomicKind::Compare, datatype, op, count)
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
