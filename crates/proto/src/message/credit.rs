//! Credit: bounds the unexpected payload that a sender may have unread here.

use crate::base::config::Config;
use crate::base::mutation::Mutation;
use crate::base::types::PeerId;
use crate::node::Node;
use crate::state::conn::Conn;
use crate::state::run_queue::RunQueue;

impl Node {
    /// Returns the credit of an eager message to its sender.
    pub(crate) fn return_credit(&mut self, peer: PeerId, bytes: u64) {
        let times = 1 + self.cfg.errs(Mutation::Hoard) as u64;
        if let Some(conn) = self.directory.conn_mut(peer) {
            conn.credit.give(bytes * times);
            announce_credit(&self.cfg, &mut self.run_queue, conn);
        }
    }

    /// Accounts for credit used by an arrived message.
    pub(crate) fn use_credit(&mut self, peer: PeerId, bytes: u64) {
        let promised = self.directory.credit_promised;
        let Some(conn) = self.directory.conn_mut(peer) else {
            return;
        };
        conn.credit.see(bytes);
        announce_credit(&self.cfg, &mut self.run_queue, conn);
        let asks = conn.credit.is_crowded() && !conn.session.own;
        if asks && !self.cfg.errs(Mutation::KeepCredit) {
            let more = self.cfg.credit_growth(conn.credit.window(), promised);
            if more > 0 {
                conn.credit.probe_sizes_if_bulk(more);
                self.run_queue.mark_ready(conn);
                self.directory.credit_promised += more;
            }
        }
    }
}

/// Announces returned credit to the sender if that is due.
fn announce_credit(cfg: &Config, run_queue: &mut RunQueue, conn: &mut Conn) {
    if !cfg.errs(Mutation::KeepCredit) && conn.credit.comes_due() {
        run_queue.mark_ready(conn);
    }
}
