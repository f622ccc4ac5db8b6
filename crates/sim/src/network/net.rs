//! The virtual network: the fate of each packet between two rails.

use crate::base::queue::Queue;
use crate::base::rng::Rng;
use crate::machine::connections::Way;
use crate::machine::port::WIRE_BYTES;
use crate::network::forge::Damage;
use crate::setup::choices::{FalseReport, PacketFaults, Setup, Trouble};
use std::collections::{BTreeMap, BTreeSet};

/// Largest number of rails for which a table keeps the packets of each pair in order. (Larger runs
/// have no jitter, and stay in order anyway.)
const ORDERED_PORTS_MAX: usize = 64;

/// One rail of one host.
#[derive(Clone, Debug, Default)]
struct Port {
    down: u32,
    unreadable: u32,
    mute: u32,
    refuses: u32,
    grays: Vec<(u32, u64)>,
    /// Losses of outgoing and incoming packets, in parts per million.
    leaks: [Vec<u32>; 2],
    slow: Vec<u64>,
    mtus: Vec<(usize, bool)>,
    damages: Vec<u32>,
    lies: Vec<FalseReport>,
    breaks: u32,
    egress_free: u64,
    ingress: Queue,
}

/// Number of occurrences of each fault.
#[derive(Clone, Copy, Debug, Default)]
pub struct NetStats {
    /// Packets given to the network.
    pub packets: u64,
    /// Packets dropped at random, including those in dropped super-packets.
    pub dropped: u64,
    /// Dropped packets that were part of a whole dropped super-packet.
    pub dropped_in_batches: u64,
    /// Dropped by a full queue.
    pub overflowed: u64,
    /// Packets dropped by a rail or direction that is down, or by a partition.
    pub cut: u64,
    /// Delivered twice.
    pub duplicated: u64,
    /// Delayed.
    pub reordered: u64,
    /// Damaged.
    pub damaged: u64,
    /// Damaged packets whose head was hit.
    pub damaged_heads: u64,
    /// Damaged packets that were truncated.
    pub cut_short: u64,
    /// Forged.
    pub forged: u64,
    /// Packets of strangers.
    pub strange: u64,
    /// Packets that were too long for the path.
    pub too_big: u64,
    /// Dropped by a full socket buffer.
    pub socket_full: u64,
    /// Packets sent to a process that does not exist.
    pub nobody: u64,
    /// Refused by a firewall.
    pub refused: u64,
    /// Packets on forgotten flows and connections.
    pub forgotten: u64,
    /// Neighbour requests answered by a rail's announcement.
    pub announced: u64,
    /// Packets given to streams.
    pub streamed: u64,
    /// Lost with a broken stream.
    pub broken: u64,
    /// Direct writes.
    pub direct: u64,
    /// Direct writes with two swapped datagrams.
    pub shuffled: u64,
    /// Remote writes.
    pub writes: u64,
    /// Writes of which nothing landed.
    pub writes_lost: u64,
    /// Writes that landed partially or damaged.
    pub writes_hurt: u64,
    /// Writes under an invalid key.
    pub writes_refused: u64,
    /// Remote reads.
    pub reads: u64,
    /// Writes into staging memory.
    pub staged: u64,
    /// Reads without an answer.
    pub reads_lost: u64,
    /// Reads of or into memory that is closed.
    pub reads_refused: u64,
    /// Reads reported as failed.
    pub reads_failed: u64,
    /// Packets of unreliable connections with missing writes.
    pub doubted: u64,
    /// Unreliable connections that became stuck.
    pub stuck: u64,
    /// Packets and writes lost on stuck connections.
    pub swallowed: u64,
    /// Unreliable connections replaced by an end.
    pub remade: u64,
    /// Ends of connections that came up.
    pub connected: u64,
    /// Connections closed by idle eviction.
    pub evicted: u64,
    /// Connections re-established after idle eviction.
    pub reconnected: u64,
    /// Batches that waited for reconnection.
    pub held: u64,
}

