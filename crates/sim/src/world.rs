//! The world: clock, endpoints, network, and the loop that drives them.

use crate::app::App;
use crate::content::Content;
use crate::endpoint::{Endpoint, Trace};
use crate::net::{Damage, Net};
use crate::rng::Rng;
use crate::setup::{Setup, Topology, Trouble};
use crate::truth::Truth;
use marline_proto::{Node, RailSpec};
use marline_wire::RailAddr;
use std::cmp::Reverse;
use std::collections::BinaryHeap;

/// Port of the first process on a host.
const PORT: u16 = 5_000;
/// The progress thread's tick (design section 7).
const TICK_NS: u64 = 10_000_000;
/// Bytes that the kernel counts for a packet beyond its length.
pub const TRUESIZE: u64 = 768;

/// What happens next.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Next {
    /// A packet reaches a host.
    Arrive(u32),
    /// An endpoint runs.
    Run(u32),
    /// A fault starts or ends.
    Fault(u32, bool),
    /// The weather clears.
    FaultsEnd,
}

/// A packet on its way.
#[derive(Debug, Default)]
pub(crate) struct Flying {
    pub bytes: Vec<u8>,
    pub to: (usize, usize),
    pub port: u16,
    pub from: u32,
    pub reply_to: Option<RailAddr>,
}

/// A broken promise.
#[derive(Clone, Debug)]
pub struct Violation {
    /// Endpoint.
    pub endpoint: u32,
    /// What.
    pub text: String,
}

/// Everything.
pub struct World {
    /// What is simulated.
    pub setup: Setup,
    /// World time.
    pub now: u64,
    heap: BinaryHeap<Reverse<(u64, u64, Next)>>,
    order: u64,
    /// All endpoints, dead ones too.
    pub eps: Vec<Endpoint>,
    /// Endpoint that runs on each host.
    pub on_host: Vec<Option<u32>>,
    /// The network.
    pub net: Net,
    /// What is in messages.
    pub content: &'static Content,
    /// What really happened.
    pub truth: Truth,
    pub(crate) flying: Vec<Flying>,
    pub(crate) free: Vec<u32>,
    pub(crate) out: Vec<u8>,
    pub(crate) rng: Rng,
    /// Hash of all events.
    pub hash: u64,
    /// First broken promise.
    pub violation: Option<Violation>,
    /// Faults are over.
    pub calm: bool,
    /// Last time an operation ended.
    pub progress_ns: u64,
    /// Last time an operation of an application ended.
    pub worked_ns: u64,
    /// Keep traces for a report.
    pub tracing: bool,
    /// Events so far.
    pub events: u64,
}

impl World {
    /// The world of a setup, at time 0.
    pub fn new(setup: Setup, tracing: bool) -> World {
        let mut world = World {
            now: 0,
            heap: BinaryHeap::new(),
            order: 0,
            eps: Vec::new(),
            on_host: vec![None; setup.hosts],
            net: Net::new(&setup),
            content: Content::shared(),
            truth: Truth::default(),
            flying: Vec::new(),
            free: Vec::new(),
            out: vec![0; marline_wire::PACKET_MAX],
            rng: Rng::new(setup.seed, 3),
            hash: 0xcbf2_9ce4_8422_2325,
            violation: None,
            calm: false,
            progress_ns: 0,
            worked_ns: 0,
            tracing,
            events: 0,
            setup,
        };
        for host in 0..world.setup.hosts {
            world.start(host, false);
        }
        let faults = world.setup.faults.clone();
        for (i, fault) in faults.iter().enumerate() {
            world.push(fault.from_ns, Next::Fault(i as u32, true));
            world.push(fault.to_ns, Next::Fault(i as u32, false));
        }
        world.push(world.setup.faults_end_ns + 1, Next::FaultsEnd);
        world
    }

