//! Packets that are lost: how that is told from late, and what becomes of their frames.

use crate::base::mutation::Mutation;
use crate::node::Node;
use crate::state::conn::Conn;
use crate::state::given_up::Lost;
use crate::state::path::{Path, STRICT_NS};
use crate::state::resends::Why;
use crate::state::sent_packets::{FrameRef, Sent, SentState};
use alloc::boxed::Box;
use alloc::collections::VecDeque;
use alloc::vec::Vec;
use core::ops::Range;
use marline_wire::{Ack, MasksView, ACK_MASKS_MAX};

/// The reordering threshold grows to this when packets declared lost are acknowledged after all.
const REORDER_MAX: u64 = 512;
/// A packet that no ack spoke of for this long, though later ones were acknowledged, is lost: its
/// ack may have been on another rail, whose socket was not read since, but a tick is long enough
/// for all.
const STALE_NS: u64 = 10_000_000;
/// The same of a path that loses nothing. Its packets arrived, so that the ack that spoke of them
/// waits somewhere, in our sockets or at a peer without a processor, or was lost on another rail.
/// For the last case there are questions, whose answers repeat acks ([`Node::stalled`]); this is
/// the end of waiting for those.
const UNSAID_NS: u64 = 1_000_000_000;

impl Node {
    /// Packets that were overtaken by enough others, or long enough ago, are lost. What an ack
    /// does not speak of may have been acknowledged by one that is still under way (numbers below
    /// `named`; that is for time to tell), or was by one that overtook this (numbers above it).
    pub(crate) fn declare_losses(
        &mut self,
        now: u64,
        conn: &mut Box<Conn>,
        at: usize,
        named: Range<u64>,
    ) {
        let path = &mut conn.paths[at];
        if !path.acked_any || path.ring.waiting() == 0 {
            return;
        }
        let mut lost: Vec<FrameRef> = Vec::new();
        let (mut shortest, mut probe) = (u32::MAX, false);
        // A quarter of a round trip, and 20 us for the peer's batch, is late enough.
        let patience = path.srtt_ns + path.srtt_ns / 4 + 20_000;
        let base = named.start;
        let stale_ns = match path.policy.lossy {
            true => STALE_NS,
            false => UNSAID_NS,
        };
        let end = path.largest_acked.min(named.end);
        let mut number = path.ring.first();
        while number < end {
            let Some(sent) = path.ring.get(number) else {
                break;
            };
            let age = now.saturating_sub(sent.sent_ns);
            let behind = path.largest_acked - number;
            let overtaken = behind >= path.reorder;
            let late = if number < base {
                age > (4 * patience).max(stale_ns)
            } else {
                overtaken || (age > patience && (behind >= 3 || path.outlives(&sent, patience)))
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
                probe |= age > path.size_probe_ns();
            } else if path.ring.settle(number, SentState::Lost) {
                path.stats.lost += 1;
                path.strict_until = now + STRICT_NS;
                path.given_up.push(Lost {
                    number,
                    bytes: sent.bytes.min(path.datagram_max as u32),
                    probe: false,
                });
                lost.extend(path.ring.frames_of(&sent));
                shortest = shortest.min(sent.bytes);
            }
            number += 1;
        }
        if !lost.is_empty() && !self.cfg.errs(Mutation::TrustSizes) {
            path.doubt_size(shortest, now);
        }
        for frame in lost {
            let forgets = self.cfg.errs(Mutation::ForgetCalls) && self.is_of_call(&frame);
            if !self.cfg.errs(Mutation::ForgetLost) && !forgets {
                conn.requeue(frame, at, Why::Loss);
            }
        }
        if probe {
            self.probe_lost(now, conn, at);
        }
    }

    /// Every packet of a path that waits is given up for it (path or rail failed): its frames
    /// leave on another path. How many packets those were.
    pub(crate) fn evacuate(&mut self, conn: &mut Conn, at: usize) -> u32 {
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
        if let Some(native) = &mut path.native {
            native.doubt(self.absences.last_poll_ns);
        }
        path.forget_size_probe(self.absences.last_poll_ns);
        for frame in frames {
            if !self.cfg.errs(Mutation::ForgetMoved) {
                conn.requeue(frame, at, Why::Failover);
            }
        }
        self.agenda.mark_ready(conn);
        moved
    }
}