impl NetStats {
    /// Adds another run's counts.
    pub fn add(&mut self, o: &NetStats) {
        self.packets += o.packets;
        self.dropped += o.dropped;
        self.dropped_in_batches += o.dropped_in_batches;
        self.overflowed += o.overflowed;
        self.cut += o.cut;
        self.duplicated += o.duplicated;
        self.reordered += o.reordered;
        self.damaged += o.damaged;
        self.damaged_heads += o.damaged_heads;
        self.cut_short += o.cut_short;
        self.forged += o.forged;
        self.strange += o.strange;
        self.too_big += o.too_big;
        self.socket_full += o.socket_full;
        self.nobody += o.nobody;
        self.refused += o.refused;
        self.forgotten += o.forgotten;
        self.announced += o.announced;
        self.streamed += o.streamed;
        self.broken += o.broken;
        self.direct += o.direct;
        self.shuffled += o.shuffled;
        self.writes += o.writes;
        self.writes_lost += o.writes_lost;
        self.writes_hurt += o.writes_hurt;
        self.writes_refused += o.writes_refused;
        self.reads += o.reads;
        self.staged += o.staged;
        self.reads_lost += o.reads_lost;
        self.reads_refused += o.reads_refused;
        self.reads_failed += o.reads_failed;
        self.doubted += o.doubted;
        self.stuck += o.stuck;
        self.swallowed += o.swallowed;
        self.remade += o.remade;
        self.connected += o.connected;
        self.evicted += o.evicted;
        self.reconnected += o.reconnected;
        self.held += o.held;
    }
}

/// The arriving copies of a packet.
#[derive(Clone, Copy, Debug)]
pub struct Fate {
    /// Up to two arrivals: time and damage.
    pub copies: [Option<(u64, Damage)>; 2],
    /// The packet size limit reported to the sender.
    pub too_big: Option<usize>,
}

const LOST: Fate = Fate {
    copies: [None; 2],
    too_big: None,
};

/// The fate of a write in flight.
pub(crate) struct Carried {
    /// Arrival time.
    pub arrives: Option<u64>,
    /// Loss rate per packet, in parts per million.
    pub drop_ppm: u32,
    /// Damage rate, in parts per million.
    pub hurt_ppm: u32,
    /// The false report of the write's rail.
    pub lie: Option<FalseReport>,
}

/// The network.
pub struct Net {
    rails: usize,
    streams: Vec<bool>,
    /// True while datagrams carry the current packets.
    pub(crate) light: bool,
    ports: Vec<Port>,
    partitions: Vec<usize>,
    last: Vec<u64>,
    latency_ns: Vec<u64>,
    rate: Vec<u64>,
    queue_ns: u64,
    /// Packet faults.
    pub packet_faults: PacketFaults,
    /// Pairs of rails of which the first one's kernel waits for the second's link address; nothing
    /// leaves meanwhile.
    pub(crate) unknown: BTreeSet<Way>,
    /// Number of breaks of single streams between two ports.
    severed: BTreeMap<(usize, usize), u32>,
    pub(crate) rng: Rng,
    /// Counters.
    pub stats: NetStats,
}

impl Net {
    /// The network of a setup.
    pub fn new(setup: &Setup) -> Net {
        let count = setup.hosts * setup.rails;
        let pairs = if count <= ORDERED_PORTS_MAX {
            count * count
        } else {
            0
        };
        Net {
            rails: setup.rails,
            streams: setup.streams.clone(),
            light: false,
            ports: vec![Port::default(); count],
            partitions: Vec::new(),
            last: vec![0; pairs],
            latency_ns: setup.latency_ns.clone(),
            rate: setup.rate.clone(),
            queue_ns: setup.queue_ns,
            packet_faults: setup.packet_faults,
            unknown: BTreeSet::new(),
            severed: BTreeMap::new(),
            rng: Rng::new(setup.seed, 2),
            stats: NetStats::default(),
        }
    }

