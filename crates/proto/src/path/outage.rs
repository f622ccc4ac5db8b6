//! Outages as events for the owner: paths that go down, come back or become suspect, how many
//! packets were requeued, and how long nothing was delivered to the peer.

use crate::base::types::{Event, PathReason, PathState};
use crate::node::Node;
use crate::state::conn::Conn;
use crate::state::path::Path;

impl Path {
    /// The event for the path's present state.
    fn changed(&self, conn: &Conn, why: PathReason, moved: u32) -> Event {
        Event::PathChanged {
            peer: conn.peer,
            rail: self.local,
            remote_rail: self.to.index,
            state: self.state(),
            why,
            moved,
        }
    }
}

impl Conn {
    /// Notes when delivery stopped, because a packet on path `at` is late or the path failed.
    /// `told`: the end of the gap is reported.
    pub(crate) fn begin_gap(&mut self, at: usize, told: bool) {
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
        self.life.gap_told |= told;
    }
}

impl Node {
    /// Reports the state of path `at`.
    pub(crate) fn tell_path(&mut self, conn: &Conn, at: usize, why: PathReason, moved: u32) {
        let event = conn.paths[at].changed(conn, why, moved);
        self.events.push_back(event);
    }

    /// Reports that path `at`, silent like all others, tries another source port or connection.
    #[cold]
    pub(crate) fn tell_rerouted(&mut self, conn: &mut Conn, at: usize) {
        let path = &mut conn.paths[at];
        path.stats.reroutes += 1;
        self.events.push_back(Event::PathRerouted {
            peer: conn.peer,
            rail: path.local,
            remote_rail: path.to.index,
        });
    }

    /// Reports that path `at` has another packet size.
    #[cold]
    pub(crate) fn tell_shrank(
        &mut self,
        conn: &Conn,
        at: usize,
        (from, to): (usize, usize),
        why: PathReason,
    ) {
        let path = &conn.paths[at];
        self.events.push_back(Event::PathShrank {
            peer: conn.peer,
            rail: path.local,
            remote_rail: path.to.index,
            from,
            to,
            why,
        });
    }

    /// Marks a path in use as suspect.
    pub(crate) fn suspect(&mut self, conn: &mut Conn, at: usize) {
        if conn.paths[at].state() != PathState::Up {
            return;
        }
        conn.begin_gap(at, false);
        let path = &mut conn.paths[at];
        path.health.on_late();
        self.events.push_back(Event::PathSuspect {
            peer: conn.peer,
            rail: path.local,
            remote_rail: path.to.index,
            suspect: true,
            gap_ns: 0,
        });
    }

    /// Ends a delivery gap: path `at` delivered again. `cleared`: the path was suspect.
    #[cold]
    pub(crate) fn end_gap(&mut self, now: u64, conn: &mut Conn, at: usize, cleared: bool) {
        let gap_ns = match conn.life.gap_from {
            0 => 0,
            from => now.saturating_sub(from).max(1),
        };
        let told = core::mem::take(&mut conn.life.gap_told);
        conn.life.gap_from = 0;
        let path = &conn.paths[at];
        let (peer, rail, remote_rail) = (conn.peer, path.local, path.to.index);
        if cleared {
            self.events.push_back(Event::PathSuspect {
                peer,
                rail,
                remote_rail,
                suspect: false,
                gap_ns,
            });
        }
        if told {
            self.events.push_back(Event::Resumed {
                peer,
                rail,
                remote_rail,
                gap_ns,
            });
        }
    }
}
