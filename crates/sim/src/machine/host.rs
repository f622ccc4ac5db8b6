//! The machine of a simulated engine: a clock that the world moves, sockets that are queues, and a
//! log of the engine's actions. The world inspects it between calls of the engine.

use crate::base::spare;
use crate::machine::log::Log;
use crate::machine::out::{News, Out};
use crate::machine::port::Port;
use crate::machine::port::{PortSpec, TRUESIZE};
use crate::machine::reading::OutRead;
use marline_rails::RailEvent;
use marline_wire::RailAddr;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// Time that each reading of the clock takes.
pub const LOOK_NS: u64 = 25;

/// The index of an endpoint from its id.
pub fn index_of(id: u64) -> u32 {
    (id >> 1 & 0xffff) as u32
}

/// An id with this index; engines set the lowest bit.
pub fn id_of(random: u64, index: u32) -> u64 {
    random & !0x1_ffff | (index as u64) << 1 | 1
}

/// The sockets and requests of a machine.
#[derive(Debug)]
pub struct Wires {
    /// Sockets by rail.
    pub ports: Vec<Port>,
    /// Batches sent.
    pub outbox: Vec<Out>,
    /// Reads posted.
    pub pulls: Vec<OutRead>,
    /// Connections requested: rail and address.
    pub dials: Vec<(usize, RailAddr)>,
    /// Connections to replace: rail and address.
    pub remakes: Vec<(usize, RailAddr)>,
    /// Rails that announce their address to neighbours.
    pub announcing: Vec<usize>,
}

impl Wires {
    fn waiting(&self) -> bool {
        self.ports.iter().any(|p| !p.inbox.is_empty())
    }
}

/// The machine of one process.
#[derive(Debug)]
pub struct Machine {
    pub(crate) now_ns: AtomicU64,
    pub(crate) look_ns: AtomicU64,
    pub(crate) alarm: AtomicBool,
    pub(crate) yield_ns: AtomicU64,
    wires: Mutex<Wires>,
    log: Mutex<Log>,
    // Copies of counts that most calls read without the lock.
    taken: AtomicU64,
    /// Number of events of rails that the engine has read.
    events: AtomicU64,
    waiting: AtomicBool,
    news: AtomicBool,
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
                announcing: Vec::new(),
            }),
            log: Mutex::default(),
            taken: AtomicU64::new(0),
            events: AtomicU64::new(0),
            waiting: AtomicBool::new(false),
            news: AtomicBool::new(false),
            stirred: AtomicBool::new(false),
        })
    }

    /// Sets the clock, unless the clock is ahead already.
    pub fn set_now(&self, local: u64) {
        self.now_ns
            .store(self.now_ns.load(Relaxed).max(local), Relaxed);
    }

    /// Reads the clock without advancing it.
    pub fn peek_now(&self) -> u64 {
        self.now_ns.load(Relaxed)
    }

    /// Sets the time that each reading of the clock takes.
    pub fn set_look(&self, ns: u64) {
        self.look_ns.store(ns, Relaxed);
    }

    /// Sets the duration of a yield.
    pub fn set_yield(&self, ns: u64) {
        self.yield_ns.store(ns, Relaxed);
    }

    /// Returns and clears whether the alarm was set.
    pub fn take_alarm(&self) -> bool {
        self.alarm.swap(false, Relaxed)
    }

    /// The sockets.
    pub fn wires(&self) -> MutexGuard<'_, Wires> {
        self.wires.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Number of datagrams received.
    pub fn taken(&self) -> u64 {
        self.taken.load(Relaxed)
    }

    /// Number of events of rails that the engine has read.
    pub fn events(&self) -> u64 {
        self.events.load(Relaxed)
    }

    /// True if packets wait to be received.
    pub fn waiting(&self) -> bool {
        self.waiting.load(Relaxed)
    }

    /// Returns and clears whether the engine sent, logged or set its alarm.
    pub fn take_stir(&self) -> bool {
        let stirred = self.stirred.load(Relaxed);
        if stirred {
            self.stirred.store(false, Relaxed);
        }
        stirred
    }

    /// Queues a packet from an endpoint at a rail.
    pub fn deliver(&self, wires: &mut Wires, rail: usize, from: u32, bytes: Vec<u8>) {
        let port = &mut wires.ports[rail];
        port.inbox_bytes += bytes.len() as u64 + TRUESIZE;
        port.inbox.push_back((from, bytes));
        self.waiting.store(true, Relaxed);
    }

    /// Queues an error for the engine.
    pub fn queue_event(&self, wires: &mut Wires, rail: usize, event: News) {
        wires.ports[rail].news.push_back(event);
        self.news.store(true, Relaxed);
    }

    /// Drops all packets that wait to be received.
    pub fn forget_waiting(&self) {
        for port in &mut self.wires().ports {
            port.inbox.clear();
        }
        self.waiting.store(false, Relaxed);
    }

    /// Marks that the world has to inspect the machine.
    pub(crate) fn stir(&self) {
        self.stirred.store(true, Relaxed);
    }

    /// The next queued error of a rail.
    pub(crate) fn next_event(&self, rail: usize) -> Option<News> {
        if !self.news.load(Relaxed) {
            return None;
        }
        let mut wires = self.wires();
        let event = wires.ports[rail].news.pop_front();
        let more = wires.ports.iter().any(|p| !p.news.is_empty());
        self.news.store(more, Relaxed);
        let port = &mut wires.ports[rail];
        match event {
            Some(News::Rail(RailEvent::Done(token))) => {
                port.sources.over(token);
                port.took(token);
            }
            Some(News::Rail(RailEvent::Pulled(token, _))) => port.took(token),
            _ => {}
        }
        self.events.fetch_add(event.is_some().into(), Relaxed);
        event
    }

    /// Notes that `count` packets were received.
    pub(crate) fn took(&self, count: usize, wires: MutexGuard<'_, Wires>) {
        self.taken.fetch_add(count as u64, Relaxed);
        self.waiting.store(wires.waiting(), Relaxed);
    }

    /// Keeps a buffer that a rail delivered until the world has read the log, which may refer to
    /// it.
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
}
