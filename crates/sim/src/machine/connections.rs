//! Rails whose links are connections: established by dialling, in order, and lossless until they
//! break. A break loses all data in flight; both ends are told and dial again. (TCP and RC
//! retransmit, and break if the network carries nothing.)

use crate::base::rng::Rng;
use crate::machine::reading::Reading;
use marline_rails::immediate::Landed;
use marline_rails::DownReason;
use marline_wire::RailAddr;
use std::collections::{BTreeMap, BTreeSet};

/// The transport of a rail.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verbs {
    /// Reliable connections.
    Rc,
    /// Unreliable connections.
    Uc,
    /// Unreliable datagrams.
    Ud,
}

/// Reasons for a broken connection: the peer process ended, or the network broke the connection.
pub(crate) const ENDED: DownReason = DownReason::Closed;
pub(crate) const BROKEN: DownReason = DownReason::Broken(104); // ECONNRESET

/// The end of a connection: endpoint and rail here, rail and port at the other end.
pub(crate) type End = (u32, usize, (usize, usize), u16);

/// A direction from one rail to another; each rail is a host and an index.
pub(crate) type Way = ((usize, usize), (usize, usize));

/// The connections of a world.
#[derive(Debug, Default)]
pub(crate) struct Connections {
    /// Established connections.
    pub up: BTreeMap<End, RailAddr>,
    /// Connections in progress, by the event that decides their outcome.
    pub dials: BTreeMap<u64, (u32, usize, RailAddr)>,
    /// Pairs of rails without traffic for longer than connections survive, and the events at which
    /// their connections break.
    pub silent: BTreeSet<Way>,
    pub resets: BTreeMap<u64, Way>,
    /// Ends of broken connections that do not know of the break: the event that will tell them, and
    /// the remote address.
    pub unreadable: BTreeMap<End, (u64, RailAddr)>,
    /// Landed writes on unreliable connections, by endpoint and rail.
    pub landed: BTreeMap<(u32, usize), Landed>,
    /// Stuck unreliable connections, with the number of earlier breaks.
    pub stuck: BTreeMap<Way, u32>,
    /// Connections closed by idle eviction.
    pub eviction: Eviction,
    /// Reads in flight, by the event of their next step.
    pub reads: BTreeMap<u64, Reading>,
    /// Reads whose answers do not arrive.
    pub waiting: Vec<Reading>,
}

/// How many connections of a rail are closed by idle eviction.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Evictions {
    /// Most connections per process and rail; beyond that the least recently used one is closed. 0:
    /// no limit.
    pub most: usize,
    /// Packets per million after which the connection is closed, as if its room were needed.
    pub ppm: u32,
    /// Packets that a link sends as datagrams before it connects; 0: none.
    pub datagrams_first: u32,
}

impl Evictions {
    /// Draws evictions for half of the seeds. (From separate random numbers, so that other draws
    /// are unaffected.)
    pub(crate) fn draw(seed: u64) -> Evictions {
        let rng = &mut Rng::new(seed, 26);
        if !rng.one_in(2) {
            return Evictions::default();
        }
        Evictions {
            most: rng.pick(&[0, 1, 1, 2]),
            ppm: rng.pick(&[0, 300, 3_000, 30_000]),
            datagrams_first: rng.pick(&[0, 0, 3, 50]),
        }
    }
}

/// State of a connection that carries no packets.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Phase {
    /// Work in progress is being completed.
    Draining,
    Evicted,
    /// The connection is being re-established.
    Reconnecting,
}

/// A connection closed by idle eviction, or about to be.
#[derive(Debug)]
pub(crate) struct Evicted {
    pub phase: Phase,
    /// Batches that wait for reconnection.
    pub held: u32,
    /// Packets sent as datagrams meanwhile.
    pub datagrams: u32,
    pub tries: u32,
}

/// The connections of a world that are closed by idle eviction.
#[derive(Debug, Default)]
pub(crate) struct Eviction {
    /// Evicted links by their two ends, the smaller end first.
    pub evicted_links: BTreeMap<Way, Evicted>,
    /// Next steps, by event.
    pub steps: BTreeMap<u64, Way>,
    /// End of work in progress.
    pub busy: BTreeMap<Way, u64>,
    /// Time of last use.
    pub used: BTreeMap<Way, u64>,
}
