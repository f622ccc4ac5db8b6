//! Receives from any source. They name no peer: while such a receive waits, all peers are probed,
//! so that the death of one ends it.

use crate::base::config::Config;
use crate::base::mutation::Mutation;
use crate::base::types::{Event, RecvSpec};
use crate::incoming::receives::Receives;
use alloc::collections::VecDeque;
use core::ops::Range;

/// Peers checked at once: 26 us at 100 ns each with cold caches, during which the owner's lock is
/// held.
const LOOK_MAX: usize = 256;
/// Pause before the next batch: 256,000 peers in a second.
const LOOK_EVERY_NS: u64 = 1_000_000;

/// Watch over peers on behalf of receives from any source.
#[derive(Debug)]
pub(crate) struct AnySource {
    /// When the next peers are probed.
    at_ns: u64,
    /// Index of the first peer to probe then.
    next: usize,
    /// A peer died while no receive was posted that could report it: the next one does.
    unreported_death: bool,
}

impl Default for AnySource {
    fn default() -> AnySource {
        AnySource {
            at_ns: u64::MAX,
            next: 0,
            unreported_death: false,
        }
    }
}

impl AnySource {
    /// When peers are to be probed next.
    #[inline]
    pub(crate) fn deadline(&self) -> u64 {
        self.at_ns
    }

    /// Prepares a receive that found no message. `false`: the receive fails, because a peer died
    /// and no receive has reported that yet.
    pub(crate) fn await_message(&mut self, cfg: &Config, spec: &RecvSpec, now_ns: u64) -> bool {
        if !cfg.any_source_fails || !spec.is_from_any_source() {
            return true;
        }
        if core::mem::take(&mut self.unreported_death) {
            return false;
        }
        if self.at_ns == u64::MAX && cfg.reliable {
            self.at_ns = now_ns + cfg.keepalive_interval_ns();
        }
        true
    }

    /// Handles a peer's death: waiting receives from any source fail; if there are none, the next
    /// one posted fails.
    pub(super) fn note_death(
        &mut self,
        cfg: &Config,
        receives: &mut Receives,
        events: &mut VecDeque<Event>,
    ) {
        if !cfg.any_source_fails || cfg.errs(Mutation::HideDeath) {
            return;
        }
        self.unreported_death = true;
        while let Some(posted) = receives.take_from_anyone() {
            self.unreported_death = false;
            let handle = posted.spec.handle;
            events.push_back(Event::RecvFailed { handle });
        }
    }

    /// Returns whether a receive from any source waits without keepalive probes (an invariant
    /// check).
    pub(super) fn is_forgotten(&self, cfg: &Config, receives: &Receives) -> bool {
        let watched = cfg.any_source_fails && cfg.reliable;
        watched && self.at_ns == u64::MAX && receives.waits_for_anyone()
    }

    /// The peers to probe now, of `peers` in all; `None`: no receive from any source waits.
    pub(super) fn batch(&mut self, peers: usize, receives: &Receives) -> Option<Range<usize>> {
        if self.next == 0 && !receives.waits_for_anyone() {
            self.at_ns = u64::MAX;
            return None;
        }
        Some(self.next..(self.next + LOOK_MAX).min(peers))
    }

    /// Schedules the batch after the one that ended at peer `end`, of `peers` in all.
    pub(crate) fn batch_over(&mut self, cfg: &Config, end: usize, peers: usize, now: u64) {
        let done = end == peers;
        self.next = if done { 0 } else { end };
        let pause_ns = match done {
            true => cfg.keepalive_interval_ns(),
            false => LOOK_EVERY_NS,
        };
        self.at_ns = now + pause_ns;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::base::types::Source;

    fn receive() -> RecvSpec {
        RecvSpec {
            handle: 3,
            source: Source::Any,
            tag: Some((0, 0)),
            capacity: 8,
            multi_min: None,
        }
    }

    #[test]
    fn a_death_ends_a_waiting_receive_or_the_next_one() {
        let cfg = Config {
            any_source_fails: true,
            ..Config::default()
        };
        let (mut any, mut receives) = (AnySource::default(), Receives::default());
        let mut events = VecDeque::new();
        any.note_death(&cfg, &mut receives, &mut events);
        assert!(events.is_empty());
        assert!(!any.await_message(&cfg, &receive(), 1), "reports the death");
        assert!(any.await_message(&cfg, &receive(), 1), "reported once");
        receives.post(&receive());
        assert!(!any.is_forgotten(&cfg, &receives));
        any.note_death(&cfg, &mut receives, &mut events);
        assert_eq!(events.pop_front(), Some(Event::RecvFailed { handle: 3 }));
        assert!(any.await_message(&cfg, &receive(), 1), "reported already");
    }

    #[test]
    fn peers_are_probed_in_batches_while_a_receive_waits() {
        let cfg = Config {
            any_source_fails: true,
            ..Config::default()
        };
        let (mut any, mut receives) = (AnySource::default(), Receives::default());
        assert!(any.await_message(&cfg, &receive(), 1));
        receives.post(&receive());
        let peers = LOOK_MAX + 1;
        assert_eq!(any.batch(peers, &receives), Some(0..LOOK_MAX));
        any.batch_over(&cfg, LOOK_MAX, peers, 5);
        assert_eq!(any.deadline(), 5 + LOOK_EVERY_NS);
        assert!(receives.cancel(3).is_some());
        assert_eq!(any.batch(peers, &receives), Some(LOOK_MAX..peers));
        any.batch_over(&cfg, peers, peers, 9);
        assert_eq!(any.batch(peers, &receives), None);
        assert_eq!(any.deadline(), u64::MAX);
    }
}
