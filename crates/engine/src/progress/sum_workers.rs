//! Threads that compute checksums beside the application, on idle cores.
//!
//! The progress thread starts a worker when the engine has memory to sum and a core has been idle
//! for long enough; the application's calls never start one. A worker stops as soon as another
//! thread wants its core; then another core is searched for. Workers have normal priority: a worker
//! with idle priority could be descheduled for a second within a checksum, and delay the end of the
//! operation whose memory it reads.

use crate::config::workers::Workers;
use crate::memory::sum_slots::SumSlots;
use crate::memory::sums::{sum_of_job, Sums};
use crate::platform::clock::{Clock, MonotonicClock};
use crate::platform::fork::Generation;
use crate::platform::idle_cores::{free_cores, job_cores, stay_on, Ticks};
use crate::platform::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::Mutex;
use std::thread::{park, park_timeout, yield_now, Builder, JoinHandle, Thread};
use std::time::Duration;

/// Most workers of one engine on idle cores: with slow algorithms one worker sums several times as
/// fast as a sending thread.
const IDLE_MAX: usize = 2;
/// Time for which a worker polls for jobs before it sleeps: longer than the interval between two
/// writes, since waking it costs the engine a system call.
const LOOK_NS: u64 = 50_000;
/// Polls between two yields.
const LOOKS: u32 = 32;
/// Durations of a yield, and of a sum, above which another thread wants the core.
const TAKEN_NS: u64 = 50_000;
const LATE_NS: u64 = 1_000_000;
/// Sleep after which a core no longer counts as idle.
const SLEEP_MAX: Duration = Duration::from_secs(1);
/// Interval between two samples of idle time: ten kernel ticks.
const WATCH_NS: u64 = 100_000_000;
/// Interval between two searches for cores.
const SEARCH_NS: u64 = 1_000_000_000;

/// Orders to a worker: rest, end, run on any core of the job; `CORE` + n means core n.
const REST: usize = 0;
const END: usize = 1;
const ANYWHERE: usize = 2;
const CORE: usize = 3;

/// State shared by a worker and the manager.
struct Desk {
    order: AtomicUsize,
    asleep: AtomicBool,
}

struct Worker {
    desk: Arc<Desk>,
    thread: JoinHandle<()>,
}

/// Workers to wake when there are jobs.
type Callable = Arc<Mutex<Vec<(Arc<Desk>, Thread)>>>;

/// Manager of the workers of one engine.
pub(crate) struct SumWorkers {
    choice: Workers,
    slots: Arc<SumSlots>,
    workers: Vec<Worker>,
    callable: Callable,
    /// First of two samples of idle time.
    before: Option<Ticks>,
    next_ns: u64,
    generation: Generation,
}

impl SumWorkers {
    /// Starts without workers; `None`: none are wanted.
    pub(crate) fn new(choice: Workers, sums: &mut Sums) -> Option<SumWorkers> {
        if choice.most(IDLE_MAX) == 0 {
            return None;
        }
        let callable = Callable::default();
        let all = callable.clone();
        let call = move || {
            // A worker that is just being added checks for jobs by itself.
            let all = all.try_lock();
            for (desk, thread) in all.iter().flat_map(|all| all.iter()) {
                if desk.asleep.swap(false, Ordering::Relaxed) {
                    thread.unpark();
                }
            }
        };
        Some(SumWorkers {
            choice,
            slots: sums.share(Box::new(call), choice != Workers::OnIdleCores),
            workers: Vec::new(),
            callable,
            before: None,
            next_ns: 0,
            generation: Generation::current(),
        })
    }

    /// Assigns workers to idle cores if there is memory to sum.
    pub(crate) fn tend(&mut self, now: u64) {
        if now < self.next_ns || !self.slots.take_wanted() {
            return;
        }
        let most = self.choice.most(IDLE_MAX);
        let at_work = self
            .workers
            .iter()
            .filter_map(Worker::core)
            .collect::<Vec<_>>();
        self.next_ns = now + SEARCH_NS;
        if at_work.len() >= most {
            return;
        }
        let orders = match self.choice {
            Workers::Always(_) => vec![ANYWHERE; most - at_work.len()],
            Workers::OnIdleCores => {
                let Some(ticks) = Ticks::read() else { return };
                let Some(before) = self.before.take() else {
                    (self.before, self.next_ns) = (Some(ticks), now + WATCH_NS);
                    return;
                };
                let mut free = free_cores(&before, &ticks);
                free.retain(|core| !at_work.contains(&(CORE + core)));
                // Ranks that search at the same time should choose different cores.
                let turn = std::process::id() as usize % free.len().max(1);
                free.rotate_left(turn);
                free.truncate(most - at_work.len());
                free.into_iter().map(|core| CORE + core).collect()
            }
        };
        for order in orders {
            match self.workers.iter().find(|worker| worker.core().is_none()) {
                Some(evicted_links) => {
                    evicted_links.desk.order.store(order, Ordering::Relaxed);
                    evicted_links.thread.thread().unpark();
                }
                None => self.start(order),
            }
        }
    }

