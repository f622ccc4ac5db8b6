//! Packets and writes that an engine hands to its rails, and news that rails tell it.

use marline_rails::{DownReason, RailEvent};
use marline_wire::RailAddr;

/// One batch that the engine sent.
#[derive(Debug)]
pub struct Out {
    /// Rail.
    pub rail: usize,
    /// Where to.
    pub to: RailAddr,
    /// Length of all packets but the last.
    pub segment: usize,
    /// The packets.
    pub bytes: Vec<u8>,
    /// The port that they leave by; 0: the rail's own.
    pub source_port: u32,
    /// Local time.
    pub at: u64,
    /// The write that the packet tells of.
    pub write: Option<OutWrite>,
    /// They are a direct write, one datagram; `segment`: what the path takes.
    pub direct: bool,
    /// They leave as datagrams, as their connection rests.
    pub light: bool,
}

/// A write on its way.
#[derive(Clone, Debug)]
pub struct OutWrite {
    /// Key of the memory at its target.
    pub key: u64,
    /// Offset there.
    pub offset: u64,
    /// The writer's name for it.
    pub token: u64,
    /// Where its bytes are: address and length.
    pub pieces: Vec<(usize, usize)>,
    /// How often its rail had been drained when it took the write.
    pub drained: u32,
    /// Its rail's number for it, if its parts have immediates.
    pub call: Option<u32>,
    /// Longest part.
    pub part_max: usize,
    /// Its bytes, if they were copied: it waited for its connection.
    pub copied: Option<Vec<u8>>,
}

/// Something that a rail is to tell; of links by their address.
#[derive(Clone, Copy, Debug)]
pub enum News {
    /// As it is.
    Rail(RailEvent),
    /// Nobody listens there.
    Refused(RailAddr),
    /// The connection to there is up, or is down for a reason.
    Link(RailAddr, Option<DownReason>),
    /// At most so many bytes pass on the way there.
    TooBig(RailAddr, usize),
}
