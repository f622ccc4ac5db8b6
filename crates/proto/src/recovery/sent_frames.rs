//! After a packet was built: what it carried is kept until it is acknowledged. For a short packet
//! that is done when the kernel has it, so that nobody waits for it.

use crate::base::types::{PeerId, Transmit};
use crate::node::Node;
use crate::peer::conn::Conn;
use crate::recovery::sent_packets::FrameRef;
use alloc::boxed::Box;
use alloc::vec::Vec;
use marline_wire::{granules, GRANULE};

/// Packets up to this length are noted after they were sent. It takes the kernel longer to send
/// longer ones, and what is lent to it is known by what was noted.
pub const UNKEPT_MAX: usize = 1_024;

/// A packet that was built, and is noted when it was sent. Its frames are in `Node::scratch`.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Unkept {
    peer: PeerId,
    path: usize,
    len: usize,
}

impl Node {
    /// The packet that was built last is on its way: notes what could wait.
    #[inline]
    pub fn sent(&mut self, now_ns: u64) {
        let Some(peer) = self.unkept.map(|u| u.peer) else {
            return;
        };
        if let Some(mut conn) = self.take(peer) {
            self.keep_built(now_ns, &mut conn);
            self.left(now_ns, conn, true);
        }
    }

    #[inline]
    pub(crate) fn keep_built(&mut self, now: u64, conn: &mut Conn) {
        if let Some(Unkept { path, len, .. }) = self.unkept.take() {
            let frames = core::mem::take(&mut self.scratch);
            self.keep(now, conn, path, frames, len);
        }
    }

    /// After a packet to the peer was built, or none was found: what comes next.
    #[inline]
    pub(crate) fn left(&mut self, now: u64, mut conn: Box<Conn>, some: bool) {
        let peer = conn.peer;
        // A short message alone leaves nothing to look for.
        if some && (conn.has_work() || self.due_ack(now, &conn)) {
            Node::mark_ready(&mut self.ready, &mut conn);
        }
        self.put(conn);
        self.touch_soon(peer, now);
    }

    /// Keeps the frames of a packet of `len` bytes, written ones included; of a short one later.
    pub(crate) fn keep_later(
        &mut self,
        now: u64,
        conn: &mut Conn,
        packet: &Transmit,
        (frames, len): (Vec<FrameRef>, usize),
    ) {
        let path = packet.batch.path;
        let whole = packet.batch.bulk || packet.written || len > UNKEPT_MAX;
        if whole || !self.cfg.reliable {
            return self.keep(now, conn, path, frames, len);
        }
        let peer = conn.peer;
        self.scratch = frames;
        self.unkept = Some(Unkept { peer, path, len });
    }

    /// Keeps what a packet carried until it is acknowledged.
    fn keep(&mut self, now: u64, conn: &mut Conn, at: usize, frames: Vec<FrameRef>, len: usize) {
        let path = &mut conn.paths[at];
        if self.cfg.reliable {
            let first = path.ring.waiting() == 0;
            if first {
                path.delivered.at_ns = now;
                path.repair_from = now;
            }
            path.ring.push(&frames, len, path.delivered, now);
            if !frames.is_empty() {
                if conn.owed_since.is_none() && conn.owes() {
                    (conn.owed_since, conn.unanswered_since) = (Some(now), None);
                }
                conn.stats.queue_max = conn.stats.queue_max.max(conn.waiting() as u64);
                self.stats.queue_max = self.stats.queue_max.max(conn.stats.queue_max);
            }
        } else {
            path.ring.push(&[], len, path.delivered, now);
            self.native_delivered(conn, &frames);
        }
        self.scratch = frames;
        conn.widen(self.cfg.reliable);
    }

    /// Native mode: what left counts as delivered.
    fn native_delivered(&mut self, conn: &mut Conn, frames: &[FrameRef]) {
        for frame in frames {
            match *frame {
                FrameRef::Data { xfer, offset, len } => {
                    if let Some(send) = self.sends.get_mut(xfer) {
                        send.acked.insert(offset / GRANULE, granules(len as u64));
                        self.native_done.push(xfer);
                    }
                }
                FrameRef::Hello => conn.hello_acked = conn.epoch.is_some(),
                _ => {}
            }
        }
    }
}