    fn start(&mut self, order: usize) {
        let desk = Arc::new(Desk {
            order: AtomicUsize::new(order),
            asleep: AtomicBool::new(false),
        });
        let (slots, its) = (self.slots.clone(), desk.clone());
        // The worker inherits the blocked signals of the progress thread.
        let builder = Builder::new()
            .name("marline-sums".into())
            .stack_size(256 * 1024);
        let Ok(thread) = builder.spawn(move || its.run(&slots)) else {
            return; // the engine sums without the worker
        };
        if let Ok(mut all) = self.callable.lock() {
            all.push((desk.clone(), thread.thread().clone()));
        }
        self.workers.push(Worker { desk, thread });
    }
}

impl Drop for SumWorkers {
    fn drop(&mut self) {
        for worker in self.workers.drain(..) {
            if self.generation.is_forked() {
                std::mem::forget(worker); // the thread belongs to the parent process
                continue;
            }
            worker.desk.order.store(END, Ordering::Relaxed);
            worker.thread.thread().unpark();
            let _ = worker.thread.join();
        }
    }
}

impl Worker {
    /// The core of the worker's present order; `None`: it rests.
    fn core(&self) -> Option<usize> {
        let order = self.desk.order.load(Ordering::Relaxed);
        (order != REST).then_some(order)
    }
}

impl Desk {
    fn run(&self, slots: &SumSlots) {
        loop {
            let order = self.order.load(Ordering::Relaxed);
            match order {
                END => return,
                REST => park(),
                ANYWHERE => {
                    stay_on(&job_cores());
                    self.serve(slots, false);
                }
                core if stay_on(&[core - CORE]) => self.serve(slots, true),
                _ => self.rest(order),
            }
        }
    }

    /// Executes jobs until the workers get another order (`order`) or, on an idle core, another
    /// thread wants the core.
    fn serve(&self, slots: &SumSlots, alone: bool) {
        let order = self.order.load(Ordering::Relaxed);
        slots.on_duty(true);
        let mut busy_ns = MonotonicClock.now_ns();
        while self.order.load(Ordering::Relaxed) == order {
            let before = MonotonicClock.now_ns();
            let worked = slots.work(sum_of_job).is_some();
            if !worked {
                (0..LOOKS).for_each(|_| std::hint::spin_loop());
                yield_now();
            }
            let now = MonotonicClock.now_ns();
            let late = if worked { LATE_NS } else { TAKEN_NS };
            let mut over = now - before > late;
            if worked {
                busy_ns = now;
            } else if now - busy_ns > LOOK_NS {
                over |= !self.sleep(slots);
                busy_ns = MonotonicClock.now_ns();
            }
            if alone && over {
                self.rest(order);
            }
        }
        slots.on_duty(false);
    }

    /// Sleeps until there are jobs; `false`: the sleep was so long that the core may no longer be
    /// idle.
    fn sleep(&self, slots: &SumSlots) -> bool {
        let since = MonotonicClock.now_ns();
        self.asleep.store(true, Ordering::Relaxed);
        if slots.may_sleep() && self.order.load(Ordering::Relaxed) != END {
            park_timeout(SLEEP_MAX);
        }
        slots.awake();
        self.asleep.store(false, Ordering::Relaxed);
        MonotonicClock.now_ns() - since < SLEEP_MAX.as_nanos() as u64
    }

    fn rest(&self, order: usize) {
        let (success, failure) = (Ordering::Relaxed, Ordering::Relaxed);
        // Keeps a newer order.
        let _ = (self.order).compare_exchange(order, REST, success, failure);
    }
}
