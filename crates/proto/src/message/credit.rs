//! Credit: how much unexpected payload a sender may have unread here.

use crate::base::config::{FIRST_CREDIT, MESSAGE_OVERHEAD};
use crate::base::mutation::Mutation;
use crate::base::types::PeerId;
use crate::node::Node;
use crate::state::conn::Conn;

impl Node {
    /// Returns the receiver's memory of an eager message to its sender.
    pub(crate) fn return_credit(&mut self, peer: PeerId, bytes: u64) {
        let times = 1 + self.cfg.errs(Mutation::Hoard) as u64;
        if let Some(conn) = self.conn_mut(peer) {
            conn.credit_given += bytes * times;
            self.announce_credit(peer);
        }
    }

    /// Counts credit that an arrived message used.
    pub(crate) fn use_credit(&mut self, peer: PeerId, bytes: u64) {
        if let Some(conn) = self.conn_mut(peer) {
            conn.credit_seen += bytes;
            self.announce_credit(peer);
        }
    }

    /// Tells the sender of returned credit when it has used half of what it knows of. (By what it
    /// has left, not by what came back: with less left than its next message costs, and less
    /// returned than is worth a frame, it would wait for ever.)
    fn announce_credit(&mut self, peer: PeerId) {
        if self.cfg.errs(Mutation::KeepCredit) {
            return;
        }
        let Some(conn) = self.conn_mut(peer) else {
            return;
        };
        let window = conn.credit_window;
        let limit = conn.credit_announced + window - FIRST_CREDIT;
        let low = limit.saturating_sub(conn.credit_seen) < window / 2;
        if low && conn.credit_given > conn.credit_announced && !conn.credit_due {
            conn.credit_due = true;
            self.wake(peer);
        }
    }
}

impl Conn {
    /// Credit that a message of this many eager bytes takes.
    pub(crate) fn cost(eager_bytes: u64) -> u64 {
        eager_bytes + MESSAGE_OVERHEAD
    }
}
