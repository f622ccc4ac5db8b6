//! Grants of peers for local messages.

use crate::base::types::PeerId;
use crate::node::Node;
use crate::state::transfer::SendKind;
use marline_wire::{Grant, BLOCK_BYTES, FLAG_READ_REPLY, FLAG_REFUSED};

impl Node {
    /// Handles a grant from the receiver of a local message.
    pub(crate) fn on_grant(&mut self, peer: PeerId, grant: &Grant) {
        let reply = grant.flags & FLAG_READ_REPLY != 0;
        let Some(conn) = self.conn(peer) else { return };
        let table = if reply {
            &conn.tx.replies
        } else {
            &conn.tx.rendezvous
        };
        let Some(&key) = table.get(&grant.number) else {
            return;
        };
        if grant.flags & FLAG_REFUSED != 0 {
            return self.put_refused(peer, key);
        }
        let Some(send) = self.ops.sends.get_mut(key) else {
            return;
        };
        send.granted = true;
        send.wanted = send.wanted.min(whole_blocks(grant.wanted, send.head.total));
        let upto = whole_blocks(grant.upto, send.head.total);
        send.grant(upto.min(send.wanted));
        let more = send.next < send.upto && !send.in_bulk;
        send.in_bulk |= more;
        debug_assert!(matches!(send.kind, SendKind::Rendezvous | SendKind::Reply));
        if let Some(conn) = self.directory.conn_mut(peer) {
            if more {
                conn.tx.bulk.push_back(key);
            }
            self.run_queue.mark_ready(conn);
        }
        self.finish_send_if_done(key);
    }
}

/// Rounds a number of bytes from a peer, for a message of `total` bytes, down to whole blocks: a
/// fragment must not end within a block unless it is the message's last.
pub(crate) fn whole_blocks(bytes: u64, total: u64) -> u64 {
    if bytes >= total {
        total
    } else {
        bytes - bytes % BLOCK_BYTES
    }
}
