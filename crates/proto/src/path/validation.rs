//! Giving paths up, and probes of paths that are down or unproven.

use crate::base::mutation::Mutation;
use crate::base::types::{PathReason, PathState};
use crate::path::actions::Recovery;
use crate::state::conn::Conn;
use crate::state::health_table::Input;
use crate::state::path::Path;

/// Cap of the probe interval of a path that never worked (there is probably no route).
const UNPROVEN_CAP_NS: u64 = 2_000_000_000;

/// Time for which reachability must be lost before standby rails are used. Descheduled peers answer
/// sooner, and cause no unnecessary connections.
const STANDBY_AFTER_NS: u64 = 100_000_000;

impl Recovery<'_> {
    /// Takes a path down, unless it is the last.
    pub(crate) fn path_down(&mut self, now: u64, conn: &mut Conn, at: usize, why: PathReason) {
        let other = |(i, p): (usize, &Path)| i != at && p.usable();
        let last = !conn.paths.iter().enumerate().any(other);
        let kept = self.cfg.errs(Mutation::Cling);
        if last || kept || conn.paths[at].state() == PathState::Down {
            conn.paths[at].health.set_comparison(None);
            return;
        }
        let hold_down_max_ns = self.cfg.hold_down_max_ns();
        conn.begin_gap(at, true);
        conn.paths[at].fall(now, hold_down_max_ns, Input::of_failure(why));
        conn.doubt_reachability(now);
        let moved = self.requeue_in_flight(conn, at);
        self.actions.event(conn.path_changed(at, why, moved));
    }

    pub(crate) fn probe(&mut self, now: u64, conn: &mut Conn, at: usize) {
        let lost = conn.is_unreached();
        if lost && conn.reachability.lost_for_ns(now) >= STANDBY_AFTER_NS {
            self.standby(conn);
        }
        if now < conn.paths[at].probing.due_ns() || !conn.asks_path(at, self.cfg) {
            return;
        }
        let path = &mut conn.paths[at];
        if path.health.is_isolated() && !lost {
            if path.next_isolation_probe(now) {
                self.actions.new_flow(at);
                self.requeue_in_flight(conn, at);
            }
            self.actions.mark_ready();
            return;
        }
        let unproven = path.state() == PathState::Unproven;
        // Data in flight on a new path serves as a probe.
        let asks = path
            .pto_at(self.cfg, &conn.life)
            .filter(|_| path.pto.backoff() == 0);
        if let Some(at) = asks.filter(|&at| unproven && !lost && at > now) {
            path.probing.set_due(at);
            return;
        }
        let cap = if unproven && !lost {
            UNPROVEN_CAP_NS
        } else {
            self.cfg.probe_interval_max_ns()
        };
        path.probing.on_timer(now, cap);
        self.report_silent(conn, at);
        self.reroute(conn, at);
        let path = &mut conn.paths[at];
        if path.rail_down() {
            return;
        }
        path.probing.request();
        if path.state() == PathState::Down {
            self.requeue_in_flight(conn, at);
        }
        self.actions.mark_ready();
    }
}
