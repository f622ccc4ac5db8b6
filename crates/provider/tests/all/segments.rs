//! Remote reads and writes of several segments of the peer's memory.

use crate::abi;

use crate::common;

use abi::ep::*;
use abi::*;
use common::pair::{Pair, HANG};
use common::target::{bytes, Target, KEYS};
use std::ffi::{c_int, c_void};
use std::ptr::null_mut;

/// Region and length of each segment: one packet, several packets, none.
const PIECES: [(usize, usize); 5] = [(0, 300), (1, 70_000), (0, 0), (1, 1), (0, 33_000)];

/// The segments, each directly after the last one of its region, and their total length.
fn pieces() -> (Vec<fi_rma_iov>, usize) {
    let mut ends = [1_000; 2];
    let all = PIECES.map(|(region, len)| {
        let addr = ends[region] as u64;
        ends[region] += len;
        let key = KEYS[region];
        fi_rma_iov { addr, len, key }
    });
    (all.into(), PIECES.iter().map(|(_, len)| len).sum())
}

/// The bytes of the segments in order.
fn gathered(memory: &[Vec<u8>; 2]) -> Vec<u8> {
    let (pieces, _) = pieces();
    let of = |piece: &fi_rma_iov| {
        let region = KEYS.iter().position(|key| *key == piece.key).unwrap();
        memory[region][piece.addr as usize..][..piece.len].to_vec()
    };
    pieces.iter().flat_map(of).collect()
}

#[test]
fn several_pieces_are_one_operation() {
    for to in [1, 0] {
        let t = Target::open();
        let (pieces, len) = pieces();
        let (mut out, mut back) = (bytes(len), vec![0u8; len]);
        assert_eq!(
            t.remote(false, (&mut out, to), &pieces, (FI_COMPLETION, 0)),
            0
        );
        let (entry, _) = t.p.entry();
        assert_eq!(
            (entry.op_context as usize, entry.flags),
            (91, FI_RMA | FI_WRITE)
        );
        assert_eq!(gathered(&t.memory), out, "to {to}");
        let untouched = t.memory.iter().flatten().filter(|b| **b == 0).count();
        assert_eq!(untouched, 400_000 - len, "nothing else is written");
        assert_eq!(
            t.remote(true, (&mut back, to), &pieces, (FI_COMPLETION, 0)),
            0
        );
        let (entry, _) = t.p.entry();
        assert_eq!(
            (entry.op_context as usize, entry.flags),
            (91, FI_RMA | FI_READ)
        );
        assert_eq!(back, out, "from {to}");
        t.counted(2, 0);
        assert!(t.p.poll().is_err(), "one entry each");
        t.close();
    }
}

/// The remote CQ data is delivered after all bytes.
#[test]
fn data_comes_after_all_pieces() {
    let t = Target::open();
    let (pieces, len) = pieces();
    let mut out = bytes(len);
    let flags = (FI_REMOTE_CQ_DATA, 0x1234);
    assert_eq!(t.remote(false, (&mut out, 1), &pieces, flags), 0);
    let (entry, _) = t.p.entry();
    assert_eq!((entry.data, entry.len), (0x1234, len));
    assert_ne!(entry.flags & FI_REMOTE_CQ_DATA, 0);
    assert_eq!(gathered(&t.memory), out);
    t.counted(1, 0);
    t.close();
}

#[test]
fn an_injected_write_leaves_its_memory_at_once() {
    let t = Target::open();
    let piece = |at: usize, len| fi_rma_iov {
        addr: at as u64,
        len,
        key: KEYS[at % 2],
    };
    let pieces = [piece(10, 40), piece(11, 5_000), piece(100, 7)];
    let mut out = bytes(5_047);
    let sent = out.clone();
    let flags = FI_INJECT | FI_COMPLETION;
    assert_eq!(t.remote(false, (&mut out, 1), &pieces, (flags, 0)), 0);
    out.fill(0xee);
    assert_eq!(
        t.p.entry().0.op_context as usize,
        91,
        "its entry was asked for"
    );
    t.counted(1, 0);
    assert_eq!(t.memory[0][10..50], sent[..40]);
    assert_eq!(t.memory[1][11..5_011], sent[40..5_040]);
    assert_eq!(t.memory[0][100..107], sent[5_040..]);
    t.close();
}

