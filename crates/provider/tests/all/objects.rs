//! The object tables: two endpoints of one domain communicate through the loaded library, called as
//! libfabric's inline functions call it.

use crate::abi;

use crate::common;

use abi::ep::*;
use abi::*;
use common::pair::{Pair, HANG};
use std::ffi::{c_int, c_void};
use std::mem::size_of;
use std::ptr::null_mut;
use std::time::Instant;

#[test]
fn tagged_message_with_data_and_source() {
    let p = Pair::open();
    let (body, mut buf) = ([5u8; 100], [0u8; 200]);
    p.trecv(&mut buf, 0xff00, 0xff, 11);
    let (from, context) = (body.as_ptr().cast(), 22 as *mut c_void);
    // SAFETY: both buffers live until the entries are there.
    let rc =
        unsafe { (p.tagged().senddata)(p.ep[0], from, 100, null_mut(), 77, 1, 0xff42, context) };
    assert_eq!(rc, 0);
    let (a, b) = (p.entry(), p.entry());
    let (sent, received) = if a.0.op_context as usize == 22 {
        (a, b)
    } else {
        (b, a)
    };
    assert_eq!(sent.0.op_context as usize, 22);
    assert_eq!(sent.0.flags & (FI_SEND | FI_TAGGED), FI_SEND | FI_TAGGED);
    assert_eq!(received.0.op_context as usize, 11);
    assert_eq!(
        (received.0.len, received.0.data, received.0.tag),
        (100, 77, 0xff42)
    );
    let wanted = FI_RECV | FI_TAGGED | FI_REMOTE_CQ_DATA;
    assert_eq!(received.0.flags & wanted, wanted);
    assert_eq!(received.1, 0, "source");
    assert_eq!(buf[..101], [&[5u8; 100][..], &[0]].concat());
    p.close();
}

#[test]
fn entries_are_written_only_on_request() {
    let p = Pair::open();
    let (mut a, mut b) = ([0u8; 8], [0u8; 8]);
    p.trecv(&mut a, 1, 0, 1);
    p.trecv(&mut b, 1, 0, 2);
    p.tinject(b"injected", 1);
    let body = *b"no entry";
    let iov = libc::iovec {
        iov_base: body.as_ptr().cast_mut().cast(),
        iov_len: 8,
    };
    let msg = fi_msg_tagged {
        msg_iov: &iov,
        desc: null_mut(),
        iov_count: 1,
        addr: 1,
        tag: 1,
        ignore: 0,
        context: null_mut(),
        data: 0,
    };
    // SAFETY: eager, and the buffers live to the end.
    assert_eq!(unsafe { (p.tagged().sendmsg)(p.ep[0], &msg, 0) }, 0);
    // The receives complete in order, and nothing else completes.
    assert_eq!(p.entry().0.op_context as usize, 1);
    assert_eq!(p.entry().0.op_context as usize, 2);
    assert_eq!((&a, &b), (b"injected", b"no entry"));
    assert_eq!(p.poll().unwrap_err(), -(libc::EAGAIN as isize));
    p.close();
}

