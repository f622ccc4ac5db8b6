//! The machine that a simulated engine runs on: a clock that stands still unless it is moved,
//! sockets that are queues, and a log of all that it did. The world looks at it between two calls
//! of the engine.

use crate::halves::{SimRx, SimTx};
use crate::reading::OutRead;
use crate::sources::Sources;
use crate::spare;
use crate::stages::Stages;
use crate::writes::OutWrite;
use marline_engine::{Clock, Completion, OpError, System, Watch};
use marline_proto::{DropReason, Event, Node, PeerId};
use marline_rails::{Caps, DownReason, RailEvent, Registrations, RemoteWrites};
use marline_wire::{RailAddr, HEADER_LEN, PACKET_MAX};
use std::collections::{BTreeMap, VecDeque};
use std::os::fd::RawFd;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// Bytes that the kernel counts for a packet beyond its length.
pub const TRUESIZE: u64 = 768;
/// Bytes of a frame on the wire beside the datagram.
pub const WIRE_BYTES: u64 = 46;
/// Most bytes of a packet of one part, on unreliable connections of InfiniBand.
pub const UC_MTU: usize = 1_024;
/// Segments and bytes of one super-packet (design rule 8).
const SEGMENTS_MAX: usize = 64;
/// How often a queue that does not move is looked at.
const HUNG_LOOK_NS: u64 = 200_000;
/// Each look at the clock takes so long.
pub const LOOK_NS: u64 = 25;

/// Number among all endpoints, from an endpoint's id.
pub fn index_of(id: u64) -> u32 {
    (id >> 1 & 0xffff) as u32
}

/// The id that `index_of` reads; engines make the lowest bit 1.
pub fn id_of(random: u64, index: u32) -> u64 {
    random & !0x1_ffff | (index as u64) << 1 | 1
}

/// One batch that the engine sent.
#[derive(Debug)]
pub struct Out {
    /// Rail.
    pub rail: usize,
    /// Where to.
    pub to: RailAddr,
    /// Length of all packets but the last.
    pub segment: usize,
    /// The packets.
    pub bytes: Vec<u8>,
    /// Local time.
    pub at: u64,
    /// The write that the packet tells of.
    pub write: Option<OutWrite>,
    /// They are a direct write, one datagram; `segment`: what the path takes.
    pub direct: bool,
    /// They leave as datagrams, as their connection rests.
    pub light: bool,
}

/// Something that the engine did.
#[derive(Debug)]
pub enum Entry {
    /// A packet went through the node.
    Ingested {
        /// Endpoint that sent it, by its id.
        src: u32,
        /// Where its bytes are: address and length.
        at: (usize, usize),
        /// Why it was dropped, if it was.
        result: Result<(), DropReason>,
        /// Messages of its sender that were matched so far.
        upto: u64,
    },
    /// The node said so; the endpoint that it speaks of.
    Said(Event, u32),
    /// A send (or remote write) is over: context, how.
    Sent(usize, Result<(), OpError>),
    /// The data of a remote write (its context) follows it.
    Trails(usize),
    /// An operation on memory of this endpoint is over, in parts or of no bytes: it is told of the
    /// region with this key.
    TellsOver(u32, u64),
    /// An entry for a queue.
    Completed(Completion),
}

/// The actions of the engine since the world last looked.
#[derive(Debug, Default)]
pub struct Log {
    /// In order.
    pub entries: Vec<Entry>,
    /// Buffers that rails handed over, with the packets of `Entry::Ingested`.
    pub received: Vec<Vec<u8>>,
}

impl Log {
    /// The bytes of `Entry::Ingested`.
    pub fn packet(&self, at: (usize, usize)) -> Option<&[u8]> {
        self.received.iter().find_map(|bytes| {
            let from = at.0.checked_sub(bytes.as_ptr() as usize)?;
            bytes.get(from..from + at.1)
        })
    }

    /// Forgets it all.
    pub fn clear(&mut self) {
        self.entries.clear();
        self.received.drain(..).for_each(spare::give);
    }
}

