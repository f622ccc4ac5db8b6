//! Outages as events for the owner: paths that go down, come back or become suspect, the number of
//! requeued packets, and the time without any delivery to the peer.

use crate::base::types::{Event, PathReason, PathState};
use crate::state::conn::Conn;

impl Conn {
    /// Notes when delivery stopped, because a packet on path `at` is late or the path failed.
    /// `report`: report the end of the gap.
    pub(crate) fn begin_gap(&mut self, at: usize, report: bool) {
        let Some((_, oldest)) = self.paths[at].ring.oldest_waiting() else {
            return; // nothing waits
        };
        if self.life.gap_from == 0 {
            let delivered = self
                .paths
                .iter()
                .map(|p| p.loss.newest_acked_sent_ns())
                .max();
            self.life.gap_from = oldest.sent_ns.max(delivered.unwrap_or(0)).max(1);
        }
        self.life.gap_reported |= report;
    }

    /// The event for the state of path `at`.
    pub(crate) fn path_changed(&self, at: usize, why: PathReason, moved: u32) -> Event {
        let path = &self.paths[at];
        Event::PathChanged {
            peer: self.peer,
            rail: path.local,
            remote_rail: path.to.index,
            state: path.state(),
            why,
            moved,
        }
    }

    /// The event for path `at`, which is as silent as all others and tries another source port or
    /// connection.
    #[cold]
    pub(crate) fn path_rerouted(&mut self, at: usize) -> Event {
        let path = &mut self.paths[at];
        path.stats.reroutes += 1;
        Event::PathRerouted {
            peer: self.peer,
            rail: path.local,
            remote_rail: path.to.index,
        }
    }

    /// The event for path `at` with another packet size.
    #[cold]
    pub(crate) fn path_shrank(
        &self,
        at: usize,
        (from, to): (usize, usize),
        why: PathReason,
    ) -> Event {
        let path = &self.paths[at];
        Event::PathShrank {
            peer: self.peer,
            rail: path.local,
            remote_rail: path.to.index,
            from,
            to,
            why,
        }
    }

    /// The event for a shrunk path, once, when its new size is known.
    pub(crate) fn size_report(&mut self, at: usize) -> Option<Event> {
        let sizes = self.paths[at].mtu.take_report()?;
        Some(self.path_shrank(at, sizes, PathReason::Size))
    }

    fn path_suspect(&self, at: usize, suspect: bool, gap_ns: u64) -> Event {
        let path = &self.paths[at];
        Event::PathSuspect {
            peer: self.peer,
            rail: path.local,
            remote_rail: path.to.index,
            suspect,
            gap_ns,
        }
    }

    /// Marks a path in use as suspect. Returns the event, unless the path was suspect already.
    pub(crate) fn suspect(&mut self, at: usize) -> Option<Event> {
        if self.paths[at].state() != PathState::Up {
            return None;
        }
        self.begin_gap(at, false);
        self.paths[at].health.on_late();
        Some(self.path_suspect(at, true, 0))
    }

    /// Ends a delivery gap, because path `at` delivered again. `cleared`: the path was suspect.
    #[cold]
    pub(crate) fn end_gap(&mut self, now: u64, at: usize, cleared: bool) -> [Option<Event>; 2] {
        let gap_ns = match self.life.gap_from {
            0 => 0,
            from => now.saturating_sub(from).max(1),
        };
        let reports = core::mem::take(&mut self.life.gap_reported);
        self.life.gap_from = 0;
        let resumed = Event::Resumed {
            peer: self.peer,
            rail: self.paths[at].local,
            remote_rail: self.paths[at].to.index,
            gap_ns,
        };
        let suspect = self.path_suspect(at, false, gap_ns);
        [cleared.then_some(suspect), reports.then_some(resumed)]
    }
}
