//! A process: a real engine with its operations, memory, machine and application.

use crate::base::content::Content;
use crate::base::rng::Rng;
use crate::base::table::Table;
use crate::machine::host::{id_of, Machine, LOOK_NS};
use crate::machine::place::{port_of, Sites};
use crate::machine::port::PortSpec;
use crate::machine::system::{SimSystem, SimWatch};
use crate::setup::choices::Setup;
use crate::setup::key::job_key;
use crate::truth::memory::{Buffer, Op, OpKind, RecvOp, RetiredBuffers};
use crate::truth::messages::Plain;
use crate::truth::remote::{Counted, KEY};
use crate::world::app::{App, LateSend};
use crate::world::trace::Trace;
use crate::world::windows::Windows;
use marline_engine::{
    AvId, CoreConfig, CqId, Engine, EpId, FiAddr, LogSink, OpError, Parts, Region, SubmitError,
};
use marline_proto::{Node, PathStats};
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::Arc;

/// Events of each endpoint in a failure report.
const TRACE_MAX: usize = 60;
/// The progress thread's tick (design section 7).
const TICK_NS: u64 = 10_000_000;

/// A completion entry in a queue that the application has not read.
#[derive(Clone, Copy, Debug)]
pub struct Due {
    /// Context of the entry's operation.
    pub context: usize,
    /// Bytes received.
    pub len: usize,
    /// Bytes transferred (missing in a read's entry).
    pub bytes: usize,
    /// Error.
    pub error: Option<OpError>,
    /// For received data: start of the content, and offset in the buffer.
    pub content: Option<(u64, u64)>,
    /// True if the operation's memory is the application's again.
    pub last: bool,
}

/// An application's habits of polling.
#[derive(Clone, Copy, Debug)]
pub struct Habits {
    /// Entries per read.
    pub batch: usize,
    /// True if a poll that found something is at once followed by another.
    pub looks_twice: bool,
    /// Longest time until the next poll after a packet's arrival.
    pub pace_ns: u64,
}

impl Habits {
    fn draw(setup: &Setup, rng: &mut Rng) -> Habits {
        Habits {
            batch: rng.pick(&[1, 2, 8, 16]),
            looks_twice: rng.one_in(3),
            pace_ns: rng.pick(&setup.paces_ns),
        }
    }
}

/// A process.
pub struct Endpoint {
    /// Number of the process among all processes, including dead ones.
    pub index: u32,
    /// The endpoint's host.
    pub host: usize,
    /// The engine.
    pub engine: Engine<SimSystem>,
    /// The machine of the engine.
    pub machine: Arc<Machine>,
    /// The engine's endpoint.
    pub ep: EpId,
    /// The endpoint's address blob, published at the last start of a process.
    pub blob: Vec<u8>,
    /// The endpoint's token.
    pub token: u32,
    /// The current addresses of the endpoint's rails.
    pub(crate) sites: Sites,
    av: AvId,
    pub(crate) addrs: Table<u32, FiAddr>,
    /// Completion queues: for sends and reads, and for receives (they may be the same).
    pub cqs: [CqId; 2],
    /// The application's habits of polling.
    pub habits: Habits,
    /// Unread entries of the queues.
    pub due: [VecDeque<Due>; 2],
    /// False after death.
    pub alive: bool,
    /// Time of death.
    pub died_ns: u64,
    /// True after BYE.
    pub closed: bool,
    /// All operations of the endpoint, by handle.
    pub ops: Vec<Op>,
    /// Memory of finished operations.
    pub retired: RetiredBuffers,
    /// The matches that MPI's rules require.
    pub plain: Plain,
    /// World time of the next turn.
    pub run_at: u64,
    /// World time at which the thread wakes; `alarm_at`: at which its alarm rings.
    pub thread_at: u64,
    /// See `thread_at`.
    pub alarm_at: u64,
    /// True if packets wake the thread.
    pub armed: bool,
    /// True if there is a progress thread.
    pub threaded: bool,
    /// World time of the application's last poll.
    pub polled_at: u64,
    /// Number of reasons for which the process does not poll; `stopped`: for which it does not run.
    pub computing: u32,
    /// See `computing`.
    pub stopped: u32,
    /// Time until which the process is descheduled in the middle of a call; its packets leave at
    /// that time.
    pub held_until: u64,
    /// The endpoint's clock minus the world's.
    pub clock_ns: u64,
    /// The application.
    pub app: App,
    /// Claimed messages: the peek's operation, and the message.
    pub claims: Vec<(u32, u32)>,
    /// Memory open to peers.
    pub windows: Windows,
    /// Counters of peers' operations on the endpoint's memory.
    pub counted: Counted,
    /// Sends that found no room in the log.
    pub late: VecDeque<LateSend>,
    /// Number of open sends and reads.
    pub open: u32,
    /// Number of open matched receives.
    pub owed: u32,
    /// Number of due entries in other queues.
    pub awaited: u32,
    /// Most open operations of one round.
    pub open_max: u64,
    /// Number of matched messages by source.
    pub matched: Table<u32, u64>,
    /// Counters of the endpoint's rails when it was closed.
    pub last_rails: Vec<PathStats>,
    /// Last packet number of each path.
    pub numbers: Table<(u32, u16), u64>,
    /// Packets taken, by sender, path and number, if packets have tags.
    pub taken: BTreeSet<(u32, u16, u64)>,
    /// Endpoints that this one declared dead.
    pub torn_down: Vec<u32>,
    /// Arrival of the last packet from a dead peer.
    pub last_words: BTreeMap<u32, u64>,
    /// Successive turns without effect, and the time of the first.
    pub idle_turns: (u32, u64),
    /// Latest events.
    pub trace: VecDeque<(u64, Trace)>,
}

