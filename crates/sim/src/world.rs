//! The world: clock, endpoints, network, and the loop that drives them.

use crate::app::App;
use crate::asking::Asks;
use crate::connections::{Connections, Way};
use crate::content::Content;
use crate::endpoint::{Endpoint, Trace};
use crate::forge::{hurt, socket_of, Damage};
use crate::hurt::Hurt;
use crate::machine::{Log, News, Out, PortSpec, TRUESIZE};
use crate::net::{toggle, Net};
use crate::place::{port_of, target_of};
use crate::rng::Rng;
use crate::rounds::Rounds;
use crate::setup::{Setup, Trouble};
use crate::spare;
use crate::truth::Truth;
use crate::writes::{OutWrite, LATE_NS};
use marline_engine::Completion;
use marline_proto::Mutation;
use marline_rails::{RailEvent, RailFault};
use marline_wire::{DirectHead, RailAddr};
use std::cmp::Reverse;
use std::collections::{BTreeMap, BinaryHeap, VecDeque};

/// Entries that an application reads at once, at most.
const BATCH_MAX: usize = 16;
/// Port of the first process on a host.
const PORT: u16 = 5_000;

/// The next event.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Next {
    /// A packet reaches a host.
    Arrive(u32),
    /// An endpoint runs.
    Run(u32),
    /// A fault starts or ends.
    Fault(u32, bool),
    /// A held batch leaves.
    Release,
    /// The weather clears.
    FaultsEnd,
    /// A rail is done with a write.
    WriteOver,
    /// It is decided whether a connection is made.
    Dialled,
    /// A question is asked again.
    Ask(u32),
}

/// An event and its time.
#[derive(PartialEq, Eq, PartialOrd, Ord)]
struct Due {
    at: u64,
    /// Different for each, so that what it is never decides.
    order: u64,
    what: Next,
}

/// A packet on its way.
#[derive(Debug, Default)]
pub(crate) struct Flying {
    pub bytes: Vec<u8>,
    pub to: (usize, usize),
    pub port: u16,
    pub from: u32,
    pub rail: usize,
    pub reply_to: Option<RailAddr>,
    /// In a stream (or a write): how often that had broken.
    pub breaks: Option<u32>,
    /// It is a write: key, offset, damage.
    pub write: Option<(u64, u64, Hurt)>,
    /// The immediate of a write or packet of an unreliable connection.
    pub immediate: Option<u32>,
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
    /// The setup that is simulated.
    pub setup: Setup,
    /// World time.
    pub now: u64,
    heap: BinaryHeap<Reverse<Due>>,
    order: u64,
    /// Writes with which a rail will be done: endpoint, rail, token, target, by the order of that
    /// event.
    /// (There are few, and all events are the smaller for it.)
    pub(crate) overs: BTreeMap<u64, (u32, usize, u64, (usize, usize))>,
    /// All endpoints, dead ones too.
    pub eps: Vec<Endpoint>,
    /// Endpoint that runs on each host.
    pub on_host: Vec<Option<u32>>,
    /// The network.
    pub net: Net,
    /// The contents of messages.
    pub content: &'static Content,
    /// The truth of the run.
    pub truth: Truth,
    pub(crate) flying: Vec<Flying>,
    pub(crate) free: Vec<u32>,
    pub(crate) log: Log,
    pub(crate) entries: Box<[Completion; BATCH_MAX]>,
    pub(crate) held: VecDeque<(u32, Out)>,
    /// Batches that wait for connections that rest.
    pub(crate) resting: BTreeMap<Way, Vec<(u32, Out)>>,
    pub(crate) rng: Rng,
    /// For windows: numbers of their own.
    pub(crate) windows_rng: Rng,
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
    /// Packets that showed the moment of [`Setup::strike`].
    pub moments: u64,
    /// How often each trouble began.
    pub troubles: BTreeMap<&'static str, u64>,
    pub(crate) rounds: Rounds,
    pub(crate) connections: Connections,
    pub(crate) asks: Asks,
}

impl World {
    /// The world of a setup, at time 0.
    pub fn new(setup: Setup, tracing: bool) -> World {
        let mut world = World {
            now: 0,
            heap: BinaryHeap::new(),
            order: 0,
            overs: BTreeMap::new(),
            eps: Vec::new(),
            on_host: vec![None; setup.hosts],
            net: Net::new(&setup),
            content: Content::shared(),
            truth: Truth::new(setup.node.credit_bytes.max(setup.node.unexpected_bytes / 4)),
            flying: Vec::new(),
            free: Vec::new(),
            log: Log::default(),
            entries: Box::new([Completion::empty(); BATCH_MAX]),
            held: VecDeque::new(),
            resting: BTreeMap::new(),
            rng: Rng::new(setup.seed, 3),
            windows_rng: Rng::new(setup.seed, 14),
            hash: 0xcbf2_9ce4_8422_2325,
            violation: None,
            calm: false,
            progress_ns: 0,
            worked_ns: 0,
            tracing,
            events: 0,
            moments: 0,
            troubles: BTreeMap::new(),
            rounds: Rounds::default(),
            connections: Connections::default(),
            asks: Asks::new(setup.seed),
            setup,
        };
        for host in 0..world.setup.hosts {
            world.start(host, false);
        }
        world.push_faults(0, world.setup.faults_end_ns);
        world
    }

