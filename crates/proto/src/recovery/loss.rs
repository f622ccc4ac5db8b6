//! Packet loss: how lost packets are told from late ones, and what happens to their frames.

use crate::base::mutation::Mutation;
use crate::path::actions::Recovery;
use crate::state::conn::Conn;
use crate::state::given_up::Lost;
use crate::state::path::Path;
use crate::state::resends::Why;
use crate::state::sent_packets::{FrameRef, Sent, SentState};
use alloc::collections::VecDeque;
use alloc::vec::Vec;
use core::ops::Range;
use marline_wire::{Ack, MasksView};

/// A packet that no ack covered for this long, while later packets were acknowledged, is lost. Its
/// ack may have come on another rail whose socket is not read yet, but within a tick all sockets
/// are read.
const STALE_NS: u64 = 10_000_000;
/// Such a packet of a reliable path counts as lost only after this time. It did arrive: the ack
/// that covered it waits in our sockets or at a descheduled peer, or was lost on another rail. In
/// the last case probes bring the ack again ([`Node::stalled`]), and this bounds the wait.
const UNCOVERED_NS: u64 = 1_000_000_000;

impl Recovery<'_> {
    /// Declares packets lost that were overtaken by enough others, or long enough ago. `named`: the
    /// numbers that this ack covers. Lower packets may have been acknowledged by an ack that is
    /// still in flight (only time decides about them), higher packets by an ack that overtook this
    /// one.
    pub(crate) fn declare_losses(
        &mut self,
        now: u64,
        conn: &mut Conn,
        at: usize,
        named: Range<u64>,
    ) {
        let path = &mut conn.paths[at];
        if !path.loss.has_acks() || path.ring.waiting() == 0 {
            return;
        }
        let mut lost: Vec<FrameRef> = Vec::new();
        let (mut shortest, mut probe) = (u32::MAX, false);
        let time_threshold_ns = path.rtt.loss_delay_ns();
        let base = named.start;
        let stale_ns = match path.policy.lossy {
            true => STALE_NS,
            false => UNCOVERED_NS,
        };
        let end = path.loss.largest_acked().min(named.end);
        let mut number = path.ring.first();
        while number < end {
            let Some(sent) = path.ring.get(number) else {
                break;
            };
            let age = now.saturating_sub(sent.sent_ns);
            let late = if number < base {
                age > (4 * time_threshold_ns).max(stale_ns)
            } else {
                let old = age > time_threshold_ns;
                path.loss
                    .is_lost(number, old, || path.outlives(&sent, time_threshold_ns))
            };
            if !late {
                if number >= base {
                    break;
                }
                number = base;
                continue;
            }
            if path.mtu.is_probe(number) {
                // The loss of a probe that is too long for the path is no sign of congestion.
                probe |= age > path.rtt.size_probe_ns();
            } else if path.ring.settle(number, SentState::Lost) {
                path.stats.lost += 1;
                path.congestion.on_loss(now);
                path.loss.on_lost(Lost {
                    number,
                    bytes: sent.bytes.min(path.datagram_max() as u32),
                    probe: false,
                });
                lost.extend(path.ring.frames_of(&sent));
                shortest = shortest.min(sent.bytes);
            }
            number += 1;
        }
        if !lost.is_empty() && !self.cfg.errs(Mutation::TrustSizes) {
            path.probing
                .request_if(path.mtu.suspect_black_hole(shortest, now));
        }
        for frame in lost {
            let forgets = self.cfg.errs(Mutation::ForgetRpcs) && self.outgoing.is_of_rpc(&frame);
            if !self.cfg.errs(Mutation::ForgetLost) && !forgets {
                conn.requeue(frame, at, Why::Loss);
            }
        }
        if probe {
            self.probe_lost(now, conn, at);
        }
    }

    /// Requeues the frames of all packets in flight on a path to other paths, since the path or its
    /// rail failed. Returns the number of packets.
    pub(crate) fn requeue_in_flight(&mut self, conn: &mut Conn, at: usize) -> u32 {
        let path = &mut conn.paths[at];
        let (mut frames, mut moved): (Vec<FrameRef>, u32) = (Vec::new(), 0);
        for number in path.ring.first()..path.ring.next_number() {
            let Some(sent) = path.ring.get(number) else {
                break;
            };
            if path.ring.settle(number, SentState::Lost) {
                moved += 1;
                frames.extend(path.ring.frames_of(&sent));
            }
        }
        path.ring.retire();
        if let Some(native) = path.loss.native_mut() {
            native.doubt(self.descheduled.last_poll_ns);
        }
        path.mtu.forget_probe(self.descheduled.last_poll_ns);
        for frame in frames {
            if !self.cfg.errs(Mutation::ForgetMoved) {
                conn.requeue(frame, at, Why::Failover);
            }
        }
        self.actions.mark_ready();
        moved
    }
}

