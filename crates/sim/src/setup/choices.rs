//! The parameters of one seed: cluster, settings, faults, workload. All plain data, so that a
//! failing run can be shrunk by removing parts.

use crate::base::rng::Rng;
use crate::machine::connections::{Evictions, Verbs};
use crate::setup::moment::Strike;
use crate::setup::profile::Profile;
use marline_auth::Level;
use marline_checksum::Algorithm;
use marline_proto::Config;

/// Reachability between rails.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Topology {
    /// Rail `i` of every host is in subnet `i`.
    Planes,
    /// A subnet: every rail reaches every rail.
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

/// Random packet faults, in parts per million.
#[derive(Clone, Copy, Debug, Default)]
pub struct PacketFaults {
    /// Lost.
    pub drop: u32,
    /// Delivered twice.
    pub duplicate: u32,
    /// Delayed by up to `reorder_ns`.
    pub reorder: u32,
    /// Longest delay.
    pub reorder_ns: u64,
    /// A bit of the head is flipped.
    pub corrupt_head: u32,
    /// One bit of a payload or padding flips.
    pub corrupt_payload: u32,
    /// Truncated.
    pub truncate: u32,
    /// A whole super-packet is lost.
    pub batch_drop: u32,
    /// A forged copy with another token is added.
    pub forge: u32,
    /// A stranger sends a packet, or a recorded one again.
    pub strangers: u32,
    /// Largest random extra latency (order is kept).
    pub jitter_ns: u64,
    /// A connection breaks.
    pub breaks: u32,
}

/// A rail's false report about its writes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FalseReport {
    /// Writes are reported as landed, but never land.
    Never,
    /// Writes land up to this number of nanoseconds after the packets that report them, some
    /// damaged.
    Late(u64),
    /// Writes are reported as over when they have just begun.
    OverEarly,
    /// Writes are never reported as over.
    NeverOver,
}

/// A temporary fault (fields: host, rail, severity).
#[allow(missing_docs)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Trouble {
    /// The rail carries nothing; `notified`: its owner is notified.
    RailDown {
        host: usize,
        rail: usize,
        notified: bool,
    },
    /// The rail loses its address, and its owner is notified; at the end its interface gets the
    /// address with number `to`.
    Move { host: usize, rail: usize, to: u16 },
    /// Packets of this rail are lost in one direction.
    Blackhole {
        host: usize,
        rail: usize,
        outgoing: bool,
    },
    /// Hosts below `split` and the others cannot communicate.
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
    /// The rail has a part of its rate.
    Slow {
        host: usize,
        rail: usize,
        divisor: u64,
    },
    /// The rail's queue hangs: sends find no room.
    Hung { host: usize, rail: usize },
    /// The network forgets flows and connections through this rail: existing ones carry nothing
    /// from then on.
    Forget { host: usize, rail: usize },
    /// A firewall answers packets to this rail as if no socket were there.
    Refuse { host: usize, rail: usize },
    /// `ppm` of a million packets of this rail are damaged.
    Corrupt { host: usize, rail: usize, ppm: u32 },
    /// The rail reports falsely on its writes.
    Lies {
        host: usize,
        rail: usize,
        how: FalseReport,
    },
    /// Packets above a size are lost on this rail; `notified`: the sender is notified.
    SmallMtu {
        host: usize,
        rail: usize,
        mtu: usize,
        notified: bool,
    },
    /// The application computes without polling.
    Compute { host: usize },
    /// The process is stopped.
    Stopped { host: usize },
    /// The process's clock jumps forward by `by_ns`, once.
    ClockJump { host: usize, by_ns: u64 },
    /// The process dies; `reborn`: a new process starts at the end.
    Death { host: usize, reborn: bool },
}

