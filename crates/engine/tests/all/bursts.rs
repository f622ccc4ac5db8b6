//! The time at which sends of a burst leave.

use crate::counted;

use counted::{side, Side};
use marline_engine::{AtomicKind, AtomicReq, Completion, IoVec, OpFlags, RemoteReq, SubmitError};
use std::sync::atomic::Ordering::Relaxed;

/// In a window of long messages without credit from the receiver only requests leave. They share
/// packets, since a packet for each costs the sender much time.
#[test]
fn requests_of_a_burst_share_packets() {
    let side = side(2);
    let mut bytes = vec![7; 64 << 10];
    for _ in 0..8 {
        side.post(&mut bytes).unwrap();
    }
    assert_eq!(side.sent.load(Relaxed), 8, "the first leave at once");
    for _ in 0..64 {
        side.post(&mut bytes).unwrap();
    }
    assert_eq!(side.sent.load(Relaxed), 8 + 64 / 8);
}

/// A remote operation of each kind on eight bytes at `addr`.
fn operate(side: &Side, kind: &str, addr: u64) -> Result<(), SubmitError> {
    let mut bytes = [7u8; 8];
    let iov = [IoVec {
        base: bytes.as_mut_ptr(),
        len: 8,
    }];
    let (dest, remote, context, flags) = (0, &[(addr, 8, 1)], 1, OpFlags::COMPLETION);
    let req = RemoteReq {
        dest,
        iov: &iov,
        remote,
        data: None,
        context,
        flags,
    };
    match kind {
        "put" => side.engine.put(side.ep, &req),
        "get" => side.engine.read(side.ep, &req),
        _ => {
            let (kind, datatype, op) = (AtomicKind::Plain, 6, 2);
            let atomic = AtomicReq {
                dest,
                kind,
                datatype,
                op,
                operands: &iov,
                compare: &[],
                result: &[],
                remote: &[(addr, 1, 1)],
                context,
                flags,
            };
            side.engine.atomic(side.ep, &atomic)
        }
    }
}

/// Short operations on a peer's memory share packets.
#[test]
fn remote_operations_of_a_burst_share_packets() {
    for kind in ["put", "get", "atomic"] {
        let side = side(2);
        let post = |n: u64| (0..n).for_each(|n| operate(&side, kind, 8 * n).unwrap());
        let sent = || side.sent.load(Relaxed);
        post(3);
        assert_eq!(sent(), 2, "{kind}: the first leave at once");
        let _ = side.engine.cq_read(side.cq, &mut [Completion::empty(); 1]);
        assert_eq!(sent(), 3, "{kind}: later ones with a poll");
        post(2 + 128);
        // Writes and atomics share an RPC, which waits for a poll while it has room.
        let _ = side.engine.cq_read(side.cq, &mut [Completion::empty(); 1]);
        let collected = sent() - (3 + 2);
        assert!((1..=128 / 4).contains(&collected), "{kind}: {collected}");
    }
}