impl Conn {
    /// Requeues a frame of a lost packet, once: repeated losses must not multiply it.
    pub(crate) fn requeue(&mut self, frame: FrameRef, at: usize, why: Why) {
        let queued = match frame {
            FrameRef::Ping { .. } => return,
            FrameRef::Grant(key) => queue_once(&mut self.tx.grants, key),
            FrameRef::Credit => self.credit.repeat(),
            // Every packet carries HELLO until it is acknowledged.
            FrameRef::Hello(0) => true,
            // HELLO may be all there is to send. Other paths repeat it after losses of their own,
            // and paths that are down when they are probed: repeating it on all paths at each loss
            // would flood a silent peer.
            FrameRef::Hello(_) => {
                let path = &mut self.paths[at];
                path.probing
                    .request_if(!self.session.hello_acked && path.usable());
                true
            }
            FrameRef::Bye => {
                self.bye.due = (!self.bye.heard).into();
                true
            }
            FrameRef::Read(_)
            | FrameRef::ReadFail(_)
            | FrameRef::Corrupt(_)
            | FrameRef::PathResponse(_)
            | FrameRef::Advertisement { .. }
            | FrameRef::EmptyGrant { .. } => queue_once(&mut self.tx.control, frame),
            FrameRef::Written { .. } => {
                self.paths[at].link.on_write_failed();
                self.tx.resend.push(frame, at, why);
                false
            }
            FrameRef::Data { .. } | FrameRef::Rts(_) => {
                self.tx.resend.push(frame, at, why);
                false // counted when it leaves: its ack may come first
            }
        };
        self.count_resent(at, why, queued);
    }
}

impl Path {
    /// True if one acknowledged later packet is enough to declare a loss, instead of three. That
    /// holds if the packet had a write and the later one left `ns` after it, since a write is
    /// probed with one packet at a time (the idea of RACK, RFC 8985); or if the packet was only a
    /// probe, which the same ack answers.
    fn outlives(&self, sent: &Sent, ns: u64) -> bool {
        let later = self.loss.newest_acked_sent_ns() > sent.sent_ns + ns;
        let mut frames = self.ring.frames_of(sent);
        later && frames.any(|frame| frame.is_written())
            || self.ring.frames_of(sent).all(|frame| frame.is_ping())
    }

    /// Takes back losses that an ack contradicts; the congestion window need not be strict because
    /// of them.
    #[cold]
    pub(crate) fn take_back(&mut self, ack: &Ack<MasksView<'_>>) {
        let spurious = self.loss.take_back(ack);
        if spurious.longest > 0 {
            self.size_arrived_late(spurious.longest);
        }
        self.stats.spurious += spurious.packets;
        if spurious.all {
            self.congestion.on_spurious();
        }
    }
}

/// Queues an entry unless it is queued already; returns whether it did.
fn queue_once<T: PartialEq>(queue: &mut VecDeque<T>, entry: T) -> bool {
    let new = !queue.contains(&entry);
    if new {
        queue.push_back(entry);
    }
    new
}
