//! Remote reads in flight.

use marline_wire::RailAddr;

/// A read that the engine has posted.
#[derive(Clone, Copy, Debug)]
pub struct OutRead {
    /// Rail.
    pub rail: usize,
    /// The destination.
    pub to: RailAddr,
    /// Key of the remote memory.
    pub key: u64,
    /// Key of the local memory.
    pub into: u64,
    /// Offset in both.
    pub at: usize,
    /// Bytes.
    pub len: usize,
    /// The reader's token.
    pub token: u64,
    /// Number of times that the rail had been drained before.
    pub drained: u32,
}

/// A read in flight, before or after its answer.
#[derive(Debug)]
pub(crate) struct Reading {
    pub e: u32,
    pub read: OutRead,
    pub answer: Option<Answer>,
}

/// The answer to a read, with the false report of the rail.
#[derive(Debug)]
pub(crate) struct Answer {
    pub bytes: Vec<u8>,
    /// Time by which the report precedes the data.
    pub late_ns: u64,
    /// True if the data arrives.
    pub lands: bool,
    /// True if the reader gets a report.
    pub reports: bool,
}
