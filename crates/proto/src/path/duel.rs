//! Duels between paths: which of two that are silent is to blame.

use crate::base::mutation::Mutation;
use crate::base::types::PathReason;
use crate::node::Node;
use crate::state::conn::Conn;
use crate::state::path::{product_over, Duel, Path, CWND_FLOOR, NS_PER_S, RATE_BYTES_MIN};
use alloc::boxed::Box;
use alloc::vec::Vec;
use core::cmp::Reverse;
use core::num::NonZeroU64;

/// A second round of a duel lasts at least this: a peer that answers on one rail has read its
/// others long before (every socket is polled within tens of microseconds).
const DUEL_NS: u64 = 1_000_000;
/// The same of a path that loses nothing: its rail may be repeating what the network lost, which
/// takes TCP and RC some milliseconds: TCP repeats its last packet after 8 ms, and after 16 more.
const STALL_DUEL_NS: u64 = 30_000_000;
/// The same of one that holds what was written, of which nothing is repeated elsewhere before the
/// path is given up: long enough for one repeat of TCP's.
const WRITTEN_DUEL_NS: u64 = 10_000_000;
/// The rate of a path of which none is known yet, at least: 80 Mbit/s.
const SLOW_BYTES_PER_S: u64 = 10_000_000;
/// Paths that are asked as witnesses of a duel: one may be lost.
pub(crate) const WITNESSES: usize = 2;

impl Node {
    /// Path `acked` just had news of packets sent at `newest_acked_sent_ns`: rivals in a duel
    /// that still have none are weighed against it.
    pub(crate) fn judge_rivals(&mut self, now: u64, conn: &mut Box<Conn>, acked: usize) {
        let witness_ns = conn.paths[acked].newest_acked_sent_ns;
        for at in (0..conn.paths.len()).filter(|&i| i != acked) {
            let Some(duel) = &mut conn.paths[at].duel else {
                continue;
            };
            if witness_ns < duel.started_ns {
                continue;
            }
            if duel.second || self.cfg.errs(Mutation::Hasty) {
                duel.second = true;
                // The verdict is for the timer, after every rail was read: the path's own answer
                // may be in the next socket.
                duel.answered_ns = duel.answered_ns.or(NonZeroU64::new(now));
            } else {
                let written = duel.written;
                let path = &mut conn.paths[at];
                path.duel = Some(Duel {
                    second: true,
                    written,
                    ..path.new_duel(now, self.grants.out)
                });
                path.want_ping = true;
                ask_rivals(conn, at, self.local.full, WITNESSES);
            }
        }
    }

    pub(crate) fn end_duel(&mut self, now: u64, conn: &mut Box<Conn>, at: usize) {
        let patient = self.absences.patience_ns(&conn.life) > 0;
        let path = &mut conn.paths[at];
        let Some(duel) = path.duel else { return };
        let (verdict, draw) = path.duel_ends(&duel);
        let answered = duel.answered_ns.filter(|_| duel.second);
        let answered = answered.map(NonZeroU64::get);
        if let Some(answered) = answered.filter(|_| now >= verdict) {
            // It, or we, may have been taken off the processor between two sockets.
            let fell_silent = patient && conn.life.lively_ns + path.answer_ns(&self.cfg) < now;
            if (self.absences.gap_end_ns > answered || fell_silent) && !duel.patient {
                let lossy = path.policy.lossy;
                path.duel = Some(Duel {
                    answered_ns: NonZeroU64::new(now).filter(|_| lossy),
                    patient: true,
                    ..duel
                });
                if !lossy {
                    // Its rounds are long: nobody else may have had anything to say meanwhile.
                    ask_rivals(conn, at, self.local.full, WITNESSES);
                    self.agenda.mark_ready(conn);
                }
                return;
            }
            let path = &mut conn.paths[at];
            path.duel = path.waits_behind(now, &duel);
            if path.duel.is_none() {
                self.path_down(now, conn, at, PathReason::Unanswered);
            }
        } else if now >= draw {
            // Nobody answered: the peer is silent, not the path.
            conn.paths[at].duel = None;
        }
    }
}

