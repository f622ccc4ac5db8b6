//! `fi_ops_msg`: untagged messages.

use crate::abi::ep::*;
use crate::abi::*;
use crate::objects::ep::{ep_of, Outgoing};
use std::ffi::c_void;
use std::mem::size_of;

pub(crate) static OPS: fi_ops_msg = fi_ops_msg {
    size: size_of::<fi_ops_msg>(),
    recv,
    recvv,
    recvmsg,
    send,
    sendv,
    sendmsg,
    inject,
    senddata,
    injectdata,
};

unsafe extern "C" fn recv(
    ep: *mut fid_ep,
    buf: *mut c_void,
    len: usize,
    _desc: *mut c_void,
    source: fi_addr_t,
    context: *mut c_void,
) -> isize {
    // SAFETY: ours.
    let ep = unsafe { ep_of(ep) };
    ep.recv_one(buf, len, ep.incoming(source, None, context))
}

unsafe extern "C" fn recvv(
    ep: *mut fid_ep,
    iov: *const libc::iovec,
    _desc: *mut *mut c_void,
    count: usize,
    source: fi_addr_t,
    context: *mut c_void,
) -> isize {
    // SAFETY: ours, and the application passes `count` entries.
    unsafe {
        let ep = ep_of(ep);
        ep.recv_pieces(iov, count, Ok(ep.incoming(source, None, context)))
    }
}

unsafe extern "C" fn recvmsg(ep: *mut fid_ep, msg: *const fi_msg, flags: u64) -> isize {
    // SAFETY: ours, and the application passes a valid message.
    unsafe {
        let (ep, msg) = (ep_of(ep), &*msg);
        let from = ep.incoming(msg.addr, None, msg.context);
        let from = ep.rx.recvmsg(flags).map(|flags| from.with(flags));
        ep.recv_pieces(msg.msg_iov, msg.iov_count, from)
    }
}

unsafe extern "C" fn send(
    ep: *mut fid_ep,
    buf: *const c_void,
    len: usize,
    _desc: *mut c_void,
    dest: fi_addr_t,
    context: *mut c_void,
) -> isize {
    // SAFETY: ours.
    let ep = unsafe { ep_of(ep) };
    ep.send_one(buf, len, ep.outgoing(dest, None, None, context))
}

unsafe extern "C" fn sendv(
    ep: *mut fid_ep,
    iov: *const libc::iovec,
    _desc: *mut *mut c_void,
    count: usize,
    dest: fi_addr_t,
    context: *mut c_void,
) -> isize {
    // SAFETY: ours, and the application passes `count` entries.
    unsafe {
        let ep = ep_of(ep);
        ep.send_pieces(iov, count, Ok(ep.outgoing(dest, None, None, context)))
    }
}

unsafe extern "C" fn sendmsg(ep: *mut fid_ep, msg: *const fi_msg, flags: u64) -> isize {
    // SAFETY: ours, and the application passes a valid message.
    unsafe {
        let (ep, msg) = (ep_of(ep), &*msg);
        let data = (flags & FI_REMOTE_CQ_DATA != 0).then_some(msg.data);
        let out = ep.outgoing(msg.addr, None, data, msg.context);
        let out = ep.tx.sendmsg(flags).map(|flags| out.with(flags));
        let out = out.and_then(|out| ep.fenced(flags).map(|()| out));
        ep.send_pieces(msg.msg_iov, msg.iov_count, out)
    }
}

unsafe extern "C" fn inject(
    ep: *mut fid_ep,
    buf: *const c_void,
    len: usize,
    dest: fi_addr_t,
) -> isize {
    // SAFETY: ours.
    unsafe { ep_of(ep) }.send_one(buf, len, Outgoing::injected(dest, None, None))
}

unsafe extern "C" fn senddata(
    ep: *mut fid_ep,
    buf: *const c_void,
    len: usize,
    _desc: *mut c_void,
    data: u64,
    dest: fi_addr_t,
    context: *mut c_void,
) -> isize {
    // SAFETY: ours.
    let ep = unsafe { ep_of(ep) };
    ep.send_one(buf, len, ep.outgoing(dest, None, Some(data), context))
}

unsafe extern "C" fn injectdata(
    ep: *mut fid_ep,
    buf: *const c_void,
    len: usize,
    data: u64,
    dest: fi_addr_t,
) -> isize {
    // SAFETY: ours.
    unsafe { ep_of(ep) }.send_one(buf, len, Outgoing::injected(dest, None, Some(data)))
}
