//! Sends that have not ended.

use crate::base::slab::{Key, Slab};
use crate::state::transfer::{SendKind, SendXfer};

/// All sends of a node.
pub struct Operations {
    pub sends: Slab<SendXfer>,
}

impl Operations {
    pub fn new() -> Operations {
        Operations { sends: Slab::new() }
    }

    /// Sets how a message travels; an eager message may leave in full.
    pub fn start(&mut self, key: Key, kind: SendKind) {
        if let Some(send) = self.sends.get_mut(key) {
            send.kind = kind;
            if kind == SendKind::Eager {
                send.upto = send.head.total;
                send.granted = true;
            }
        }
    }

    /// Notes that all bytes of a message below `to` have left.
    pub fn advance(&mut self, key: Key, to: u64) {
        if let Some(send) = self.sends.get_mut(key) {
            send.next = to;
        }
    }
}
