//! All interleavings of two processes' steps in shared memory, and all values that weak memory may
//! show them, by loom. The files of `src` are compiled here again, over loom's atomics and a model
//! of the memory.

#[allow(unused_imports)]
mod sync {
    pub(crate) use loom::sync::atomic::{fence, AtomicU32, AtomicU64, Ordering};
}
#[path = "../src/shm/inbox.rs"]
#[allow(dead_code)]
mod inbox;
#[path = "../src/shm/ring.rs"]
#[allow(dead_code)]
mod ring;

use inbox::Page;
use loom::sync::{Arc, Condvar, Mutex};
use loom::thread;
use ring::{Consumer, Memory, Producer};
use sync::{AtomicU32, AtomicU64, Ordering::Relaxed};

/// Words of the modelled ring: one frame of one word, and the 0 after it.
const WORDS: usize = 4;

/// A ring, and its consumer's inbox page.
struct Model {
    words: [AtomicU64; WORDS],
    consumed: AtomicU64,
    waits: AtomicU32,
    state: AtomicU32,
    summary: AtomicU64,
    bits: AtomicU64,
    /// Models the socket that wakes the consumer.
    called: Mutex<bool>,
    call: Condvar,
}

impl Model {
    fn new() -> Arc<Model> {
        Arc::new(Model {
            words: std::array::from_fn(|_| AtomicU64::new(0)),
            consumed: AtomicU64::new(0),
            waits: AtomicU32::new(0),
            state: AtomicU32::new(0),
            summary: AtomicU64::new(0),
            bits: AtomicU64::new(0),
            called: Mutex::new(false),
            call: Condvar::new(),
        })
    }

    fn wake(&self) {
        *self.called.lock().unwrap() = true;
        self.call.notify_one();
    }

    /// A missed wake-up is a deadlock, which the model checker reports.
    fn sleep(&self) {
        let mut called = self.called.lock().unwrap();
        while !*called {
            called = self.call.wait(called).unwrap();
        }
        *called = false;
    }
}

impl Memory for Model {
    const LEN: u64 = 8 * WORDS as u64;

    fn word(&self, at: u64) -> &AtomicU64 {
        &self.words[at as usize / 8 % WORDS]
    }

    fn consumed(&self) -> &AtomicU64 {
        &self.consumed
    }

    fn waits(&self) -> &AtomicU32 {
        &self.waits
    }

    fn put(&self, at: u64, bytes: &[u8]) {
        let mut word = [0; 8];
        word[..bytes.len()].copy_from_slice(bytes);
        self.word(at).store(u64::from_le_bytes(word), Relaxed);
    }

    fn get(&self, at: u64, out: &mut [u8]) {
        let word = self.word(at).load(Relaxed).to_le_bytes();
        out.copy_from_slice(&word[..out.len()]);
    }
}

impl Page for Model {
    fn state(&self) -> &AtomicU32 {
        &self.state
    }

    fn summary(&self) -> &AtomicU64 {
        &self.summary
    }

    fn bits(&self, _: u32) -> &AtomicU64 {
        &self.bits
    }
}

/// Puts a frame with one word into the ring, if there is room.
fn produce(model: &Model, producer: &mut Producer, word: u64) -> bool {
    let Some(body) = producer.body(model, 8).unwrap() else {
        return false;
    };
    model.put(body, &(!word).to_le_bytes());
    producer.publish(model, word, 8);
    true
}

/// Takes the next frame out of the ring, if there is one, and returns its number. Wakes a producer
/// that waits for room.
fn consume(model: &Model, consumer: &mut Consumer) -> Option<u64> {
    let word = consumer.word(model);
    if word == 0 {
        return None;
    }
    let mut body = [0; 8];
    model.get(consumer.body(), &mut body);
    assert_eq!(u64::from_le_bytes(body), !word, "a frame without its body");
    consumer.advance(8);
    if consumer.release(model) {
        model.wake();
    }
    Some(word)
}

/// Frames arrive whole, in order and once while the ring wraps around.
#[test]
fn frames_arrive_as_they_were_put() {
    loom::model(|| {
        let model = Model::new();
        let other = model.clone();
        let thread = thread::spawn(move || {
            let mut producer = Producer::new::<Model>();
            let mut next = 1;
            while next <= 3 {
                match produce(&other, &mut producer, next) {
                    true => next += 1,
                    false => thread::yield_now(),
                }
            }
        });
        let (mut consumer, mut expected) = (Consumer::default(), 1);
        while expected <= 3 {
            match consume(&model, &mut consumer) {
                Some(word) => {
                    assert_eq!(word, expected);
                    expected += 1;
                }
                None => thread::yield_now(),
            }
        }
        assert_eq!(consume(&model, &mut consumer), None);
        thread.join().unwrap();
    });
}

/// A producer that publishes and notifies, and a consumer that sleeps until all frames arrived.
fn nobody_sleeps_for_ever(bits: bool) {
    let model = Model::new();
    if bits {
        inbox::want_bits(&*model, true);
    }
    let other = model.clone();
    let thread = thread::spawn(move || {
        let mut producer = Producer::new::<Model>();
        assert!(produce(&other, &mut producer, 1));
        if inbox::notify(&*other, 0) {
            other.wake();
        }
    });
    let mut consumer = Consumer::default();
    while consume(&model, &mut consumer).is_none() {
        inbox::arm(&*model);
        if consumer.word(&*model) == 0 {
            model.sleep();
        }
        inbox::disarm(&*model);
    }
    thread.join().unwrap();
}

#[test]
fn whoever_sleeps_is_woken() {
    loom::model(|| nobody_sleeps_for_ever(false));
}

#[test]
fn whoever_wants_bits_and_sleeps_is_woken() {
    loom::model(|| nobody_sleeps_for_ever(true));
}

/// A producer that sleeps until there is room for the second of two frames; the ring holds one.
#[test]
fn whoever_waits_for_room_is_woken() {
    loom::model(|| {
        let model = Model::new();
        let mut producer = Producer::new::<Model>();
        assert!(produce(&model, &mut producer, 1));
        let other = model.clone();
        let thread = thread::spawn(move || {
            let mut consumer = Consumer::default();
            assert_eq!(consume(&other, &mut consumer), Some(1));
        });
        while producer.body_or_wait(&*model, 8).unwrap().is_none() {
            model.sleep();
        }
        assert!(produce(&model, &mut producer, 2));
        thread.join().unwrap();
    });
}

/// A receiver that starts to request bits polls all of its rings once more; later frames show as
/// bits.
#[test]
fn nothing_is_missed_when_bits_begin() {
    loom::model(|| {
        let model = Model::new();
        let other = model.clone();
        let thread = thread::spawn(move || {
            let mut producer = Producer::new::<Model>();
            assert!(produce(&other, &mut producer, 1));
            assert!(!inbox::notify(&*other, 70));
        });
        inbox::want_bits(&*model, true);
        let mut consumer = Consumer::default();
        let at_once = consume(&model, &mut consumer).is_some();
        thread.join().unwrap();
        let mut told = Vec::new();
        inbox::take_bits(&*model, |ring| told.push(ring));
        assert!(at_once || told == [70], "{told:?}");
        assert!(at_once || consume(&model, &mut consumer) == Some(1));
    });
}
