//! Credit: bounds the unexpected payload that a sender may have unread here.

use crate::base::config::Config;
use crate::base::mutation::Mutation;
use crate::base::types::PeerId;
use crate::node::Node;
use crate::state::agenda::Agenda;
use crate::state::conn::Conn;

impl Node {
    /// Returns the credit of an eager message to its sender.
    pub(crate) fn return_credit(&mut self, peer: PeerId, bytes: u64) {
        let times = 1 + self.cfg.errs(Mutation::Hoard) as u64;
        if let Some(conn) = self.directory.conn_mut(peer) {
            conn.credit.give(bytes * times);
            announce_credit(&self.cfg, &mut self.agenda, conn);
        }
    }

    /// Accounts for credit used by an arrived message.
    pub(crate) fn use_credit(&mut self, peer: PeerId, bytes: u64) {
        let promised = self.directory.credit_promised;
        let Some(conn) = self.directory.conn_mut(peer) else {
            return;
        };
        conn.credit.see(bytes);
        announce_credit(&self.cfg, &mut self.agenda, conn);
        let asks = conn.credit.is_crowded() && !conn.session.own;
        if asks && !self.cfg.errs(Mutation::KeepCredit) {
            let more = self.cfg.credit_growth(conn.credit.window(), promised);
            if more > 0 {
                conn.credit.widen(more);
                self.agenda.mark_ready(conn);
                self.directory.credit_promised += more;
            }
        }
    }
}

/// Announces returned credit to the sender if that is due.
fn announce_credit(cfg: &Config, agenda: &mut Agenda, conn: &mut Conn) {
    if !cfg.errs(Mutation::KeepCredit) && conn.credit.comes_due() {
        agenda.mark_ready(conn);
    }
}
