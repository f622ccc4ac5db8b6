//! Remote reads and writes by every call and with every flag, and fences.

use crate::abi;

use crate::common;

use abi::ep::*;
use abi::*;
use common::pair::HANG;
use common::target::{bytes, Target, KEYS};
use std::ffi::c_void;
use std::ptr::null_mut;
use std::time::Instant;

const AGAIN: isize = -(libc::EAGAIN as isize);
const TOO_LONG: isize = -(libc::EMSGSIZE as isize);
const BAD_FLAGS: isize = -260;
/// The advertised inject size in bytes.
const INJECT_MAX: usize = 65_536;

fn piece(addr: u64, len: usize) -> [fi_rma_iov; 1] {
    let key = KEYS[0];
    [fi_rma_iov { addr, len, key }]
}

fn ops(t: &Target) -> &fi_ops_rma {
    // SAFETY: tables are static.
    unsafe { &*(*t.p.ep[0]).rma }
}

#[test]
fn an_injected_write_with_data_completes_at_the_target_only() {
    let t = Target::open();
    let mut ended = 0;
    for len in [0, 100, 5_000, INJECT_MAX] {
        let mut out = bytes(len);
        let sent = out.clone();
        let (ep, to, from) = (t.p.ep[0], 1, out.as_ptr().cast());
        // SAFETY: injected memory is free when the calls return.
        unsafe {
            let rc = (ops(&t).injectdata)(ep, from, len, 0x55, to, 10, KEYS[0]);
            assert_eq!(rc, 0);
            out.fill(0xee);
        }
        let (entry, _) = t.p.entry();
        assert_eq!((entry.data, entry.len), (0x55, len));
        assert_eq!(entry.flags, FI_RMA | FI_REMOTE_WRITE | FI_REMOTE_CQ_DATA);
        assert_eq!(t.memory[0][10..10 + len], sent);
        ended += 1;
        t.counted(ended, 0);
        assert_eq!(t.p.poll().err(), Some(AGAIN), "one entry");
    }
    t.close();
}

#[test]
fn too_long_to_inject_is_refused() {
    let t = Target::open();
    let (mut out, len) = (bytes(INJECT_MAX + 1), INJECT_MAX + 1);
    let (ep, from) = (t.p.ep[0], out.as_ptr().cast());
    // SAFETY: the call is refused and reads no memory.
    unsafe {
        assert_eq!((ops(&t).inject)(ep, from, len, 1, 0, KEYS[0]), TOO_LONG);
        let rc = (ops(&t).injectdata)(ep, from, len, 7, 1, 0, KEYS[0]);
        assert_eq!(rc, TOO_LONG);
    }
    let rc = t.remote(false, (&mut out, 1), &piece(0, len), (FI_INJECT, 0));
    assert_eq!(rc, TOO_LONG);
    t.counted(0, 0);
    assert!(t.memory[0].iter().all(|byte| *byte == 0));
    t.close();
}

/// With a queue bound by FI_SELECTIVE_COMPLETION, `fi_writemsg` and `fi_readmsg` write entries if
/// their flags request one, the other calls according to the endpoint's flags.
#[test]
fn entries_of_remote_accesses_are_written_on_request() {
    let t = Target::open();
    let levels = [
        0,
        FI_INJECT_COMPLETE,
        FI_TRANSMIT_COMPLETE,
        FI_DELIVERY_COMPLETE,
        FI_MORE,
        FI_FENCE,
        FI_DELIVERY_COMPLETE | FI_INJECT,
    ];
    let mut ended = 0;
    for len in [8, 30_000] {
        let mut local = bytes(len);
        for reads in [false, true] {
            for flags in levels {
                for entry in [0, FI_COMPLETION] {
                    let flags = (flags | entry, 0);
                    assert_eq!(t.remote(reads, (&mut local, 1), &piece(0, len), flags), 0);
                    ended += 1;
                    t.counted(ended, 0);
                    if entry != 0 {
                        assert_eq!(t.p.entry().0.op_context as usize, 91);
                    }
                    assert_eq!(t.p.poll().err(), Some(AGAIN));
                }
            }
        }
    }
    let mut local = bytes(8);
    for flags in [FI_TAGGED, FI_PEEK, FI_MULTI_RECV] {
        for reads in [false, true] {
            let rc = t.remote(reads, (&mut local, 1), &piece(0, 8), (flags, 0));
            assert_eq!(rc, BAD_FLAGS);
        }
    }
    // A read has no remote CQ data.
    let data = (FI_REMOTE_CQ_DATA, 5);
    let several = [piece(0, 4)[0], piece(50, 4)[0]];
    assert_eq!(
        t.remote(true, (&mut local, 1), &piece(0, 8), data),
        BAD_FLAGS
    );
    assert_eq!(t.remote(true, (&mut local, 1), &several, data), BAD_FLAGS);
    t.counted(ended, 0);
    t.close();
}

