//! The choices of one seed: cluster, settings, faults, workload. All of it is plain data, so that a
//! failing run can be shrunk by taking things away.

use crate::base::rng::Rng;
use crate::machine::connections::{Rests, Verbs};
use crate::setup::moment::Strike;
use crate::setup::profile::Profile;
use marline_checksum::Algorithm;
use marline_proto::Config;

/// How rails see each other.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Topology {
    /// Rail `i` of every host is in subnet `i`.
    Planes,
    /// One subnet: every rail reaches every rail.
    Mesh,
    /// Every rail is alone in its subnet (routed).
    Routed,
}

impl Topology {
    pub(crate) fn draw(rng: &mut Rng) -> Topology {
        use Topology::{Mesh, Planes, Routed};
        rng.pick(&[Planes, Planes, Mesh, Routed])
    }
}

/// Faults that each packet may meet, in parts per million.
#[derive(Clone, Copy, Debug, Default)]
pub struct Weather {
    /// Lost.
    pub drop: u32,
    /// Delivered twice.
    pub duplicate: u32,
    /// Held back by up to `reorder_ns`.
    pub reorder: u32,
    /// How long.
    pub reorder_ns: u64,
    /// A bit of the head is flipped.
    pub corrupt_head: u32,
    /// A bit of a payload or pad is flipped.
    pub corrupt_payload: u32,
    /// Cut short.
    pub truncate: u32,
    /// A whole super-packet is lost.
    pub batch_drop: u32,
    /// Somebody sends a copy with another token.
    pub forge: u32,
    /// Random extra latency up to this (order is kept).
    pub jitter_ns: u64,
    /// A connection breaks.
    pub breaks: u32,
}

/// A lie that a rail tells of its writes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Lie {
    /// They land: they never do.
    Never,
    /// They land before the packets that tell of them: up to so many nanoseconds late, some
    /// damaged.
    Late(u64),
    /// They are over when they have just begun.
    OverEarly,
    /// They are never over.
    NeverOver,
}

/// Something that goes wrong for a while (fields: which host and rail, how badly).
#[allow(missing_docs)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Trouble {
    /// The rail carries nothing in or out; `told`: its owner hears of it.
    RailDown {
        host: usize,
        rail: usize,
        told: bool,
    },
    /// The address of this rail is gone, and its owner hears of it; in the end its interface has
    /// another one, of this number.
    Move { host: usize, rail: usize, to: u16 },
    /// Packets of this rail vanish in one direction.
    Blackhole {
        host: usize,
        rail: usize,
        outgoing: bool,
    },
    /// Hosts below `split` and the others do not hear each other.
    Partition { split: usize },
    /// The rail is slow and loses packets.
    Gray {
        host: usize,
        rail: usize,
        drop: u32,
        delay_ns: u64,
    },
    /// `ppm` of a million packets of this rail are lost in one direction.
    Leak {
        host: usize,
        rail: usize,
        outgoing: bool,
        ppm: u32,
    },
    /// The rail has only this part of its rate.
    Slow {
        host: usize,
        rail: usize,
        divisor: u64,
    },
    /// Sends on this rail find no room: its queue does not move.
    Hung { host: usize, rail: usize },
    /// The network forgets what passes this rail: flows and connections that there are carry
    /// nothing any more.
    Forget { host: usize, rail: usize },
    /// A firewall says to whoever sends to this rail that nobody listens.
    Refuse { host: usize, rail: usize },
    /// `ppm` of a million packets of this rail are damaged.
    Corrupt { host: usize, rail: usize, ppm: u32 },
    /// Writes of this rail are not what it says of them.
    Lies { host: usize, rail: usize, how: Lie },
    /// Packets above so many bytes vanish on this rail; `told`: the sender hears of it.
    SmallMtu {
        host: usize,
        rail: usize,
        mtu: usize,
        told: bool,
    },
    /// The application computes and does not poll.
    Compute { host: usize },
    /// The process is off the processor.
    Stopped { host: usize },
    /// The process's clock jumps forward by so much (once).
    ClockJump { host: usize, by_ns: u64 },
    /// The process dies; `reborn`: another takes its place at the end.
    Death { host: usize, reborn: bool },
}