/// An invalid key fails the operation once, in whichever segment.
#[test]
fn a_piece_that_is_refused_fails_the_operation_once() {
    let t = Target::open();
    let (mut errors, mut local) = (0, bytes(pieces().1));
    for reads in [false, true] {
        for bad in [0, 1, 4] {
            let (mut pieces, _) = pieces();
            pieces[bad].key = 99;
            assert_eq!(
                t.remote(reads, (&mut local, 1), &pieces, (FI_COMPLETION, 0)),
                0
            );
            let told = t.p.error();
            assert_eq!((told.err, told.op_context as usize), (libc::EACCES, 91));
            errors += 1;
            t.counted(0, errors);
        }
    }
    assert!(t.p.poll().is_err(), "one entry each");
    t.close();
}

#[test]
fn too_many_pieces_and_wrong_lengths_are_refused() {
    let t = Target::open();
    let mut local = bytes(90);
    let piece = |len| fi_rma_iov {
        addr: 0,
        len,
        key: KEYS[0],
    };
    let refused = -(libc::EINVAL as isize);
    for lengths in [
        vec![10; 9],
        vec![45, 44],
        vec![45, 46],
        vec![usize::MAX, 91],
        vec![],
    ] {
        let pieces: Vec<fi_rma_iov> = lengths.iter().map(|len| piece(*len)).collect();
        for reads in [false, true] {
            let rc = t.remote(reads, (&mut local, 1), &pieces, (0, 0));
            assert_eq!(rc, refused, "{lengths:?}");
        }
    }
    t.counted(0, 0);
    t.close();
}

/// Counters of remote reads and writes at an endpoint.
fn counters_there(p: &Pair, ep: *mut fid_ep) -> [*mut fid_cntr; 2] {
    [FI_REMOTE_READ, FI_REMOTE_WRITE].map(|what| {
        let mut counter = null_mut();
        // SAFETY: objects of the provider.
        unsafe {
            let mut attr: fi_cntr_attr = std::mem::zeroed();
            let open = (*(*p.domain).ops).cntr_open;
            assert_eq!(open(p.domain, &mut attr, &mut counter, null_mut()), 0);
            let bind = (*(*ep.cast::<fid>()).ops).bind;
            assert_eq!(bind(ep.cast(), counter.cast(), what), 0);
        }
        counter
    })
}

/// Waits for a count and checks that it is not exceeded.
fn reaches(counter: *mut fid_cntr, count: u64) {
    // SAFETY: an object of the provider.
    unsafe {
        let ops = &*(*counter).ops;
        assert_eq!((ops.wait)(counter, count, HANG.as_millis() as c_int), 0);
        assert_eq!((ops.read)(counter), count);
    }
}

/// FI_RMA_EVENT: the peer counts each operation once, when complete, however it is transferred.
#[test]
fn the_peer_counts_an_operation_once() {
    for to in [1, 0] {
        let t = Target::open();
        let [reads, writes] = counters_there(&t.p, t.p.ep[to]);
        let piece = |at: usize, len| fi_rma_iov {
            addr: at as u64,
            len,
            key: KEYS[at % 2],
        };
        let short = vec![piece(10, 40), piece(11, 50), piece(100, 7)];
        let mixed = vec![
            piece(10, 40),
            piece(11, 50_000),
            piece(100, 7),
            piece(60_001, 9_000),
        ];
        let (long, data) = (vec![piece(10, 90_000)], FI_REMOTE_CQ_DATA);
        let (mut written, mut read) = (0, 0);
        for (pieces, flags) in [
            (&short, 0),
            (&mixed, 0),
            (&short, data),
            (&mixed, data),
            (&long, data),
            (&long, 0),
        ] {
            let mut out = bytes(pieces.iter().map(|piece| piece.len).sum());
            let peer = to as fi_addr_t;
            assert_eq!(t.remote(false, (&mut out, peer), pieces, (flags, 0x77)), 0);
            written += 1;
            reaches(writes, written);
            let mut from = 0;
            for piece in pieces {
                let there = &t.memory[piece.key as usize - KEYS[0] as usize];
                let range = piece.addr as usize..piece.addr as usize + piece.len;
                assert!(there[range] == out[from..from + piece.len]);
                from += piece.len;
            }
            t.counted(written + read, 0);
            assert_eq!(t.remote(true, (&mut out, peer), pieces, (0, 0)), 0);
            read += 1;
            reaches(reads, read);
            t.counted(written + read, 0);
        }
        reaches(writes, written);
        for counter in [reads, writes] {
            // SAFETY: closed once.
            assert_eq!(unsafe { common::close(counter.cast()) }, 0);
        }
        t.close();
    }
}