impl Path {
    /// When a round of the duel may be decided, and when nobody won it.
    pub(crate) fn duel_ends(&self, duel: &Duel) -> (u64, u64) {
        let round = match self.policy.lossy {
            true => {
                // (A write may be behind what was given up before in the same queue.)
                let queue_ns = match duel.written {
                    true => 2 * self.may_drain_ns(),
                    // The answer may be behind a write of the peer's, which comes as one.
                    false if duel.expects => self.takes_slowly_ns(CWND_FLOOR / 2),
                    false => self.drains_ns(),
                };
                DUEL_NS.max(4 * self.srtt_ns).max(queue_ns)
            }
            // Its mean round trip is the time of a queue, from whose other end acks come all the
            // time.
            false => {
                let patience = match duel.written {
                    true => WRITTEN_DUEL_NS,
                    false => STALL_DUEL_NS,
                };
                patience.max((4 * self.srtt_ns).min(self.min_rtt_ns.saturating_mul(16)))
            }
        };
        let (started, answered) = (duel.started_ns, duel.answered_ns.map_or(0, NonZeroU64::get));
        let verdict = match self.policy.lossy {
            true => started.max(answered) + round,
            // An answer shows that the peer was awake all the time that its rail had.
            false => (started + round).max(answered + DUEL_NS),
        };
        (verdict, started + 10 * round)
    }

    /// Time that what is under way takes; where no rate is known yet, that of a slow path is
    /// assumed.
    fn may_drain_ns(&self) -> u64 {
        match self.ring.in_flight() {
            ..RATE_BYTES_MIN => 0,
            bytes => self.takes_slowly_ns(bytes.min(CWND_FLOOR)),
        }
    }

    /// The same of so many bytes.
    fn takes_slowly_ns(&self, bytes: u64) -> u64 {
        match self.busy_bytes_per_s() {
            0 => product_over(bytes, NS_PER_S, SLOW_BYTES_PER_S),
            _ => self.takes_ns(bytes),
        }
    }

    /// A duel that begins now. (Many packets may wait; they are looked at once.)
    pub(crate) fn new_duel(&self, now: u64, granted: u64) -> Duel {
        Duel {
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

    /// Another round of a duel that would be lost now, while the answer may be in the peer's queue,
    /// behind what comes on the path meanwhile. That comes as quickly as the path carries, or half
    /// as quickly, until two windows of a slow path came: ours may be before our question.
    fn waits_behind(&self, now: u64, duel: &Duel) -> Option<Duel> {
        let came = self.stats.bytes_received as u32;
        let bytes = came.wrapping_sub(duel.came);
        let rate = match self.busy_bytes_per_s() {
            0 => SLOW_BYTES_PER_S,
            rate => rate,
        };
        let least = product_over(rate / 2, now - duel.started_ns, NS_PER_S);
        let busy = self.policy.lossy && u64::from(bytes) > least;
        (busy && bytes < duel.before).then(|| Duel {
            started_ns: now,
            answered_ns: NonZeroU64::new(now),
            came,
            before: duel.before - bytes,
            ..*duel
        })
    }

    /// Something waits that was written past packets.
    fn holds_written(&self) -> bool {
        self.ring.waiting_frames().any(|frame| frame.is_written())
    }
}

/// Sends a fresh probe on other usable paths, so that a duel has witnesses: on such first whose
/// rail has room, and that share no rail with it, then on those that were heard last. A witness
/// that is lost twice begins a duel
/// of its own. Were all paths asked, each duel would bring about more than one where there are
/// sixteen and a tenth is lost, and they would never end.
pub(crate) fn ask_rivals(conn: &mut Conn, at: usize, full: u32, most: usize) {
    let (local, remote) = (conn.paths[at].local, conn.paths[at].to.index);
    let order = |(i, path): (usize, &Path)| {
        let shared = (path.local == local) as u8 + (path.to.index == remote) as u8;
        let heard = Reverse(path.newest_acked_sent_ns);
        (!path.has_room(full), shared, heard, i)
    };
    let rivals = conn.paths.iter().enumerate();
    let rivals = rivals.filter(|&(i, p)| i != at && p.usable() && p.duel.is_none());
    let mut rivals: Vec<_> = rivals.map(order).collect();
    rivals.sort_unstable();
    for &(.., i) in rivals.iter().take(most) {
        conn.paths[i].want_ping = true;
    }
}

/// Returns whether another path may work.
pub(crate) fn has_rivals(conn: &Conn, at: usize) -> bool {
    let mut paths = conn.paths.iter().enumerate();
    paths.any(|(i, p)| i != at && p.usable())
}
