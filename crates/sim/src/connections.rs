//! Rails whose links are connections: made by dialling, in order, and lossless until they break.
//! All that is under way is lost then, the ends that know of the connection are told, and dial
//! again. (TCP and RC repeat what a network loses, and break where it carries nothing.)

use marline_rails::immediate::Landed;
use marline_wire::RailAddr;
use std::collections::{BTreeMap, BTreeSet};

/// How a rail transports.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verbs {
    /// Reliable connections.
    Rc,
    /// Unreliable connections.
    Uc,
    /// Unreliable datagrams.
    Ud,
}

/// One end's connection: endpoint and rail, rail and port at the other end.
pub(crate) type End = (u32, usize, (usize, usize), u16);

/// From a rail (of a host) to another.
pub(crate) type Way = ((usize, usize), (usize, usize));

/// The connections of a world.
#[derive(Debug, Default)]
pub(crate) struct Connections {
    /// Those that carry packets.
    pub up: BTreeMap<End, RailAddr>,
    /// Those that are being made, by the order of the event that decides.
    pub dials: BTreeMap<u64, (u32, usize, RailAddr)>,
    /// Pairs of rails between which nothing passes, for longer than connections last, and the
    /// events with which these break.
    pub silent: BTreeSet<Way>,
    pub resets: BTreeMap<u64, Way>,
    /// Ends whose connection is down and who have not heard of it yet: the event with which they
    /// do, and where to.
    pub deaf: BTreeMap<End, (u64, RailAddr)>,
    /// Of an endpoint and rail: which writes of unreliable connections landed.
    pub landed: BTreeMap<(u32, usize), Landed>,
    /// Unreliable ones that take nothing any more, and how often they had broken before.
    pub stuck: BTreeMap<Way, u32>,
}