/// Atomics longer than a packet are one operation, too.
#[test]
fn the_peer_counts_a_long_atomic_once() {
    let (fi_uint8, fi_sum) = (1, 2);
    let t = Target::open();
    let [reads, writes] = counters_there(&t.p, t.p.ep[1]);
    let mut out = bytes(30_000);
    let iov = fi_ioc {
        addr: out.as_mut_ptr().cast(),
        count: out.len(),
    };
    let to = fi_rma_ioc {
        addr: 1_000,
        count: out.len(),
        key: KEYS[0],
    };
    let msg = fi_msg_atomic {
        msg_iov: &iov,
        desc: null_mut(),
        iov_count: 1,
        addr: 1,
        rma_iov: &to,
        rma_iov_count: 1,
        datatype: fi_uint8,
        op: fi_sum,
        context: 91 as *mut c_void,
        data: 0,
    };
    for count in 1..=3 {
        // SAFETY: all memory lives until the operation has ended.
        unsafe {
            let writemsg = (*(*t.p.ep[0]).atomic).writemsg;
            assert_eq!(writemsg(t.p.ep[0], &msg, 0), 0);
        }
        reaches(writes, count);
        let sum = |byte: &u8| byte.wrapping_mul(count as u8);
        let wanted: Vec<u8> = out.iter().map(sum).collect();
        assert!(t.memory[0][1_000..31_000] == wanted);
        t.counted(count, 0);
    }
    reaches(reads, 0);
    for counter in [reads, writes] {
        // SAFETY: closed once.
        assert_eq!(unsafe { common::close(counter.cast()) }, 0);
    }
    t.close();
}

/// A region of several pieces is contiguous for peers.
#[test]
fn a_region_of_pieces_is_written_and_read_across_them() {
    let t = Target::open();
    let mut parts = [vec![0u8; 100], vec![0u8; 40_000], vec![0u8; 7]];
    let iov = parts.each_mut().map(|part| libc::iovec {
        iov_base: part.as_mut_ptr().cast(),
        iov_len: part.len(),
    });
    let (domain, mut mr, access) = (t.p.domain.cast(), null_mut(), FI_REMOTE_WRITE);
    // SAFETY: objects of the provider, and memory that lives longer than the region.
    unsafe {
        let regv = (*(*t.p.domain).mr).regv;
        let none = null_mut();
        let count = iov.len();
        for wrong in [0, 9] {
            let rc = regv(domain, iov.as_ptr(), wrong, access, 0, 7, 0, &mut mr, none);
            assert_eq!(rc, -libc::EINVAL, "{wrong} pieces");
        }
        let rc = regv(domain, iov.as_ptr(), count, access, 0, 7, 0, &mut mr, none);
        assert_eq!((rc, (*mr).key), (0, 7));
    }
    let all = fi_rma_iov {
        addr: 0,
        len: 40_107,
        key: 7,
    };
    let mut out = bytes(40_107);
    assert_eq!(
        t.remote(false, (&mut out, 1), &[all], (FI_COMPLETION, 0)),
        0
    );
    t.p.entry();
    assert_eq!(parts.concat(), out);
    assert_eq!(t.remote(true, (&mut out, 1), &[all], (FI_COMPLETION, 0)), 0);
    assert_eq!(t.p.error().err, libc::EACCES, "it may not be read");
    // SAFETY: closed once.
    assert_eq!(unsafe { common::close(mr.cast()) }, 0);
    t.close();
}
