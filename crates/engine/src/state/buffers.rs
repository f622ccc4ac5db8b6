//! The engine's own memory: the log and unexpected messages. Packets are built in the rails'
//! buffers.

use crate::memory::pool::{Buffer, Pool};
use marline_proto::Spans;
use std::collections::BTreeMap;

/// Bounce buffers of unexpected messages by (endpoint index, inbound number).
pub type Bounces = BTreeMap<(u32, u64), Buffer>;

/// The buffers.
pub struct Buffers {
    pub(crate) pool: Pool,
    pub(crate) bounces: Bounces,
    /// Payloads of the packet under construction.
    pub(crate) spans: Spans,
    /// Received packets with decrypted payloads.
    pub(crate) clear: Vec<u8>,
    /// Bytes copied into the log since the last `short_poll` at the rails.
    pub(crate) copied: usize,
}

impl Buffers {
    /// Creates buffers with a log of at most `log_bytes`.
    pub(crate) fn new(log_bytes: usize) -> Buffers {
        Buffers {
            pool: Pool::new(log_bytes),
            bounces: Bounces::new(),
            spans: Spans::new(),
            clear: Vec::new(),
            copied: 0,
        }
    }

    /// Frees the bounce buffer of an inbound message, if it has one.
    pub(crate) fn free_bounce(&mut self, of: (u32, u64)) {
        if let Some(buffer) = self.bounces.remove(&of) {
            self.pool.give(buffer);
        }
    }
}
