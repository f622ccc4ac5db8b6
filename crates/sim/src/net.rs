//! The virtual network: what happens to each packet between two rails.

use crate::rng::Rng;
use crate::setup::{Setup, Trouble, Weather};

/// Above so many rails in all, packets of one pair are not kept in order by a table (large runs
/// have no jitter, so that they stay in order anyway).
const ORDERED_PORTS_MAX: usize = 64;

/// What waits longer than this in a queue may make its path look worse than others.
const QUEUED_LATE_NS: u64 = 500_000;

/// One rail of one host.
#[derive(Clone, Debug, Default)]
struct Port {
    down: u32,
    deaf: u32,
    mute: u32,
    grays: Vec<(u32, u64)>,
    mtus: Vec<(usize, bool)>,
    /// Reasons for the kernel to refuse what is sent here.
    refusing: u32,
    egress_free: u64,
    ingress_free: u64,
}

/// What the network did to one copy of a packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Damage {
    /// Nothing.
    None,
    /// A bit of the head flips.
    Head,
    /// A bit behind the head flips.
    Payload,
    /// The end is missing.
    Truncated,
}

/// How often each fault happened.
#[derive(Clone, Copy, Debug, Default)]
pub struct NetStats {
    /// Packets given to the network.
    pub packets: u64,
    /// Dropped at random (with super-packets).
    pub dropped: u64,
    /// Dropped by a full queue.
    pub overflowed: u64,
    /// Dropped by a rail or direction that is down, or a partition.
    pub cut: u64,
    /// Delivered twice.
    pub duplicated: u64,
    /// Held back.
    pub reordered: u64,
    /// Damaged.
    pub damaged: u64,
    /// Too big for the path.
    pub too_big: u64,
    /// Dropped by a full socket buffer.
    pub socket_full: u64,
    /// Sent to a process that is not there.
    pub nobody: u64,
    /// Links that went down, of which their host was told.
    pub downs: u64,
    /// Longest wait in a queue.
    pub queued_max_ns: u64,
}

impl NetStats {
    /// Whether every packet arrived so far, whole and in time.
    pub fn faultless(&self) -> bool {
        let lost = self.dropped + self.overflowed + self.cut + self.socket_full + self.downs;
        let late = self.reordered + (self.queued_max_ns > QUEUED_LATE_NS) as u64;
        lost + late + self.too_big + self.nobody + self.damaged == 0
    }

    /// Adds another run's counts.
    pub fn add(&mut self, o: &NetStats) {
        self.packets += o.packets;
        self.dropped += o.dropped;
        self.overflowed += o.overflowed;
        self.cut += o.cut;
        self.duplicated += o.duplicated;
        self.reordered += o.reordered;
        self.damaged += o.damaged;
        self.too_big += o.too_big;
        self.socket_full += o.socket_full;
        self.nobody += o.nobody;
        self.downs += o.downs;
        self.queued_max_ns = self.queued_max_ns.max(o.queued_max_ns);
    }
}

/// Copies of a packet that arrive.
#[derive(Clone, Copy, Debug)]
pub struct Fate {
    /// Up to two arrivals: time and damage.
    pub copies: [Option<(u64, Damage)>; 2],
    /// The sender is told that packets above so many bytes do not pass.
    pub too_big: Option<usize>,
}

const LOST: Fate = Fate {
    copies: [None; 2],
    too_big: None,
};

