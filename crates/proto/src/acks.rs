//! Acknowledgements in: round trips, delivered frames, losses.

use crate::conn::{Conn, SendKind};
use crate::mutation::Mutation;
use crate::node::Node;
use crate::path::{Path, STRICT_NS};
use crate::send_ring::{FrameRef, Sent, SentState};
use crate::slab::Key;
use crate::types::{Event, PeerId};
use alloc::boxed::Box;
use alloc::collections::VecDeque;
use alloc::vec::Vec;
use core::mem::replace;
use core::ops::Range;
use marline_wire::{granules, Ack, MasksView, FLAG_REFUSED, GRANULE};

/// What the reordering threshold grows to when packets declared lost are acknowledged after all.
const REORDER_MAX: u64 = 512;
/// What no ack spoke of for so long, though later packets were acknowledged, is lost: the ack may
/// have been on another rail, whose socket was not read since, but a tick is long enough for all.
const STALE_NS: u64 = 10_000_000;

impl Node {
    /// One ACK frame.
    pub(crate) fn on_ack(&mut self, now: u64, peer: PeerId, ack: &Ack<MasksView<'_>>) {
        let Some(mut conn) = self.take(peer) else {
            return;
        };
        conn.stats.acks_received += 1;
        let mut frames = core::mem::take(&mut self.scratch);
        frames.clear();
        if let Some(at) = conn.path_by_send_code(ack.path) {
            let gap_end = self.gap_end_ns;
            let wait_max = &mut self.stats.ack_wait_max_ns;
            let path = &mut conn.paths[at];
            if acknowledge(path, ack, now, gap_end, &mut frames, wait_max) {
                conn.unanswered_since = None;
                let path = &mut conn.paths[at];
                if path.doubtful() && !self.cfg.errs(Mutation::TrustSizes) {
                    path.doubt_repaired(now);
                }
                path.on_progress(now);
                if !path.usable() && conn.acquitted(at) {
                    let path = &mut conn.paths[at];
                    path.rise(now);
                    let event = path.changed(peer);
                    self.events.push_back(event);
                }
                self.judge_rivals(now, &mut conn, at);
            }
            self.declare_losses(now, &mut conn, at, told(ack));
            self.weigh_size(now, &mut conn, at);
            conn.paths[at].ring.retire();
        }
        if conn.has_work() {
            Node::mark_ready(&mut self.ready, &mut conn);
        }
        self.put(conn);
        for frame in frames.drain(..) {
            self.frame_delivered(peer, frame);
        }
        self.scratch = frames;
    }

    /// Whether some ack has waited its delay, or need not wait and its own path may not carry it.
    pub(crate) fn due_ack(&self, now: u64, conn: &Conn) -> bool {
        let delay = self.cfg.ack_delay_ns;
        let due = |p: &Path| now >= p.ack_since + delay || (p.ack_now && p.left_by_acks());
        conn.paths.iter().any(|p| p.window.fresh() > 0 && due(p))
    }

    /// What a delivered frame means.
    fn frame_delivered(&mut self, peer: PeerId, frame: FrameRef) {
        match frame {
            FrameRef::Data { xfer, offset, len } => {
                let Some(send) = self.sends.get_mut(xfer) else {
                    return;
                };
                send.acked.insert(offset / GRANULE, granules(len as u64));
                self.finish_send_if_done(xfer);
            }
            FrameRef::Written {
                at,
                xfer,
                offset,
                len,
            } => {
                self.write_arrived(peer, at);
                self.frame_delivered(peer, FrameRef::Data { xfer, offset, len });
            }
            FrameRef::Hello => {
                if let Some(conn) = self.conn_mut(peer) {
                    conn.hello_acked = true;
                }
            }
            FrameRef::EmptyGrant { number, flags } if flags & FLAG_REFUSED != 0 => {
                self.refusal_heard(peer, number);
            }
            FrameRef::Bye => {
                if let Some(conn) = self.conn_mut(peer) {
                    conn.bye_heard = true;
                }
            }
            _ => {}
        }
    }

    /// Ends a send whose every wanted byte is acknowledged.
    pub(crate) fn finish_send_if_done(&mut self, key: Key) {
        let Some(send) = self.sends.get(key) else {
            return;
        };
        let done = match send.kind {
            SendKind::Queued => false,
            SendKind::Eager if self.cfg.errs(Mutation::FreeLogEarly) => send.acked.count() > 0,
            SendKind::Eager => send.acked.count() == granules(send.head.total),
            SendKind::Rendezvous | SendKind::Reply => {
                send.granted && (send.wanted == 0 || send.acked.count() >= granules(send.wanted))
            }
        };
        if !done {
            return;
        }
        let Some(send) = self.sends.remove(key) else {
            return;
        };
        if let Some(conn) = self.conn_mut(send.peer) {
            match send.kind {
                SendKind::Rendezvous => drop(conn.rendezvous.remove(&send.head.number)),
                SendKind::Reply => drop(conn.replies.remove(&send.head.number)),
                _ => {}
            }
        }
        self.events.push_back(Event::SendDone {
            handle: send.handle,
            ok: true,
        });
    }

