//! The coming and going of the progress thread, in many random orders, by shuttle. The files of
//! `src` are compiled here once more, over shuttle's threads and locks.

#[allow(unused_imports)]
mod sync {
    pub(crate) use shuttle::sync::atomic::{fence, AtomicBool, AtomicU32, Ordering};
    pub(crate) use shuttle::sync::{Arc, Mutex, MutexGuard, Weak};
    pub(crate) use shuttle::thread::JoinHandle;
    pub(crate) use std::sync::PoisonError;
}
/// Stands for the kernel's eventfd and `ppoll`.
mod event {
    use shuttle::sync::{Condvar, Mutex};

    #[allow(dead_code)]
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub enum Woken {
        Called,
        Descriptor,
        Deadline,
    }

    #[derive(Debug)]
    pub struct Event(Mutex<bool>, Condvar);

    impl Event {
        pub fn new() -> Result<Event, String> {
            Ok(Event(Mutex::new(false), Condvar::new()))
        }
        pub fn raise(&self) {
            *self.0.lock().unwrap() = true;
            self.1.notify_one();
        }
        pub fn clear(&self) {
            *self.0.lock().unwrap() = false;
        }
        /// No deadline: a sleep that nobody ends is a deadlock, which shuttle reports.
        pub fn wait(&self, _: &[i32], _: u64) -> Woken {
            let mut raised = self.0.lock().unwrap();
            while !*raised {
                raised = self.1.wait(raised).unwrap();
            }
            Woken::Called
        }
    }
}
#[path = "../src/crew.rs"]
mod crew;
#[path = "../src/skips.rs"]
mod skips;
#[path = "../src/wake.rs"]
mod wake;

use shuttle::sync::atomic::{AtomicUsize, Ordering::SeqCst};
use shuttle::sync::{Arc, Condvar, Mutex};
use shuttle::thread;

/// Orders tried per test: a few seconds.
const ORDERS: usize = 4_000;

/// An engine that waits to be looked after.
#[derive(Default)]
struct Member {
    served: Mutex<bool>,
    news: Condvar,
}

struct Ship {
    crew: crew::Crew<Member>,
    waker: wake::Waker,
    running: AtomicUsize,
}

impl Ship {
    fn new() -> Arc<Ship> {
        Arc::new(Ship {
            crew: crew::Crew::new(),
            waker: wake::Waker::new().unwrap(),
            running: AtomicUsize::new(0),
        })
    }

    /// The progress thread, in outline as `thread::run`.
    fn run(&self) {
        assert_eq!(self.running.fetch_add(1, SeqCst), 0, "two threads at once");
        while !self.crew.is_over() {
            let joined = self.crew.joined();
            let members = self.crew.members();
            for member in &members {
                *member.served.lock().unwrap() = true;
                member.news.notify_all();
            }
            let news = || self.crew.is_over() || self.crew.joined() != joined;
            self.waker.sleep_until(&[], 0, news);
        }
        self.running.fetch_sub(1, SeqCst);
    }

    /// An engine's life.
    fn live(self: &Arc<Ship>) {
        let member = Arc::new(Member::default());
        let ship = self.clone();
        let start = || Ok::<_, ()>(thread::spawn(move || ship.run()));
        self.crew.join(&member, start).unwrap();
        self.waker.wake();
        let mut served = member.served.lock().unwrap();
        while !*served {
            served = member.news.wait(served).unwrap();
        }
        drop(served);
        self.crew.leave(&member, || self.waker.wake());
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
fn whoever_joins_is_served_and_the_last_ends_the_thread() {
    shuttle::check_random(|| lives(2, 2), ORDERS);
}

#[test]
fn three_engines_come_and_go() {
    shuttle::check_pct(|| lives(3, 1), ORDERS, 3);
}

/// (Loom, which knows no total order of the writes to one place, thinks otherwise.)
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