    /// A process starts on a host.
    fn start(&mut self, host: usize, random: bool) {
        let index = self.eps.len() as u32;
        let mut rng = Rng::new(self.setup.seed, 100 + index as u64);
        let port = PORT + if rng.one_in(2) { index as u16 } else { 0 };
        let rails = (0..self.setup.rails)
            .map(|r| RailSpec {
                addr: rail_addr(&self.setup, host, r, port),
                datagram_max: self.setup.datagram_max[r],
                receive_budget: self.setup.socket_bytes / 2,
            })
            .collect();
        let id = (rng.next() & !0xffff) | index as u64;
        // Every other endpoint asks for another algorithm (of numbers 1 to 4).
        let mut config = self.setup.node;
        if index % 2 == 1 {
            config.algorithm = 5 - config.algorithm.clamp(1, 4);
        }
        let node = Node::new(
            config,
            id,
            rng.next() as u32,
            rng.next() as u32,
            rails,
        );
        // Clocks start anywhere: at 0, too.
        let clock_ns = rng.pick(&[0, 1, 1_000_000_000, 1 << 50]);
        let app = App::new(&self.setup, rng, index, random, self.now);
        let mut ep = Endpoint::new(index, host, node, self.setup.rails, app, clock_ns);
        let inherits = self.on_host[host].map(|old| {
            let old = &self.eps[old as usize];
            (old.computing, old.stopped)
        });
        (ep.computing, ep.stopped) = inherits.unwrap_or((0, 0));
        self.eps.push(ep);
        self.on_host[host] = Some(index);
        self.wake(index, self.now);
    }

    pub(crate) fn push(&mut self, at: u64, what: Next) {
        self.order += 1;
        self.heap.push(Reverse((at, self.order, what)));
    }

    /// Makes an endpoint run at `at` at the latest.
    pub(crate) fn wake(&mut self, e: u32, at: u64) {
        let ep = &mut self.eps[e as usize];
        if !ep.alive || ep.closed || ep.stopped > 0 || at >= ep.run_at {
            return;
        }
        ep.run_at = at;
        self.push(at, Next::Run(e));
    }

    /// One event; `false`: nothing will ever happen again.
    pub fn step(&mut self) -> bool {
        let Some(Reverse((at, _, what))) = self.heap.pop() else {
            return false;
        };
        self.now = at;
        self.events += 1;
        match what {
            Next::Arrive(slot) => self.arrive(slot),
            Next::Run(e) => {
                if self.eps[e as usize].run_at == at {
                    self.eps[e as usize].run_at = u64::MAX;
                    self.run(e);
                }
            }
            Next::Fault(i, starts) => self.fault(i as usize, starts),
            Next::FaultsEnd => {
                self.net.weather = Default::default();
                self.calm = true;
                self.progress_ns = self.now;
                for e in 0..self.eps.len() as u32 {
                    self.wake(e, self.now);
                }
            }
        }
        true
    }

    /// Mixes numbers into the event hash.
    pub(crate) fn mix(&mut self, values: &[u64]) {
        for v in values {
            self.hash = (self.hash ^ v)
                .wrapping_mul(0x0100_0000_01b3)
                .rotate_left(23);
        }
    }

    /// Notes a broken promise.
    pub(crate) fn broken(&mut self, endpoint: u32, text: String) {
        if self.violation.is_none() {
            self.violation = Some(Violation { endpoint, text });
        }
    }

    fn arrive(&mut self, slot: u32) {
        let flying = &self.flying[slot as usize];
        let (host, rail) = flying.to;
        let (port, from, len) = (flying.port, flying.from, flying.bytes.len() as u64);
        let here = self.on_host[host].filter(|&e| {
            let ep = &self.eps[e as usize];
            ep.alive && !ep.closed && ep.node.address().rails[0].port == port
        });
        let Some(e) = here else {
            self.net.stats.nobody += 1;
            if let Some(addr) = flying.reply_to.filter(|_| self.setup.refuses) {
                let sender = &mut self.eps[from as usize];
                if sender.alive {
                    sender.refused.push(addr);
                    self.wake(from, self.now + 20_000);
                }
            }
            self.free.push(slot);
            return;
        };
        let ep = &mut self.eps[e as usize];
        if ep.inbox_bytes[rail] + len + TRUESIZE > self.setup.socket_bytes {
            self.net.stats.socket_full += 1;
            self.free.push(slot);
            return;
        }
        ep.inbox_bytes[rail] += len + TRUESIZE;
        ep.inbox.push_back((rail, slot));
        let wake = self.now + self.poll_delay(e);
        self.wake(e, wake);
    }

    /// How long until the endpoint looks at its sockets.
    fn poll_delay(&mut self, e: u32) -> u64 {
        let ep = &self.eps[e as usize];
        if ep.computing == 0 {
            return self.rng.range(200, 3_000);
        }
        // Not polled: first the tick, then the descriptors wake the thread.
        let away = self.now - ep.away_since;
        if away < TICK_NS {
            TICK_NS - away
        } else {
            self.rng.range(5_000, 60_000)
        }
    }

