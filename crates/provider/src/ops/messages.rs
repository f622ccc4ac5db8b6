//! `fi_ops_msg` and `fi_ops_tagged`: untagged and tagged messages. The functions of both tables
//! are the same but for the tag.

use crate::abi::ep::*;
use crate::abi::*;
use crate::objects::ep::ep_of;
use crate::ops::requests::Outgoing;
use std::ffi::c_void;
use std::mem::size_of;

/// A module with the table of one kind of message: the type of the table and of its message struct;
/// the parameters that a receive and a send have beyond the other kind, which are fields of the
/// message struct, too; the tag that they mean.
macro_rules! messages {
    (
        $(#[$about:meta])+ $kind:ident: $table:ident, $message:ident;
        recv($($recv:ident),*) = $recv_tag:expr; send($($send:ident),*) = $send_tag:expr;
    ) => {
        $(#[$about])+
        pub(crate) mod $kind {
            use super::*;

            pub(crate) static OPS: $table = $table {
                size: size_of::<$table>(),
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
                $($recv: u64,)*
                context: *mut c_void,
            ) -> isize {
                // SAFETY: ours.
                let ep = unsafe { ep_of(ep) };
                ep.recv_one(buf, len, ep.incoming(source, $recv_tag, context))
            }

            unsafe extern "C" fn recvv(
                ep: *mut fid_ep,
                iov: *const libc::iovec,
                _desc: *mut *mut c_void,
                count: usize,
                source: fi_addr_t,
                $($recv: u64,)*
                context: *mut c_void,
            ) -> isize {
                // SAFETY: ours, and the application passes `count` entries.
                unsafe {
                    let ep = ep_of(ep);
                    ep.recv_pieces(iov, count, Ok(ep.incoming(source, $recv_tag, context)))
                }
            }

            unsafe extern "C" fn recvmsg(
                ep: *mut fid_ep,
                msg: *const $message,
                flags: u64,
            ) -> isize {
                // SAFETY: ours, and the application passes a valid message.
                unsafe {
                    let (ep, msg) = (ep_of(ep), &*msg);
                    $(let $recv = msg.$recv;)*
                    let from = ep.incoming(msg.addr, $recv_tag, msg.context);
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
                $($send: u64,)*
                context: *mut c_void,
            ) -> isize {
                // SAFETY: ours.
                let ep = unsafe { ep_of(ep) };
                ep.send_one(buf, len, ep.outgoing(dest, $send_tag, None, context))
            }

            unsafe extern "C" fn sendv(
                ep: *mut fid_ep,
                iov: *const libc::iovec,
                _desc: *mut *mut c_void,
                count: usize,
                dest: fi_addr_t,
                $($send: u64,)*
                context: *mut c_void,
            ) -> isize {
                // SAFETY: ours, and the application passes `count` entries.
                unsafe {
                    let ep = ep_of(ep);
                    ep.send_pieces(iov, count, Ok(ep.outgoing(dest, $send_tag, None, context)))
                }
            }

            unsafe extern "C" fn sendmsg(
                ep: *mut fid_ep,
                msg: *const $message,
                flags: u64,
            ) -> isize {
                // SAFETY: ours, and the application passes a valid message.
                unsafe {
                    let (ep, msg) = (ep_of(ep), &*msg);
                    $(let $send = msg.$send;)*
                    let data = (flags & FI_REMOTE_CQ_DATA != 0).then_some(msg.data);
                    let out = ep.outgoing(msg.addr, $send_tag, data, msg.context);
                    let out = ep.flagged(out, ep.tx.sendmsg(flags), flags);
                    ep.send_pieces(msg.msg_iov, msg.iov_count, out)
                }
            }

            unsafe extern "C" fn inject(
                ep: *mut fid_ep,
                buf: *const c_void,
                len: usize,
                dest: fi_addr_t,
                $($send: u64,)*
            ) -> isize {
                // SAFETY: ours.
                unsafe { ep_of(ep) }.send_one(buf, len, Outgoing::injected(dest, $send_tag, None))
            }

            unsafe extern "C" fn senddata(
                ep: *mut fid_ep,
                buf: *const c_void,
                len: usize,
                _desc: *mut c_void,
                data: u64,
                dest: fi_addr_t,
                $($send: u64,)*
                context: *mut c_void,
            ) -> isize {
                // SAFETY: ours.
                let ep = unsafe { ep_of(ep) };
                ep.send_one(buf, len, ep.outgoing(dest, $send_tag, Some(data), context))
            }

            unsafe extern "C" fn injectdata(
                ep: *mut fid_ep,
                buf: *const c_void,
                len: usize,
                data: u64,
                dest: fi_addr_t,
                $($send: u64,)*
            ) -> isize {
                let out = Outgoing::injected(dest, $send_tag, Some(data));
                // SAFETY: ours.
                unsafe { ep_of(ep) }.send_one(buf, len, out)
            }
        }
    };
}

messages! {
    /// `fi_ops_msg`.
    msg: fi_ops_msg, fi_msg;
    recv() = None; send() = None;
}

messages! {
    /// `fi_ops_tagged`; peek, claim and discard are flags of its `recvmsg`.
    tagged: fi_ops_tagged, fi_msg_tagged;
    recv(tag, ignore) = Some((tag, ignore)); send(tag) = Some(tag);
}