    /// Sends a packet of `len` bytes. `lost`: its super-packet is lost. `held`: the packet waits in
    /// a connection until the network carries packets again, at `now`.
    pub fn send(
        &mut self,
        now: u64,
        from: (usize, usize),
        to: (usize, usize),
        (len, datagram): (usize, usize),
        (lost, held): (bool, bool),
    ) -> Fate {
        self.stats.packets += 1;
        let (a, b) = (from.0 * self.rails + from.1, to.0 * self.rails + to.1);
        let stream = self.is_stream(from.1, to.1);
        let (sent, room) = self.egress(now, a, len, stream);
        if !room {
            self.stats.overflowed += 1;
            return LOST;
        }
        if let Some(&(mtu, notified)) = [a, b]
            .iter()
            .flat_map(|&p| &self.ports[p].mtus)
            .filter(|m| datagram > m.0 && !stream)
            .min()
        {
            self.stats.too_big += 1;
            return Fate {
                copies: [None; 2],
                too_big: notified.then_some(mtu),
            };
        }
        if !held && self.is_cut(from, to) {
            self.stats.cut += 1;
            return LOST;
        }
        let (ppm, slow) = self.losses(a, b);
        if stream {
            self.stats.streamed += 1;
            let at = self.stream(now, sent + slow, a, b, from.1, len);
            return Fate {
                copies: [Some((at, Damage::None)), None],
                too_big: None,
            };
        }
        if lost || self.rng.ppm(ppm) {
            self.stats.dropped += 1;
            self.stats.dropped_in_batches += lost as u64;
            return LOST;
        }
        let mut fate = LOST;
        fate.copies[0] = self.copy(now, sent + slow, a, b, from.1, len);
        if self.rng.ppm(self.packet_faults.duplicate) {
            self.stats.duplicated += 1;
            fate.copies[1] = self.copy(now, sent + slow, a, b, from.1, len);
        } else if self.rng.ppm(self.packet_faults.forge) {
            self.stats.forged += 1;
            let copy = self.copy(now, sent + slow, a, b, from.1, len);
            fate.copies[1] = copy.map(|(at, _)| (at, Damage::Forged));
        }
        fate
    }

    /// Draws whether a connection breaks without a visible reason.
    pub(crate) fn breaks_connection(&mut self) -> bool {
        self.rng.ppm(self.packet_faults.breaks)
    }

    /// Returns whether the network carries nothing from one rail to the other.
    pub(crate) fn is_cut(&self, from: (usize, usize), to: (usize, usize)) -> bool {
        let all_acked_bye = self.partitions.iter().any(|&s| (from.0 < s) != (to.0 < s));
        let port = |at: (usize, usize)| &self.ports[at.0 * self.rails + at.1];
        let (a, b) = (port(from), port(to));
        all_acked_bye
            || a.down + b.down + a.mute + b.unreadable > 0
            || self.unknown.contains(&(from, to))
    }

    /// Returns whether a firewall rejects packets to a rail.
    pub(crate) fn refuses(&self, to: (usize, usize)) -> bool {
        self.ports[to.0 * self.rails + to.1].refuses > 0
    }

    /// Random losses from port `a` to `b` in parts per million, and the additional latency.
    fn losses(&self, a: usize, b: usize) -> (u32, u64) {
        let (pa, pb) = (&self.ports[a], &self.ports[b]);
        let grays = || pa.grays.iter().chain(&pb.grays);
        let leaks = pa.leaks[0].iter().chain(&pb.leaks[1]).sum::<u32>();
        let ppm = self.packet_faults.drop + leaks + grays().map(|g| g.0).sum::<u32>();
        (ppm.min(950_000), grays().map(|g| g.1).sum())
    }

    /// Transmission time of a packet of `len` bytes at a port.
    fn takes_ns(&self, port: usize, len: usize) -> u64 {
        let divisor = self.ports[port].slow.iter().max().unwrap_or(&1);
        (len as u64 + WIRE_BYTES) * divisor * 1_000_000_000 / self.rate[port % self.rails]
    }

    fn egress(&mut self, now: u64, port: usize, len: usize, stream: bool) -> (u64, bool) {
        let takes_ns = self.takes_ns(port, len);
        let port = &mut self.ports[port];
        let start = port.egress_free.max(now);
        let room = stream || start - now <= self.queue_ns;
        let sent = start + takes_ns;
        if room {
            port.egress_free = sent;
        }
        (sent, room)
    }