/// Random numbers per endpoint: id, token, epoch, and the secret of the epochs of peers.
const RANDOMS: usize = 5;

/// Opens an engine on a machine.
fn assemble(
    setup: &Setup,
    machine: &Arc<Machine>,
    index: u32,
    mut rng: Rng,
) -> Result<Engine<SimSystem>, SubmitError> {
    let (rails, halves) = machine.rails();
    let mut proto = setup.node;
    // Odd endpoints request a different algorithm (numbers 1 to 4).
    if index % 2 == 1 {
        proto.algorithm = 5 - proto.algorithm.clamp(1, 4);
    }
    if setup.versions && index % 2 == 1 {
        proto.versions.newest += 1;
    }
    let cfg = CoreConfig {
        proto,
        log_bytes: setup.log_bytes,
        borrow: setup.borrow,
        aggregate_after: setup.aggregate_after,
        rpcs: setup.calls,
        mtu: 0,
    };
    // The first number is the endpoint's id; numbers of an idle endpoint opened earlier precede it.
    let (mut first, mut others) = (true, setup.second as usize * RANDOMS);
    let mut other = Rng::new(index as u64, 17);
    let random = Box::new(move || {
        if others > 0 {
            others -= 1;
            return Ok(other.next());
        }
        match std::mem::take(&mut first) {
            true => Ok(id_of(rng.next(), index)),
            false => Ok(rng.next()),
        }
    });
    let parts = Parts {
        rails,
        halves,
        clock: SimSystem(machine.clone()),
        watch: SimWatch(machine.clone()),
        tick_ns: TICK_NS,
        threaded: setup.threaded,
        random,
        log: LogSink(Arc::new(|_, _| {})),
    };
    let engine = Engine::assemble(cfg, parts);
    if let Some(key) = job_key(setup) {
        engine.set_job_key(key);
    }
    if setup.second {
        machine.set_look(0); // without advancing time
        engine.ep_open()?;
        machine.set_look(LOOK_NS);
    }
    Ok(engine)
}

/// Opens an endpoint's address vector, queues and counters, and the region for remote reads.
fn enable(
    engine: &Engine<SimSystem>,
    (ep, av): (EpId, AvId),
    [tx, rx]: [CqId; 2],
) -> Result<Counted, SubmitError> {
    engine.ep_bind_av(ep, av);
    engine.ep_bind_tx_cq(ep, tx);
    engine.ep_bind_rx_cq(ep, rx);
    let counted = Counted::bind(engine, ep);
    engine.ep_enable(ep)?;
    engine.mr_open(&everything())?;
    Ok(counted)
}

/// The port of the rails that have addresses.
fn port(specs: &[PortSpec]) -> u16 {
    let there = specs.iter().find(|spec| spec.addr.is_some());
    there.map_or(0, |spec| port_of(&spec.addr))
}

/// The region for remote reads.
fn everything() -> Region {
    let (base, len) = Content::shared().region();
    Region {
        key: KEY,
        base,
        len,
        virt_addr: false,
        readable: true,
        writable: false,
    }
}

impl Endpoint {
    /// Starts a process.
    pub fn new(
        setup: &Setup,
        (index, host): (u32, usize),
        specs: &[PortSpec],
        mut rng: Rng,
        clock_ns: u64,
        app: App,
    ) -> Result<Endpoint, SubmitError> {
        let machine = Machine::new(specs);
        machine.set_now(clock_ns);
        machine.set_yield(rng.pick(&setup.yields_ns));
        let one_cq = rng.one_in(3);
        let habits = Habits::draw(setup, &mut rng);
        let engine = assemble(setup, &machine, index, rng)?;
        let (av, tx, ep) = (engine.av_open(), engine.cq_open(), engine.ep_open()?);
        let rx = if one_cq { tx } else { engine.cq_open() };
        let counted = enable(&engine, (ep, av), [tx, rx])?;
        let (blob, len) = engine.ep_name(ep).ok_or(SubmitError::Invalid)?;
        let token = engine.inspect(|core| core.node(ep).map_or(0, |n| n.address().token));
        Ok(Endpoint {
            index,
            host,
            engine,
            machine,
            ep,
            blob: blob[..len].to_vec(),
            token,
            sites: Sites::of(port(specs), setup.rails),
            av,
            addrs: Table::default(),
            cqs: [tx, rx],
            habits,
            due: Default::default(),
            alive: true,
            died_ns: 0,
            closed: false,
            ops: Vec::new(),
            retired: RetiredBuffers::default(),
            plain: Plain::new(setup.node.any_source_fails),
            run_at: u64::MAX,
            thread_at: 0,
            alarm_at: u64::MAX,
            armed: false,
            threaded: setup.threaded,
            polled_at: 0,
            computing: 0,
            stopped: 0,
            held_until: 0,
            clock_ns,
            app,
            claims: Vec::new(),
            windows: Windows::default(),
            counted,
            late: VecDeque::new(),
            open: 0,
            owed: 0,
            awaited: 0,
            open_max: 0,
            matched: Table::default(),
            last_rails: vec![PathStats::default(); setup.rails],
            numbers: Table::default(),
            torn_down: Vec::new(),
            taken: BTreeSet::new(),
            last_words: BTreeMap::new(),
            idle_turns: (0, 0),
            trace: VecDeque::new(),
        })
    }