    /// Packets that were overtaken by enough others, or long enough ago, are lost. What an ack
    /// does not speak of may have been acknowledged by one that is still under way (numbers below
    /// `told`; that is for time to tell), or was by one that overtook this (numbers above it).
    fn declare_losses(&mut self, now: u64, conn: &mut Box<Conn>, at: usize, told: Range<u64>) {
        let path = &mut conn.paths[at];
        if !path.acked_any || path.ring.waiting() == 0 {
            return;
        }
        let mut lost: Vec<FrameRef> = Vec::new();
        let (mut shortest, mut probe) = (u32::MAX, false);
        // A quarter of a round trip, and 20 us for the peer's batch, is late enough.
        let patience = path.srtt_ns + path.srtt_ns / 4 + 20_000;
        let base = told.start;
        let end = path.largest_acked.min(told.end);
        let mut number = path.ring.first();
        while number < end {
            let Some(sent) = path.ring.get(number) else {
                break;
            };
            let overtaken = path.largest_acked - number >= path.reorder;
            let age = now.saturating_sub(sent.sent_ns);
            let late = if number < base {
                age > (4 * patience).max(STALE_NS)
            } else {
                overtaken || (age > patience && path.largest_acked - number >= 3)
            };
            if !late {
                if number >= base {
                    break;
                }
                number = base;
                continue;
            }
            if path.sizes.is_probe(number) {
                // That it is too long says nothing of how full the path is.
                probe = true;
            } else if path.ring.settle(number, SentState::Lost) {
                path.stats.lost += 1;
                path.strict_until = now + STRICT_NS;
                lost.extend(path.ring.frames_of(&sent));
                shortest = shortest.min(sent.bytes);
            }
            number += 1;
        }
        if !lost.is_empty() && !self.cfg.errs(Mutation::TrustSizes) {
            path.doubt_size(shortest, now);
        }
        for frame in lost {
            if !self.cfg.errs(Mutation::ForgetLost) {
                conn.requeue(frame, at);
            }
        }
        if probe {
            self.probe_lost(now, conn, at);
        }
    }

    /// Every packet of a path that waits is given up for it (path or rail failed): its frames
    /// leave on another path.
    pub(crate) fn evacuate(&mut self, conn: &mut Conn, at: usize) {
        let path = &mut conn.paths[at];
        let mut frames: Vec<FrameRef> = Vec::new();
        for number in path.ring.first()..path.ring.next_number() {
            let Some(sent) = path.ring.get(number) else {
                break;
            };
            if path.ring.settle(number, SentState::Lost) {
                frames.extend(path.ring.frames_of(&sent));
            }
        }
        path.ring.retire();
        path.forget_size_probe(self.last_poll_ns);
        for frame in frames {
            if !self.cfg.errs(Mutation::ForgetMoved) {
                conn.requeue(frame, at);
            }
        }
        Node::mark_ready(&mut self.ready, conn);
    }
}

impl Conn {
    /// Queues a frame of a lost packet again, once: a frame that is lost as often as it is
    /// repeated must not become more each time.
    pub(crate) fn requeue(&mut self, frame: FrameRef, at: usize) {
        let queued = match frame {
            FrameRef::Ping { .. } => return,
            FrameRef::Grant(key) => queue_once(&mut self.grants, key),
            FrameRef::Credit => !replace(&mut self.credit_due, true),
            // HELLO rides on every packet until it is acknowledged.
            FrameRef::Hello => true,
            FrameRef::Bye => {
                self.bye = (!self.bye_heard).into();
                true
            }
            FrameRef::Read(_)
            | FrameRef::ReadFail(_)
            | FrameRef::Corrupt(_)
            | FrameRef::EmptyGrant { .. } => queue_once(&mut self.control, frame),
            FrameRef::Written { .. } => {
                self.paths[at].write_failed();
                self.resend.push(frame)
            }
            FrameRef::Data { .. } | FrameRef::Rts(_) => self.resend.push(frame),
        };
        self.paths[at].stats.retransmitted += queued as u64;
    }
}

/// Queues an entry that is not queued yet; whether it was not.
fn queue_once<T: PartialEq>(queue: &mut VecDeque<T>, entry: T) -> bool {
    let new = !queue.contains(&entry);
    if new {
        queue.push_back(entry);
    }
    new
}