    /// A process starts on a host.
    pub(crate) fn start(&mut self, host: usize, random: bool) {
        let index = self.eps.len() as u32;
        if self.now > 0 {
            // Its interface has come, or its host has seen it come and go.
            self.setup.awaited.retain(|&(of, _)| of != host);
            self.eps.iter_mut().for_each(Endpoint::show_card);
        }
        // Each of them has random numbers of its own.
        let numbers = |of: u64| Rng::new(self.setup.seed, of << 32 | index as u64);
        let (mut rng, for_app, behaviour) = (numbers(1), numbers(2), numbers(3).next());
        let port = PORT + if rng.one_in(2) { index as u16 } else { 0 };
        let specs: Vec<PortSpec> = (0..self.setup.rails)
            .map(|r| PortSpec {
                addr: self.setup.first_addr(host, r, port),
                datagram_max: self.setup.datagram_max[r],
                socket_bytes: self.setup.socket_bytes,
                rate: self.setup.rate[r],
                queue_ns: self.setup.queue_ns,
                merges: behaviour >> (4 * r) & 1 == 0,
                tells_segment: behaviour >> (4 * r) & 6 == 0,
                segments: behaviour >> (4 * r) & 8 == 0 || self.setup.hosts > 16,
                connects: self.setup.connects(r),
                standby: self.setup.behind == Some(r),
                lossless: self.setup.loses_nothing(r),
                ordered: self.setup.connects(r) && (self.setup.streams[r] || self.setup.is_uc(r)),
                uc: self.setup.is_uc(r),
                writes: self.setup.kind_of_writes(r),
                knows_landed: self.setup.knows_landed(r),
                registered_max: self.setup.registered_max,
                lands_again: self.setup.node.errs(Mutation::LandAgain),
                life: index,
            })
            .collect();
        // Clocks start anywhere: at 0, too.
        let clock_ns = rng.pick(&[0, 1, 1_000_000_000, 1 << 50]);
        let app = App::new(&self.setup, for_app, index, random, self.now);
        let who = (index, host);
        let made = Endpoint::new(&self.setup, who, &specs, rng, clock_ns, app);
        let mut ep = match made {
            Ok(ep) => ep,
            Err(error) => return self.broken(index, format!("no engine: {error:?}")),
        };
        ep.thread_at = self.now + 1;
        ep.await_rails(&self.setup);
        let inherits = self.on_host[host].map(|old| {
            let old = &self.eps[old as usize];
            (old.computing, old.stopped)
        });
        (ep.computing, ep.stopped) = inherits.unwrap_or((0, 0));
        self.eps.push(ep);
        self.on_host[host] = Some(index);
        self.wake(index, self.now);
    }

    /// Something happens at `at`; its place in the order of events.
    pub(crate) fn push(&mut self, at: u64, what: Next) -> u64 {
        debug_assert!(at >= self.now, "{what:?} in the past");
        self.order += 1;
        let order = self.order;
        self.heap.push(Reverse(Due { at, order, what }));
        order
    }

    /// Makes an endpoint run at `at` at the latest.
    pub(crate) fn wake(&mut self, e: u32, at: u64) {
        let ep = &mut self.eps[e as usize];
        let at = at.max(ep.away_until());
        if !ep.runs() || at >= ep.run_at {
            return;
        }
        ep.run_at = at;
        self.push(at, Next::Run(e));
    }