    /// True if packets between these rails (by index) travel in a stream.
    pub fn is_stream(&self, from: usize, to: usize) -> bool {
        self.streams[from] && self.streams[to] && !self.light
    }

    /// Arrival time of a packet in a stream: after the packet before.
    fn stream(&mut self, now: u64, sent: u64, a: usize, b: usize, rail: usize, len: usize) -> u64 {
        let takes_ns = self.takes_ns(b, len);
        let arrives = sent + self.latency_ns[rail];
        let turn = self.ports[b].ingress.take(now, arrives, takes_ns, u64::MAX);
        let mut at = turn.unwrap_or(arrives);
        if !self.last.is_empty() {
            let last = &mut self.last[a * self.ports.len() + b];
            at = at.max(*last);
            *last = at;
        }
        at
    }

    /// Number of breaks of the streams between two rails: packets sent before the last break do not
    /// arrive.
    pub fn breaks(&self, from: (usize, usize), to: (usize, usize)) -> u32 {
        let port = |at: (usize, usize)| self.ports[at.0 * self.rails + at.1].breaks;
        let broken = port(from) + port(to);
        if self.severed.is_empty() {
            return broken;
        }
        broken + self.severed.get(&self.pair(from, to)).unwrap_or(&0)
    }

    /// Breaks the stream between two rails, in both directions.
    pub(crate) fn break_stream(&mut self, from: (usize, usize), to: (usize, usize)) {
        let pair = self.pair(from, to);
        *self.severed.entry(pair).or_default() += 1;
    }

    fn pair(&self, from: (usize, usize), to: (usize, usize)) -> (usize, usize) {
        let port = |at: (usize, usize)| at.0 * self.rails + at.1;
        let (a, b) = (port(from), port(to));
        (a.min(b), a.max(b))
    }

    /// Latency of a rail.
    pub(crate) fn latency(&self, rail: usize) -> u64 {
        self.latency_ns[rail]
    }

    /// Carries a write between two rails: determines when it has left, and its fate. `held`: the
    /// write waits in a connection until the network carries packets again, at `now`.
    pub(crate) fn carry(
        &mut self,
        now: u64,
        from: (usize, usize),
        to: (usize, usize),
        (len, held): (usize, bool),
    ) -> (u64, Carried) {
        let (a, b) = (from.0 * self.rails + from.1, to.0 * self.rails + to.1);
        let stream = self.is_stream(from.1, to.1);
        let (leaves, room) = self.egress(now, a, len, stream);
        let cut = !held && self.is_cut(from, to);
        let (drop_ppm, delay) = self.losses(a, b);
        let (pa, pb) = (&self.ports[a], &self.ports[b]);
        let damages: u32 = pa.damages.iter().chain(&pb.damages).sum();
        let lie = pa.lies.last().copied();
        let arrives = match (cut || !room, stream) {
            (true, _) => None,
            (_, true) => Some(self.stream(now, leaves + delay, a, b, from.1, len)),
            _ => {
                let copy = self.copy(now, leaves + delay, a, b, from.1, len);
                copy.map(|copy| copy.0)
            }
        };
        let carried = Carried {
            arrives,
            drop_ppm,
            hurt_ppm: (damages + self.packet_faults.corrupt_payload).min(1_000_000),
            lie,
        };
        (leaves, carried)
    }

    /// One copy of a packet that left at `sent`.
    fn copy(
        &mut self,
        now: u64,
        sent: u64,
        a: usize,
        b: usize,
        rail: usize,
        len: usize,
    ) -> Option<(u64, Damage)> {
        let packet_faults = self.packet_faults;
        let mut at = sent + self.latency_ns[rail];
        if packet_faults.jitter_ns > 0 {
            at += self.rng.below(packet_faults.jitter_ns);
        }
        if self.rng.ppm(packet_faults.reorder) {
            self.stats.reordered += 1;
            at += self.rng.below(packet_faults.reorder_ns);
        } else if !self.last.is_empty() {
            let pair = a * self.ports.len() + b;
            at = at.max(self.last[pair]);
            self.last[pair] = at;
        }
        let takes = self.takes_ns(b, len);
        let turn = self.ports[b].ingress.take(now, at, takes, self.queue_ns);
        let Some(through) = turn else {
            self.stats.overflowed += 1;
            return None;
        };
        let ports = [&self.ports[a], &self.ports[b]];
        let rot = ports.iter().flat_map(|p| &p.damages).sum();
        Some((through, self.damage(len, rot)))
    }