impl Trouble {
    /// The name in reports.
    pub fn name(&self) -> &'static str {
        match self {
            Trouble::RailDown { told: true, .. } => "rail down, told",
            Trouble::RailDown { .. } => "rail down",
            Trouble::Move { .. } => "rail moves",
            Trouble::Blackhole { .. } => "blackhole",
            Trouble::Partition { .. } => "partition",
            Trouble::Gray { .. } => "gray rail",
            Trouble::Leak { .. } => "loss one way",
            Trouble::Slow { .. } => "slow rail",
            Trouble::Hung { .. } => "queue hangs",
            Trouble::Forget { .. } => "flows forgotten",
            Trouble::Refuse { .. } => "rail refuses",
            Trouble::Corrupt { .. } => "rail corrupts",
            Trouble::Lies { .. } => "lies of writes",
            Trouble::SmallMtu { .. } => "small mtu",
            Trouble::Compute { .. } => "computes",
            Trouble::Stopped { .. } => "stopped",
            Trouble::ClockJump { .. } => "clock jumps",
            Trouble::Death { .. } => "death wanted",
        }
    }
}

impl Trouble {
    /// True if it keeps all packets from a rail (of a host) to another.
    pub(crate) fn cuts(&self, from: (usize, usize), to: (usize, usize)) -> bool {
        match *self {
            Trouble::RailDown { host, rail, .. } | Trouble::Move { host, rail, .. } => {
                [from, to].contains(&(host, rail))
            }
            Trouble::Blackhole {
                host,
                rail,
                outgoing,
            } => (host, rail) == if outgoing { from } else { to },
            Trouble::Partition { split } => (from.0 < split) != (to.0 < split),
            _ => false,
        }
    }

    /// The rail that it is of.
    pub(crate) fn rail(&self) -> Option<usize> {
        match *self {
            Trouble::RailDown { rail, .. }
            | Trouble::Move { rail, .. }
            | Trouble::Blackhole { rail, .. }
            | Trouble::Gray { rail, .. }
            | Trouble::Leak { rail, .. }
            | Trouble::Slow { rail, .. }
            | Trouble::Hung { rail, .. }
            | Trouble::Forget { rail, .. }
            | Trouble::Refuse { rail, .. }
            | Trouble::Corrupt { rail, .. }
            | Trouble::Lies { rail, .. }
            | Trouble::SmallMtu { rail, .. } => Some(rail),
            _ => None,
        }
    }
}

/// A trouble and its time.
#[derive(Clone, Copy, Debug)]
pub struct Fault {
    /// Start.
    pub from_ns: u64,
    /// End.
    pub to_ns: u64,
    /// What.
    pub what: Trouble,
}

/// The work of the applications.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Work {
    /// Anything at any time.
    Random,
    /// Pairs, to and fro.
    PingPong,
    /// With both neighbours.
    Halo,
    /// Everyone with everyone.
    AllToAll,
    /// Everyone to host 0, which receives late.
    Incast,
    /// Host 0 to everyone down a binomial tree.
    Tree,
    /// In turn what libraries of collectives do: down a tree and up, with doubling distances, and
    /// around a ring.
    Collective,
    /// Remote writes to both neighbours, which are all over before the next.
    Fence,
    /// Two thousand messages to a neighbour and as many receives, open at once; what is sent in
    /// every other round comes before its receives.
    Storm,
}