#[test]
fn peek_claim_cancel_and_truncation() {
    let p = Pair::open();
    // A miss is an error entry, not a return code.
    assert_eq!(p.trecvmsg(&mut [], 3, 31, FI_PEEK | FI_COMPLETION), 0);
    let miss = p.error();
    assert_eq!((miss.err, miss.op_context as usize), (libc::ENOMSG, 31));
    // Peek until the message arrives, claim it, then receive the claimed message.
    p.tinject(b"claim me", 3);
    let start = Instant::now();
    let found = loop {
        assert!(start.elapsed() < HANG);
        assert_eq!(
            p.trecvmsg(&mut [], 3, 32, FI_PEEK | FI_CLAIM | FI_COMPLETION),
            0
        );
        match p.poll() {
            Ok(found) => break found.0,
            Err(_) => assert_eq!(p.error().err, libc::ENOMSG),
        }
    };
    assert_eq!(
        (found.len, found.tag, found.op_context as usize),
        (8, 3, 32)
    );
    let mut buf = [0u8; 8];
    assert_eq!(p.trecvmsg(&mut buf, 0, 32, FI_CLAIM | FI_COMPLETION), 0);
    assert_eq!((p.entry().0.len, &buf), (8, b"claim me"));
    // Truncation reports all attributes of the message.
    let mut short = [0u8; 3];
    p.trecv(&mut short, 4, 0, 41);
    p.tinject(b"too long", 4);
    let cut = p.error();
    assert_eq!((cut.err, cut.len, cut.olen, cut.tag), (265, 3, 5, 4));
    assert_eq!((cut.op_context as usize, &short), (41, b"too"));
    // Cancel: an entry for a posted receive, ENOENT otherwise.
    p.trecv(&mut buf, 5, 0, 51);
    // SAFETY: contexts are only compared.
    unsafe {
        let cancel = (*(*p.ep[1]).ops).cancel;
        assert_eq!(cancel(p.ep[1].cast(), 51 as *mut c_void), 0);
        assert_eq!(
            cancel(p.ep[1].cast(), 52 as *mut c_void),
            -(libc::ENOENT as isize)
        );
    }
    let cancelled = p.error();
    assert_eq!(
        (cancelled.err, cancelled.op_context as usize),
        (libc::ECANCELED, 51)
    );
    p.close();
}

#[test]
fn multi_receive_releases_its_buffer_once() {
    let p = Pair::open();
    let mut buf = [0u8; 64];
    let min: usize = 32;
    let iov = libc::iovec {
        iov_base: buf.as_mut_ptr().cast(),
        iov_len: 64,
    };
    let msg = fi_msg {
        msg_iov: &iov,
        desc: null_mut(),
        iov_count: 1,
        addr: FI_ADDR_UNSPEC,
        context: 61 as *mut c_void,
        data: 0,
    };
    // SAFETY: the buffers live to the end.
    unsafe {
        let setopt = (*(*p.ep[1]).ops).setopt;
        let (option, value) = (FI_OPT_MIN_MULTI_RECV, (&raw const min).cast());
        let fid = p.ep[1].cast();
        assert_eq!(
            setopt(fid, FI_OPT_ENDPOINT, option, value, size_of::<usize>()),
            0
        );
        assert_eq!(
            (p.msg().recvmsg)(p.ep[1], &msg, FI_MULTI_RECV | FI_COMPLETION),
            0
        );
        for body in [
            b"first message...",
            b"second message..",
            b"third: releases.",
        ] {
            assert_eq!((p.msg().inject)(p.ep[0], body.as_ptr().cast(), 16, 1), 0);
        }
    }
    for i in 0..3 {
        let (entry, _) = p.entry();
        assert_eq!((entry.op_context as usize, entry.len), (61, 16));
        assert_eq!(entry.flags & (FI_RECV | FI_MSG), FI_RECV | FI_MSG);
        assert_eq!(entry.flags & FI_MULTI_RECV != 0, i == 2, "entry {i}");
        assert_eq!(entry.buf as usize - buf.as_ptr() as usize, 16 * i);
    }
    assert_eq!(
        &buf[..48],
        b"first message...second message..third: releases."
    );
    p.close();
}

