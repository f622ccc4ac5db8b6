//! A log of an engine's actions since the world last read it.

use crate::base::spare;
use marline_engine::{Completion, OpError};
use marline_proto::{DropReason, Event};
use std::collections::VecDeque;

/// An action of the engine.
#[derive(Debug)]
pub enum Entry {
    /// The node processed a packet.
    Ingested {
        /// The sending endpoint's id.
        src: u32,
        /// Address and length of the packet.
        at: (usize, usize),
        /// Reason for a drop.
        result: Result<(), DropReason>,
        /// Number of messages of the sender matched so far.
        upto: u64,
    },
    /// The node reported an event, about this endpoint.
    Said(Event, u32),
    /// A send or remote write ended: context, result.
    Sent(usize, Result<(), OpError>),
    /// The data of a remote write (by context) follows.
    DataFollows(usize),
    /// An operation in parts, or of zero bytes, on this endpoint's memory ended: its peer reports
    /// the region's key.
    PartsDone(u32, u64),
    /// A completion entry for a queue.
    Completed(Completion),
}

/// The engine's actions since the world last read them.
#[derive(Debug, Default)]
pub struct Log {
    /// In order.
    pub entries: Vec<Entry>,
    /// Buffers delivered by rails, with the packets of `Entry::Ingested`.
    pub received: Vec<Vec<u8>>,
    /// For each part of the operation just posted that may share the RPC before it: true if it
    /// does.
    pub joins: VecDeque<bool>,
}

impl Log {
    /// The bytes of `Entry::Ingested`.
    pub fn packet(&self, at: (usize, usize)) -> Option<&[u8]> {
        self.received.iter().find_map(|bytes| {
            let from = at.0.checked_sub(bytes.as_ptr() as usize)?;
            bytes.get(from..from + at.1)
        })
    }

    /// Clears the log.
    pub fn clear(&mut self) {
        self.entries.clear();
        self.joins.clear();
        self.received.drain(..).for_each(spare::give);
    }
}