impl Trouble {
    /// The name in reports.
    pub fn name(&self) -> &'static str {
        match self {
            Trouble::RailDown { notified: true, .. } => "rail down, told",
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
    /// True if it blocks all packets from one rail (of a host) to another.
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

    /// The rail concerned.
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

/// A fault with its time span.
#[derive(Clone, Copy, Debug)]
pub struct Fault {
    /// Start.
    pub from_ns: u64,
    /// End.
    pub to_ns: u64,
    /// The trouble.
    pub what: Trouble,
}

/// The pattern of the applications' messages.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Work {
    /// Random operations.
    Random,
    /// Ping-pong in pairs.
    PingPong,
    /// Exchange with both neighbours.
    Halo,
    /// All to all.
    AllToAll,
    /// All to host 0, which receives late.
    Incast,
    /// Broadcast from host 0 down a binomial tree.
    Tree,
    /// Patterns of collectives in turn: down and up a tree, with doubling distances, and around a
    /// ring.
    Collective,
    /// Remote writes to both neighbours, all of which end before the next.
    Fence,
    /// All to all, of which only the messages to and from the first two hosts are sent.
    Sampled,
    /// A message of the largest size from every host to host 0.
    Gather,
    /// Up a binomial tree and down again.
    Allreduce,
    /// Two thousand messages to a neighbour and as many receives at once; in every other round the
    /// sends precede the receives.
    Storm,
}

/// A simulation.
#[derive(Clone, Debug)]
pub struct Setup {
    /// The seed.
    pub seed: u64,
    /// Kinds of faults.
    pub profile: Profile,
    /// Least number of packets: rounds of work and faults are added until that many were sent.
    pub packets_min: u64,
    /// Rounds without faults, as a bit mask (bit n: the round after n others); for shrinking.
    pub calm_rounds: u64,
    /// Hosts.
    pub hosts: usize,
    /// Hosts 2n and 2n + 1 are two processes of one machine, at the same addresses.
    pub paired: bool,
    /// Rails per host.
    pub rails: usize,
    /// Reachability between rails.
    pub topology: Topology,
    /// Settings of every node.
    pub node: Config,
    /// Largest datagram of each rail in bytes.
    pub datagram_max: Vec<usize>,
    /// Rails that are streams: in order, without loss or damage until they break, which loses
    /// everything in flight and is reported to their owner. Between a stream and another kind of
    /// rail, packets travel as datagrams.
    pub streams: Vec<bool>,
    /// Streams whose links are connections and whose guarantees the protocol knows (see
    /// [`Setup::connects`]).
    pub connected: Vec<bool>,
    /// The rail within a host, like shared memory: a stream of connections that carries all traffic
    /// while it works. (A host is then a process.)
    pub near: Option<usize>,
    /// The standby rail, after the rail that it stands by for (see [`Setup::set_standby`]).
    pub behind: Option<usize>,
    /// Rails of InfiniBand (see [`Setup::set_verbs`]).
    pub verbs: Vec<Option<Verbs>>,
    /// Unreliable connections get stuck after a lost part of a write or a refused write, as on some
    /// devices.
    pub sticks: bool,
    /// Idle eviction of InfiniBand connections.
    pub evictions: Evictions,
    /// Time after which a connection breaks if the network carries nothing. If the network recovers
    /// earlier, data held meanwhile arrives.
    pub silent_ns: u64,
    /// Interval at which a kernel repeats an unanswered neighbour request; 0: no neighbour
    /// discovery.
    pub neighbour_resolution_ns: u64,
    /// Rails that write into registered memory; streams do so in order with their packets. Such
    /// rails reach only each other.
    pub writes: Vec<bool>,
    /// The other rails without streams have direct writes: the bytes follow a head in one long
    /// datagram, and land on reception.
    pub direct: bool,
    /// An eighth of direct writes is repeated damaged, during or after the packets that report
    /// them.
    pub direct_again: bool,
    /// In an eighth of direct writes two datagrams are swapped, and the result arrives merged.
    pub direct_shuffled: bool,
    /// Memory of a process that each rail may open for writes at a time, in pieces.
    pub registered_max: usize,
    /// Latency of each rail.
    pub latency_ns: Vec<u64>,
    /// Rate of each rail in bytes/s.
    pub rate: Vec<u64>,
    /// Queue of each rail, in ns.
    pub queue_ns: u64,
    /// Kernel receive buffer in bytes (accounted size).
    pub socket_bytes: u64,
    /// Faults of packets.
    pub packet_faults: PacketFaults,
    /// Faults of rails and hosts.
    pub faults: Vec<Fault>,
    /// Rails of hosts that have no address until they move.
    pub awaited: Vec<(usize, usize)>,
    /// A rail failure triggered by a certain packet.
    pub strike: Option<Strike>,
    /// End of all faults.
    pub faults_end_ns: u64,
    /// A closed port answers with ICMP.
    pub refuses: bool,
    /// Live peers may be declared dead (faults include long silence).
    pub may_die: bool,
    /// The work of the applications.
    pub work: Work,
    /// Operations (or rounds) of each host.
    pub ops: u32,
    /// Messages above this are rare.
    pub size_max: u64,
    /// Pause between the application's steps.
    pub pause_ns: u64,
    /// Ends with BYE.
    pub bye: bool,
    /// Bound of the sender's log in bytes.
    pub log_bytes: usize,
    /// Long eager sends may borrow the application's memory.
    pub borrow: bool,
    /// Sends of a burst that leave immediately.
    pub aggregate_after: u32,
    /// Engines have a second endpoint, opened first and idle.
    pub second: bool,
    /// Engines have their progress thread.
    pub threaded: bool,
    /// Duration of a yield, drawn for each endpoint.
    pub yields_ns: [u64; 4],
    /// Polling interval of an application, drawn for each endpoint: continuous, or between two
    /// steps of a short computation (packets that arrive meanwhile are received together).
    pub paces_ns: [u64; 3],
    /// Sends on a rail that is down, or above its MTU, fail with an error.
    pub send_errors: bool,
    /// Short remote writes and atomics are RPCs; otherwise there are no atomics.
    pub calls: bool,
    /// Half of the operations are remote.
    pub remote: bool,
    /// Some remote operations name several segments.
    pub segments: bool,
    /// Readers poll memory that peers write.
    pub polled: bool,
    /// Endpoints know each other by host and port only, and ask for addresses.
    pub by_place: bool,
    /// Odd endpoints pretend to speak the next version of the protocol as well as this one.
    pub versions: bool,
    /// The parts of packets that the job's key protects, if packets have tags.
    pub level: Level,
}

impl Setup {
    /// Returns whether the sums of payloads have keys, unless a mutation takes them.
    pub fn sums_payloads_with_key(&self) -> bool {
        self.node.key_mark != 0 && self.level >= Level::Payloads
    }

