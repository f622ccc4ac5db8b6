//! The world: clock, endpoints, network, and the event loop's state.

use crate::base::content::Content;
use crate::base::rng::Rng;
use crate::base::spare;
use crate::machine::connections::{Connections, Way};
use crate::machine::log::Log;
use crate::machine::out::Out;
use crate::machine::place::first_port;
use crate::machine::port::PortSpec;
use crate::network::asking::{Asks, Neighbour};
use crate::network::flows::Flows;
use crate::network::hurt::WriteDamage;
use crate::network::net::Net;
use crate::network::strangers::Strangers;
use crate::setup::choices::Setup;
use crate::truth::amplification::Amplification;
use crate::truth::messages::Truth;
use crate::world::app::App;
use crate::world::endpoint::Endpoint;
use crate::world::rounds::Rounds;
use crate::world::trace::Trace;
use marline_engine::Completion;
use marline_proto::Mutation;
use marline_wire::RailAddr;
use std::cmp::Reverse;
use std::collections::{BTreeMap, BinaryHeap, VecDeque};

/// Most entries per read.
const BATCH_MAX: usize = 16;
/// Port of the first process on a host.
const PORT: u16 = 5_000;
/// Ports above the first that processes have.
const PORTS: u32 = 60_000;

/// The next event.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Next {
    /// A packet reaches a host.
    Arrive(u32),
    /// An endpoint runs.
    Run(u32),
    /// A fault starts or ends.
    Fault(u32, bool),
    /// A held batch is sent.
    Release,
    /// Random faults end.
    FaultsEnd,
    /// A rail completes a write.
    WriteOver,
    /// The result of a connection request is known.
    Dialled,
    /// A question is repeated.
    Ask(u32),
}

/// An event and its time.
#[derive(PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Due {
    pub(crate) at: u64,
    /// Unique, so that `what` never decides the order of simultaneous events.
    pub(crate) order: u64,
    pub(crate) what: Next,
}

/// A packet in flight.
#[derive(Debug, Default)]
pub(crate) struct Flying {
    pub bytes: Vec<u8>,
    pub to: (usize, usize),
    pub port: u16,
    pub from: u32,
    pub rail: usize,
    pub reply_to: Option<RailAddr>,
    /// For a stream or a write: the number of breaks at departure.
    pub breaks: Option<u32>,
    /// For a write: key, offset, damage.
    pub write: Option<(u64, u64, WriteDamage)>,
    /// The immediate of a write or packet of an unreliable connection.
    pub immediate: Option<u32>,
}

/// A violated invariant.
#[derive(Clone, Debug)]
pub struct Violation {
    /// Endpoint.
    pub endpoint: u32,
    /// Description.
    pub text: String,
}

/// The whole simulation.
pub struct World {
    /// The setup that is simulated.
    pub setup: Setup,
    /// World time.
    pub now: u64,
    pub(crate) heap: BinaryHeap<Reverse<Due>>,
    order: u64,
    /// Writes to be completed: endpoint, rail, token, target, by the order of their event. (Kept
    /// out of `Next`, since they are few and would make all events larger.)
    pub(crate) overs: BTreeMap<u64, (u32, usize, u64, (usize, usize))>,
    /// All endpoints, including dead ones.
    pub eps: Vec<Endpoint>,
    /// The newest endpoint on each host.
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
    /// Batches that wait for evicted connections.
    pub(crate) evicted_links: BTreeMap<Way, Vec<(u32, Out)>>,
    pub(crate) rng: Rng,
    /// A separate random stream for windows of remote memory.
    pub(crate) windows_rng: Rng,
    /// Hash of all events.
    pub hash: u64,
    /// The first violated invariant.
    pub violation: Option<Violation>,
    /// True once faults are over.
    pub calm: bool,
    /// Time of the last end of an operation.
    pub progress_ns: u64,
    /// Time of the last end of an application's operation.
    pub worked_ns: u64,
    /// True if traces are kept for a report.
    pub tracing: bool,
    /// Number of events.
    pub events: u64,
    /// Packets that matched the trigger of [`Setup::strike`].
    pub moments: u64,
    /// Number of occurrences of each trouble.
    pub troubles: BTreeMap<&'static str, u64>,
    pub(crate) rounds: Rounds,
    pub(crate) connections: Connections,
    pub(crate) asks: Asks,
    /// Traffic with strangers.
    pub(crate) amplification: Amplification,
    pub(crate) strangers: Strangers,
    /// Flows of datagrams.
    pub(crate) flows: Flows,
    /// Due neighbour requests, by the order of their events.
    pub(crate) neighbours: BTreeMap<u64, Neighbour>,
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
            evicted_links: BTreeMap::new(),
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
            amplification: Amplification::default(),
            strangers: Strangers::new(setup.seed),
            flows: Flows::default(),
            neighbours: BTreeMap::new(),
            setup,
        };
        for host in 0..world.setup.hosts {
            world.start(host, false);
        }
        world.push_faults(0, world.setup.faults_end_ns);
        world
    }

    /// Starts a process on a host.
    pub(crate) fn start(&mut self, host: usize, random: bool) {
        let index = self.eps.len() as u32;
        if self.now > 0 {
            // The host's rails have got their address meanwhile.
            self.setup.awaited.retain(|&(of, _)| of != host);
            self.eps.iter_mut().for_each(Endpoint::publish_address);
        }
        // Separate random numbers for each process.
        let numbers = |of: u64| Rng::new(self.setup.seed, of << 32 | index as u64);
        let (mut rng, for_app, behaviour) = (numbers(1), numbers(2), numbers(3).next());
        let first = first_port(PORT, host, self.setup.paired);
        let port = first
            + if rng.one_in(2) {
                (index % PORTS) as u16
            } else {
                0
            };
        let specs: Vec<PortSpec> = (0..self.setup.rails)
            .map(|r| PortSpec {
                addr: self.setup.first_addr(host, r, port),
                datagram_max: self.setup.datagram_max[r],
                socket_bytes: self.setup.socket_bytes,
                rate: self.setup.rate[r],
                queue_ns: self.setup.queue_ns,
                merges: behaviour >> (4 * r) & 1 == 0,
                reports_segment: behaviour >> (4 * r) & 6 == 0,
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
        // Clocks start at any value, including 0.
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

    /// Schedules an event; returns its order.
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

    /// Mixes numbers into the event hash.
    pub(crate) fn mix(&mut self, values: &[u64]) {
        for v in values {
            self.hash = (self.hash ^ v)
                .wrapping_mul(0x0100_0000_01b3)
                .rotate_left(23);
        }
    }

    /// Records a violated invariant.
    pub(crate) fn broken(&mut self, endpoint: u32, text: String) {
        if self.violation.is_none() {
            self.violation = Some(Violation { endpoint, text });
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
}

impl World {
    /// A free slot for a packet in flight.
    pub(crate) fn new_flight(&mut self) -> u32 {
        self.free.pop().unwrap_or_else(|| {
            self.flying.push(Flying::default());
            self.flying.len() as u32 - 1
        })
    }

    /// Frees a slot.
    pub(crate) fn end_flight(&mut self, slot: u32) {
        spare::give(std::mem::take(&mut self.flying[slot as usize].bytes));
        self.free.push(slot);
    }
}