#[test]
fn remote_read_completes_and_counts() {
    let p = Pair::open();
    let (remote, mut local) = ([8u8; 5000], [0u8; 1000]);
    // SAFETY: all memory lives to the end.
    unsafe {
        let mut mr: *mut fid_mr = null_mut();
        let (base, key) = (remote.as_ptr().cast(), 1 << 63);
        let ops = &*(*p.domain).mr;
        let domain = p.domain.cast();
        let reg = |mr| {
            (ops.reg)(
                domain,
                base,
                5000,
                FI_REMOTE_READ,
                0,
                key,
                0,
                mr,
                null_mut(),
            )
        };
        assert_eq!(reg(&mut mr), 0);
        assert_eq!((*mr).key, key, "the caller's key");
        let mut again: *mut fid_mr = null_mut();
        assert_eq!(reg(&mut again), -266, "FI_ENOKEY");
        let iov = libc::iovec {
            iov_base: local.as_mut_ptr().cast(),
            iov_len: 1000,
        };
        let from = fi_rma_iov {
            addr: 4000,
            len: 1000,
            key,
        };
        let msg = fi_msg_rma {
            msg_iov: &iov,
            desc: null_mut(),
            iov_count: 1,
            addr: 1,
            rma_iov: &from,
            rma_iov_count: 1,
            context: 71 as *mut c_void,
            data: 0,
        };
        assert_eq!(((*(*p.ep[0]).rma).readmsg)(p.ep[0], &msg, FI_COMPLETION), 0);
        let (entry, _) = p.entry();
        assert_eq!(entry.op_context as usize, 71);
        assert_eq!(entry.flags & (FI_RMA | FI_READ), FI_RMA | FI_READ);
        assert_eq!(local, [8u8; 1000]);
        let counter = &*(*p.counter).ops;
        assert_eq!(
            ((counter.read)(p.counter), (counter.readerr)(p.counter)),
            (1, 0)
        );
        assert_eq!((counter.wait)(p.counter, 1, 0), 0);
        assert_eq!((counter.wait)(p.counter, 2, 0), -libc::ETIMEDOUT);
        assert_eq!(common::close(mr.cast()), 0);
    }
    p.close();
}

/// `fi_cntr_wait` reports each unread error, including errors added by the application, and no
/// error that the application cleared.
#[test]
fn counters_tell_of_each_error_once() {
    const AVAIL: c_int = -259;
    let p = Pair::open();
    // SAFETY: a counter of the provider.
    unsafe {
        let counter = &*(*p.counter).ops;
        let wait = || (counter.wait)(p.counter, 1, 0);
        assert_eq!((counter.adderr)(p.counter, 1), 0);
        assert_eq!([wait(), wait()], [AVAIL, -libc::ETIMEDOUT]);
        assert_eq!((counter.seterr)(p.counter, 0), 0);
        assert_eq!(wait(), -libc::ETIMEDOUT, "none is left");
        assert_eq!((counter.adderr)(p.counter, 1), 0);
        assert_eq!(wait(), AVAIL, "one after they were taken back");
    }
    p.close();
}

#[test]
fn default_operation_flags_can_be_changed() {
    let p = Pair::open();
    let ep: *mut fid = p.ep[0].cast();
    // SAFETY: these commands take a u64.
    unsafe {
        let control = (*(*ep).ops).control;
        let flags = |command: c_int, word: &mut u64| control(ep, command, (&raw mut *word).cast());
        let mut word = FI_TRANSMIT;
        assert_eq!(flags(FI_GETOPSFLAG, &mut word), 0);
        assert_eq!(word, FI_COMPLETION);
        let mut word = FI_TRANSMIT | FI_COMPLETION | FI_DELIVERY_COMPLETE;
        assert_eq!(flags(FI_SETOPSFLAG, &mut word), 0);
        let mut word = FI_TRANSMIT;
        assert_eq!(flags(FI_GETOPSFLAG, &mut word), 0);
        assert_eq!(word, FI_COMPLETION | FI_DELIVERY_COMPLETE);
    }
    p.close();
}

#[test]
fn a_claim_with_discard_reports_the_dropped_message() {
    let p = Pair::open();
    let body = [3u8; 40];
    let from = body.as_ptr().cast();
    // SAFETY: the buffer is free when the call returns.
    let rc = unsafe { (p.tagged().injectdata)(p.ep[0], from, 40, 99, 1, 7) };
    assert_eq!(rc, 0);
    let start = Instant::now();
    loop {
        assert!(start.elapsed() < HANG);
        let flags = FI_PEEK | FI_CLAIM | FI_COMPLETION;
        assert_eq!(p.trecvmsg(&mut [], 7, 70, flags), 0);
        match p.poll() {
            Ok(_) => break,
            Err(_) => assert_eq!(p.error().err, libc::ENOMSG),
        }
    }
    // Tag and address are ignored for a claimed message.
    let flags = FI_CLAIM | FI_DISCARD | FI_COMPLETION;
    assert_eq!(p.trecvmsg(&mut [], 0, 70, flags), 0);
    let (entry, source) = p.entry();
    assert_eq!((entry.op_context as usize, source), (70, 0));
    assert_eq!((entry.len, entry.data, entry.tag), (40, 99, 7));
    let wanted = FI_RECV | FI_TAGGED | FI_REMOTE_CQ_DATA;
    assert_eq!(entry.flags & wanted, wanted);
    // The message is gone.
    assert_eq!(p.trecvmsg(&mut [], 7, 71, FI_PEEK | FI_COMPLETION), 0);
    assert_eq!(p.error().err, libc::ENOMSG);
    p.close();
}