/// The calls without flags, of one segment and of several, use the endpoint's flags.
#[test]
fn plain_calls_write_and_read() {
    let t = Target::open();
    let (ep, key, none) = (t.p.ep[0], KEYS[0], null_mut());
    let context = 17 as *mut c_void;
    for len in [0, 9, 50_000] {
        let (mut out, mut back) = (bytes(len), vec![0u8; len]);
        let iov = |bytes: &mut [u8]| {
            let (a, b) = bytes.split_at_mut(bytes.len() / 3);
            [a, b].map(|part| libc::iovec {
                iov_base: part.as_mut_ptr().cast(),
                iov_len: part.len(),
            })
        };
        let (from, into) = (iov(&mut out), iov(&mut back));
        let (lone_from, lone_into) = (out.as_mut_ptr().cast(), back.as_mut_ptr().cast());
        for several in [false, true] {
            // SAFETY: the memory lives until the operations have ended.
            unsafe {
                let ops = ops(&t);
                let rc = match several {
                    true => (ops.writev)(ep, from.as_ptr(), none, 2, 1, 40, key, context),
                    false => (ops.write)(ep, lone_from, len, none.cast(), 1, 40, key, context),
                };
                assert_eq!(rc, 0);
                let (entry, _) = t.p.entry();
                assert_eq!(
                    (entry.op_context, entry.flags),
                    (context, FI_RMA | FI_WRITE)
                );
                let rc = match several {
                    true => (ops.readv)(ep, into.as_ptr(), none, 2, 1, 40, key, context),
                    false => (ops.read)(ep, lone_into, len, none.cast(), 1, 40, key, context),
                };
                assert_eq!(rc, 0);
                let (entry, _) = t.p.entry();
                assert_eq!((entry.op_context, entry.flags), (context, FI_RMA | FI_READ));
            }
            assert_eq!(t.memory[0][40..40 + len], out);
            assert_eq!(back, out);
            back.fill(0);
        }
    }
    // SAFETY: the memory lives until the write has ended.
    unsafe {
        let (out, len) = (bytes(70_000), 70_000);
        let rc = (ops(&t).writedata)(
            ep,
            out.as_ptr().cast(),
            len,
            none.cast(),
            0x77,
            1,
            0,
            key,
            context,
        );
        assert_eq!(rc, 0);
        let entries = [t.p.entry().0, t.p.entry().0];
        let there = entries
            .iter()
            .find(|entry| entry.flags & FI_REMOTE_CQ_DATA != 0);
        let there = there.expect("the target is told");
        assert_eq!((there.data, there.len), (0x77, len));
        assert!(entries.iter().any(|entry| entry.op_context == context));
        assert_eq!(t.memory[0][..len], out);
    }
    t.close();
}

/// A fenced write answers EAGAIN while a message is undelivered, and is accepted afterwards.
#[test]
fn a_fence_waits_for_messages() {
    let t = Target::open();
    let (message, mut into) = (vec![7u8; 300_000], vec![0u8; 300_000]);
    let (from, len, none) = (message.as_ptr().cast(), message.len(), null_mut());
    // SAFETY: the memory lives until the message was sent.
    let rc = unsafe { (t.p.tagged().send)(t.p.ep[0], from, len, none, 1, 3, null_mut()) };
    assert_eq!(rc, 0);
    let mut mark = bytes(8);
    let fenced = |mark: &mut [u8]| t.remote(false, (mark, 1), &piece(0, 8), (FI_FENCE, 0));
    for _ in 0..50 {
        assert_eq!(fenced(&mut mark), AGAIN);
        assert_eq!(t.p.poll().err(), Some(AGAIN));
    }
    t.p.trecv(&mut into, 3, 0, 19);
    let (start, mut ended) = (Instant::now(), 0);
    loop {
        let rc = fenced(&mut mark);
        ended += u32::from(t.p.poll().is_ok());
        if rc == 0 {
            break;
        }
        assert_eq!(rc, AGAIN);
        assert!(start.elapsed() < HANG, "the fence does not open");
    }
    t.counted(1, 0);
    (ended..2).for_each(|_| _ = t.p.entry());
    assert!(
        into == message,
        "it is there before what the fence let through"
    );
    assert_eq!(t.memory[0][..8], mark);
    t.close();
}
