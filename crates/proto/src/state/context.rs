//! What the components of a node use of it: its settings and its peers.

use crate::base::config::Config;
use crate::base::types::PeerId;
use crate::state::directory::Directory;
use crate::state::run_queue::RunQueue;

/// Borrowed parts of a node, without its operations.
pub(crate) struct Context<'a> {
    pub(crate) cfg: &'a Config,
    pub(crate) directory: &'a mut Directory,
    pub(crate) run_queue: &'a mut RunQueue,
}

impl Context<'_> {
    /// Returns the credit of an eager message to its sender.
    pub(crate) fn return_credit(&mut self, peer: PeerId, bytes: u64) {
        if let Some(conn) = self.directory.conn_mut(peer) {
            if conn.credit.give(bytes, self.cfg) {
                self.run_queue.mark_ready(conn);
            }
        }
    }

    /// Counts the credit that a message from the peer used.
    pub(crate) fn use_credit(&mut self, peer: PeerId, bytes: u64) {
        let Directory {
            peers, promised, ..
        } = &mut *self.directory;
        let entry = peers.get_mut(peer.0 as usize);
        let Some(conn) = entry.and_then(|entry| entry.conn.as_deref_mut()) else {
            return;
        };
        let told = conn.credit.see(bytes, self.cfg);
        let grown = !conn.session.own && promised.grow(&mut conn.credit, self.cfg);
        if told || grown {
            self.run_queue.mark_ready(conn);
        }
    }
}
