//! Path comparison: which of two silent paths is at fault.

use crate::base::config::Config;
use crate::base::mutation::Mutation;
use crate::base::types::PathReason;
use crate::path::actions::Recovery;
use crate::state::congestion::{product_over, CWND_FLOOR, NS_PER_S};
use crate::state::conn::Conn;
use crate::state::health::Comparison;
use crate::state::path::Path;
use alloc::vec::Vec;
use core::cmp::Reverse;
use core::num::NonZeroU64;

/// Least length of a comparison's second round. A peer that answers on one rail has read its other
/// rails long before: it polls every socket within tens of microseconds.
const COMPARISON_NS: u64 = 1_000_000;
/// Least length of a round on a reliable path (TCP, RC), whose rail may be retransmitting: TCP
/// repeats its last packet after 8 ms, and again after 16 ms more.
const STALL_COMPARISON_NS: u64 = 30_000_000;
/// Least length of a round on a reliable path that holds written bytes, which leave on another path
/// only after this one is given up: long enough for one TCP retransmission.
const WRITTEN_COMPARISON_NS: u64 = 10_000_000;
/// Assumed rate of a path without a rate sample: 80 Mbit/s.
const SLOW_BYTES_PER_S: u64 = 10_000_000;
/// Reference paths probed for a comparison; two, since one probe may be lost.
pub(crate) const REFERENCE_PATHS: usize = 2;

impl Recovery<'_> {
    pub(crate) fn end_comparison(&mut self, now: u64, conn: &mut Conn, at: usize) {
        let patient = self.descheduled.descheduled_grace_ns(&conn.life) > 0;
        let path = &mut conn.paths[at];
        let Some(&comparison) = path.health.comparison() else {
            return;
        };
        let (verdict, draw) = path.comparison_ends(&comparison);
        let answered = comparison.answered_ns.filter(|_| comparison.second);
        let answered = answered.map(NonZeroU64::get);
        if let Some(answered) = answered.filter(|_| now >= verdict) {
            // The peer, or this process, may have been descheduled between two sockets.
            let fell_silent = patient && conn.life.prompt_ns + path.answer_ns(self.cfg) < now;
            if (self.descheduled.gap_end_ns > answered || fell_silent) && !comparison.patient {
                let lossy = path.policy.lossy;
                path.health.set_comparison(Some(Comparison {
                    answered_ns: NonZeroU64::new(now).filter(|_| lossy),
                    patient: true,
                    ..comparison
                }));
                if !lossy {
                    // Rounds of a reliable path are long: other paths may have been idle meanwhile.
                    ask_references(conn, at, self.local.full, REFERENCE_PATHS);
                    self.actions.mark_ready();
                }
                return;
            }
            let path = &mut conn.paths[at];
            let another = path.awaits_standby(now, &comparison);
            path.health.set_comparison(another);
            if another.is_none() {
                self.path_down(now, conn, at, PathReason::Unanswered);
            }
        } else if now >= draw {
            // No reference path answered either: the peer is silent, not the path.
            conn.paths[at].health.set_comparison(None);
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
        let witness_ns = self.paths[acked].loss.newest_acked_sent_ns();
        for at in (0..self.paths.len()).filter(|&i| i != acked) {
            let Some(comparison) = self.paths[at].health.comparison_mut() else {
                continue;
            };
            if witness_ns < comparison.started_ns {
                continue;
            }
            if comparison.second || cfg.errs(Mutation::Hasty) {
                comparison.second = true;
                // The timer decides after every rail was read: the path's own answer may be in the
                // next socket.
                comparison.answered_ns = comparison.answered_ns.or(NonZeroU64::new(now));
            } else {
                let written = comparison.written;
                let path = &mut self.paths[at];
                let second = Comparison {
                    second: true,
                    written,
                    ..path.new_comparison(now, granted)
                };
                path.health.set_comparison(Some(second));
                path.probing.request();
                ask_references(self, at, full, REFERENCE_PATHS);
            }
        }
    }
}

impl Path {
    /// Returns when a round of the comparison may be decided, and when it ends without a result.
    pub(crate) fn comparison_ends(&self, comparison: &Comparison) -> (u64, u64) {
        let round = match self.policy.lossy {
            true => {
                // (A write may queue behind writes that were given up before.)
                let queue_ns = match comparison.written {
                    true => {
                        2 * (self.congestion).drains_or_ns(self.ring.in_flight(), SLOW_BYTES_PER_S)
                    }
                    // The answer may queue behind a write by the peer, which is sent as a whole.
                    false if comparison.expects => {
                        (self.congestion).takes_or_ns(CWND_FLOOR / 2, SLOW_BYTES_PER_S)
                    }
                    false => self.drains_ns(),
                };
                COMPARISON_NS.max(self.rtt.four_ns()).max(queue_ns)
            }
            // A reliable path's mean round trip is its queueing delay, and acks arrive all the
            // time.
            false => {
                let time_threshold_ns = match comparison.written {
                    true => WRITTEN_COMPARISON_NS,
                    false => STALL_COMPARISON_NS,
                };
                time_threshold_ns.max(self.rtt.four_unqueued_ns(0))
            }
        };
        let (started, answered) = (
            comparison.started_ns,
            comparison.answered_ns.map_or(0, NonZeroU64::get),
        );
        let verdict = match self.policy.lossy {
            true => started.max(answered) + round,
            // The reference answer shows that the peer ran during the rail's whole round.
            false => (started + round).max(answered + COMPARISON_NS),
        };
        (verdict, started + 10 * round)
    }

    /// A comparison that begins now. (`holds_written` may look at many packets, once.)
    pub(crate) fn new_comparison(&self, now: u64, granted: u64) -> Comparison {
        Comparison {
            started_ns: now,
            answered_ns: None,
            patient: false,
            second: false,
            written: self.holds_written(),
            expects: granted > 0 && self.to.writes(),
            came: self.stats.bytes_received as u32,
            before: 2 * CWND_FLOOR as u32,
        }
    }

    /// Returns another round if the path would lose the comparison now, but the answer may still be
    /// in the peer's send queue, behind data that arrives on this path. That is so while data
    /// arrives at half the path's rate or more, up to two windows of a slow path: our probe may be
    /// behind the first of them.
    fn awaits_standby(&self, now: u64, comparison: &Comparison) -> Option<Comparison> {
        let came = self.stats.bytes_received as u32;
        let bytes = came.wrapping_sub(comparison.came);
        let rate = match self.congestion.busy_bytes_per_s() {
            0 => SLOW_BYTES_PER_S,
            rate => rate,
        };
        let least = product_over(rate / 2, now - comparison.started_ns, NS_PER_S);
        let busy = self.policy.lossy && u64::from(bytes) > least;
        (busy && bytes < comparison.before).then(|| Comparison {
            started_ns: now,
            answered_ns: NonZeroU64::new(now),
            came,
            before: comparison.before - bytes,
            ..*comparison
        })
    }

    /// True if written bytes (sent past the packets) wait for an ack.
    fn holds_written(&self) -> bool {
        self.ring.waiting_frames().any(|frame| frame.is_written())
    }
}

/// Probes up to `most` other usable paths as reference paths. Preferred are paths whose rail has
/// room, then paths that share no rail with path `at`, then the paths that were acknowledged last.
/// A reference path whose probe is lost twice begins a comparison of its own. If all of 16 paths
/// were probed at a loss of a tenth, each comparison would cause more than one other, without an
/// end.
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
