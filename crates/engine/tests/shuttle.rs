//! Start and end of the progress thread in many random interleavings, with shuttle. Files of `src`
//! are compiled here again with shuttle's threads and locks.

#[path = "support"]
mod platform {
    #[allow(unused_imports)]
    pub mod sync {
        pub(crate) use shuttle::sync::atomic::{fence, AtomicBool, AtomicU32, Ordering};
        pub(crate) use shuttle::sync::{Arc, Condvar, Mutex, MutexGuard, Weak};
        pub(crate) use shuttle::thread::JoinHandle;
        pub(crate) use std::sync::PoisonError;
    }
    pub mod event;
}
#[allow(dead_code)]
#[path = "../src/state/coalesce.rs"]
mod coalesce;
#[path = "../src/progress/registry.rs"]
mod registry;
#[path = "../src/progress/skips.rs"]
mod skips;
#[path = "../src/progress/waker.rs"]
mod waker;

use platform::event;
use shuttle::sync::atomic::{AtomicUsize, Ordering::SeqCst};
use shuttle::sync::{Arc, Condvar, Mutex};
use shuttle::thread;

/// Interleavings per test, which take a few seconds.
const ORDERS: usize = 4_000;

/// An engine that waits for service.
#[derive(Default)]
struct Member {
    served: Mutex<bool>,
    news: Condvar,
}

struct Ship {
    registry: registry::Registry<Member>,
    waker: waker::Waker,
    running: AtomicUsize,
}

impl Ship {
    fn new() -> Arc<Ship> {
        Arc::new(Ship {
            registry: registry::Registry::new(),
            waker: waker::Waker::new().unwrap(),
            running: AtomicUsize::new(0),
        })
    }

    /// Outline of the progress thread, as in `thread::run`.
    fn run(&self) {
        assert_eq!(self.running.fetch_add(1, SeqCst), 0, "two threads at once");
        while !self.registry.is_over() {
            let joined = self.registry.joined();
            let members = self.registry.members();
            for member in &members {
                *member.served.lock().unwrap() = true;
                member.news.notify_all();
            }
            let news = || self.registry.is_over() || self.registry.joined() != joined;
            self.waker.sleep_until(&[], 0, news);
        }
        self.running.fetch_sub(1, SeqCst);
    }

    /// The life of an engine.
    fn live(self: &Arc<Ship>) {
        let member = Arc::new(Member::default());
        let ship = self.clone();
        let start = || Ok::<_, ()>(thread::spawn(move || ship.run()));
        self.registry.join(&member, start).unwrap();
        self.waker.wake();
        let mut served = member.served.lock().unwrap();
        while !*served {
            served = member.news.wait(served).unwrap();
        }
        drop(served);
        self.registry.leave(&member, || self.waker.wake());
    }
}

fn lives(engines: usize, each: usize) {
    let ship = Ship::new();
    let threads: Vec<_> = (0..engines)
        .map(|_| {
            let ship = ship.clone();
            thread::spawn(move || (0..each).for_each(|_| ship.live()))
        })
        .collect();
    threads.into_iter().for_each(|t| t.join().unwrap());
    assert_eq!(
        ship.running.load(SeqCst),
        0,
        "the thread outlives the last engine"
    );
}

#[test]
fn members_are_served_and_the_last_ends_the_thread() {
    shuttle::check_random(|| lives(2, 2), ORDERS);
}

#[test]
fn three_engines_come_and_go() {
    shuttle::check_pct(|| lives(3, 1), ORDERS, 3);
}

/// Checked by shuttle only: loom models no total order of the writes to one location, and reports a
/// failure that cannot happen.
#[test]
fn an_empty_queue_ends_the_skipping() {
    let model = || {
        let skips = Arc::new(skips::Skips::new());
        skips.refill(2);
        let other = skips.clone();
        let thread = thread::spawn(move || other.end());
        skips.take();
        thread.join().unwrap();
        assert!(!skips.take(), "the other thread found the queue empty");
    };
    shuttle::check_dfs(model, None);
}

/// An engine with coalesced sends, and the thread's alarm. Time stands still, so only the alarm
/// ends the wait of sends; it rings as soon as it is set.
#[derive(Default)]
struct Burst {
    core: Mutex<(coalesce::Coalescer, Sends)>,
    left: Condvar,
}

#[derive(Default)]
struct Sends {
    waiting: usize,
    gone: usize,
}

impl Burst {
    /// Coalesces a send like `Shared::collect`.
    fn send(&self, alarm: &event::Event) {
        let mut core = self.core.lock().unwrap();
        core.1.waiting += 1;
        if core.0.left(|| 0) {
            drop(core);
            alarm.raise();
        }
    }

    /// Flushes all sends like the core.
    fn flush(&self, (coalescer, sends): &mut (coalesce::Coalescer, Sends)) {
        sends.gone += std::mem::take(&mut sends.waiting);
        coalescer.flushed();
        self.left.notify_all();
    }

    /// Polls, which flushes, and computes afterwards.
    fn poll(&self) {
        let mut core = self.core.lock().unwrap();
        core.0.polled(0);
        self.flush(&mut core);
    }

    /// Outline of the progress thread, as in `Shared::work`, until `all` sends have left.
    fn work(&self, alarm: &event::Event, all: usize) {
        loop {
            let mut core = self.core.lock().unwrap();
            if core.1.gone == all {
                return;
            }
            drop(core);
            alarm.wait(&[], 0);
            alarm.clear();
            core = self.core.lock().unwrap();
            if core.0.stranded(0, 1_000_000, true) {
                self.flush(&mut core);
            }
        }
    }
}

/// Two threads send and make no further call, a third polls once at some time: all sends leave.
#[test]
fn collected_sends_leave_though_nobody_polls() {
    let model = || {
        let both = Arc::new((Burst::default(), event::Event::new().unwrap()));
        let start = |act: fn(&Burst, &event::Event)| {
            let both = both.clone();
            thread::spawn(move || act(&both.0, &both.1))
        };
        let two = |burst: &Burst, alarm: &event::Event| (0..2).for_each(|_| burst.send(alarm));
        let threads = [start(two), start(two), start(|burst, _| burst.poll())];
        let last = both.clone();
        let worker = thread::spawn(move || last.0.work(&last.1, 4));
        threads.into_iter().for_each(|t| t.join().unwrap());
        let mut core = both.0.core.lock().unwrap();
        while core.1.gone < 4 {
            core = both.0.left.wait(core).unwrap();
        }
        drop(core);
        both.1.raise(); // ends the worker if a poll sent the last message
        worker.join().unwrap();
    };
    shuttle::check_random(model, ORDERS);
}
