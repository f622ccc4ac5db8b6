//! Path comparison: which of two silent paths is at fault.

use crate::base::config::Config;
use crate::base::mutation::Mutation;
use crate::base::types::PathReason;
use crate::path::actions::Recovery;
use crate::state::comparison::{Answer, Comparison, Outcome, COMPARISON_NS};
use crate::state::congestion::{product_over, CWND_FLOOR, NS_PER_S};
use crate::state::conn::Conn;

use crate::state::path::Path;
use alloc::vec::Vec;
use core::cmp::Reverse;

/// Least length of a round on a reliable path (TCP, RC), whose rail may be retransmitting: TCP
/// repeats its last packet after 8 ms, and again 16 ms later.
const STALL_COMPARISON_NS: u64 = 30_000_000;
/// Least length of a round on a reliable path that holds written bytes, which can leave on another
/// path only after this path is given up: long enough for one TCP retransmission.
const WRITTEN_COMPARISON_NS: u64 = 10_000_000;
/// Assumed rate of a path without a rate sample: 80 Mbit/s.
const SLOW_BYTES_PER_S: u64 = 10_000_000;
/// Reference paths probed for a comparison: two, since one probe may be lost.
pub(crate) const REFERENCE_PATHS: usize = 2;

impl Recovery<'_> {
    /// Ends or prolongs the comparison of a path whose deadline has come.
    pub(crate) fn end_comparison(&mut self, now: u64, conn: &mut Conn, at: usize) {
        let path = &mut conn.paths[at];
        let Some(mut comparison) = path.health.comparison().copied() else {
            return;
        };
        let lossy = path.policy.lossy;
        match comparison.outcome(now, path.comparison_ends(&comparison)) {
            Outcome::Open => {}
            // The peer is silent, not the path.
            Outcome::Draw => path.health.set_comparison(None),
            Outcome::Silent { answered_ns } => {
                let answer_ns = path.answer_ns(self.cfg);
                let excused = self
                    .descheduled
                    .excuses(now, answered_ns, answer_ns, &conn.life);
                if excused && comparison.grant_grace(now, lossy) {
                    path.health.set_comparison(Some(comparison));
                    if !lossy {
                        // Rounds of a reliable path are long: reference paths may have been idle
                        // since their last probe.
                        ask_references(conn, at, self.local.full, REFERENCE_PATHS);
                        self.actions.mark_ready();
                    }
                    return;
                }
                let another = path.another_round(now, &comparison);
                path.health.set_comparison(another);
                if another.is_none() {
                    self.path_down(now, conn, at, PathReason::Unanswered);
                }
            }
        }
    }
}

impl Conn {
    /// Compares silent paths with path `acked`, which just had an ack of packets sent at
    /// `newest_acked_sent_ns`.
    pub(crate) fn compare_paths(
        &mut self,
        now: u64,
        acked: usize,
        granted: u64,
        full: u32,
        cfg: &Config,
    ) {
        let sent_ns = self.paths[acked].loss.newest_acked_sent_ns();
        for at in (0..self.paths.len()).filter(|&i| i != acked) {
            let Some(comparison) = self.paths[at].health.comparison_mut() else {
                continue;
            };
            let hasty = cfg.errs(Mutation::Hasty);
            if comparison.on_reference(now, sent_ns, hasty) != Answer::NextRound {
                continue;
            }
            let first = *comparison;
            let path = &mut self.paths[at];
            let second = first.second_round(path.new_comparison(now, granted));
            path.health.set_comparison(Some(second));
            path.probing.request();
            ask_references(self, at, full, REFERENCE_PATHS);
        }
    }
}

impl Path {
    /// Returns when a round of the comparison may be decided at the earliest, and when it ends
    /// without a result.
    pub(crate) fn comparison_ends(&self, comparison: &Comparison) -> (u64, u64) {
        let round = match self.policy.lossy {
            true => {
                // (A write may queue behind earlier writes that were given up.)
                let queue_ns = match comparison.holds_written() {
                    true => {
                        2 * (self.congestion).drains_or_ns(self.ring.in_flight(), SLOW_BYTES_PER_S)
                    }
                    // The answer may queue behind one of the peer's writes, which is sent as a
                    // whole.
                    false if comparison.expects() => {
                        (self.congestion).takes_or_ns(CWND_FLOOR / 2, SLOW_BYTES_PER_S)
                    }
                    false => self.drains_ns(),
                };
                COMPARISON_NS.max(self.rtt.four_ns()).max(queue_ns)
            }
            // A reliable path's mean round trip is its queueing delay, and acks arrive all the
            // time.
            false => {
                let time_threshold_ns = match comparison.holds_written() {
                    true => WRITTEN_COMPARISON_NS,
                    false => STALL_COMPARISON_NS,
                };
                time_threshold_ns.max(self.rtt.four_unqueued_ns(0))
            }
        };
        comparison.ends(self.policy.lossy, round)
    }

    /// A comparison that begins now. (Looks once for written bytes in flight, among perhaps many
    /// packets.)
    pub(crate) fn new_comparison(&self, now: u64, granted: u64) -> Comparison {
        let expects = granted > 0 && self.to.writes();
        Comparison::new(
            now,
            self.holds_written(),
            expects,
            self.stats.bytes_received,
        )
    }

    /// Returns another round if the path would lose the comparison now, although the answer may
    /// still be in the peer's send queue, behind data that arrives on this path. The answer may be
    /// there while data arrives at half the path's rate or more, up to two windows of a slow path:
    /// our probe may have queued behind one of them.
    fn another_round(&self, now: u64, comparison: &Comparison) -> Option<Comparison> {
        let received = self.stats.bytes_received;
        let rate = match self.congestion.busy_bytes_per_s() {
            0 => SLOW_BYTES_PER_S,
            rate => rate,
        };
        let least = product_over(rate / 2, comparison.lasted_ns(now), NS_PER_S);
        let busy = self.policy.lossy && u64::from(comparison.arrived(received)) > least;
        busy.then(|| comparison.more_data(now, received)).flatten()
    }

    /// True if written bytes (sent past the packets) wait for an ack.
    fn holds_written(&self) -> bool {
        self.ring.waiting_frames().any(|frame| frame.is_written())
    }
}

/// Probes up to `most` other usable paths as reference paths. Preferred are paths whose rail has
/// room, then paths that share no rail with path `at`, then the paths acknowledged last. A
/// reference path whose probe is lost twice begins a comparison of its own, so few are probed: with
/// 16 paths and a loss of a tenth, each comparison would otherwise cause more than one other,
/// without end.
pub(crate) fn ask_references(conn: &mut Conn, at: usize, full: u32, most: usize) {
    let (local, remote) = (conn.paths[at].local, conn.paths[at].to.index);
    let order = |(i, path): (usize, &Path)| {
        let shared = (path.local == local) as u8 + (path.to.index == remote) as u8;
        let heard = Reverse(path.loss.newest_acked_sent_ns());
        (!path.has_room(full), shared, heard, i)
    };
    let references = conn.paths.iter().enumerate();
    let references = references.filter(|&(i, p)| i != at && p.usable() && !p.health.is_compared());
    let mut references: Vec<_> = references.map(order).collect();
    references.sort_unstable();
    for &(.., i) in references.iter().take(most) {
        conn.paths[i].probing.request();
    }
}

/// True if another path is usable.
pub(crate) fn has_references(conn: &Conn, at: usize) -> bool {
    let mut paths = conn.paths.iter().enumerate();
    paths.any(|(i, p)| i != at && p.usable())
}
