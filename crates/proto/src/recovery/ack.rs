//! Incoming acks: round trips, delivered frames, losses.

use crate::base::config::RailPolicy;
use crate::base::mutation::Mutation;
use crate::base::types::{PathReason, PeerId};
use crate::node::Node;
use crate::path::actions::Recovery;
use crate::state::conn::Conn;
use crate::state::path::Path;
use crate::state::sent_packets::{FrameRef, Sent};
use alloc::vec::Vec;
use core::ops::Range;
use marline_wire::{Ack, MasksView, BLOCK_BYTES, FLAG_REFUSED};

impl Node {
    /// Handles one ACK frame.
    pub(crate) fn on_ack(&mut self, now: u64, peer: PeerId, ack: &Ack<MasksView<'_>>) {
        let Some(mut conn) = self.take(peer) else {
            return;
        };
        conn.stats.acks_received += 1;
        self.outgoing.set_time(now);
        let mut frames = core::mem::take(&mut self.pending.scratch);
        frames.clear();
        if let Some(at) = conn.path_by_send_code(ack.path) {
            self.recover(&mut conn, |recovery, conn| {
                recovery.on_ack(now, conn, at, ack, &mut frames);
            });
        }
        if conn.has_work() {
            self.run_queue.mark_ready(&mut conn);
        }
        self.put(conn);
        for frame in frames.drain(..) {
            self.frame_delivered(peer, frame);
        }
        self.pending.scratch = frames;
    }

    /// Handles a delivered frame.
    fn frame_delivered(&mut self, peer: PeerId, frame: FrameRef) {
        match frame {
            FrameRef::Data { xfer, offset, len } => {
                let (outgoing, mut ctx) = self.outgoing();
                outgoing.arrived(&mut ctx, (xfer, offset, len));
            }
            FrameRef::Written {
                at,
                xfer,
                offset,
                len,
            } => {
                let conn = self.conn_mut(peer);
                if let Some(path) = conn.and_then(|conn| conn.paths.get_mut(at as usize)) {
                    path.link.on_write_acked();
                }
                self.frame_delivered(peer, FrameRef::Data { xfer, offset, len });
            }
            FrameRef::Hello(revision) => {
                let newest = revision == self.local.revision;
                if let Some(conn) = self.conn_mut(peer) {
                    conn.session.hello_acked |= newest;
                    if conn.is_of_stranger() {
                        conn.on_stranger_hello_acked();
                    }
                }
            }
            FrameRef::Rts(key) => {
                let (outgoing, mut ctx) = self.outgoing();
                outgoing.request_heard(&mut ctx, peer, key);
            }
            FrameRef::EmptyGrant { number, flags } if flags & FLAG_REFUSED != 0 => {
                let (incoming, mut ctx) = self.incoming();
                incoming.refusal_heard(&mut ctx, peer, number);
            }
            FrameRef::PathResponse(_) => {
                if let Some(conn) = self.conn_mut(peer) {
                    conn.session.challenged = false;
                }
            }
            FrameRef::Bye => {
                if let Some(conn) = self.conn_mut(peer) {
                    conn.bye.heard = true;
                }
            }
            _ => {}
        }
    }
}

impl Recovery<'_> {
    /// Handles an ack of packets on path `at`; afterwards `frames` has the frames that it
    /// delivered.
    fn on_ack(
        &mut self,
        now: u64,
        conn: &mut Conn,
        at: usize,
        ack: &Ack<MasksView<'_>>,
        frames: &mut Vec<FrameRef>,
    ) {
        let gap_end = self.descheduled.gap_end_ns;
        let wait_max = &mut self.stats.ack_wait_max_ns;
        let path = &mut conn.paths[at];
        if acknowledge(path, ack, now, gap_end, frames, wait_max) {
            self.on_progress(now, conn, at);
            self.on_answer(now, conn, at);
            conn.compare_paths(now, at, self.granted, self.local.full, self.cfg);
            if self.cfg.policy != RailPolicy::Standby {
                conn.compare(at, now);
            }
        }
        self.declare_losses(now, conn, at, named_range(ack));
        self.check_size_probe(now, conn, at);
        self.descheduled.judge_pto(conn, at);
        conn.paths[at].ring.retire();
        conn.session.lost |= conn.paths[at].on_native_ack(ack, named_range(ack).end);
    }

    /// Handles an ack with news: retransmission, size and gap of the path.
    #[inline]
    fn on_progress(&mut self, now: u64, conn: &mut Conn, at: usize) {
        conn.life.unanswered_since = None;
        let path = &mut conn.paths[at];
        if self.cfg.errs(Mutation::TrustAcks) {
            path.validation = Default::default();
        }
        if path.doubtful() && !self.cfg.errs(Mutation::TrustSizes) {
            path.doubt_resent(now);
        }
        let cleared = path.on_progress(now);
        if path.policy.lossy && path.link.note_arrival(now) {
            self.actions.ask_links();
        }
        if cleared || conn.life.gap_from != 0 {
            let events = conn.end_gap(now, at, cleared);
            self.actions.events(events.into_iter().flatten());
        }
    }

    /// Handles an ack with news as an answer: the path may come up, and the peer's silence ends.
    #[inline]
    fn on_answer(&mut self, now: u64, conn: &mut Conn, at: usize) {
        self.descheduled.note_answer(now, conn, at, self.cfg);
        let out = !conn.paths[at].usable();
        if let Some(input) = out.then(|| conn.reinstated(at)).flatten() {
            let path = &mut conn.paths[at];
            let why = match path.is_proven() {
                true => PathReason::Answered,
                false => PathReason::Proven,
            };
            path.bring_up(now, input);
            self.actions.event(conn.path_changed(at, why, 0));
        }
        // A stale loss of reachability would hide the next one.
        if conn.paths[at].healthy() {
            conn.reachability.regain();
        }
    }
}