/// Something that a rail is to tell; of links by their address.
#[derive(Clone, Copy, Debug)]
pub enum News {
    /// As it is.
    Rail(RailEvent),
    /// Nobody listens there.
    Refused(RailAddr),
    /// The connection to there is up, or is down for a reason.
    Link(RailAddr, Option<DownReason>),
    /// At most so many bytes pass on the way there.
    TooBig(RailAddr, usize),
}

/// A rail's socket.
#[derive(Debug)]
pub struct Port {
    /// Packets that wait to be received, with the sender's endpoint.
    pub inbox: VecDeque<(u32, Vec<u8>)>,
    /// Their true size.
    pub inbox_bytes: u64,
    /// Errors that wait to be told.
    pub news: VecDeque<News>,
    /// Sends fail with an error.
    pub broken: bool,
    /// Sends above so many bytes fail with an error.
    pub limits: Vec<usize>,
    /// Its queue does not move: sends find no room.
    pub hung: u32,
    /// When all that was sent has left (local time).
    pub egress_free: u64,
    /// Memory that others may write into: address and length by key.
    pub registered: BTreeMap<u64, (usize, usize)>,
    /// Memory of the rail's own that others may write into.
    pub(crate) stages: Stages,
    /// The same of a rail with direct writes, with where nothing may land any more.
    pub(crate) landing: Arc<Registrations>,
    /// A mistake: it forgets where something has landed.
    lands_again: bool,
    /// Memory that others may read: address and length by key.
    pub offered: BTreeMap<u64, (usize, usize)>,
    /// Memory that its own writes read.
    pub(crate) sources: Sources,
    /// How often its writes were given up.
    pub drained: u32,
    pub(crate) next_key: u64,
    /// Where it is reached.
    pub(crate) addr: RailAddr,
    caps: Caps,
    rate: u64,
    /// It has only this part of its rate.
    pub slow: Vec<u64>,
    pub(crate) registered_max: usize,
    queue_ns: u64,
    merges: bool,
    pub(crate) tells_segment: bool,
    pub(crate) uc: bool,
}

/// How a socket behaves.
#[derive(Clone, Copy, Debug)]
pub struct PortSpec {
    /// Where it is reached.
    pub addr: RailAddr,
    /// Largest datagram.
    pub datagram_max: usize,
    /// Receive buffer.
    pub socket_bytes: u64,
    /// Bytes per second.
    pub rate: u64,
    /// Longest queue.
    pub queue_ns: u64,
    /// Hands over runs of packets at once (GRO).
    pub merges: bool,
    /// Tells how long their packets are.
    pub tells_segment: bool,
    /// Takes super-packets (GSO).
    pub segments: bool,
    /// Its links are connections.
    pub connects: bool,
    /// It stands behind another rail.
    pub standby: bool,
    /// They lose nothing until they break.
    pub lossless: bool,
    /// Packets on them do not overtake each other.
    pub ordered: bool,
    /// They are unreliable connections.
    pub uc: bool,
    /// Writes into registered memory.
    pub writes: RemoteWrites,
    /// It knows which of them have landed.
    pub knows_landed: bool,
    /// Pieces of memory that may be granted at a time.
    pub registered_max: usize,
    /// See [`Port`].
    pub lands_again: bool,
    /// Number of the process among all, dead ones too.
    pub life: u32,
}

/// All of it.
#[derive(Debug)]
pub struct Wires {
    /// Sockets by rail.
    pub ports: Vec<Port>,
    /// Batches sent.
    pub outbox: Vec<Out>,
    /// Reads begun.
    pub pulls: Vec<OutRead>,
    /// Connections that were asked for: rail and address.
    pub dials: Vec<(usize, RailAddr)>,
    /// Connections that are to be made anew: rail and address.
    pub remakes: Vec<(usize, RailAddr)>,
}

impl Wires {
    fn waiting(&self) -> bool {
        self.ports.iter().any(|p| !p.inbox.is_empty())
    }
}

