//! Reads of completion queues, and flushing after posts.

use crate::api::{Completion, CqId};
use crate::core::Core;
use crate::platform::sync::MutexGuard;
use crate::platform::system::System;
use crate::progress::shared::Shared;

/// Most consecutive reads served from a queue's entries before the sockets are polled.
const SKIPS_MAX: u32 = 8;

impl<S: System> Shared<S> {
    /// Makes progress without reading a queue.
    pub(crate) fn progress(&self) {
        if !self.is_forked() {
            drop(self.poll());
        }
    }

    /// See `Engine::look`.
    pub(crate) fn look(&self) {
        if !self.is_forked() {
            drop(self.poll_as(false));
        }
    }

    /// See `Engine::cq_read`.
    pub(crate) fn cq_read(&self, cq: CqId, out: &mut [Completion]) -> Result<usize, ()> {
        if self.is_forked() {
            return Ok(0);
        }
        // Serves remaining entries without a system call, but polls the sockets after a limit.
        if self.skips.take() {
            let mut core = self.lock();
            let taken = drain(&mut core, cq, out);
            if taken != Ok(out.len()) {
                self.skips.end();
            }
            if taken != Ok(0) {
                core.coalescer.ended();
                if core.has_output() {
                    let now = self.clock.now_ns();
                    core.coalescer.polled(now);
                    core.flush(now);
                }
                return taken;
            }
        }
        let mut core = self.poll();
        let taken = drain(&mut core, cq, out);
        if taken == Ok(out.len()) && taken != Ok(0) {
            self.skips.refill(SKIPS_MAX);
        }
        if taken == Ok(0) && core.poisoned {
            return Err(()); // no more entries will come: report that to the caller
        }
        taken
    }

    /// Flushes the posted operations or coalesces them with later ones.
    pub(crate) fn flush_or_collect(
        &self,
        mut core: MutexGuard<'_, Core<S>>,
        leaves: bool,
        now: Option<u64>,
    ) {
        match leaves || !self.threaded {
            true => core.flush(now.unwrap_or_else(|| self.clock.now_ns())),
            false => self.collect(core),
        }
    }

    /// Leaves a send for coalescing. The first one sets the thread's alarm, since the application
    /// may compute before its next call.
    pub(crate) fn collect(&self, mut core: MutexGuard<'_, Core<S>>) {
        if core.coalescer.left(|| self.clock.now_ns()) {
            drop(core);
            self.clock.alarm();
        }
    }
}

/// Moves completions out, up to the first error.
fn drain<S: System>(core: &mut Core<S>, cq: CqId, out: &mut [Completion]) -> Result<usize, ()> {
    let Some(queue) = core.dir.cq(cq) else {
        return Ok(0);
    };
    let mut n = 0;
    while n < out.len() {
        match queue.front() {
            None => break,
            Some(entry) if entry.error.is_some() => {
                return if n == 0 { Err(()) } else { Ok(n) };
            }
            Some(_) => {}
        }
        if let Some(entry) = queue.pop_front() {
            out[n] = entry;
            n += 1;
        }
    }
    Ok(n)
}