    /// One event; `false`: nothing will ever happen again.
    pub fn step(&mut self) -> bool {
        let Some(Reverse(Due { at, order, what })) = self.heap.pop() else {
            return false;
        };
        self.now = at;
        self.events += 1;
        match what {
            Next::Arrive(slot) if self.is_told(slot) => {}
            Next::Arrive(slot) => self.arrive(slot),
            Next::Run(e) => {
                if self.eps[e as usize].run_at == at {
                    self.eps[e as usize].run_at = u64::MAX;
                    self.run(e);
                }
            }
            Next::Release => self.release(),
            Next::Dialled => self.dialled(order),
            Next::Ask(e) => self.ask_again(e, order),
            Next::WriteOver => {
                if let Some((e, rail, token, _)) = self.overs.remove(&order) {
                    self.write_over(e, rail, token);
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
        if self.flying[slot as usize].write.is_some() {
            return self.land_write(slot);
        }
        let flying = &self.flying[slot as usize];
        let (host, rail) = flying.to;
        let (port, from, len) = (flying.port, flying.from, flying.bytes.len() as u64);
        let stream = flying.breaks.is_some();
        let start = (self.eps[from as usize].host, flying.rail);
        if flying
            .breaks
            .is_some_and(|b| b != self.breaks(from, start, (host, rail)))
        {
            self.net.stats.broken += 1;
            self.end_flight(slot);
            return;
        }
        let here = self.on_host[host].filter(|&e| {
            let ep = &self.eps[e as usize];
            ep.alive && !ep.closed && ep.listens(rail, port)
        });
        let wall = self.net.refuses((host, rail)) && !stream;
        let Some(e) = here.filter(|_| !wall) else {
            self.hang_up(start, (host, rail));
            let flying = &self.flying[slot as usize];
            self.net.stats.nobody += u64::from(!wall);
            self.net.stats.refused += u64::from(wall);
            let left = here.is_none() && self.has_left((host, rail), port);
            let refuses = self.setup.refuses && !left || wall;
            if let Some(addr) = flying.reply_to.filter(|_| refuses) {
                let rail = flying.rail;
                let sender = &self.eps[from as usize];
                if sender.alive {
                    let machine = &sender.machine;
                    machine.tell(&mut machine.wires(), rail, News::Refused(addr));
                }
                self.wake(from, self.now + 20_000);
            }
            self.end_flight(slot);
            return;
        };
        if !self.believes(e, slot) {
            self.net.stats.doubted += 1;
            return self.end_flight(slot);
        }
        self.touch(e);
        let machine = &self.eps[e as usize].machine;
        let mut wires = machine.wires();
        let waiting = wires.ports[rail].inbox_bytes;
        // What a stream has no room for waits at its sender.
        if waiting + len + TRUESIZE > self.setup.socket_bytes && !stream {
            self.net.stats.socket_full += 1;
            machine.tell(&mut wires, rail, News::Rail(RailEvent::ReceiverDrops(1)));
        } else {
            let bytes = std::mem::take(&mut self.flying[slot as usize].bytes);
            machine.deliver(&mut wires, rail, socket_of(from, &bytes), bytes);
        }
        drop(wires);
        self.end_flight(slot);
        if self.eps[e as usize].computing == 0 {
            let at = self.now + self.rng.range(200, self.eps[e as usize].habits.pace_ns);
            self.wake(e, at);
        } else if self.eps[e as usize].threaded {
            self.wake_thread(e);
            let at = self.eps[e as usize].thread_at.max(self.now);
            self.wake(e, at);
        }
    }

    fn fault(&mut self, i: usize, starts: bool) {
        let fault = self.setup.faults[i];
        self.mix(&[self.now, i as u64, starts as u64]);
        self.trouble(&fault.what, starts);
        if starts {
            *self.troubles.entry(fault.what.name()).or_default() += 1;
        }
        let host = match fault.what {
            Trouble::RailDown { host, .. }
            | Trouble::SmallMtu { host, .. }
            | Trouble::Slow { host, .. } => host,
            Trouble::Hung { host, rail } => return self.hang(host, rail, starts),
            Trouble::Compute { host } | Trouble::Stopped { host } => host,
            Trouble::ClockJump { host, .. } | Trouble::Death { host, .. } => host,
            _ => return,
        };
        let Some(e) = self.on_host[host] else { return };
        self.touch(e);
        if matches!(fault.what, Trouble::Stopped { .. }) && starts && self.rng.one_in(2) {
            self.hold(e, fault.to_ns);
        }
        let now = self.now;
        let send_errors = self.setup.send_errors;
        let ep = &mut self.eps[e as usize];
        match fault.what {
            Trouble::RailDown { rail, told, .. } if told || self.setup.streams[rail] => {
                let news = match starts {
                    true => RailFault::Down(0),
                    false => RailFault::Up,
                };
                let mut wires = ep.machine.wires();
                wires.ports[rail].broken = starts && send_errors;
                ep.machine
                    .tell(&mut wires, rail, News::Rail(RailEvent::Fault(news)));
            }
            Trouble::SmallMtu {
                rail,
                mtu,
                told: true,
                ..
            } if send_errors => {
                let limits = &mut ep.machine.wires().ports[rail].limits;
                toggle(limits, mtu, starts);
            }
            Trouble::Slow { rail, divisor, .. } => {
                let slow = &mut ep.machine.wires().ports[rail].slow;
                toggle(slow, divisor, starts);
            }
            Trouble::Compute { .. } => {
                ep.computing = (ep.computing + starts as u32).saturating_sub(!starts as u32);
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

    /// The queue of a rail does not move any more, or does again.
    fn hang(&mut self, host: usize, rail: usize, starts: bool) {
        let Some(e) = self.on_host[host] else { return };
        self.touch(e);
        let mut wires = self.eps[e as usize].machine.wires();
        let hung = &mut wires.ports[rail].hung;
        *hung = (*hung + starts as u32).saturating_sub(!starts as u32);
        drop(wires);
        self.wake(e, self.now);
    }

    /// The process is taken off its processor in the middle of a call, with the engine's lock and
    /// the time it has just read; what it sends leaves when it is back.
    fn hold(&mut self, e: u32, until: u64) {
        let ep = &mut self.eps[e as usize];
        if ep.runs() && ep.held_until <= self.now && until > self.now {
            ep.held_until = until;
            *self.troubles.entry("held with the lock").or_default() += 1;
            ep.app.next_at = ep.app.next_at.min(self.now);
            self.turn(e);
            self.eps[e as usize].run_at = u64::MAX;
            self.wake(e, until + 1);
        }
    }

    pub(crate) fn die(&mut self, e: u32) {
        let now = self.now;
        *self.troubles.entry("died").or_default() += 1;
        let ep = &mut self.eps[e as usize];
        ep.alive = false;
        ep.died_ns = now;
        ep.note(now, Trace::Did("died".into()));
        ep.machine.forget_waiting();
        let host = ep.host;
        self.break_host(host);
    }

    /// Puts a packet on the network.
    pub(crate) fn launch(&mut self, e: u32, out: &Out, mut bytes: Vec<u8>, at: u64, lost: bool) {
        let mut held = false;
        let mut at = at;
        self.net.light = out.light;
        if self.setup.connects(out.rail) && !out.light {
            let Some(leaves) = self.boards(e, out.rail, &out.to, at) else {
                self.net.stats.broken += 1;
                return spare::give(bytes);
            };
            (held, at) = (leaves > at, leaves);
        }
        let (from, to) = (self.eps[e as usize].host, out.to);
        let target = target_of(&to);
        let start = (from, out.rail);
        let gone = self.eps[e as usize].sites.is_gone(out.rail);
        if gone || !out.light && self.is_stuck(e, start, target) {
            self.net.stats.swallowed += 1;
            return spare::give(bytes);
        }
        let immediate = out.write.as_ref().and_then(OutWrite::told);
        let datagram = bytes.len().min(out.segment);
        let fate = self
            .net
            .send(at, start, target, (bytes.len(), datagram), (lost, held));
        if fate.copies[0].is_none() && !out.light {
            self.lost_part(e, start, target, datagram);
        }
        let stream = self.net.is_stream(out.rail, target.1);
        self.net.light = false;
        let breaks = stream.then(|| self.breaks(e, start, target));
        if let Some(mtu) = fate.too_big {
            let news = News::TooBig(to, mtu);
            let machine = &self.eps[e as usize].machine;
            machine.tell(&mut machine.wires(), out.rail, news);
        }
        let direct = DirectHead::parse(&bytes);
        let head = match &direct {
            Some(direct) => direct.lead(),
            None => u16::from_le_bytes([bytes[6], bytes[7]]) as usize,
        };
        let mut copies = fate.copies;
        if direct.is_some() && self.setup.direct_again && self.rng.one_in(8) {
            let late = self.rng.pick(&LATE_NS);
            copies[1] = copies[0].map(|c| (c.0 + self.rng.below(late), Damage::Payload));
        }
        let mut copies = copies.into_iter().flatten().peekable();
        while let Some((at, damage)) = copies.next() {
            let slot = self.new_flight();
            let flying = &mut self.flying[slot as usize];
            flying.bytes = match copies.peek() {
                Some(_) => spare::copy(&bytes),
                None => std::mem::take(&mut bytes),
            };
            flying.to = target;
            flying.port = port_of(&to);
            flying.from = e;
            flying.rail = out.rail;
            flying.reply_to = Some(to);
            flying.breaks = breaks;
            flying.immediate = immediate;
            let damage = match damage {
                Damage::Forged if direct.is_some() => Damage::Head,
                damage => damage,
            };
            hurt(&mut flying.bytes, head, damage, &mut self.rng);
            self.under_way(e, out, at);
            self.push(at, Next::Arrive(slot));
        }
        spare::give(bytes);
    }
}

impl World {
    /// A free slot for what flies.
    pub(crate) fn new_flight(&mut self) -> u32 {
        self.free.pop().unwrap_or_else(|| {
            self.flying.push(Flying::default());
            self.flying.len() as u32 - 1
        })
    }

    /// Nothing flies there any more.
    pub(crate) fn end_flight(&mut self, slot: u32) {
        spare::give(std::mem::take(&mut self.flying[slot as usize].bytes));
        self.free.push(slot);
    }
}