    fn fault(&mut self, i: usize, starts: bool) {
        let fault = self.setup.faults[i];
        self.mix(&[self.now, i as u64, starts as u64]);
        self.net.trouble(&fault.what, starts);
        let host = match fault.what {
            Trouble::RailDown { host, .. } => host,
            Trouble::Compute { host } | Trouble::Stopped { host } => host,
            Trouble::ClockJump { host, .. } | Trouble::Death { host, .. } => host,
            _ => return,
        };
        let Some(e) = self.on_host[host] else { return };
        let now = self.now;
        let ep = &mut self.eps[e as usize];
        match fault.what {
            Trouble::RailDown {
                rail, told: true, ..
            } => ep.rail_news.push((rail, starts)),
            Trouble::Compute { .. } => {
                ep.computing = (ep.computing + starts as u32).saturating_sub(!starts as u32);
                ep.away_since = now;
            }
            Trouble::Stopped { .. } => {
                ep.stopped = (ep.stopped + starts as u32).saturating_sub(!starts as u32);
                ep.run_at = u64::MAX;
            }
            Trouble::ClockJump { by_ns, .. } if starts => ep.clock_ns += by_ns,
            Trouble::Death { reborn, .. } if starts => {
                // The last two hosts stay, so that there is something to check.
                let alive = self.eps.iter().filter(|ep| ep.alive).count();
                if alive > 2 || reborn {
                    self.die(e);
                }
            }
            Trouble::Death { reborn: true, .. } if !self.eps[e as usize].alive => {
                self.start(host, true);
            }
            _ => {}
        }
        self.wake(e, now);
    }

    fn die(&mut self, e: u32) {
        let now = self.now;
        let ep = &mut self.eps[e as usize];
        ep.alive = false;
        ep.died_ns = now;
        ep.note(now, Trace::Did("died".into()));
        let slots: Vec<u32> = ep.inbox.drain(..).map(|(_, slot)| slot).collect();
        self.free.extend(slots);
    }

    /// Address of an endpoint's first rails.
    pub(crate) fn address_of(&self, e: u32) -> marline_wire::Address {
        self.eps[e as usize].node.address()
    }

    /// Puts a packet's bytes (in `out`) on the network.
    pub(crate) fn launch(&mut self, e: u32, rail: usize, to: RailAddr, len: usize, lost: bool) {
        let from = self.eps[e as usize].host;
        let target = (
            (to.ip[2] as usize) << 8 | to.ip[3] as usize,
            to.ip[1] as usize,
        );
        let fate = self.net.send(self.now, (from, rail), target, len, lost);
        if let Some(mtu) = fate.too_big {
            self.eps[e as usize].too_big.push((rail, to, mtu));
        }
        for (at, damage) in fate.copies.into_iter().flatten() {
            let slot = self.free.pop().unwrap_or_else(|| {
                self.flying.push(Flying::default());
                self.flying.len() as u32 - 1
            });
            let head = u16::from_le_bytes([self.out[6], self.out[7]]) as usize;
            let flying = &mut self.flying[slot as usize];
            flying.bytes.clear();
            flying.bytes.extend_from_slice(&self.out[..len]);
            flying.to = target;
            flying.port = to.port;
            flying.from = e;
            flying.reply_to = Some(to);
            hurt(&mut flying.bytes, head, damage, &mut self.rng);
            self.push(at, Next::Arrive(slot));
        }
    }
}

fn hurt(bytes: &mut Vec<u8>, head: usize, damage: Damage, rng: &mut Rng) {
    let (from, to) = match damage {
        Damage::None => return,
        Damage::Truncated => return bytes.truncate(rng.below(bytes.len() as u64) as usize),
        Damage::Head => (0, head),
        Damage::Payload if head < bytes.len() => (head, bytes.len()),
        Damage::Payload => (0, head),
    };
    for _ in 0..rng.pick(&[1, 1, 2, 8]) {
        let at = rng.range(from as u64, to as u64 - 1) as usize;
        bytes[at] ^= 1 << rng.below(8);
    }
}

/// Where rail `rail` of a host is reached.
fn rail_addr(setup: &Setup, host: usize, rail: usize, port: u16) -> RailAddr {
    let mut ip = [0; 16];
    ip[..4].copy_from_slice(&[10, rail as u8, (host >> 8) as u8, host as u8]);
    let prefix_len = match setup.topology {
        Topology::Planes => 16,
        Topology::Mesh => 8,
        Topology::Routed => 32,
    };
    RailAddr {
        kind: 4,
        index: rail as u8,
        port,
        mtu: setup.datagram_max[rail] as u16,
        prefix_len,
        ip,
    }
}
