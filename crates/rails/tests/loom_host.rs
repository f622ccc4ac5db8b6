//! The ring shared by the processes of a host, under all interleavings by loom; see `loom.rs`.

#[allow(unused_imports)]
mod sync {
    pub(crate) use loom::sync::atomic::{fence, AtomicU32, AtomicU64, Ordering};
}
#[path = "../src/udp/host_ring.rs"]
#[allow(dead_code)]
mod host_ring;

use host_ring::{Frame, HostMemory, Next, Place};
use loom::sync::{Arc, Condvar, Mutex};
use loom::thread;
use sync::{AtomicU32, AtomicU64, Ordering::Relaxed};

/// Words of a frame with a one-word datagram, and of the ring: two frames, and one being written.
const FRAME: usize = 3;
const WORDS: usize = 3 * FRAME;

struct Model {
    lock: AtomicU32,
    head: AtomicU64,
    claimed: AtomicU64,
    sleepers: AtomicU64,
    words: [AtomicU64; WORDS],
    /// Models the socket that wakes a sleeper.
    called: Mutex<bool>,
    call: Condvar,
}

impl Model {
    fn new() -> Arc<Model> {
        Arc::new(Model {
            lock: AtomicU32::new(0),
            head: AtomicU64::new(0),
            claimed: AtomicU64::new(0),
            sleepers: AtomicU64::new(0),
            words: std::array::from_fn(|_| AtomicU64::new(0)),
            called: Mutex::new(false),
            call: Condvar::new(),
        })
    }
}

impl HostMemory for Model {
    const BODY_MAX: u64 = 8;
    const LEN: u64 = 8 * WORDS as u64;

    fn lock(&self) -> &AtomicU32 {
        &self.lock
    }

    fn head(&self) -> &AtomicU64 {
        &self.head
    }

    fn claimed(&self) -> &AtomicU64 {
        &self.claimed
    }

    fn sleepers(&self) -> &AtomicU64 {
        &self.sleepers
    }

    fn word(&self, at: u64) -> &AtomicU64 {
        &self.words[at as usize / 8 % WORDS]
    }

    fn put(&self, at: u64, bytes: &[u8]) {
        let word = u64::from_le_bytes(bytes.try_into().unwrap());
        self.word(at).store(word, Relaxed);
    }

    fn get(&self, at: u64, out: &mut [u8]) {
        let word = self.word(at).load(Relaxed).to_le_bytes();
        out.copy_from_slice(&word[..out.len()]);
    }
}

/// Checks every interleaving with a bounded number of preemptions.
fn every_order(of: impl Fn() + Sync + Send + 'static) {
    let mut builder = loom::model::Builder::new();
    builder.preemption_bound = Some(3);
    builder.check(of);
}

/// Puts a datagram of one word into the ring, as holder of the lock.
fn put(model: &Model, slot: u32, source: u64) {
    // The model checker remembers only one access per word: the reader's own access would hide
    // those of others from the following store.
    model.head.fetch_add(0, Relaxed);
    let frame = Frame {
        len: 8,
        joined: false,
        reader: slot,
        source,
    };
    host_ring::publish(model, &frame, &(!source).to_le_bytes());
}

/// Puts a datagram into the ring as a process does, unless another holds the lock.
fn read(model: &Model, slot: u32, source: u64) -> bool {
    let locked = host_ring::try_lock(model, slot).is_ok();
    if locked {
        put(model, slot, source);
        host_ring::unlock(model);
    }
    locked
}

/// The source of the next frame, 0 if there is none; `None` if overtaken.
fn take(model: &Model, place: &mut Place) -> Option<u64> {
    let mut body = [0; 8];
    match place.next(model, &mut body) {
        Next::Nothing => Some(0),
        Next::Overtaken => None,
        Next::Frame(frame) => {
            assert_eq!(
                (frame.len, frame.reader),
                (8, 1),
                "a frame of another one's parts"
            );
            assert_eq!(u64::from_le_bytes(body), !frame.source, "a torn frame");
            Some(frame.source)
        }
    }
}

/// An overtaken process notices, and takes no mixed, duplicate or out-of-order frame.
#[test]
fn whoever_is_overtaken_takes_nothing_that_is_torn() {
    every_order(|| {
        let model = Model::new();
        let mut place = Place::new(&*model);
        let other = model.clone();
        let thread = thread::spawn(move || {
            (1..=4).for_each(|source| assert!(read(&other, 1, source)));
        });
        let mut last = 0;
        for _ in 0..2 {
            match take(&model, &mut place) {
                Some(source) if source > 0 => {
                    assert!(source > last, "{source} after {last}");
                    last = source;
                }
                _ => {}
            }
        }
        thread.join().unwrap();
        assert_eq!(model.head.load(Relaxed), 4 * 8 * FRAME as u64);
    });
}

#[test]
fn one_writes_at_a_time() {
    every_order(|| {
        let model = Model::new();
        let mut place = Place::new(&*model);
        let other = model.clone();
        let thread = thread::spawn(move || read(&other, 1, 5));
        let mine = read(&model, 1, 6);
        let frames = thread.join().unwrap() as usize + mine as usize;
        assert!(frames > 0, "one of them has it");
        let mut took = Vec::new();
        while let Some(source @ 1..) = take(&model, &mut place) {
            took.push(source);
        }
        took.sort_unstable();
        took.dedup();
        assert_eq!(took.len(), frames);
    });
}

#[test]
fn whoever_sleeps_is_woken_by_who_writes() {
    every_order(|| {
        let model = Model::new();
        let mut place = Place::new(&*model);
        let other = model.clone();
        let thread = thread::spawn(move || {
            assert!(read(&other, 1, 9));
            if host_ring::call_sleepers(&*other, 1) == 1 << 2 {
                *other.called.lock().unwrap() = true;
                other.call.notify_one();
            }
        });
        while take(&model, &mut place) != Some(9) {
            host_ring::register_sleeper(&*model, 2);
            if place.is_drained(&*model, |_| true) {
                let mut called = model.called.lock().unwrap();
                while !*called {
                    called = model.call.wait(called).unwrap();
                }
                *called = false;
            }
            host_ring::wake_up(&*model, 2);
        }
        thread.join().unwrap();
    });
}

/// The incomplete frame of a process that died is never visible.
#[test]
fn another_one_goes_on_where_a_writer_died() {
    every_order(|| {
        let model = Model::new();
        let mut place = Place::new(&*model);
        let other = model.clone();
        let dead = thread::spawn(move || {
            host_ring::try_lock(&*other, 3).unwrap();
            put(&other, 1, 7);
            // Then a part of the next frame.
            let head = other.head.load(Relaxed);
            other.claimed.store(head + 8 * FRAME as u64, Relaxed);
            other.word(head).store(1, Relaxed);
        });
        dead.join().unwrap();
        let heir = model.clone();
        let heir = thread::spawn(move || host_ring::take_over(&*heir, 3, 2));
        let mine = host_ring::take_over(&*model, 3, 1);
        assert!(mine != heir.join().unwrap(), "one takes over");
        assert_eq!(
            host_ring::try_lock(&*model, 0),
            Err(if mine { 1 } else { 2 })
        );
        put(&model, 1, 8);
        host_ring::unlock(&*model);
        assert_eq!(take(&model, &mut place), Some(7));
        assert_eq!(take(&model, &mut place), Some(8));
        assert_eq!(take(&model, &mut place), Some(0));
    });
}
