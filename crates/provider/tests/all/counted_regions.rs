//! Counters bound to regions (`fi_mr_bind`): each remote operation is counted once at the endpoint
//! and at each region that it accesses.

use crate::abi;

use crate::common;

use abi::ep::*;
use abi::*;
use common::pair::{Pair, HANG};
use common::target::{bytes, Target, KEYS};
use std::ffi::{c_int, c_void};
use std::ptr::null_mut;
use std::time::Instant;

const REGIONS: usize = 2;
const BOTH: u64 = FI_REMOTE_READ | FI_REMOTE_WRITE;
const FI_UINT64: c_int = 7;
const FI_SUM: c_int = 2;
const FI_ATOMIC_READ: c_int = 10;
const FI_CSWAP: c_int = 12;

fn counter(p: &Pair) -> *mut fid_cntr {
    let mut counter = null_mut();
    // SAFETY: objects of the provider.
    unsafe {
        let mut attr: fi_cntr_attr = std::mem::zeroed();
        let open = (*(*p.domain).ops).cntr_open;
        assert_eq!(open(p.domain, &mut attr, &mut counter, null_mut()), 0);
    }
    counter
}

fn bind(to: *mut fid, object: *mut fid, flags: u64) -> c_int {
    // SAFETY: objects of the provider.
    unsafe { ((*(*to).ops).bind)(to, object, flags) }
}

fn value(counter: *mut fid_cntr) -> u64 {
    // SAFETY: an object of the provider.
    unsafe { ((*(*counter).ops).read)(counter) }
}

/// Counted reads and writes.
type Pairs = [u64; 2];

/// Counters of reads and writes of the second endpoint and of its two regions.
struct Counted {
    t: Target,
    all: [[*mut fid_cntr; 2]; 1 + REGIONS],
}

impl Counted {
    fn open() -> Counted {
        let t = Target::open();
        let of_ep: *mut fid = t.p.ep[1].cast();
        let places = [of_ep, t.regions[0].cast(), t.regions[1].cast()];
        let all = places.map(|place| {
            [FI_REMOTE_READ, FI_REMOTE_WRITE].map(|flag| {
                let counter = counter(&t.p);
                assert_eq!(bind(place, counter.cast(), flag), 0);
                counter
            })
        });
        Counted { t, all }
    }

    /// Waits for these counts and checks that nothing more is counted: the last-counted event is
    /// reported last.
    fn reaches(&self, expected: [Pairs; 1 + REGIONS]) {
        for (counters, expected) in self.all.iter().zip(expected) {
            for (counter, expected) in counters.iter().zip(expected) {
                let ms = HANG.as_millis() as c_int;
                // SAFETY: an object of the provider.
                let rc = unsafe { ((*(**counter).ops).wait)(*counter, expected, ms) };
                assert_eq!(rc, 0);
            }
        }
        let values = self.all.map(|counters| counters.map(value));
        assert_eq!(values, expected, "of the endpoint, and of the regions");
    }

    fn close(self) {
        for mr in self.t.regions.iter().copied() {
            // SAFETY: closed once.
            assert_eq!(unsafe { common::close(mr.cast()) }, 0);
        }
        for counter in self.all.into_iter().flatten() {
            // SAFETY: closed once; objects bound to it are closed, or endpoints.
            assert_eq!(unsafe { common::close(counter.cast()) }, 0);
        }
        Target {
            regions: Vec::new(),
            ..self.t
        }
        .close();
    }
}

fn piece(region: usize, addr: u64, len: usize) -> fi_rma_iov {
    let key = KEYS[region];
    fi_rma_iov { addr, len, key }
}

/// Segments of operations, and the counts that each region should show.
fn operations() -> Vec<(Vec<fi_rma_iov>, [u64; REGIONS])> {
    vec![
        (vec![piece(0, 10, 40)], [1, 0]),
        (vec![piece(1, 10, 4_000)], [0, 1]),
        (vec![piece(0, 10, 90_000)], [1, 0]),
        (vec![piece(1, 5, 0)], [0, 1]),
        (
            vec![piece(0, 10, 40), piece(0, 90, 7), piece(0, 200, 9)],
            [1, 0],
        ),
        (
            vec![piece(0, 10, 40), piece(1, 90, 7), piece(0, 200, 9)],
            [1, 1],
        ),
        (
            vec![piece(1, 10, 60_000), piece(0, 90, 7), piece(0, 0, 0)],
            [1, 1],
        ),
        (vec![piece(1, 10, 60_000), piece(0, 5, 0)], [0, 1]),
        (vec![piece(1, 10, 60_000), piece(1, 70_000, 50)], [0, 1]),
    ]
}

