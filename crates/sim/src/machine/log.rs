//! A log of what an engine did since the world last looked.

use crate::base::spare;
use marline_engine::{Completion, OpError};
use marline_proto::{DropReason, Event};
use std::collections::VecDeque;

/// Something that the engine did.
#[derive(Debug)]
pub enum Entry {
    /// A packet went through the node.
    Ingested {
        /// Endpoint that sent it, by its id.
        src: u32,
        /// Where its bytes are: address and length.
        at: (usize, usize),
        /// Why it was dropped, if it was.
        result: Result<(), DropReason>,
        /// Messages of its sender that were matched so far.
        upto: u64,
    },
    /// The node said so; the endpoint that it speaks of.
    Said(Event, u32),
    /// A send (or remote write) is over: context, how.
    Sent(usize, Result<(), OpError>),
    /// The data of a remote write (its context) follows it.
    Trails(usize),
    /// An operation on memory of this endpoint is over, in parts or of no bytes: it is told of the
    /// region with this key.
    TellsOver(u32, u64),
    /// An entry for a queue.
    Completed(Completion),
}

/// The actions of the engine since the world last looked.
#[derive(Debug, Default)]
pub struct Log {
    /// In order.
    pub entries: Vec<Entry>,
    /// Buffers that rails handed over, with the packets of `Entry::Ingested`.
    pub received: Vec<Vec<u8>>,
    /// Which parts of the operation that was just posted went in the call before them, of those
    /// that may.
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

    /// Forgets it all.
    pub fn clear(&mut self) {
        self.entries.clear();
        self.joins.clear();
        self.received.drain(..).for_each(spare::give);
    }
}
