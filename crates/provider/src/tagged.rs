//! `fi_ops_tagged`: tagged messages, and looking at, claiming and dropping them.

use crate::ep::{ep_of, Incoming, Outgoing};
use crate::flags::INJECT;
use crate::sys::*;
use crate::sys_ep::*;
use std::ffi::c_void;
use std::mem::size_of;
use std::ptr::null_mut;

pub(crate) static OPS: fi_ops_tagged = fi_ops_tagged {
    size: size_of::<fi_ops_tagged>(),
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
    tag: u64,
    ignore: u64,
    context: *mut c_void,
) -> isize {
    // SAFETY: ours.
    let ep = unsafe { ep_of(ep) };
    let from = Incoming {
        source,
        tag: Some((tag, ignore)),
        context,
        flags: ep.rx_plain,
    };
    ep.recv_one(buf, len, from)
}

unsafe extern "C" fn recvv(
    ep: *mut fid_ep,
    iov: *const libc::iovec,
    _desc: *mut *mut c_void,
    count: usize,
    source: fi_addr_t,
    tag: u64,
    ignore: u64,
    context: *mut c_void,
) -> isize {
    // SAFETY: ours, and the application passes `count` entries.
    unsafe {
        let ep = ep_of(ep);
        let from = Incoming {
            source,
            tag: Some((tag, ignore)),
            context,
            flags: ep.rx_plain,
        };
        ep.recv_pieces(iov, count, Ok(from))
    }
}

unsafe extern "C" fn recvmsg(ep: *mut fid_ep, msg: *const fi_msg_tagged, flags: u64) -> isize {
    // SAFETY: ours, and the application passes a valid message.
    unsafe {
        let (ep, msg) = (ep_of(ep), &*msg);
        let (source, context, tag) = (msg.addr, msg.context, Some((msg.tag, msg.ignore)));
        let from = ep.rx.recvmsg(flags).map(|flags| Incoming {
            source,
            tag,
            context,
            flags,
        });
        ep.recv_pieces(msg.msg_iov, msg.iov_count, from)
    }
}

unsafe extern "C" fn send(
    ep: *mut fid_ep,
    buf: *const c_void,
    len: usize,
    _desc: *mut c_void,
    dest: fi_addr_t,
    tag: u64,
    context: *mut c_void,
) -> isize {
    // SAFETY: ours.
    let ep = unsafe { ep_of(ep) };
    let out = Outgoing {
        dest,
        tag: Some(tag),
        data: None,
        context,
        flags: ep.tx_plain,
    };
    ep.send_one(buf, len, out)
}

unsafe extern "C" fn sendv(
    ep: *mut fid_ep,
    iov: *const libc::iovec,
    _desc: *mut *mut c_void,
    count: usize,
    dest: fi_addr_t,
    tag: u64,
    context: *mut c_void,
) -> isize {
    // SAFETY: ours, and the application passes `count` entries.
    unsafe {
        let ep = ep_of(ep);
        let out = Outgoing {
            dest,
            tag: Some(tag),
            data: None,
            context,
            flags: ep.tx_plain,
        };
        ep.send_pieces(iov, count, Ok(out))
    }
}

unsafe extern "C" fn sendmsg(ep: *mut fid_ep, msg: *const fi_msg_tagged, flags: u64) -> isize {
    // SAFETY: ours, and the application passes a valid message.
    unsafe {
        let (ep, msg) = (ep_of(ep), &*msg);
        let data = (flags & FI_REMOTE_CQ_DATA != 0).then_some(msg.data);
        let (dest, context, tag) = (msg.addr, msg.context, Some(msg.tag));
        let out = ep.tx.sendmsg(flags).map(|flags| Outgoing {
            dest,
            tag,
            data,
            context,
            flags,
        });
        ep.send_pieces(msg.msg_iov, msg.iov_count, out)
    }
}

unsafe extern "C" fn inject(
    ep: *mut fid_ep,
    buf: *const c_void,
    len: usize,
    dest: fi_addr_t,
    tag: u64,
) -> isize {
    let out = Outgoing {
        dest,
        tag: Some(tag),
        data: None,
        context: null_mut(),
        flags: INJECT,
    };
    // SAFETY: ours.
    unsafe { ep_of(ep) }.send_one(buf, len, out)
}

unsafe extern "C" fn senddata(
    ep: *mut fid_ep,
    buf: *const c_void,
    len: usize,
    _desc: *mut c_void,
    data: u64,
    dest: fi_addr_t,
    tag: u64,
    context: *mut c_void,
) -> isize {
    // SAFETY: ours.
    let ep = unsafe { ep_of(ep) };
    let out = Outgoing {
        dest,
        tag: Some(tag),
        data: Some(data),
        context,
        flags: ep.tx_plain,
    };
    ep.send_one(buf, len, out)
}

unsafe extern "C" fn injectdata(
    ep: *mut fid_ep,
    buf: *const c_void,
    len: usize,
    data: u64,
    dest: fi_addr_t,
    tag: u64,
) -> isize {
    let (tag, data, context) = (Some(tag), Some(data), null_mut());
    let out = Outgoing {
        dest,
        tag,
        data,
        context,
        flags: INJECT,
    };
    // SAFETY: ours.
    unsafe { ep_of(ep) }.send_one(buf, len, out)
}
