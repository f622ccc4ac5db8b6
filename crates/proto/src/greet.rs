//! First contact: HELLO, and what is asked of a path that is new. In an all-to-all everyone meets
//! everyone at once: each packet that is not needed here is then sent a million times.

use crate::conn::Conn;
use crate::node::Node;
use crate::path::PathState;
use crate::send_ring::FrameRef;
use crate::transmit::Builder;
use marline_wire::{Frame, Header};

impl Node {
    /// HELLO rides on every packet until it is acknowledged.
    pub(crate) fn greet(&self, conn: &Conn, builder: &mut Builder<'_, '_>) {
        if conn.hello_acked {
            return;
        }
        let hello = self.hello(conn.peer, conn.credit_limit_told());
        builder.control(&Frame::Hello(hello), Some(FrameRef::Hello));
        if conn.waiting() == 0 {
            builder.flags |= Header::FLAG_ACK_NOW;
        }
    }
}

impl Builder<'_, '_> {
    /// Whether the packet wants an ack. One of acks does not for its HELLO if that is in another,
    /// too, that waits and will be repeated: else acks that cross would bring each other about.
    pub(crate) fn wants_ack(&mut self, conn: &Conn) -> bool {
        if self.acks > 0 && self.frames == [FrameRef::Hello] && conn.asks() {
            self.frames.clear();
        }
        !self.frames.is_empty()
    }
}

impl Conn {
    /// A packet was filled. If more waits than it took, or will when a grant comes, it is worth a
    /// probe of each path how large packets may be. (Whoever gets little is asked nothing: in an
    /// all-to-all of small messages most bytes would be those of the probes.)
    pub(crate) fn widen(&mut self, reliable: bool) {
        let long = !self.rendezvous.is_empty() || !self.replies.is_empty();
        if self.wide || !(long || !self.queue.is_empty() || !self.bulk.is_empty()) {
            return;
        }
        self.wide = true;
        if self.epoch.is_some() {
            self.ask_sizes(reliable);
        }
    }

    /// Asks every path for the largest packets that it takes, if that is wanted. Of several each is
    /// asked at once: what they are measured by first decides how they share a long message.
    /// Native mode has no acks that could answer: it takes both rails at their word.
    pub(crate) fn ask_sizes(&mut self, reliable: bool) {
        let wanted = self.wide || self.paths.len() > 1;
        let paths = self.paths.iter_mut().filter(|_| wanted);
        paths.for_each(|path| path.ask_size(reliable));
    }

    /// Whether a packet waits on a path that sends it again if need be.
    fn asks(&self) -> bool {
        let mut paths = self.paths.iter();
        paths.any(|p| p.ring.waiting() > 0 && !p.rail_down && p.state != PathState::Down)
    }
}
