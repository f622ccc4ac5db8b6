//! Progress without reading a queue, and flushing after posts.

use crate::core::Core;
use crate::platform::sync::MutexGuard;
use crate::platform::system::System;
use crate::progress::shared::Shared;

impl<S: System> Shared<S> {
    /// Makes progress without reading a queue.
    pub(crate) fn progress(&self) {
        if !self.is_forked() {
            drop(self.poll(true));
        }
    }

    /// Calls `Engine::look`.
    pub(crate) fn look(&self) {
        if !self.is_forked() {
            drop(self.poll(false));
        }
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

    /// Leaves a send for coalescing. The first such send sets the thread's alarm, since the
    /// application may compute before its next call.
    pub(crate) fn collect(&self, mut core: MutexGuard<'_, Core<S>>) {
        if core.coalescer.left(|| self.clock.now_ns()) {
            drop(core);
            self.clock.alarm();
        }
    }
}
