//! `fi_ops_msg`: untagged messages.

use crate::ep::{ep_of, Incoming, Outgoing};
use crate::flags::INJECT;
use crate::sys::*;
use crate::sys_ep::*;
use std::ffi::c_void;
use std::mem::size_of;
use std::ptr::null_mut;

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
    ep.recv_one(
        buf,
        len,
        Incoming {
            source,
            tag: None,
            context,
            flags: ep.rx_plain,
        },
    )
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
        let from = Incoming {
            source,
            tag: None,
            context,
            flags: ep.rx_plain,
        };
        ep.recv_pieces(iov, count, Ok(from))
    }
}

unsafe extern "C" fn recvmsg(ep: *mut fid_ep, msg: *const fi_msg, flags: u64) -> isize {
    // SAFETY: ours, and the application passes a valid message.
    unsafe {
        let (ep, msg) = (ep_of(ep), &*msg);
        let (source, context) = (msg.addr, msg.context);
        let from = ep.rx.recvmsg(flags).map(|flags| Incoming {
            source,
            tag: None,
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
    context: *mut c_void,
) -> isize {
    // SAFETY: ours.
    let ep = unsafe { ep_of(ep) };
    ep.send_one(
        buf,
        len,
        Outgoing {
            dest,
            tag: None,
            data: None,
            context,
            flags: ep.tx_plain,
        },
    )
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
        let out = Outgoing {
            dest,
            tag: None,
            data: None,
            context,
            flags: ep.tx_plain,
        };
        ep.send_pieces(iov, count, Ok(out))
    }
}

unsafe extern "C" fn sendmsg(ep: *mut fid_ep, msg: *const fi_msg, flags: u64) -> isize {
    // SAFETY: ours, and the application passes a valid message.
    unsafe {
        let (ep, msg) = (ep_of(ep), &*msg);
        let data = (flags & FI_REMOTE_CQ_DATA != 0).then_some(msg.data);
        let (dest, context) = (msg.addr, msg.context);
        let out = ep.tx.sendmsg(flags).map(|flags| Outgoing {
            dest,
            tag: None,
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
) -> isize {
    let out = Outgoing {
        dest,
        tag: None,
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
    context: *mut c_void,
) -> isize {
    // SAFETY: ours.
    let ep = unsafe { ep_of(ep) };
    let out = Outgoing {
        dest,
        tag: None,
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
) -> isize {
    let out = Outgoing {
        dest,
        tag: None,
        data: Some(data),
        context: null_mut(),
        flags: INJECT,
    };
    // SAFETY: ours.
    unsafe { ep_of(ep) }.send_one(buf, len, out)
}