#[test]
fn an_operation_is_counted_once_by_each_region_that_it_reaches() {
    let c = Counted::open();
    let mut expected = [[0; 2]; 3];
    let mut ended = 0;
    for (pieces, regions) in operations() {
        let mut local = bytes(pieces.iter().map(|piece| piece.len).sum());
        for (reads, flags) in [(false, 0), (false, FI_REMOTE_CQ_DATA), (true, 0)] {
            let posted = c.t.remote(reads, (&mut local, 1), &pieces, (flags, 5));
            assert_eq!(posted, 0);
            ended += 1;
            c.t.counted(ended, 0);
            let here = [1, regions[0], regions[1]];
            for (expected, more) in expected.iter_mut().zip(here) {
                expected[!reads as usize] += more;
            }
            c.reaches(expected);
            if flags != 0 {
                assert_eq!(c.t.p.entry().0.data, 5);
            }
        }
    }
    c.close();
}

/// An atomic operation on 8-byte integers of the first region.
fn atomic(t: &Target, (op, fetches, compares): (c_int, bool, bool), local: &mut [u64; 3]) {
    let [operand, compare, result] = local
        .each_mut()
        .map(|word| (&raw mut *word).cast::<c_void>());
    let (ep, none, key) = (t.p.ep[0], null_mut(), KEYS[0]);
    // SAFETY: the memory lives until the operation has ended.
    unsafe {
        let ops = &*(*ep).atomic;
        let rc = match (fetches, compares) {
            (_, true) => (ops.compwrite)(
                ep, operand, 1, none, compare, none, result, none, 1, 0, key, FI_UINT64, op, none,
            ),
            (true, _) => (ops.readwrite)(
                ep, operand, 1, none, result, none, 1, 0, key, FI_UINT64, op, none,
            ),
            _ => (ops.write)(ep, operand, 1, none, 1, 0, key, FI_UINT64, op, none),
        };
        assert_eq!(rc, 0);
    }
}

/// The endpoint counts fetching atomics as reads; the region counts changing atomics as writes.
#[test]
fn changing_atomics_count_as_writes_of_a_region() {
    let c = Counted::open();
    let mut local = [3, 0, 0];
    let mut expected = [[0; 2]; 3];
    for (op, fetches, compares, at_ep, at_region) in [
        (FI_SUM, false, false, [0, 1], [0, 1]),
        (FI_SUM, true, false, [1, 0], [1, 1]),
        (FI_ATOMIC_READ, true, false, [1, 0], [1, 0]),
        (FI_CSWAP, true, true, [1, 0], [1, 1]),
    ] {
        atomic(&c.t, (op, fetches, compares), &mut local);
        for i in 0..2 {
            expected[0][i] += at_ep[i];
            expected[1][i] += at_region[i];
        }
        c.reaches(expected);
    }
    c.t.counted(4, 0);
    assert_eq!(local[2], 6, "two sums");
    c.close();
}

/// A counter bound to a region for reads and writes counts an atomic that reads and changes it
/// once.
#[test]
fn one_counter_for_reads_and_writes_counts_an_operation_once() {
    let t = Target::open();
    let (all, mr) = (counter(&t.p), t.regions[0].cast());
    assert_eq!(bind(mr, all.cast(), BOTH), 0);
    let mut local = [3, 0, 0];
    for (op, fetches, compares) in [
        (FI_SUM, true, false),
        (FI_CSWAP, true, true),
        (FI_SUM, false, false),
        (FI_ATOMIC_READ, true, false),
    ] {
        atomic(&t, (op, fetches, compares), &mut local);
    }
    t.counted(4, 0);
    assert_eq!(value(all), 4, "counted before it is answered");
    // SAFETY: closed once.
    assert_eq!(unsafe { common::close(mr) }, 0);
    // SAFETY: closed once, after its region.
    assert_eq!(unsafe { common::close(all.cast()) }, 0);
    let regions = t.regions[1..].to_vec();
    Target { regions, ..t }.close();
}

