//! Native paths (without software reliability): which packets leave natively, and how losses are
//! detected. (`state/native.rs` has the state.)

use crate::base::config::Config;
use crate::base::types::PathState;
use crate::node::Node;
use crate::outgoing::sends::Outgoing;
use crate::state::conn::Conn;
use crate::state::directory::Directory;
use crate::state::path::Path;
use crate::state::sent_packets::FrameRef;
use marline_wire::{Ack, MasksView, FLAG_PUT};

impl Node {
    /// Requests acks of all native packets: BYE could overtake them on another rail.
    pub fn ask_natives(&mut self) {
        if self.cfg.native_rails == 0 {
            return;
        }
        for entry in &mut self.directory.peers {
            let Some(conn) = entry.conn.as_deref_mut() else {
                continue;
            };
            for path in &mut conn.paths {
                let open = path.loss.native().is_some_and(|native| !native.is_sure());
                path.probing.request_if(open && !path.rail_down());
            }
            self.run_queue.mark_ready(conn);
        }
    }
}

/// How long native packets may stay unknown after their path failed, before they count as lost.
fn native_timeout_ns(cfg: &Config) -> u64 {
    cfg.peer_timeout_ns / 2
}

impl Directory {
    /// True if all native packets are known to have arrived.
    pub(crate) fn knows_natives(&self) -> bool {
        let sure = |p: &Path| p.loss.native().is_none_or(|native| native.is_sure());
        let over = |c: &Conn| c.session.is_over();
        self.conns().all(|c| over(c) || c.paths.iter().all(sure))
    }
}

impl Outgoing {
    /// True if no copy of a packet's data on this path is retained. (Copies are retained of packets
    /// that prove a path, of remote writes, which the peer may refuse, and of writes past packets,
    /// which a rail still reads after they left.)
    #[inline]
    pub(crate) fn leaves_natively(&self, conn: &Conn, at: usize, frames: &[FrameRef]) -> bool {
        let path = &conn.paths[at];
        path.policy.native && self.may_be_native(conn, path, frames)
    }

    #[cold]
    fn may_be_native(&self, conn: &Conn, path: &Path, frames: &[FrameRef]) -> bool {
        let proven =
            path.state() == PathState::Up && path.loss.has_acks() && conn.session.needs_no_hello();
        let number = path.ring.next_number();
        let takes = path.loss.native().is_some_and(|n| n.takes(number));
        let put = |key| {
            let send = self.get(key);
            send.is_some_and(|send| send.head.flags & FLAG_PUT != 0)
        };
        let mut data = frames.iter().filter_map(FrameRef::bytes_of).peekable();
        proven && takes && data.peek().is_some() && !data.any(|(key, ..)| put(key))
    }
}

impl Path {
    /// Notes that `count` packets left natively, from `number` on. From time to time a probe must
    /// ask for an ack; returns whether one is due.
    pub(crate) fn on_left_natively(&mut self, now: u64, (number, count): (u64, u64)) -> bool {
        let native = self.loss.native_mut();
        let due = native.is_some_and(|n| n.left(number, count, now));
        self.probing.request_if(due);
        due
    }

    /// If a timer of a path's native packets is due, serves it and returns whether packets stayed
    /// unknown for too long after a failure.
    pub(crate) fn serve_native(&mut self, now: u64, cfg: &Config) -> Option<bool> {
        if self.native_due(cfg).is_none_or(|due| due > now) {
            return None;
        }
        self.probing.request_if(!self.rail_down());
        let native_timeout_ns = native_timeout_ns(cfg);
        let next = self.ring.next_number();
        let native = self.loss.native_mut();
        let over = native.is_some_and(|n| n.serve(now, next, native_timeout_ns));
        Some(over)
    }

    /// When a timer of the path's native packets is due.
    #[inline]
    pub(crate) fn native_due(&self, cfg: &Config) -> Option<u64> {
        let native = self.loss.native()?;
        native.due(native_timeout_ns(cfg), self.policy.lossy)
    }

    /// Handles an ack of native packets. Returns true if some of them were lost.
    #[inline]
    pub(crate) fn on_native_ack(&mut self, ack: &Ack<MasksView<'_>>, end: u64) -> bool {
        let end = end.min(self.ring.next_number());
        let Some(native) = self.loss.native_mut() else {
            return false;
        };
        native.heard(ack, end, !self.policy.lossy)
    }
}