/// The network.
pub struct Net {
    rails: usize,
    ports: Vec<Port>,
    partitions: Vec<usize>,
    last: Vec<u64>,
    latency_ns: Vec<u64>,
    rate: Vec<u64>,
    queue_ns: u64,
    /// Faults of packets.
    pub weather: Weather,
    rng: Rng,
    /// Counts.
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
            ports: vec![Port::default(); count],
            partitions: Vec::new(),
            last: vec![0; pairs],
            latency_ns: setup.latency_ns.clone(),
            rate: setup.rate.clone(),
            queue_ns: setup.queue_ns,
            weather: setup.weather,
            rng: Rng::new(setup.seed, 2),
            stats: NetStats::default(),
        }
    }

    /// Whether the sender's queue is so full that its socket would block.
    pub fn blocked_until(&self, host: usize, rail: usize, now: u64) -> Option<u64> {
        let free = self.ports[host * self.rails + rail].egress_free;
        (free > now + 2 * self.queue_ns / 3).then(|| free - self.queue_ns / 3)
    }

    /// Whether the kernel refuses to send on this rail: its link is down, and that is known.
    pub fn refuses(&self, host: usize, rail: usize) -> bool {
        self.ports[host * self.rails + rail].refusing > 0
    }

    /// One packet of `len` bytes. `lost`: its super-packet is lost.
    pub fn send(
        &mut self,
        now: u64,
        from: (usize, usize),
        to: (usize, usize),
        len: usize,
        lost: bool,
    ) -> Fate {
        self.stats.packets += 1;
        let (a, b) = (from.0 * self.rails + from.1, to.0 * self.rails + to.1);
        let (sent, room) = self.egress(now, a, len);
        if !room {
            self.stats.overflowed += 1;
            return LOST;
        }
        if let Some(&(mtu, told)) = [a, b]
            .iter()
            .flat_map(|&p| &self.ports[p].mtus)
            .filter(|m| len > m.0)
            .min()
        {
            self.stats.too_big += 1;
            return Fate {
                copies: [None; 2],
                too_big: told.then_some(mtu),
            };
        }
        let parted = self.partitions.iter().any(|&s| (from.0 < s) != (to.0 < s));
        let (pa, pb) = (&self.ports[a], &self.ports[b]);
        if parted || pa.down + pb.down + pa.mute + pb.deaf > 0 {
            self.stats.cut += 1;
            return LOST;
        }
        let mut slow = 0;
        let mut ppm = self.weather.drop;
        for &(drop, delay) in pa.grays.iter().chain(&pb.grays) {
            ppm += drop;
            slow += delay;
        }
        if lost || self.rng.ppm(ppm.min(950_000)) {
            self.stats.dropped += 1;
            return LOST;
        }
        let mut fate = LOST;
        fate.copies[0] = self.copy(sent + slow, a, b, from.1, len);
        if self.rng.ppm(self.weather.duplicate) {
            self.stats.duplicated += 1;
            fate.copies[1] = self.copy(sent + slow, a, b, from.1, len);
        }
        fate
    }

    fn egress(&mut self, now: u64, port: usize, len: usize) -> (u64, bool) {
        let rate = self.rate[port % self.rails];
        let port = &mut self.ports[port];
        let start = port.egress_free.max(now);
        if start - now > self.queue_ns {
            return (now, false);
        }
        self.stats.queued_max_ns = self.stats.queued_max_ns.max(start - now);
        port.egress_free = start + (len as u64 + 46) * 1_000_000_000 / rate;
        (port.egress_free, true)
    }

    fn copy(
        &mut self,
        sent: u64,
        a: usize,
        b: usize,
        rail: usize,
        len: usize,
    ) -> Option<(u64, Damage)> {
        let weather = self.weather;
        let mut at = sent + self.latency_ns[rail];
        if weather.jitter_ns > 0 {
            at += self.rng.below(weather.jitter_ns);
        }
        if self.rng.ppm(weather.reorder) {
            self.stats.reordered += 1;
            at += self.rng.below(weather.reorder_ns);
        } else if !self.last.is_empty() {
            let pair = a * self.ports.len() + b;
            at = at.max(self.last[pair]);
            self.last[pair] = at;
        }
        let rate = self.rate[b % self.rails];
        let port = &mut self.ports[b];
        let start = port.ingress_free.max(at);
        if start - at > self.queue_ns {
            self.stats.overflowed += 1;
            return None;
        }
        self.stats.queued_max_ns = self.stats.queued_max_ns.max(start - at);
        // Reordered packets come long after the others: they do not hold those up.
        let took = (len as u64 + 46) * 1_000_000_000 / rate;
        if at < port.ingress_free + 1_000_000 || port.ingress_free + 1_000_000 < sent {
            port.ingress_free = start + took;
        }
        Some((start + took, self.damage(len)))
    }

    fn damage(&mut self, _len: usize) -> Damage {
        let w = self.weather;
        let damage = if self.rng.ppm(w.corrupt_head) {
            Damage::Head
        } else if self.rng.ppm(w.corrupt_payload) {
            Damage::Payload
        } else if self.rng.ppm(w.truncate) {
            Damage::Truncated
        } else {
            return Damage::None;
        };
        self.stats.damaged += 1;
        damage
    }

    /// A trouble of the network starts or ends.
    pub fn trouble(&mut self, what: &Trouble, starts: bool) {
        let rails = self.rails;
        let step = |v: &mut u32| *v = if starts { *v + 1 } else { v.saturating_sub(1) };
        match *what {
            Trouble::RailDown { host, rail, told } => {
                let port = &mut self.ports[host * rails + rail];
                step(&mut port.down);
                if told {
                    self.stats.downs += starts as u64;
                    step(&mut port.refusing);
                }
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
                    &mut port.deaf
                });
            }
            Trouble::Partition { split } => toggle(&mut self.partitions, split, starts),
            Trouble::Gray {
                host,
                rail,
                drop,
                delay_ns,
            } => {
                self.stats.queued_max_ns = self.stats.queued_max_ns.max(delay_ns);
                toggle(
                    &mut self.ports[host * rails + rail].grays,
                    (drop, delay_ns),
                    starts,
                );
            }
            Trouble::SmallMtu {
                host,
                rail,
                mtu,
                told,
            } => {
                toggle(
                    &mut self.ports[host * rails + rail].mtus,
                    (mtu, told),
                    starts,
                );
            }
            _ => {}
        }
    }
}

fn toggle<T: PartialEq>(list: &mut Vec<T>, item: T, add: bool) {
    if add {
        list.push(item);
    } else if let Some(at) = list.iter().position(|i| *i == item) {
        list.swap_remove(at);
    }
}