/// One simulation.
#[derive(Clone, Debug)]
pub struct Setup {
    /// The seed.
    pub seed: u64,
    /// Kinds of faults.
    pub profile: Profile,
    /// Packets to be sent at least: there is another round of work and faults until they are.
    pub packets_min: u64,
    /// Rounds without faults, bit n for the one after n others; for shrinking.
    pub calm_rounds: u64,
    /// Hosts.
    pub hosts: usize,
    /// Hosts 2n and 2n + 1 are two processes of one machine, at the same addresses.
    pub paired: bool,
    /// Rails per host.
    pub rails: usize,
    /// How rails see each other.
    pub topology: Topology,
    /// Settings of every node.
    pub node: Config,
    /// Largest datagram of each rail in bytes.
    pub datagram_max: Vec<usize>,
    /// Rails that are streams: in order, nothing lost or damaged until they break, and then all
    /// that was under way is lost and their owner is told. Between a stream and a rail of the other
    /// kind packets travel as datagrams.
    pub streams: Vec<bool>,
    /// Streams whose links are connections, and of which the protocol knows what they promise (see
    /// [`Setup::connects`]).
    pub connected: Vec<bool>,
    /// The rail that stays within a host, as shared memory does: a stream whose links are
    /// connections, and which carries whatever there is to carry while it works. (A host is a
    /// process then.)
    pub near: Option<usize>,
    /// The rail that stands behind the one before it (see [`Setup::set_behind`]).
    pub behind: Option<usize>,
    /// Rails of InfiniBand (see [`Setup::set_verbs`]).
    pub verbs: Vec<Option<Verbs>>,
    /// Unreliable connections take nothing any more after a part of a write was lost, or a write
    /// was refused, as those of some devices do.
    pub sticks: bool,
    /// Connections of InfiniBand rest.
    pub rests: Rests,
    /// A connection over which the network carries nothing is silent for so long, and then it
    /// breaks; what it held before that arrives when the network carries it again.
    pub silent_ns: u64,
    /// A kernel that has asked for a neighbour in vain asks again so much later; 0: it knows all.
    pub asks_ns: u64,
    /// Rails that write into registered memory; streams among them in order with their packets.
    /// They reach only each other.
    pub writes: Vec<bool>,
    /// Of the others those that are no streams have direct writes: their bytes travel behind a head
    /// in one long datagram, and land when it is received.
    pub direct: bool,
    /// An eighth of them come again, damaged, while or after packets tell of them.
    pub direct_again: bool,
    /// Of an eighth of them two datagrams change places, and they arrive joined like that.
    pub direct_shuffled: bool,
    /// So much memory of a process each of them lets others write into at a time, in pieces.
    pub registered_max: usize,
    /// Latency of each rail.
    pub latency_ns: Vec<u64>,
    /// Rate of each rail in bytes/s.
    pub rate: Vec<u64>,
    /// Queue of each rail, as time.
    pub queue_ns: u64,
    /// Kernel receive buffer in bytes (by true size).
    pub socket_bytes: u64,
    /// Faults of packets.
    pub weather: Weather,
    /// Faults of rails and hosts.
    pub faults: Vec<Fault>,
    /// Rails of hosts that have no address before they move.
    pub awaited: Vec<(usize, usize)>,
    /// A rail that fails when a certain packet is about to leave.
    pub strike: Option<Strike>,
    /// End of all faults.
    pub faults_end_ns: u64,
    /// A closed port answers (ICMP).
    pub refuses: bool,
    /// Live peers may be declared dead (long silence is among the faults).
    pub may_die: bool,
    /// The work of the applications.
    pub work: Work,
    /// Operations (or rounds) of each host.
    pub ops: u32,
    /// Messages above this are rare.
    pub size_max: u64,
    /// Pause between steps of the application.
    pub pause_ns: u64,
    /// Ends with BYE.
    pub bye: bool,
    /// Bound of the sender's log in bytes.
    pub log_bytes: usize,
    /// Long eager sends may leave from the application's memory.
    pub borrow: bool,
    /// Sends of a burst that leave at once.
    pub aggregate_after: u32,
    /// Engines have an endpoint more, which comes first and does nothing.
    pub second: bool,
    /// Engines have their progress thread.
    pub threaded: bool,
    /// An offered processor comes back after one of these, drawn for each endpoint.
    pub yields_ns: [u64; 4],
    /// How often an application polls, one of these drawn for each endpoint: without pause, or
    /// between two steps of a short computation (what came meanwhile waits together, and is taken
    /// at once).
    pub paces_ns: [u64; 3],
    /// Sends on a rail that is down, or above its MTU, fail with an error.
    pub send_errors: bool,
    /// Short remote writes and atomics go as calls; if not, there are no atomics.
    pub calls: bool,
    /// Half of what would be sent are remote operations.
    pub remote: bool,
    /// Some of them name several pieces of memory.
    pub segments: bool,
    /// Readers poll the memory that others write.
    pub polled: bool,
    /// Endpoints know each other by host and port, and ask who is there.
    pub by_place: bool,
}

