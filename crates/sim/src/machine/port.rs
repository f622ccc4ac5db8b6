//! The socket of a rail: what waits in it, what it has registered, how it behaves.

use crate::machine::out::News;
use crate::machine::sources::Sources;
use crate::machine::stages::Stages;
use marline_rails::{Caps, Registrations, RemoteWrites};
use marline_wire::{RailAddr, PACKET_MAX};
use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;

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
    /// Buffers, writes and reads that it has begun.
    pub(crate) given: u64,
    /// Things that it had begun before the first of those that are over since that was asked last.
    pub(crate) done: u64,
    /// Things that it had begun before each write and read, by token.
    pub(crate) under_way: BTreeMap<u64, u64>,
    pub(crate) next_key: u64,
    /// Where it is reached.
    pub(crate) addr: RailAddr,
    pub(crate) caps: Caps,
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

impl Port {
    pub(crate) fn new(spec: &PortSpec) -> Port {
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
            given: 0,
            done: u64::MAX,
            under_way: BTreeMap::new(),
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

    /// A write or read begins.
    pub(crate) fn give(&mut self, token: u64) {
        self.under_way.insert(token, self.given);
        self.given += 1;
    }

    /// It tells that one is over.
    pub(crate) fn took(&mut self, token: u64) {
        let number = self.under_way.remove(&token);
        self.done = number.map_or(self.done, |number| self.done.min(number));
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