/// The machine of one process.
#[derive(Debug)]
pub struct Machine {
    now_ns: AtomicU64,
    look_ns: AtomicU64,
    alarm: AtomicBool,
    yield_ns: AtomicU64,
    wires: Mutex<Wires>,
    log: Mutex<Log>,
    // What most calls ask, without the lock.
    taken: AtomicU64,
    waiting: AtomicBool,
    told: AtomicBool,
    stirred: AtomicBool,
}

impl Machine {
    /// A machine with these sockets.
    pub fn new(specs: &[PortSpec]) -> Arc<Machine> {
        let ports = specs.iter().map(Port::new).collect();
        Arc::new(Machine {
            now_ns: AtomicU64::new(0),
            look_ns: AtomicU64::new(LOOK_NS),
            alarm: AtomicBool::new(false),
            yield_ns: AtomicU64::new(0),
            wires: Mutex::new(Wires {
                ports,
                outbox: Vec::new(),
                pulls: Vec::new(),
                dials: Vec::new(),
                remakes: Vec::new(),
            }),
            log: Mutex::default(),
            taken: AtomicU64::new(0),
            waiting: AtomicBool::new(false),
            told: AtomicBool::new(false),
            stirred: AtomicBool::new(false),
        })
    }

    /// Sets the clock, unless it is ahead already.
    pub fn set_now(&self, local: u64) {
        self.now_ns
            .store(self.now_ns.load(Relaxed).max(local), Relaxed);
    }

    /// The clock, without moving it.
    pub fn peek_now(&self) -> u64 {
        self.now_ns.load(Relaxed)
    }

    /// Each look at the clock takes so long from now on.
    pub fn set_look(&self, ns: u64) {
        self.look_ns.store(ns, Relaxed);
    }

    /// An offered processor comes back after so long.
    pub fn set_yield(&self, ns: u64) {
        self.yield_ns.store(ns, Relaxed);
    }

    /// True if the alarm was set since the last time.
    pub fn take_alarm(&self) -> bool {
        self.alarm.swap(false, Relaxed)
    }

    /// The sockets.
    pub fn wires(&self) -> MutexGuard<'_, Wires> {
        self.wires.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Datagrams received, in all.
    pub fn taken(&self) -> u64 {
        self.taken.load(Relaxed)
    }

    /// True if packets wait to be received.
    pub fn waiting(&self) -> bool {
        self.waiting.load(Relaxed)
    }

    /// True if the engine sent or said anything, or set its alarm, since the last time.
    pub fn take_stir(&self) -> bool {
        let stirred = self.stirred.load(Relaxed);
        if stirred {
            self.stirred.store(false, Relaxed);
        }
        stirred
    }

    /// A packet from an endpoint waits at a rail.
    pub fn deliver(&self, wires: &mut Wires, rail: usize, from: u32, bytes: Vec<u8>) {
        let port = &mut wires.ports[rail];
        port.inbox_bytes += bytes.len() as u64 + TRUESIZE;
        port.inbox.push_back((from, bytes));
        self.waiting.store(true, Relaxed);
    }

    /// An error waits to be told.
    pub fn tell(&self, wires: &mut Wires, rail: usize, event: News) {
        wires.ports[rail].news.push_back(event);
        self.told.store(true, Relaxed);
    }

    /// Loses all packets that wait to be received.
    pub fn forget_waiting(&self) {
        for port in &mut self.wires().ports {
            port.inbox.clear();
        }
        self.waiting.store(false, Relaxed);
    }

    /// There is something for the world to look at.
    pub(crate) fn stir(&self) {
        self.stirred.store(true, Relaxed);
    }

    /// The next error of a rail that waits to be told.
    pub(crate) fn next_event(&self, rail: usize) -> Option<News> {
        if !self.told.load(Relaxed) {
            return None;
        }
        let mut wires = self.wires();
        let event = wires.ports[rail].news.pop_front();
        let more = wires.ports.iter().any(|p| !p.news.is_empty());
        self.told.store(more, Relaxed);
        if let Some(News::Rail(RailEvent::Done(token))) = event {
            wires.ports[rail].sources.over(token);
        }
        event
    }