    /// True if the process exists and runs.
    pub fn runs(&self) -> bool {
        self.alive && !self.closed && self.stopped == 0
    }

    /// End of the endpoint's last calls: calls take time, and a yielded processor comes back later.
    pub fn away_until(&self) -> u64 {
        self.machine.peek_now().saturating_sub(self.clock_ns)
    }

    /// Counters of the endpoint's paths by local rail; for a closed endpoint, its last ones.
    pub fn rails(&self) -> Vec<PathStats> {
        let mut rails = self.last_rails.clone();
        self.node(|node| {
            node.for_each_peer(|_, _, _, paths| {
                for (local, _, _, stats) in paths {
                    if let Some(sum) = rails.get_mut(local as usize) {
                        add_counters(sum, &stats);
                    }
                }
            })
        });
        rails
    }

    /// Inspects the node.
    pub fn node<R>(&self, look: impl FnOnce(&Node) -> R) -> Option<R> {
        self.engine.inspect(|core| core.node(self.ep).map(look))
    }

    /// Inserts the address of another endpoint.
    pub fn insert_addr(&mut self, other: u32, blob: &[u8]) -> Result<FiAddr, SubmitError> {
        let addr = self.engine.av_insert(self.av, blob)?;
        self.addrs.insert(other, addr);
        Ok(addr)
    }

    /// True if completion entries for messages from `other` must report this source.
    pub fn source_is(&self, other: u32, addr: FiAddr) -> bool {
        let known = self.addrs.get(&other).copied();
        known.unwrap_or(marline_engine::ADDR_UNSPEC) == addr
    }

    /// Records an event for the report.
    pub fn note(&mut self, now: u64, what: Trace) {
        if self.trace.len() == TRACE_MAX {
            self.trace.pop_front();
        }
        self.trace.push_back((now, what));
    }

    /// Adds an operation; returns its handle.
    pub fn add_op(&mut self, kind: OpKind, buffer: Buffer, now: u64, in_round: bool) -> u32 {
        self.app.pending += in_round as u32;
        self.ops.push(Op {
            kind,
            buffer,
            posted_ns: now,
            done_ns: None,
            in_round,
        });
        self.ops.len() as u32 - 1
    }

    /// Ends an operation; `false` if it had ended before.
    pub fn end_op(&mut self, handle: u32, now: u64) -> bool {
        let Some(op) = self.ops.get_mut(handle as usize) else {
            return false;
        };
        if op.done_ns.is_some() {
            return false;
        }
        op.done_ns = Some(now);
        self.app.pending -= op.in_round as u32;
        true
    }

    /// The receive with this handle.
    pub fn recv_mut(&mut self, handle: u32) -> Option<&mut RecvOp> {
        match &mut self.ops.get_mut(handle as usize)?.kind {
            OpKind::Recv(recv) => Some(recv),
            _ => None,
        }
    }

    /// True if this endpoint was told that the other one is dead.
    pub fn believes_dead(&self, other: u32) -> bool {
        self.torn_down.contains(&other)
    }

    /// The index of the queue for entries of sends or receives.
    pub fn queue(&self, receive: bool) -> usize {
        (receive && self.cqs[0] != self.cqs[1]) as usize
    }
}

/// Adds the counters that tests check: packets, damage, retransmissions by reason, and rails left
/// and reinstated.
pub(crate) fn add_counters(sum: &mut PathStats, stats: &PathStats) {
    sum.packets_sent += stats.packets_sent;
    sum.bytes_sent += stats.bytes_sent;
    sum.lost += stats.lost;
    sum.spurious += stats.spurious;
    sum.ptos += stats.ptos;
    sum.resent_spurious += stats.resent_spurious;
    sum.resent_loss += stats.resent_loss;
    sum.resent_pto += stats.resent_pto;
    sum.resent_failover += stats.resent_failover;
    sum.failovers += stats.failovers;
    sum.corrupt += stats.corrupt;
    sum.corrupt_downs += stats.corrupt_downs;
    sum.returns += stats.returns;
    sum.failovers += stats.failovers;
    sum.shrinks += stats.shrinks;
}
