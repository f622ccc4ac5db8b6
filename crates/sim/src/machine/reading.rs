//! Reads of other processes' memory that are on their way.

use marline_wire::RailAddr;

/// A read that the engine has posted.
#[derive(Clone, Copy, Debug)]
pub struct OutRead {
    /// Rail.
    pub rail: usize,
    /// Where to.
    pub to: RailAddr,
    /// Key of the memory there.
    pub key: u64,
    /// Key of the memory here.
    pub into: u64,
    /// Where in both it begins.
    pub at: usize,
    /// Bytes.
    pub len: usize,
    /// The reader's name for it.
    pub token: u64,
    /// How often its rail had been drained when it took the read.
    pub drained: u32,
}

/// A read on its way: asked for, or answered.
#[derive(Debug)]
pub(crate) struct Reading {
    pub e: u32,
    pub read: OutRead,
    pub answer: Option<Answer>,
}

/// The answer to a read, and the lies that its rail tells of it.
#[derive(Debug)]
pub(crate) struct Answer {
    pub bytes: Vec<u8>,
    /// It is said to be there up to so long before it is.
    pub late_ns: u64,
    /// It gets there.
    pub lands: bool,
    /// The reader is told.
    pub tells: bool,
}
