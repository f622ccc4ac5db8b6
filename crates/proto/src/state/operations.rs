//! Operations that have not ended: sends, incoming messages, receives.

use crate::base::slab::{Key, Slab};
use crate::state::completion_order::CompletionOrder;
use crate::state::matching::Matching;
use crate::state::transfer::{Inbound, SendKind, SendXfer};
use alloc::collections::BTreeMap;

/// Outstanding completions of one multi-receive buffer.
#[derive(Clone, Copy, Debug, Default)]
pub struct Multi {
    pub outstanding: u32,
    pub retired: bool,
}

/// All operations of a node.
pub struct Operations {
    pub sends: Slab<SendXfer>,
    pub inbounds: Slab<Inbound>,
    pub(crate) matching: Matching,
    pub multi: BTreeMap<u32, Multi>,
    pub(crate) completion_order: CompletionOrder,
}

impl Operations {
    pub fn new() -> Operations {
        Operations {
            sends: Slab::new(),
            inbounds: Slab::new(),
            matching: Matching::default(),
            multi: BTreeMap::new(),
            completion_order: CompletionOrder::default(),
        }
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

    /// Ends one message into a multi-receive buffer; returns true if the operation is finished.
    pub fn leave_multi(&mut self, handle: u32) -> bool {
        if self.multi.is_empty() {
            return true;
        }
        let Some(multi) = self.multi.get_mut(&handle) else {
            return true;
        };
        multi.outstanding -= 1;
        let last = multi.retired && multi.outstanding == 0;
        if last {
            self.multi.remove(&handle);
        }
        last
    }
}