    /// Draws the damage to a packet; `rot`: damage by its rails in parts per million.
    fn damage(&mut self, len: usize, rot: u32) -> Damage {
        let w = self.packet_faults;
        let damage = if rot > 0 && self.rng.ppm(rot) {
            // The position of the damaged bit decides: usually it is in the payload. (A head has
            // about 100 bytes.)
            match self.rng.below(len as u64 + 1) < 100 {
                true => Damage::Head,
                false => Damage::Payload,
            }
        } else if self.rng.ppm(w.corrupt_head) {
            Damage::Head
        } else if self.rng.ppm(w.corrupt_payload) {
            Damage::Payload
        } else if self.rng.ppm(w.truncate) {
            Damage::Truncated
        } else {
            return Damage::None;
        };
        self.stats.damaged += 1;
        self.stats.damaged_heads += (damage == Damage::Head) as u64;
        self.stats.cut_short += (damage == Damage::Truncated) as u64;
        damage
    }

    /// Starts or ends a trouble of the network.
    pub fn trouble(&mut self, what: &Trouble, starts: bool) {
        let rails = self.rails;
        let step = |v: &mut u32| *v = if starts { *v + 1 } else { v.saturating_sub(1) };
        match *what {
            Trouble::RailDown { host, rail, .. } | Trouble::Move { host, rail, .. } => {
                let port = &mut self.ports[host * rails + rail];
                step(&mut port.down);
                port.breaks += starts as u32;
            }
            Trouble::Blackhole {
                host,
                rail,
                outgoing,
            } => {
                let port = &mut self.ports[host * rails + rail];
                step(if outgoing {
                    &mut port.mute
                } else {
                    &mut port.unreadable
                });
            }
            Trouble::Partition { split } => toggle(&mut self.partitions, split, starts),
            Trouble::Gray {
                host,
                rail,
                drop,
                delay_ns,
            } => {
                toggle(
                    &mut self.ports[host * rails + rail].grays,
                    (drop, delay_ns),
                    starts,
                );
            }
            Trouble::Leak {
                host,
                rail,
                outgoing,
                ppm,
            } => {
                let way = usize::from(!outgoing);
                toggle(&mut self.ports[host * rails + rail].leaks[way], ppm, starts);
            }
            Trouble::Slow {
                host,
                rail,
                divisor,
            } => toggle(&mut self.ports[host * rails + rail].slow, divisor, starts),
            Trouble::Corrupt { host, rail, ppm } => {
                toggle(&mut self.ports[host * rails + rail].damages, ppm, starts);
            }
            Trouble::Lies { host, rail, how } => {
                toggle(&mut self.ports[host * rails + rail].lies, how, starts);
            }
            Trouble::SmallMtu {
                host,
                rail,
                mtu,
                notified,
            } => {
                toggle(
                    &mut self.ports[host * rails + rail].mtus,
                    (mtu, notified),
                    starts,
                );
            }
            Trouble::Refuse { host, rail } => self.wall(host * rails + rail, starts),
            _ => {}
        }
    }

    /// A firewall starts or stops rejecting packets to a port.
    fn wall(&mut self, port: usize, starts: bool) {
        let port = &mut self.ports[port];
        port.refuses = (port.refuses + starts as u32).saturating_sub(!starts as u32);
    }
}

pub(crate) fn toggle<T: PartialEq>(list: &mut Vec<T>, item: T, add: bool) {
    if add {
        list.push(item);
    } else if let Some(at) = list.iter().position(|i| *i == item) {
        list.swap_remove(at);
    }
}