    /// Notes that `count` packets were handed over.
    pub(crate) fn took(&self, count: usize, wires: MutexGuard<'_, Wires>) {
        self.taken.fetch_add(count as u64, Relaxed);
        self.waiting.store(wires.waiting(), Relaxed);
    }

    /// Keeps a buffer that a rail handed over until the world has read the log, if that may speak
    /// of it.
    pub(crate) fn keep(&self, bytes: Vec<u8>) {
        if self.stirred.load(Relaxed) {
            self.log().received.push(bytes);
        } else {
            spare::give(bytes);
        }
    }

    /// The log.
    pub fn log(&self) -> MutexGuard<'_, Log> {
        self.log.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The halves of all rails.
    pub fn rails(self: &Arc<Machine>) -> (Vec<(String, SimTx)>, Vec<SimRx>) {
        let ports: Vec<(Caps, RailAddr)> = (self.wires().ports.iter())
            .map(|p| (p.caps, p.addr))
            .collect();
        let tx = |rail: usize| SimTx::new(self.clone(), rail, ports[rail]);
        let rx = |rail| SimRx::new(self.clone(), rail);
        (
            (0..ports.len()).map(|r| (format!("r{r}"), tx(r))).collect(),
            (0..ports.len()).map(rx).collect(),
        )
    }
}

impl Port {
    fn new(spec: &PortSpec) -> Port {
        Port {
            inbox: VecDeque::new(),
            inbox_bytes: 0,
            news: VecDeque::new(),
            broken: false,
            limits: Vec::new(),
            hung: 0,
            egress_free: 0,
            registered: BTreeMap::new(),
            offered: BTreeMap::new(),
            stages: Stages::default(),
            landing: Arc::default(),
            lands_again: spec.lands_again,
            sources: Sources::default(),
            drained: 0,
            // What is written to another life of the process does not reach this one (its
            // connections are gone), so its keys are others.
            next_key: (spec.life as u64 + 1) << 32,
            addr: spec.addr,
            caps: Caps {
                remote_write: spec.writes,
                knows_landed: spec.knows_landed,
                batch_bytes_max: PACKET_MAX,
                batch_segments_max: if spec.segments { SEGMENTS_MAX } else { 1 },
                receive_buffer_bytes: spec.socket_bytes as usize,
                ordered: spec.ordered,
                lossless: spec.lossless,
                fixed_mtu: spec.connects,
                connected: spec.connects,
                standby: spec.standby,
                ..Caps::datagrams(spec.datagram_max)
            },
            rate: spec.rate,
            slow: Vec::new(),
            registered_max: spec.registered_max,
            queue_ns: spec.queue_ns,
            merges: spec.merges,
            tells_segment: spec.tells_segment,
            uc: spec.uc,
        }
    }

    /// Where direct writes land.
    pub(crate) fn landing(&self, key: u64) -> Arc<Registrations> {
        let granted = self.registered.get(&key).filter(|_| self.lands_again);
        if let Some(&(base, len)) = granted {
            let base = std::ptr::with_exposed_provenance_mut(base);
            self.landing.remove(key);
            self.landing.add(key, base, len);
        }
        self.landing.clone()
    }

    /// How long so many bytes take to leave.
    pub(crate) fn takes_ns(&self, bytes: u64) -> u64 {
        let divisor = self.slow.iter().max().unwrap_or(&1);
        bytes * divisor * 1_000_000_000 / self.rate
    }

    /// When the queue has room again, if it has none now.
    pub fn blocked_until(&self, local: u64) -> Option<u64> {
        if self.hung > 0 {
            return Some(local + HUNG_LOOK_NS);
        }
        let full = self.egress_free > local + 2 * self.queue_ns / 3;
        full.then(|| self.egress_free - self.queue_ns / 3)
    }