/// Registers memory for this access with a key.
fn registered(p: &Pair, memory: &mut [u8], access: u64, key: u64) -> *mut fid_mr {
    let mut mr: *mut fid_mr = null_mut();
    let (base, len, domain) = (memory.as_mut_ptr().cast(), memory.len(), p.domain.cast());
    // SAFETY: the caller keeps the memory until the region is closed.
    let rc = unsafe {
        ((*(*p.domain).mr).reg)(domain, base, len, access, 0, key, 0, &mut mr, null_mut())
    };
    assert_eq!(rc, 0);
    mr
}

fn rma(p: &Pair) -> &fi_ops_rma {
    // SAFETY: tables are static.
    unsafe { &*(*p.ep[0]).rma }
}

#[test]
fn accesses_beyond_the_registered_rights_fail() {
    let p = Pair::open();
    let (mut remote, mut local) = ([8u8; 500], [1u8; 500]);
    let (to, none) = (local.as_mut_ptr().cast(), null_mut());
    for (key, access) in [(1, 0), (2, FI_REMOTE_WRITE), (3, FI_REMOTE_READ)] {
        let mr = registered(&p, &mut remote, access, key);
        let (reads, writes) = (access == FI_REMOTE_READ, access == FI_REMOTE_WRITE);
        // SAFETY: all memory lives to the end.
        unsafe {
            let context = 81 as *mut c_void;
            assert_eq!(
                (rma(&p).read)(p.ep[0], to, 500, none, 1, 0, key, context),
                0
            );
            match reads {
                true => assert_eq!(p.entry().0.op_context, context),
                false => assert_eq!(p.error().err, libc::EACCES, "access {access:#x}"),
            }
            let before = [4u8; 100];
            let from = before.as_ptr().cast();
            assert_eq!(
                (rma(&p).write)(p.ep[0], from, 100, none, 1, 400, key, context),
                0
            );
            match writes {
                true => assert_eq!(p.entry().0.op_context, context),
                false => assert_eq!(p.error().err, libc::EACCES, "access {access:#x}"),
            }
            assert_eq!(common::close(mr.cast()), 0);
        }
    }
    assert_eq!(remote, [[8u8; 400].as_slice(), &[4; 100]].concat()[..]);
    assert_eq!(local, remote, "read after it was written");
    p.close();
}

#[test]
fn remote_writes_complete_and_count() {
    let p = Pair::open();
    let (mut remote, local) = (vec![0u8; 200_000], vec![9u8; 100_000]);
    let mr = registered(&p, &mut remote, FI_REMOTE_WRITE, 5);
    let iov = libc::iovec {
        iov_base: local.as_ptr().cast_mut().cast(),
        iov_len: local.len(),
    };
    let to = fi_rma_iov {
        addr: 100_000,
        len: local.len(),
        key: 5,
    };
    let msg = fi_msg_rma {
        msg_iov: &iov,
        desc: null_mut(),
        iov_count: 1,
        addr: 1,
        rma_iov: &to,
        rma_iov_count: 1,
        context: 91 as *mut c_void,
        data: 0,
    };
    let no = |error: c_int| -(error as isize);
    // SAFETY: all memory lives to the end.
    unsafe {
        let writemsg = rma(&p).writemsg;
        // Flags unsupported for writes are refused at once.
        for flags in [FI_TAGGED, FI_PEEK, FI_MULTI_RECV] {
            assert_eq!(writemsg(p.ep[0], &msg, flags), no(260), "{flags:#x}");
        }
        assert_eq!(writemsg(p.ep[0], &msg, FI_COMPLETION), 0);
        let (entry, _) = p.entry();
        assert_eq!(entry.op_context as usize, 91);
        assert_eq!(entry.flags & (FI_RMA | FI_WRITE), FI_RMA | FI_WRITE);
        assert_eq!(remote, [vec![0u8; 100_000], local.clone()].concat());
        // A write without an entry is counted, too.
        assert_eq!(writemsg(p.ep[0], &msg, 0), 0);
        let counter = &*(*p.counter).ops;
        let ms = HANG.as_millis() as c_int;
        assert_eq!((counter.wait)(p.counter, 2, ms), 0);
        assert_eq!((counter.readerr)(p.counter), 0);
        assert_eq!(common::close(mr.cast()), 0);
        // The region is closed: the write fails, with an entry although none was requested.
        assert_eq!(writemsg(p.ep[0], &msg, 0), 0);
        assert_eq!(p.error().err, libc::EACCES);
        assert_eq!((counter.readerr)(p.counter), 1);
    }
    p.close();
}

