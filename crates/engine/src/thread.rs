//! The progress thread: one per process, for all its engines (design rule 2). While the
//! application polls it only ticks; when nobody polled for a tick it sleeps on the rails'
//! descriptors and acts on what comes, so that acks, repairs and grants go on while the
//! application computes.

use crate::clock::Clock;
use crate::crew::Crew;
use crate::event::Alarm;
use crate::shared::Shared;
use crate::system::Process;
use crate::wake::Waker;
use std::panic::{catch_unwind, AssertUnwindSafe};
use std::sync::{Arc, OnceLock};

/// A burst that is collected leaves after this at the latest: 200 us are promised (design rule 3),
/// waking up takes up to 50.
const ALARM_NS: u64 = 100_000;
/// Longest sleep with no engine about.
const IDLE_NS: u64 = 100_000_000;

struct Registry {
    crew: Crew<Shared<Process>>,
    waker: Waker,
    alarm: Alarm,
}

static REGISTRY: OnceLock<Result<Registry, String>> = OnceLock::new();

fn registry() -> Result<&'static Registry, String> {
    let made = REGISTRY.get_or_init(|| {
        Ok(Registry {
            crew: Crew::new(),
            waker: Waker::new()?,
            alarm: Alarm::new()?,
        })
    });
    made.as_ref().map_err(Clone::clone)
}

/// Gives the thread an engine to look after, and starts it if need be.
pub(crate) fn join(shared: &Arc<Shared<Process>>) -> Result<(), String> {
    let registry = registry()?;
    let start = || {
        let builder = std::thread::Builder::new()
            .name("marline".into())
            .stack_size(256 * 1024);
        builder
            .spawn(|| run(registry))
            .map_err(|e| format!("no progress thread: {e} (FI_MARLINE_PROGRESS_THREAD=off)"))
    };
    registry.crew.join(shared, start)?;
    registry.waker.wake();
    Ok(())
}

/// Takes an engine from the thread; the last one ends it.
pub(crate) fn leave(shared: &Arc<Shared<Process>>) {
    let Ok(registry) = registry() else { return };
    // A child of a fork has no thread to end, and maybe a lock that nobody releases.
    if !shared.is_forked() {
        registry.crew.leave(shared, || registry.waker.wake());
    }
}

/// Has the thread look for collected sends in a moment. Set again for each burst, it goes off only
/// when the application stays away; a call to the thread instead (an eventfd) took a third of the
/// sender's time at 0.8 million messages/s.
pub(crate) fn alarm() {
    if let Ok(registry) = registry() {
        registry.alarm.set(ALARM_NS);
    }
}

fn run(registry: &'static Registry) {
    block_signals();
    while !registry.crew.is_over() {
        let joined = registry.crew.joined();
        let engines = registry.crew.members();
        let rung = registry.alarm.take();
        let (mut timeout, mut fds) = (IDLE_NS, vec![registry.alarm.fd()]);
        for engine in &engines {
            let now = engine.clock.now_ns();
            let worked = catch_unwind(AssertUnwindSafe(|| engine.work(now, rung)));
            // A panic poisoned the engine's lock: its callers get errors from now on.
            let next = worked.unwrap_or(now + IDLE_NS);
            timeout = timeout.min(next.saturating_sub(engine.clock.now_ns()));
            if engine.is_away(now) {
                fds.extend(&engine.fds);
            }
        }
        let news = || registry.crew.is_over() || registry.crew.joined() != joined;
        registry.waker.sleep_until(&fds, timeout, news);
    }
}

/// Signals of the process are the application's.
fn block_signals() {
    // SAFETY: `set` is a local that sigfillset initialises; only this thread's mask changes.
    unsafe {
        let mut set = std::mem::zeroed();
        libc::sigfillset(&mut set);
        libc::pthread_sigmask(libc::SIG_BLOCK, &set, std::ptr::null_mut());
    }
}
