//! The machine that a simulated engine runs on: a clock that stands still unless it is moved,
//! sockets that are queues, and a log of all that it did. The world looks at it between two calls
//! of the engine.

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
    /// Rails that tell their neighbours where they are.
    pub tells: Vec<usize>,
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
                tells: Vec::new(),
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
        let port = &mut wires.ports[rail];
        match event {
            Some(News::Rail(RailEvent::Done(token))) => {
                port.sources.over(token);
                port.took(token);
            }
            Some(News::Rail(RailEvent::Pulled(token, _))) => port.took(token),
            _ => {}
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
}
