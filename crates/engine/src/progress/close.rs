//! Closing an endpoint.

use crate::api::EpId;
use crate::core::Core;
use crate::platform::system::System;
use crate::progress::shared::Shared;

/// Time for which a close waits for its sends to be acked.
const CLOSE_NS: u64 = 2_000_000_000;
/// Time for which a close waits for peers to confirm BYE: a peer that lacks acks would otherwise
/// retransmit to a closed endpoint and declare it dead. A peer's thread answers within a tick; half
/// a second allows for a descheduled one.
const PART_NS: u64 = 500_000_000;

impl<S: System> Shared<S> {
    /// Waits for the endpoint's sends, says BYE, and closes it.
    pub(crate) fn ep_close(&self, ep: EpId) {
        if self.is_forked() {
            return;
        }
        // A send that another thread posted after the wait would be accepted but would never leave.
        if let Some(endpoint) = self.lock().dir.ep(ep) {
            endpoint.enabled = false;
            endpoint.node.ask_natives();
        }
        let start = self.clock.now_ns();
        let mut drained = false;
        while !drained && self.clock.now_ns() < start + CLOSE_NS {
            let mut core = self.poll(true);
            drained = core.poisoned || core.dir.ep(ep).is_none_or(|e| e.node.drained());
            drained &= core.poisoned || core.groups_are_idle(ep);
        }
        let now = self.clock.now_ns();
        let mut core = self.lock();
        if !drained {
            core.say_undelivered(ep);
        }
        if let Some(endpoint) = core.dir.ep(ep).filter(|_| !self.is_forked()) {
            endpoint.node.say_bye();
            core.flush(now);
        }
        let all_acked_bye = |core: &mut Core<S>| {
            core.poisoned || core.dir.ep(ep).is_none_or(|e| e.node.all_acked_bye())
        };
        while !all_acked_bye(&mut core) && self.clock.now_ns() < now + PART_NS {
            drop(core);
            core = self.poll(true);
        }
        core.keep_totals(ep);
        core.ep_forget(ep);
    }
}
