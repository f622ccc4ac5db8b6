//! Checks every interleaving of the engine's cross-thread parts, and every value that weak memory
//! may show them, with loom. Files of `src` are compiled here again with loom's atomics.

#[path = "support"]
mod platform {
    #[allow(unused_imports)]
    pub mod sync {
        pub(crate) use loom::sync::atomic::{fence, AtomicU32, AtomicU64, Ordering};
        pub(crate) use loom::sync::{Condvar, Mutex};
    }
    pub mod event;
}
#[allow(dead_code)]
#[path = "../src/stats/ring.rs"]
mod ring;
#[path = "../src/stats/sequence.rs"]
mod sequence;
#[allow(dead_code)]
#[path = "../src/progress/skips.rs"]
mod skips;
#[allow(dead_code)]
#[path = "../src/memory/sum_slots.rs"]
mod sum_slots;
#[path = "../src/progress/waker.rs"]
mod waker;

use loom::sync::Arc;
use loom::thread;
use platform::sync::{fence, AtomicU32, AtomicU64, Ordering::Acquire, Ordering::Relaxed};

/// The sleeper sleeps until it has seen the writes that `callers` threads made before their calls.
fn everyone_is_heard(callers: u64) {
    let shared = Arc::new((waker::Waker::new().unwrap(), AtomicU64::new(0)));
    let threads: Vec<_> = (0..callers)
        .map(|n| {
            let shared = shared.clone();
            thread::spawn(move || {
                shared.1.fetch_or(1 << n, Relaxed);
                shared.0.wake();
            })
        })
        .collect();
    let mut seen = 0;
    while seen != (1 << callers) - 1 {
        let new = || shared.1.load(Relaxed) != seen;
        shared.0.sleep_until(&[], 0, new);
        seen = shared.1.load(Relaxed);
    }
    threads.into_iter().for_each(|t| t.join().unwrap());
}

#[test]
fn a_wake_is_never_lost() {
    loom::model(|| everyone_is_heard(1));
}

#[test]
fn two_wakes_are_never_lost() {
    let mut model = loom::model::Builder::new();
    model.preemption_bound = Some(3);
    model.check(|| everyone_is_heard(2));
}

/// Two threads read a queue that is never empty. Between two polls of the sockets, at most the
/// allowed number of reads skips the poll.
#[test]
fn reads_do_not_forget_the_sockets() {
    const ALLOWED: u32 = 2;
    loom::model(|| {
        let shared = Arc::new((skips::Skips::new(), AtomicU32::new(0)));
        shared.0.refill(ALLOWED);
        let read = |(skips, without): &(skips::Skips, AtomicU32)| {
            for _ in 0..2 {
                if skips.take() {
                    without.fetch_add(1, Relaxed);
                }
            }
        };
        let other = shared.clone();
        let thread = thread::spawn(move || read(&other));
        read(&shared);
        thread.join().unwrap();
        assert_eq!(shared.1.load(Relaxed), ALLOWED);
        assert!(!shared.0.take());
    });
}

/// A page of two words that are always equal, updated twice while it is read.
#[test]
fn a_page_is_read_whole_or_called_torn() {
    loom::model(|| {
        let page = Arc::new([AtomicU64::new(0), AtomicU64::new(0), AtomicU64::new(0)]);
        let writer = page.clone();
        let thread = thread::spawn(move || {
            for n in 1..=2 {
                sequence::begin(&writer[0]);
                writer[1].store(n, Relaxed);
                writer[2].store(n, Relaxed);
                sequence::end(&writer[0]);
            }
        });
        let number = || Ok::<_, ()>(page[0].load(Acquire));
        let read = || {
            let words = (page[1].load(Relaxed), page[2].load(Relaxed));
            // Stands for the end of a `read` system call, which orders it before the next one.
            fence(Acquire);
            Ok(words)
        };
        let (words, torn) = sequence::consistent(1, number, read).unwrap();
        assert!(torn || words.0 == words.1, "{words:?}");
        thread.join().unwrap();
        let (words, torn) = sequence::consistent(1, number, read).unwrap();
        assert_eq!((words, torn), ((2, 2), false));
    });
}

/// A ring of one slot, written twice while it is read: each record is complete or missing.
#[test]
fn a_record_is_read_whole_or_missing() {
    loom::model(|| {
        let count = Arc::new(AtomicU64::new(0));
        let slot: Arc<[AtomicU64; ring::SLOT_WORDS]> =
            Arc::new(std::array::from_fn(|_| AtomicU64::new(0)));
        let (to, slots) = (count.clone(), slot.clone());
        let thread = thread::spawn(move || {
            for n in 1..=2 {
                ring::put(&to, &slots[..], &[n; ring::RECORD_WORDS]);
            }
        });
        let load = |_: u64| {
            // The sequence number, the first and the last word stand for all words.
            let mut words = [0; ring::SLOT_WORDS];
            words[0] = slot[0].load(Acquire);
            for at in [1, 2, ring::SLOT_WORDS - 1] {
                words[at] = slot[at].load(Relaxed);
            }
            // Stands for the end of a `read` system call, which orders it before the next one.
            fence(Acquire);
            Ok::<_, ()>(words)
        };
        let seen = count.load(Acquire);
        let (records, missing) = ring::take(seen, 1, load).unwrap();
        for record in &records {
            assert_eq!(record[0], record[ring::RECORD_WORDS - 1]);
            assert_eq!(record[0], seen, "another record than the one asked for");
        }
        assert_eq!(records.len() as u64 + missing, seen);
        thread.join().unwrap();
        let (records, missing) = ring::take(2, 1, load).unwrap();
        assert_eq!((records.len(), records[0][0], missing), (1, 2, 1));
    });
}

/// Either a worker sums a job or the engine has it back, never both.
#[test]
fn a_job_is_done_once_or_taken_back() {
    use sum_slots::{Found, Job, SumSlots};
    let mut model = loom::model::Builder::new();
    model.preemption_bound = Some(3);
    model.check(|| {
        let shared = Arc::new((SumSlots::new(), AtomicU32::new(0)));
        let other = shared.clone();
        let worker = thread::spawn(move || {
            let (slots, begun) = &*other;
            let sum = |job: &Job| {
                begun.fetch_add(1, Relaxed);
                assert_eq!((job.len, job.algorithm), (job.base + 1, job.base + 2));
                job.base + job.seed
            };
            slots.work(sum).is_some()
        });
        let (slots, begun) = &*shared;
        let job = Job {
            base: 10,
            len: 11,
            algorithm: 12,
            seed: 7,
        };
        slots.post(0, &job);
        let found = loop {
            match slots.take(0) {
                Found::Busy => loom::thread::yield_now(),
                found => break found,
            }
        };
        let done = worker.join().unwrap();
        assert_eq!(found, if done { Found::Sum(17) } else { Found::Nothing });
        assert_eq!(begun.load(Relaxed), u32::from(done));
    });
}

/// A worker that falls asleep sees the posted job or is woken.
#[test]
fn no_job_is_left_to_a_sleeper() {
    use sum_slots::{Job, SumSlots};
    loom::model(|| {
        let slots = Arc::new(SumSlots::new());
        let other = slots.clone();
        let worker = thread::spawn(move || other.may_sleep());
        let calls = slots.post(0, &Job::default());
        let sleeps = worker.join().unwrap();
        assert!(calls || !sleeps, "it sleeps, and nobody calls it");
    });
}
