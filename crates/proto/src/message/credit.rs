//! Credit: how much unexpected payload a sender may have unread here.

use crate::base::mutation::Mutation;
use crate::base::types::PeerId;
use crate::node::Node;

impl Node {
    /// Returns the receiver's memory of an eager message to its sender.
    pub(crate) fn return_credit(&mut self, peer: PeerId, bytes: u64) {
        let times = 1 + self.cfg.errs(Mutation::Hoard) as u64;
        if let Some(conn) = self.conn_mut(peer) {
            conn.credit.give(bytes * times);
            self.announce_credit(peer);
        }
    }

    /// Counts credit that an arrived message used.
    pub(crate) fn use_credit(&mut self, peer: PeerId, bytes: u64) {
        if let Some(conn) = self.conn_mut(peer) {
            conn.credit.see(bytes);
            self.announce_credit(peer);
        }
    }

    /// Tells the sender of returned credit, if it needs to know.
    fn announce_credit(&mut self, peer: PeerId) {
        if self.cfg.errs(Mutation::KeepCredit) {
            return;
        }
        let conn = self.conn_mut(peer);
        if conn.is_some_and(|conn| conn.credit.comes_due()) {
            self.wake(peer);
        }
    }
}
