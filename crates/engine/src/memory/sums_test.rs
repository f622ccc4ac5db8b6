//! Tests of `sums.rs` with real atomics (the models of `tests/shared` replace them).

use crate::api::IoVec;
use crate::memory::op_table::Pieces;
use crate::memory::sum_slots::SLOTS;
use crate::memory::sums::*;
use marline_checksum::Algorithm;

fn message(bytes: &mut [u8]) -> Pieces {
    Pieces::new(&[IoVec {
        base: bytes.as_mut_ptr(),
        len: bytes.len(),
    }])
}

fn part(of: Owner, offset: u64, len: usize, algorithm: Algorithm) -> Part {
    Part {
        of,
        offset,
        len,
        algorithm,
        seed: 7 ^ offset,
    }
}

const SEND: Owner = Owner::Send(3);

/// For every algorithm and parts of every length and offset, the worker's checksum equals the
/// engine's own, and no other part gets it.
#[test]
fn a_workers_sum_is_the_engines() {
    let mut bytes: Vec<u8> = (0..70_000u32)
        .map(|n| (n.wrapping_mul(n) >> 7) as u8)
        .collect();
    let place = message(&mut bytes);
    let mut sums = Sums::new();
    let slots = sums.share(Box::new(|| {}), true);
    let keyless = |a: &Algorithm| *a != Algorithm::None && !a.is_keyed();
    for algorithm in Algorithm::all().filter(keyless) {
        for (offset, len) in [(0, 65_408), (1, 1_000), (448, 448), (69_999, 1)] {
            let part = part(SEND, offset, len, algorithm);
            assert!(sums.give(part, &place, offset));
            assert_eq!(slots.work(sum_of_job), Some(len as u64));
            let own = |bytes: &[u8]| {
                let range = offset as usize..offset as usize + len;
                marline_checksum::sum(algorithm, part.seed, &bytes[range])
            };
            let found = sums.take(&part);
            assert_eq!(found, Some(own(&bytes)), "{algorithm:?} {offset} {len}");
            bytes[offset as usize + len / 2] ^= 4;
            assert_ne!(
                found,
                Some(own(&bytes)),
                "{algorithm:?} {offset} {len}: damage"
            );
        }
    }
    assert_eq!(slots.work(sum_of_job), None);
}

/// A worker has no key.
#[test]
fn keyed_sums_are_not_handed_out() {
    let mut bytes = vec![0; 65_408];
    let place = message(&mut bytes);
    let mut sums = Sums::new();
    let slots = sums.share(Box::new(|| {}), true);
    let part = part(SEND, 0, 65_408, Algorithm::Aegis);
    assert!(!sums.give(part, &place, 0));
    assert_eq!(slots.work(sum_of_job), None);
}

/// The following parts are handed out with their right seeds.
#[test]
fn parts_are_summed_ahead() {
    let mut bytes: Vec<u8> = (0..320_000u32).map(|n| (n / 7) as u8).collect();
    let (place, mut sums) = (message(&mut bytes), Sums::new());
    let slots = sums.share(Box::new(|| {}), true);
    slots.on_duty(true);
    let (span, total) = (100_000, bytes.len() as u64);
    let seed_of = |offset, _| 7 ^ offset;
    let mut wanted = |offset: u64| {
        let len = (total - offset).min(span) as usize;
        let part = part(SEND, offset, len, Algorithm::Xxh3);
        let found = sums.take_ahead(&part, (span, total), &place, seed_of);
        while slots.work(sum_of_job).is_some() {}
        let range = offset as usize..offset as usize + len;
        let own = marline_checksum::sum(part.algorithm, part.seed, &bytes[range]);
        found.map(|found| found == own)
    };
    assert_eq!(wanted(0), None);
    for offset in [100_000, 200_000, 300_000] {
        assert_eq!(wanted(offset), Some(true), "{offset}");
    }
    assert_eq!((sums.count, sums.bytes), (0, 220_000));
}