#[test]
fn match_complete_is_reported_when_a_receive_matched() {
    let p = Pair::open();
    for (n, len) in [0, 10, 70_000].into_iter().enumerate() {
        let (body, mut buf) = (vec![n as u8; len], vec![0xee_u8; len]);
        let iov = libc::iovec {
            iov_base: body.as_ptr().cast_mut().cast(),
            iov_len: len,
        };
        let msg = fi_msg_tagged {
            msg_iov: &iov,
            desc: null_mut(),
            iov_count: 1,
            addr: 1,
            tag: 20,
            ignore: 0,
            context: 21 as *mut c_void,
            data: 0,
        };
        let flags = FI_COMPLETION | FI_MATCH_COMPLETE | FI_DELIVERY_COMPLETE;
        // SAFETY: the buffers live to the end.
        unsafe {
            assert_eq!((p.tagged().sendmsg)(p.ep[0], &msg, flags), 0);
            // A later message has arrived, but no receive matched the first.
            let mut behind = [0u8; 1];
            p.tinject(b"x", 30);
            p.trecv(&mut behind, 30, 0, 31);
            assert_eq!(p.entry().0.op_context as usize, 31);
            assert_eq!(p.poll().unwrap_err(), -(libc::EAGAIN as isize));
        }
        p.trecv(&mut buf, 20, 0, 22);
        let mut ends = [p.entry(), p.entry()].map(|(e, _)| e.op_context as usize);
        ends.sort_unstable();
        assert_eq!(ends, [21, 22], "{len} bytes");
        assert_eq!(buf, body);
    }
    p.close();
}

/// The buffer is free on return; the entry comes after delivery to the peer.
#[test]
fn an_injected_message_completes_at_the_requested_level() {
    let p = Pair::open();
    let mut body = [5u8; 8];
    let iov = libc::iovec {
        iov_base: body.as_mut_ptr().cast(),
        iov_len: 8,
    };
    let msg = fi_msg {
        msg_iov: &iov,
        desc: null_mut(),
        iov_count: 1,
        addr: 1,
        context: 41 as *mut c_void,
        data: 0,
    };
    let flags = FI_COMPLETION | FI_INJECT | FI_MATCH_COMPLETE;
    // SAFETY: the buffers live to the end.
    unsafe {
        assert_eq!((p.msg().sendmsg)(p.ep[0], &msg, flags), 0);
        body.fill(6);
        let mut buf = [0u8; 8];
        for _ in 0..1_000 {
            assert_eq!(p.poll().unwrap_err(), -(libc::EAGAIN as isize));
        }
        let to = buf.as_mut_ptr().cast();
        let (any, context) = (FI_ADDR_UNSPEC, 42 as *mut c_void);
        assert_eq!((p.msg().recv)(p.ep[1], to, 8, null_mut(), any, context), 0);
        let mut ends = [p.entry(), p.entry()].map(|(e, _)| e.op_context as usize);
        ends.sort_unstable();
        assert_eq!((ends, buf), ([41, 42], [5; 8]));
    }
    p.close();
}