    /// Packets to hand over at once.
    pub(crate) fn run_length(&self) -> usize {
        let Some((from, first)) = self.inbox.front().filter(|_| self.merges) else {
            return 1;
        };
        let (mut count, mut bytes) = (1, first.len());
        for (source, next) in self.inbox.iter().skip(1) {
            bytes += next.len();
            if source != from || next.len() > first.len() || bytes > PACKET_MAX {
                break;
            }
            count += 1;
            if next.len() < first.len() {
                break;
            }
        }
        count
    }
}

/// The clock, the alarm, the processor.
pub struct SimSystem(pub Arc<Machine>);

impl Clock for SimSystem {
    fn now_ns(&self) -> u64 {
        let machine = &self.0;
        let now = machine.now_ns.load(Relaxed) + machine.look_ns.load(Relaxed);
        machine.now_ns.store(now, Relaxed);
        now
    }
}

impl System for SimSystem {
    type Tx = SimTx;
    type Rx = SimRx;
    type Watch = SimWatch;

    fn alarm(&self) {
        self.0.alarm.store(true, Relaxed);
        self.0.stir();
    }

    fn yield_now(&self) {
        let machine = &self.0;
        let now = machine.now_ns.load(Relaxed) + machine.yield_ns.load(Relaxed);
        machine.now_ns.store(now, Relaxed);
    }

    // What comes meanwhile does not end it: it is as long as a yield, at most.
    fn nap(&self, _: &[RawFd], timeout_ns: u64) {
        let machine = &self.0;
        if !machine.waiting() {
            let nap_ns = machine.yield_ns.load(Relaxed).min(timeout_ns);
            machine.now_ns.fetch_add(nap_ns, Relaxed);
        }
    }
}

/// Writes the log.
pub struct SimWatch(pub Arc<Machine>);

impl Watch for SimWatch {
    fn ingested(&mut self, node: &Node, datagram: &[u8], result: Result<PeerId, DropReason>) {
        let mut id = [0; 8];
        id.copy_from_slice(&datagram[24..32]);
        let id = u64::from_le_bytes(id);
        debug_assert!(datagram.len() >= HEADER_LEN);
        let peer = result.ok().or_else(|| node.peer_named(id));
        let upto = peer.map_or(0, |peer| node.matched_upto(peer));
        self.0.stir();
        let mut log = self.0.log();
        log.entries.push(Entry::Ingested {
            src: index_of(id),
            at: (datagram.as_ptr() as usize, datagram.len()),
            result: result.map(|_| ()),
            upto,
        });
    }

    fn event(&mut self, node: &Node, event: &Event) {
        let peer = match *event {
            Event::PeerDead { peer, .. }
            | Event::PutAsked { peer, .. }
            | Event::ReadAsked { peer, .. }
            | Event::Called { peer, .. }
            | Event::Pulled { peer, .. }
            | Event::PeerMismatch { peer }
            | Event::PathChanged { peer, .. } => peer,
            _ => return,
        };
        let who = node.peer_address(peer).map_or(u32::MAX, |a| index_of(a.id));
        self.0.stir();
        self.0.log().entries.push(Entry::Said(*event, who));
    }

    fn sent(&mut self, context: usize, end: Result<(), OpError>) {
        self.0.stir();
        self.0.log().entries.push(Entry::Sent(context, end));
    }

    fn trails(&mut self, context: usize) {
        self.0.stir();
        self.0.log().entries.push(Entry::Trails(context));
    }

    fn tells_over(&mut self, node: &Node, peer: PeerId, key: u64) {
        let who = node.peer_address(peer).map_or(u32::MAX, |a| index_of(a.id));
        self.0.stir();
        self.0.log().entries.push(Entry::TellsOver(who, key));
    }

    fn completed(&mut self, entry: &Completion) {
        self.0.stir();
        self.0.log().entries.push(Entry::Completed(*entry));
    }
}