/// The packet numbers that an ack covers: up to the newest packet that had arrived. (The last mask
/// may extend up to 63 numbers beyond that packet.)
fn named_range(ack: &Ack<MasksView<'_>>) -> Range<u64> {
    let mut masks = ack.masks.iter().enumerate().rev();
    let newest = masks.find(|(_, mask)| *mask != 0);
    let end = newest.map_or(0, |(m, mask)| {
        64 * m as u64 + 64 - mask.leading_zeros() as u64
    });
    ack.base..ack.base + end
}

/// Appends a frame, or joins it to the last frame if it continues that one (a run of fragments
/// becomes one range of blocks).
fn push_joined(frames: &mut Vec<FrameRef>, frame: FrameRef) {
    if let (
        Some(FrameRef::Data { xfer, offset, len }),
        FrameRef::Data {
            xfer: next_xfer,
            offset: next_offset,
            len: next_len,
        },
    ) = (frames.last_mut(), frame)
    {
        let whole = *len as u64 % BLOCK_BYTES == 0;
        if *xfer == next_xfer && *offset + *len as u64 == next_offset && whole {
            *len += next_len;
            return;
        }
    }
    frames.push(frame);
}

/// True if an ack names any packet below `next`.
fn names_any(ack: &Ack<MasksView<'_>>, next: u64) -> bool {
    let mut masks = ack.masks.iter().enumerate();
    let first = masks.find(|(_, mask)| *mask != 0);
    first.is_some_and(|(m, mask)| ack.base + 64 * m as u64 + (mask.trailing_zeros() as u64) < next)
}

/// Settles the packets that an ack names. Returns true if any of them was new.
fn acknowledge(
    path: &mut Path,
    ack: &Ack<MasksView<'_>>,
    now: u64,
    gap_end: u64,
    frames: &mut Vec<FrameRef>,
    wait_max_ns: &mut u64,
) -> bool {
    if path.loss.has_losses() {
        path.take_back(ack);
    }
    let (first, next) = (path.ring.first(), path.ring.next_number());
    let mut newest = None;
    for (m, mask) in ack.masks.iter().enumerate() {
        let base = ack.base + 64 * m as u64;
        // Earlier acks settled most of the named packets.
        let settled = first.saturating_sub(base).min(64) as u32;
        let mut bits = mask & u64::MAX.checked_shl(settled).unwrap_or(0);
        while bits != 0 {
            let number = base + bits.trailing_zeros() as u64;
            if number >= next {
                return newest.is_some(); // the rest names packets that were never sent
            }
            let acked = path
                .ring
                .acknowledge(number, mask >> (number - base), |frame| {
                    push_joined(frames, frame);
                });
            // The other named packets of this run are settled too.
            bits &= u64::MAX
                .checked_shl((number - base) as u32 + acked.covered)
                .unwrap_or(0);
            let Some((number, sent)) = acked.newest else {
                continue;
            };
            if sent.sent_ns >= gap_end {
                *wait_max_ns = (*wait_max_ns).max(now.saturating_sub(sent.sent_ns));
            }
            path.congestion
                .on_delivered(acked.packets as u64 * sent.bytes as u64);
            // (A size probe is always a run of its own.)
            if path.mtu.is_probe(number) {
                path.mtu.on_probe_acked(sent.bytes as usize, now);
            }
            newest = Some((number, sent));
        }
    }
    let Some((number, sent)) = newest else {
        // Packets of a new path were given up long ago, but their arrival proves the path.
        return path.loss.on_old_ack(|| names_any(ack, next));
    };
    if path.loss.on_acked(number, sent.sent_ns) {
        newest_acked(path, &sent, ack, now, gap_end);
    }
    path.congestion.on_ack(now);
    true
}

/// Updates round trip and rate after an ack of packet `sent`, the newest ever acknowledged.
fn newest_acked(path: &mut Path, sent: &Sent, ack: &Ack<MasksView<'_>>, now: u64, gap_end: u64) {
    path.probing.on_ack();
    path.mtu.on_acked(sent.bytes);
    // Samples that span a poll gap measure our own gap.
    let lying = sent.sent_ns < gap_end || ack.delay_us == u16::MAX;
    let waited = ack.delay_us as u64 * 1_000;
    let rtt = now.saturating_sub(sent.sent_ns).saturating_sub(waited);
    // The reported delay does not include time in which the peer was descheduled.
    if !lying && (!path.rtt.is_known() || waited < 1_000_000) {
        path.on_rtt(rtt, now);
        path.on_rate(sent, now);
    }
}