/// The packets that an ack speaks of: up to the newest that had arrived when it was made. (Its
/// masks reach up to 63 numbers beyond.)
fn told(ack: &Ack<MasksView<'_>>) -> Range<u64> {
    let mut masks = ack.masks.iter().enumerate().rev();
    let newest = masks.find(|(_, mask)| *mask != 0);
    let end = newest.map_or(0, |(m, mask)| {
        64 * m as u64 + 64 - mask.leading_zeros() as u64
    });
    ack.base..ack.base + end
}

/// Appends a frame; one that continues the last becomes part of it (a run of fragments is then one
/// range of granules).
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
        let whole = *len as u64 % GRANULE == 0;
        if *xfer == next_xfer && *offset + *len as u64 == next_offset && whole {
            *len += next_len;
            return;
        }
    }
    frames.push(frame);
}

/// Whether an ack names any packet below `next`.
fn names_any(ack: &Ack<MasksView<'_>>, next: u64) -> bool {
    let mut masks = ack.masks.iter().enumerate();
    let first = masks.find(|(_, mask)| *mask != 0);
    first.is_some_and(|(m, mask)| ack.base + 64 * m as u64 + (mask.trailing_zeros() as u64) < next)
}

/// Settles the packets that an ack names; whether any was new.
fn acknowledge(
    path: &mut Path,
    ack: &Ack<MasksView<'_>>,
    now: u64,
    gap_end: u64,
    frames: &mut Vec<FrameRef>,
    wait_max_ns: &mut u64,
) -> bool {
    let (first, next) = (path.ring.first(), path.ring.next_number());
    let mut newest = None;
    for (m, mask) in ack.masks.iter().enumerate() {
        let base = ack.base + 64 * m as u64;
        // Most of what an ack names was settled by those before it.
        let settled = first.saturating_sub(base).min(64) as u32;
        let mut bits = mask & u64::MAX.checked_shl(settled).unwrap_or(0);
        while bits != 0 {
            let number = base + bits.trailing_zeros() as u64;
            if number >= next {
                return newest.is_some(); // acknowledges what was never sent: ignore the rest
            }
            let acked = path
                .ring
                .acknowledge(number, mask >> (number - base), |frame| {
                    push_joined(frames, frame);
                });
            // What else is named of that run is settled as well.
            bits &= u64::MAX
                .checked_shl((number - base) as u32 + acked.covered)
                .unwrap_or(0);
            let Some((number, sent)) = acked.newest else {
                continue;
            };
            for _ in 0..acked.lost.min(REORDER_MAX.ilog2()) {
                path.reorder = (2 * path.reorder).min(REORDER_MAX);
            }
            path.stats.spurious += acked.lost as u64;
            if sent.sent_ns >= gap_end {
                *wait_max_ns = (*wait_max_ns).max(now.saturating_sub(sent.sent_ns));
            }
            path.delivered.bytes += acked.packets as u64 * sent.bytes as u64;
            // (One that measures the path's MTU is a run of its own.)
            if path.sizes.is_probe(number) {
                path.size_passes(sent.bytes as usize, now);
            }
            newest = Some((number, sent));
        }
    }
    let Some((number, sent)) = newest else {
        // What waited on a new path was given up long ago, but that it arrived proves the path.
        let proven = !path.acked_any && names_any(ack, next);
        path.acked_any |= proven;
        return proven;
    };
    if number >= path.largest_acked {
        newest_acked(path, (number, &sent), ack, now, gap_end);
    }
    path.delivered.at_ns = now;
    path.acked_any = true;
    true
}

/// Packet `number` is the newest of its path that was ever acknowledged: what that tells of the
/// path's round trip and rate.
fn newest_acked(
    path: &mut Path,
    (number, sent): (u64, &Sent),
    ack: &Ack<MasksView<'_>>,
    now: u64,
    gap_end: u64,
) {
    path.largest_acked = number;
    path.newest_acked_sent_ns = sent.sent_ns;
    path.asked = 0;
    path.size_arrived(sent.bytes);
    // Samples that span a stretch without polling measure our own absence.
    let lying = sent.sent_ns < gap_end || ack.delay_us == u16::MAX;
    let waited = ack.delay_us as u64 * 1_000;
    let rtt = now.saturating_sub(sent.sent_ns).saturating_sub(waited);
    // The peer may have been away, too: then the delay it reports does not cover it.
    if !lying && (path.srtt_ns == 0 || waited < 1_000_000) {
        path.on_rtt(rtt, now);
        let bytes = path.delivered.bytes - sent.delivered.bytes;
        path.on_rate(bytes, now.saturating_sub(sent.delivered.at_ns), now);
    }
}