/// A refused operation of short segments is counted nowhere at its target, whichever segment was
/// refused.
#[test]
fn a_refused_operation_is_not_counted() {
    let c = Counted::open();
    let mut local = bytes(60);
    let mut errors = 0;
    for len in [20, 20_000] {
        local.resize(3 * len, 1);
        for bad in 0..3 {
            let mut pieces = vec![piece(0, 10, len), piece(1, 9, len), piece(0, 50, len)];
            pieces[bad].key = 99;
            for reads in [false, true] {
                assert_eq!(c.t.remote(reads, (&mut local, 1), &pieces, (0, 0)), 0);
                assert_eq!(c.t.p.error().err, libc::EACCES);
                errors += 1;
                c.t.counted(0, errors);
            }
        }
    }
    // A later operation is counted, and nothing before it.
    let last = [piece(1, 0, 60)];
    let mut local = bytes(60);
    assert_eq!(c.t.remote(false, (&mut local, 1), &last, (0, 0)), 0);
    c.reaches([[0, 1], [0, 0], [0, 1]]);
    c.close();
}

/// A long atomic that begins before its region or ends beyond it.
#[test]
fn a_refused_part_of_a_long_atomic_is_not_counted() {
    let c = Counted::open();
    let mut operands = vec![1u64; 4_000];
    let (ep, none) = (c.t.p.ep[0], null_mut());
    for addr in [200_000 - 16_000, 0u64.wrapping_sub(16_000)] {
        // SAFETY: the memory lives until the operation has ended.
        let rc = unsafe {
            let write = (*(*ep).atomic).write;
            let (from, count) = (operands.as_mut_ptr().cast(), operands.len());
            write(
                ep, from, count, none, 1, addr, KEYS[0], FI_UINT64, FI_SUM, none,
            )
        };
        assert_eq!(rc, 0);
        assert_eq!(c.t.p.error().err, libc::EACCES);
    }
    c.reaches([[0; 2]; 3]);
    c.close();
}

#[test]
fn a_counter_stays_as_long_as_a_region_has_it() {
    let t = Target::open();
    let [first, second] = [counter(&t.p), counter(&t.p)];
    let mr: *mut fid = t.regions[0].cast();
    let refused = -libc::EINVAL;
    assert_eq!(bind(mr, null_mut(), FI_REMOTE_WRITE), refused);
    assert_eq!(bind(mr, t.p.cq.cast(), FI_REMOTE_WRITE), refused);
    for flags in [0, FI_WRITE, BOTH | FI_SEND] {
        assert_eq!(bind(mr, first.cast(), flags), -260, "FI_EBADFLAGS");
    }
    assert_eq!(bind(mr, first.cast(), FI_REMOTE_WRITE), 0);
    assert_eq!(bind(mr, second.cast(), BOTH), refused, "it has one");
    assert_eq!(bind(mr, second.cast(), FI_REMOTE_READ), 0);
    // SAFETY: objects of the provider.
    unsafe {
        for counter in [first, second] {
            assert_eq!(common::close(counter.cast()), -libc::EBUSY);
        }
        assert_eq!(((*(*mr).ops).control)(mr, FI_ENABLE, null_mut()), 0);
        let mut local = bytes(40);
        assert_eq!(
            t.remote(false, (&mut local, 1), &[piece(0, 0, 40)], (0, 0)),
            0
        );
        t.counted(1, 0);
        let wait = (*(*first).ops).wait;
        assert_eq!(wait(first, 1, HANG.as_millis() as c_int), 0);
        assert_eq!((value(first), value(second)), (1, 0));
        for region in &t.regions {
            assert_eq!(common::close(region.cast()), 0);
        }
        for counter in [first, second] {
            assert_eq!(common::close(counter.cast()), 0);
        }
    }
    let regions = Vec::new();
    Target { regions, ..t }.close();
}