impl Setup {
    /// Returns whether links of a rail are connections. (In a mesh streams meet datagrams.)
    pub fn connects(&self, rail: usize) -> bool {
        let apart = [self.near, self.behind].contains(&Some(rail));
        if apart || matches!(self.verbs.get(rail), Some(Some(_))) {
            return true;
        }
        let stream = |of: &[bool]| of.get(rail) == Some(&true);
        let alone = self.topology == Topology::Planes;
        alone && stream(&self.streams) && stream(&self.connected)
    }
}

impl Setup {
    /// Something more goes wrong, from and to.
    pub(crate) fn add(&mut self, (from_ns, to_ns): (u64, u64), what: Trouble) {
        self.faults.push(Fault {
            from_ns,
            to_ns,
            what,
        });
    }

    /// Returns whether a fault lasts so long that there are no connections: where nothing passes
    /// one way, a connection carries nothing at all.
    pub(crate) fn outlasts_connections(&self, fault: &Fault) -> bool {
        fault.to_ns - fault.from_ns > self.node.peer_timeout_ns / 4
    }

    /// Returns whether two hosts may lose each other for good: where the only rails of both moved
    /// at once, neither knows where the other is, and each gives the other up.
    pub(crate) fn strands(&self) -> bool {
        let moves = |f: &Fault| matches!(f.what, Trouble::Move { .. });
        self.rails == 1 && self.faults.iter().any(moves)
    }

    /// Nothing that arrives is damaged.
    pub(crate) fn spoil_nothing(&mut self) {
        let w = &mut self.weather;
        (w.corrupt_head, w.corrupt_payload, w.truncate) = (0, 0, 0);
        self.faults.retain(|f| !f.rots());
    }

    /// Its rails have sums that find the usual damage.
    pub(crate) fn see_damage(&mut self) {
        if self.sums_blindly() {
            self.node.rail_algorithm.fill(None);
        }
    }

    /// Its rails have sums that do not see order.
    pub(crate) fn sums_blindly(&self) -> bool {
        let own = self.node.rail_algorithm[0].and_then(Algorithm::from_u8);
        own.is_some_and(|own| !own.sees_order())
    }
}

impl Fault {
    /// It damages packets.
    pub(crate) fn rots(&self) -> bool {
        matches!(self.what, Trouble::Corrupt { .. } | Trouble::Lies { .. })
    }
}

/// How long a fault lasts at most: shorter and longer than what the protocol itself waits for
/// (repairs after 1 to 10 ms, ticks of a thread after 10).
const SPANS_NS: [u64; 5] = [50_000, 1_000_000, 5_000_000, 15_000_000, 30_000_000];

/// When a fault begins and ends.
pub(crate) fn span(setup: &Setup, rng: &mut Rng) -> (u64, u64) {
    let from = rng.below(setup.faults_end_ns);
    let most = rng.pick(&SPANS_NS);
    (from, (from + rng.below(most)).min(setup.faults_end_ns))
}
