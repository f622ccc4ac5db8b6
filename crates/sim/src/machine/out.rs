//! Packets and writes from an engine to its rails, and events from rails.

use marline_rails::{DownReason, RailEvent};
use marline_wire::RailAddr;

/// A batch that the engine sent.
#[derive(Debug)]
pub struct Out {
    /// Rail.
    pub rail: usize,
    /// The destination.
    pub to: RailAddr,
    /// Length of all packets but the last.
    pub segment: usize,
    /// The packets.
    pub bytes: Vec<u8>,
    /// The port by which the packets leave; 0: the rail's own.
    pub source_port: u32,
    /// Local time.
    pub at: u64,
    /// The write that the packet reports.
    pub write: Option<OutWrite>,
    /// True for a direct write in one datagram; `segment` is then the path's packet size.
    pub direct: bool,
    /// True if the packets leave as datagrams while their connection is closed.
    pub light: bool,
}

/// A write in flight.
#[derive(Clone, Debug)]
pub struct OutWrite {
    /// Key of the target's memory.
    pub key: u64,
    /// Offset in the target's memory.
    pub offset: u64,
    /// The writer's token.
    pub token: u64,
    /// Addresses and lengths of the write's pieces.
    pub pieces: Vec<(usize, usize)>,
    /// Number of times that the rail had been drained before.
    pub drained: u32,
    /// The rail's number of the write, if the write's parts have immediates.
    pub call: Option<u32>,
    /// Longest part.
    pub part_max: usize,
    /// A copy of the write's bytes, if it waits for its connection.
    pub copied: Option<Vec<u8>>,
}

/// An event for the engine; links are identified by address.
#[derive(Clone, Copy, Debug)]
pub enum News {
    /// A rail event.
    Rail(RailEvent),
    /// No socket is at this address.
    Refused(RailAddr),
    /// The connection to this address is up, or down for a reason.
    Link(RailAddr, Option<DownReason>),
    /// Packet size limit of the path to this address.
    TooBig(RailAddr, usize),
}
