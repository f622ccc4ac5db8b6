//! Loopback: recognition of the endpoint's own peer, and room for messages to it.

use crate::base::config::MESSAGE_OVERHEAD;
use crate::base::types::PeerId;
use crate::node::Node;

impl Node {
    /// Returns whether this peer is the endpoint itself.
    pub fn is_loopback(&self, peer: PeerId) -> bool {
        self.peer_address(peer)
            .is_some_and(|a| a.id == self.local.id)
    }

    /// Returns whether the peer is this endpoint, and unmatched loopback messages fill the bound on
    /// unexpected memory.
    pub fn loopback_full(&self, peer: PeerId) -> bool {
        let own = self.conn(peer).is_some_and(|c| c.session.own);
        own && self.stats.unexpected_bytes + MESSAGE_OVERHEAD > self.cfg.unexpected_bytes
    }
}