/// Registers memory with this access and these flags.
fn region(t: &Target, memory: &mut [u8], key: u64, (access, flags): (u64, u64)) -> *mut fid_mr {
    let (base, domain, mut mr) = (memory.as_mut_ptr().cast(), t.p.domain.cast(), null_mut());
    // SAFETY: objects of the provider, and memory that lives longer than the region.
    let rc = unsafe {
        let reg = (*(*t.p.domain).mr).reg;
        let (len, context) = (memory.len(), null_mut());
        reg(domain, base, len, access, 0, key, flags, &mut mr, context)
    };
    assert_eq!(rc, 0);
    mr
}

/// An operation on zero bytes needs a valid address and the right for its access, like any other.
#[test]
fn empty_accesses_need_a_valid_address_and_right() {
    let t = Target::open();
    let mut memory = [vec![0u8; 100], vec![0u8; 100], Vec::new()];
    let may = [FI_REMOTE_READ, FI_REMOTE_WRITE, BOTH];
    let mut regions = Vec::new();
    for (i, (memory, access)) in memory.iter_mut().zip(may).enumerate() {
        let (mr, all) = (
            region(&t, memory, 20 + i as u64, (access, 0)),
            counter(&t.p),
        );
        assert_eq!(bind(mr.cast(), all.cast(), BOTH), 0);
        regions.push((mr, all));
    }
    let (mut good, mut bad, mut counted) = (0, 0, [0; 3]);
    for (reads, flags) in [(true, 0), (false, 0), (false, FI_REMOTE_CQ_DATA)] {
        for (key, addr) in [
            (20, 0),
            (20, 100),
            (21, 100),
            (22, 0),
            (20, 101),
            (22, 1),
            (23, 0),
        ] {
            let does = if reads {
                FI_REMOTE_READ
            } else {
                FI_REMOTE_WRITE
            };
            let region = key as usize - 20;
            let end = if region == 2 { 0 } else { 100 };
            let allowed = region < 3 && addr <= end && may[region] & does != 0;
            let there = fi_rma_iov { addr, len: 0, key };
            assert_eq!(t.remote(reads, (&mut [], 1), &[there], (flags, 6)), 0);
            if !allowed {
                assert_eq!(t.p.error().err, libc::EACCES, "{key} at {addr}");
                bad += 1;
                continue;
            }
            (good, counted[region]) = (good + 1, counted[region] + 1);
            if flags != 0 {
                assert_eq!(t.p.entry().0.data, 6);
            }
            let start = Instant::now();
            while value(t.p.counter) < good {
                assert!(start.elapsed() < HANG, "{key} at {addr}");
            }
        }
    }
    t.counted(good, bad);
    assert_eq!((good, bad), (7, 14));
    for (expected, (mr, all)) in counted.into_iter().zip(regions) {
        assert_eq!(value(all), expected);
        // SAFETY: closed once, the region first.
        unsafe {
            assert_eq!(common::close(mr.cast()), 0);
            assert_eq!(common::close(all.cast()), 0);
        }
    }
    t.close();
}

/// FI_RMA_EVENT announces a counter for the region; without FI_MR_RMA_EVENT in `mr_mode` the region
/// is usable at once.
#[test]
fn a_region_may_be_made_for_events() {
    let t = Target::open();
    let (mut memory, writes, key) = (vec![0u8; 100], counter(&t.p), 9);
    let mr = region(&t, &mut memory, key, (BOTH, FI_RMA_EVENT));
    assert_eq!(bind(mr.cast(), writes.cast(), FI_REMOTE_WRITE), 0);
    let (mut local, len) = (bytes(40), 40);
    let there = fi_rma_iov { addr: 0, len, key };
    assert_eq!(t.remote(false, (&mut local, 1), &[there], (0, 0)), 0);
    // SAFETY: objects of the provider, each closed once.
    unsafe {
        let wait = (*(*writes).ops).wait;
        assert_eq!(wait(writes, 1, HANG.as_millis() as c_int), 0);
        assert_eq!(memory[..40], local);
        t.counted(1, 0);
        assert_eq!(common::close(mr.cast()), 0);
        assert_eq!(common::close(writes.cast()), 0);
    }
    t.close();
}
