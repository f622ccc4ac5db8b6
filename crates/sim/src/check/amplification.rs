//! Checks that an endpoint sends at most three times the bytes that came from a peer to which it
//! has no address, until the peer proves that it receives there. Endpoints insert an address when
//! they first use it, so that each peer which speaks first is a stranger for a while.

use crate::world::state::World;
use marline_wire::{Frame, Packet};

impl World {
    /// Returns whether `other` is a stranger for an endpoint, whose addresses are to be validated.
    fn is_stranger_to(&self, e: u32, other: u32) -> bool {
        let node = &self.setup.node;
        let unnamed = !self.eps[e as usize].addrs.contains_key(&other);
        node.key_mark == 0 && node.reliable && unnamed
    }

    /// Counts a packet that came, whatever became of it.
    pub(crate) fn count_came(&mut self, e: u32, src: u32, bytes: usize, packet: &Packet<'_>) {
        if !self.is_stranger_to(e, src) {
            return;
        }
        let is_response = |(frame, _)| matches!(frame, Frame::PathResponse { .. });
        let response = packet.frames().any(is_response);
        if self.amplification.came((e, src), bytes, response) {
            *self.troubles.entry("stranger validated").or_default() += 1;
        }
    }

    /// Checks a packet that leaves.
    pub(crate) fn check_amplification(&mut self, e: u32, dst: u32, bytes: usize) {
        if self.is_stranger_to(e, dst) {
            if let Err(text) = self.amplification.leaves((e, dst), bytes) {
                self.broken(e, text);
            }
        }
    }
}