impl Conn {
    /// Queues a frame of a lost packet again, once: a frame that is lost as often as it is
    /// repeated must not become more each time.
    pub(crate) fn requeue(&mut self, frame: FrameRef, at: usize, why: Why) {
        let queued = match frame {
            FrameRef::Ping { .. } => return,
            FrameRef::Grant(key) => queue_once(&mut self.tx.grants, key),
            FrameRef::Credit => self.credit.tell_again(),
            // HELLO rides on every packet until it is acknowledged.
            FrameRef::Hello(0) => true,
            // It may be all that there is to say. Other paths say it again when they have lost it,
            // and those that are down when they are asked: all of them at each loss were a storm
            // towards a peer that is silent.
            FrameRef::Hello(_) => {
                let path = &mut self.paths[at];
                path.want_ping |= !self.session.hello_acked && path.usable();
                true
            }
            FrameRef::Bye => {
                self.bye.due = (!self.bye.heard).into();
                true
            }
            FrameRef::Read(_)
            | FrameRef::ReadFail(_)
            | FrameRef::Corrupt(_)
            | FrameRef::Offer { .. }
            | FrameRef::EmptyGrant { .. } => queue_once(&mut self.tx.control, frame),
            FrameRef::Written { .. } => {
                self.paths[at].write_failed();
                self.tx.resend.push(frame, at, why);
                false
            }
            FrameRef::Data { .. } | FrameRef::Rts(_) => {
                self.tx.resend.push(frame, at, why);
                false // counted when it leaves: it may arrive before that
            }
        };
        self.count_resent(at, why, queued);
    }
}

impl Path {
    /// True if a later packet that was acknowledged is enough, and not three: one that left so much
    /// later, as the repair of a write asks one question at a time (the idea of RACK, RFC 8985); or
    /// any, if the packet only asked, which was answered by that.
    fn outlives(&self, sent: &Sent, ns: u64) -> bool {
        let later = self.newest_acked_sent_ns > sent.sent_ns + ns;
        let mut frames = self.ring.frames_of(sent);
        later && frames.any(|frame| frame.is_written())
            || self.ring.frames_of(sent).all(|frame| frame.is_ping())
    }

    /// Takes back losses that an ack contradicts: other packets overtook these by more than was
    /// thought possible. So more is possible, and the window need not be strict for that.
    #[cold]
    pub(crate) fn take_back(&mut self, ack: &Ack<MasksView<'_>>) {
        let mut masks = [0; ACK_MASKS_MAX];
        masks
            .iter_mut()
            .zip(ack.masks.iter())
            .for_each(|(to, mask)| *to = mask);
        let named = |number: u64| {
            let at = number.checked_sub(ack.base).unwrap_or(u64::MAX);
            let mask = masks.get((at / 64) as usize).copied().unwrap_or(0);
            mask >> (at % 64) & 1 == 1
        };
        let before = self.given_up.len();
        // Acks do not speak again of what is that old.
        let oldest = ack.base.saturating_sub(64 * ACK_MASKS_MAX as u64);
        self.given_up.retain(|lost| lost.number >= oldest);
        let (mut spurious, mut named_probes, mut longest) = (0, 0, 0);
        self.given_up.retain(|lost| {
            let arrived = named(lost.number);
            if arrived {
                spurious += usize::from(!lost.probe);
                named_probes += usize::from(lost.probe);
                longest = longest.max(lost.bytes);
            }
            !arrived
        });
        if longest > 0 {
            self.size_arrived_late(longest as usize);
        }
        self.stats.spurious += spurious as u64;
        for _ in 0..spurious.min(REORDER_MAX.ilog2() as usize) {
            self.reorder = (2 * self.reorder).min(REORDER_MAX);
        }
        if spurious + named_probes == before {
            self.strict_until = 0; // nothing was lost
        }
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