    /// Returns whether payloads are encrypted.
    pub(crate) fn encrypts(&self) -> bool {
        self.node.key_mark != 0 && self.level == Level::Encrypted
    }

    /// Returns whether links of a rail are connections. (In a mesh, streams meet datagrams.)
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
    /// Adds a fault with its time span.
    pub(crate) fn add(&mut self, (from_ns, to_ns): (u64, u64), what: Trouble) {
        self.faults.push(Fault {
            from_ns,
            to_ns,
            what,
        });
    }

    /// Returns whether a fault lasts so long that no connection survives: if nothing passes one
    /// way, a connection carries nothing at all. (Outages come one at a time, and leave more of the
    /// time for which peers wait.)
    pub(crate) fn outlasts_connections(&self, fault: &Fault) -> bool {
        let part = match self.profile {
            Profile::Outages => self.node.peer_timeout_ns / 10 * 9,
            _ => self.node.peer_timeout_ns / 4,
        };
        fault.to_ns - fault.from_ns > part
    }

    /// Returns whether two hosts may lose each other permanently: if the only rails of both moved
    /// at once, neither knows the other's address, and each declares the other dead.
    pub(crate) fn strands(&self) -> bool {
        let moves = |f: &Fault| matches!(f.what, Trouble::Move { .. });
        self.rails == 1 && self.faults.iter().any(moves)
    }

    /// Removes all damage.
    pub(crate) fn poison_nothing(&mut self) {
        let w = &mut self.packet_faults;
        (w.corrupt_head, w.corrupt_payload, w.truncate) = (0, 0, 0);
        self.faults.retain(|f| !f.damages());
    }

    /// Selects sums that detect the damage in this setup.
    pub(crate) fn detect_damage(&mut self) {
        if self.sums_ignore_order() {
            self.node.rail_algorithm.fill(None);
        }
    }

    /// Returns whether the rails' sums ignore order.
    pub(crate) fn sums_ignore_order(&self) -> bool {
        let own = self.node.rail_algorithm[0].and_then(Algorithm::from_u8);
        own.is_some_and(|own| !own.sees_order())
    }
}

impl Fault {
    /// Returns whether the fault damages data.
    pub(crate) fn damages(&self) -> bool {
        matches!(self.what, Trouble::Corrupt { .. } | Trouble::Lies { .. })
    }
}

/// Longest durations of faults: shorter and longer than the protocol's own timeouts (PTOs of 1 to
/// 10 ms, thread ticks of 10 ms).
const SPANS_NS: [u64; 5] = [50_000, 1_000_000, 5_000_000, 15_000_000, 30_000_000];

/// Draws the beginning and the end of a fault.
pub(crate) fn span(setup: &Setup, rng: &mut Rng) -> (u64, u64) {
    let from = rng.below(setup.faults_end_ns);
    let most = rng.pick(&SPANS_NS);
    (from, (from + rng.below(most)).min(setup.faults_end_ns))
}