/// A fast checksum costs less than handing the memory out.
#[test]
fn only_slow_sums_are_handed_out() {
    let mut sums = Sums::new();
    let slots = sums.share(Box::new(|| {}), false);
    slots.on_duty(true);
    for n in 0..3 * SLOW_MIN {
        assert_eq!(sums.want_workers(), n >= SLOW_MIN);
        assert_eq!(slots.take_wanted(), n >= SLOW_MIN);
        // Any measurable time for a checksum of no bytes is slow.
        let sum = || {
            let begun = std::time::Instant::now();
            while begun.elapsed().is_zero() {}
            5
        };
        assert_eq!(sums.own(0, sum), 5);
    }
    sums.own(usize::MAX >> 11, || 5);
    assert!(!sums.want_workers() && !slots.take_wanted());
}

#[test]
fn parts_that_no_worker_has_begun_are_withdrawn() {
    let mut bytes = vec![1; 4_096];
    let (place, mut sums) = (message(&mut bytes), Sums::new());
    let slots = sums.share(Box::new(|| {}), true);
    let one = part(SEND, 0, 4_096, Algorithm::Crc32c);
    assert!(sums.give(one, &place, 0) && sums.give(one, &place, 0));
    let under_way = |sums: &Sums| [true, false].map(|may| sums.is_under_way(&one, may));
    assert_eq!(under_way(&sums), [true, false]);
    assert_eq!((sums.take(&one), sums.take(&one)), (None, None));
    assert_eq!(under_way(&sums), [false, false]);
    assert_eq!(slots.work(sum_of_job), None);
    assert_eq!((sums.count, sums.bytes), (0, 0));
    assert!(sums.give(one, &place, 0));
    let seen = std::cell::Cell::new([false; 2]);
    slots.work(|job| {
        seen.set(under_way(&sums));
        sum_of_job(job)
    });
    assert_eq!((seen.get(), under_way(&sums)), ([true; 2], [false; 2]));
    assert!(sums.take(&one).is_some());
}

#[test]
fn no_worker_reads_memory_after_its_operation() {
    let mut bytes = vec![1; 64 * SLOTS];
    let (place, mut sums) = (message(&mut bytes), Sums::new());
    let slots = sums.share(Box::new(|| {}), true);
    for n in 0..=SLOTS as u64 {
        let of = [SEND, Owner::Inbound(3, 3)][n as usize % 2];
        let given = sums.give(part(of, 64 * n, 64, Algorithm::Xxh3), &place, 0);
        assert_eq!(given, n < SLOTS as u64, "{n}");
    }
    slots.work(sum_of_job);
    sums.pass(SEND, 64 * 4);
    assert_eq!(sums.count, SLOTS - 2);
    sums.withdraw(|of| of == SEND);
    assert_eq!(sums.count, SLOTS / 2);
    let left: Vec<_> = sums.parts.iter().flatten().map(|part| part.of).collect();
    assert!(left.iter().all(|of| *of != SEND));
    sums.withdraw(|_| true);
    assert_eq!(slots.work(sum_of_job), None);
}

/// An operation does not end while a worker sums its memory.
#[test]
fn an_operation_ends_when_its_worker_has() {
    use std::sync::atomic::{AtomicBool, Ordering::SeqCst};
    let mut bytes = vec![1; 4_096];
    let (place, mut sums) = (message(&mut bytes), Sums::new());
    let slots = sums.share(Box::new(|| {}), true);
    sums.give(part(SEND, 0, 4_096, Algorithm::Crc32c), &place, 0);
    let (begun, over) = (std::sync::Barrier::new(2), AtomicBool::new(false));
    std::thread::scope(|scope| {
        scope.spawn(|| {
            slots.work(|job| {
                begun.wait();
                let sum = sum_of_job(job);
                over.store(true, SeqCst);
                sum
            })
        });
        begun.wait();
        sums.withdraw(|_| true);
        assert!(over.load(SeqCst));
    });
}
