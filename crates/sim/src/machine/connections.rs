//! Rails whose links are connections: made by dialling, in order, and lossless until they break.
//! All that is under way is lost then, the ends that know of the connection are told, and dial
//! again. (TCP and RC repeat what a network loses, and break where it carries nothing.)

use crate::base::rng::Rng;
use crate::machine::reading::Reading;
use marline_rails::immediate::Landed;
use marline_rails::DownReason;
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

/// Why a connection is down that was up: of a process that died, and of one that the network broke.
pub(crate) const ENDED: DownReason = DownReason::Closed;
pub(crate) const BROKEN: DownReason = DownReason::Broken(104); // ECONNRESET

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
    /// Those that rest.
    pub rest: Rest,
    /// Reads on their way, by the order of the event of their next step.
    pub reads: BTreeMap<u64, Reading>,
    /// Reads whose answers do not come through.
    pub waiting: Vec<Reading>,
}

/// How many connections of a rail rest.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Rests {
    /// One process has so many on a rail, then the one that was sent on least lately rests; 0: as
    /// many as it wants.
    pub most: usize,
    /// The connection of so many packets in a million rests behind them: others were wanted.
    pub ppm: u32,
    /// Links carry so many packets as datagrams before they have a connection; 0: none.
    pub datagrams_first: u32,
}

impl Rests {
    /// Those of a seed: in half of them. (Numbers of their own: other draws stay what they are.)
    pub(crate) fn draw(seed: u64) -> Rests {
        let rng = &mut Rng::new(seed, 26);
        if !rng.one_in(2) {
            return Rests::default();
        }
        Rests {
            most: rng.pick(&[0, 1, 1, 2]),
            ppm: rng.pick(&[0, 300, 3_000, 30_000]),
            datagrams_first: rng.pick(&[0, 0, 3, 50]),
        }
    }
}

/// How far a connection is that does not carry packets.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Phase {
    /// It ends what is under way.
    Parting,
    Resting,
    /// It is being made again.
    Waking,
}

/// A connection that rests, or is about to.
#[derive(Debug)]
pub(crate) struct Resting {
    pub phase: Phase,
    /// Batches that wait for it.
    pub held: u32,
    /// Packets that left as datagrams meanwhile.
    pub datagrams: u32,
    pub tries: u32,
}

/// The connections of a world that rest.
#[derive(Debug, Default)]
pub(crate) struct Rest {
    /// By their two ends, the lesser one first.
    pub resting: BTreeMap<Way, Resting>,
    /// The next steps, by the order of their events.
    pub steps: BTreeMap<u64, Way>,
    /// Until when there is something under way.
    pub busy: BTreeMap<Way, u64>,
    /// When each was sent on last.
    pub used: BTreeMap<Way, u64>,
}
