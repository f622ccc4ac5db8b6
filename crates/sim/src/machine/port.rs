//! The socket of a rail: queued packets, registrations, behaviour.

use crate::machine::out::News;
use crate::machine::sources::Sources;
use crate::machine::stages::Stages;
use marline_rails::{Caps, Registrations, RemoteWrites};
use marline_wire::{RailAddr, PACKET_MAX};
use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;

/// Bytes that the kernel accounts per packet beyond its length.
pub const TRUESIZE: u64 = 768;

/// Bytes of a frame on the wire beyond the datagram.
pub const WIRE_BYTES: u64 = 46;

/// Longest one-part packet on unreliable InfiniBand connections, in bytes.
pub const UC_MTU: usize = 1_024;

/// Segments per super-packet, as in the UDP rail.
const SEGMENTS_MAX: usize = 64;

/// Interval of checks on a hung queue.
const HUNG_LOOK_NS: u64 = 200_000;

/// A rail's socket.
#[derive(Debug)]
pub struct Port {
    /// Packets to receive, with the sending endpoint.
    pub inbox: VecDeque<(u32, Vec<u8>)>,
    /// Accounted bytes of the packets in `inbox`.
    pub inbox_bytes: u64,
    /// Queued errors.
    pub news: VecDeque<News>,
    /// True if sends fail with an error.
    pub broken: bool,
    /// Packet sizes above which sends fail with an error.
    pub limits: Vec<usize>,
    /// Number of reasons why the queue is hung: sends find no room.
    pub hung: u32,
    /// Local time at which everything sent has left.
    pub egress_free: u64,
    /// Memory open for remote writes: address and length by key.
    pub registered: BTreeMap<u64, (usize, usize)>,
    /// The rail's own memory open for remote writes.
    pub(crate) stages: Stages,
    /// Memory open for direct writes, with the ranges closed to further writes.
    pub(crate) landing: Arc<Registrations>,
    /// Mutation: the rail forgets landed ranges.
    lands_again: bool,
    /// Memory open for remote reads: address and length by key.
    pub advertised: BTreeMap<u64, (usize, usize)>,
    /// Memory that the rail's own writes read.
    pub(crate) sources: Sources,
    /// Number of times that the rail's writes were drained.
    pub drained: u32,
    /// Buffers, writes and reads started.
    pub(crate) given: u64,
    /// The lowest number of requests started before any request that ended since this was last
    /// read.
    pub(crate) done: u64,
    /// Number of requests started before each write and read in progress, by token.
    pub(crate) under_way: BTreeMap<u64, u64>,
    pub(crate) next_key: u64,
    /// The rail's address.
    pub(crate) addr: RailAddr,
    pub(crate) caps: Caps,
    rate: u64,
    /// Divisors of the rate, one per fault.
    pub slow: Vec<u64>,
    pub(crate) registered_max: usize,
    queue_ns: u64,
    merges: bool,
    pub(crate) reports_segment: bool,
    pub(crate) uc: bool,
}

/// The behaviour of a socket.
#[derive(Clone, Copy, Debug)]
pub struct PortSpec {
    /// The rail's address.
    pub addr: RailAddr,
    /// Largest datagram.
    pub datagram_max: usize,
    /// Receive buffer.
    pub socket_bytes: u64,
    /// Bytes per second.
    pub rate: u64,
    /// Longest queue, in ns.
    pub queue_ns: u64,
    /// True if the rail delivers runs of packets at once (GRO).
    pub merges: bool,
    /// True if the rail reports the segment length.
    pub reports_segment: bool,
    /// True if the rail accepts super-packets (GSO).
    pub segments: bool,
    /// True if the rail's links are connections.
    pub connects: bool,
    /// True for a standby rail.
    pub standby: bool,
    /// True if connections are lossless until they break.
    pub lossless: bool,
    /// True if packets on a connection stay in order.
    pub ordered: bool,
    /// True for unreliable connections.
    pub uc: bool,
    /// Kind of writes into registered memory.
    pub writes: RemoteWrites,
    /// True if the rail knows which writes have landed.
    pub knows_landed: bool,
    /// Maximum of registered pieces.
    pub registered_max: usize,
    /// See [`Port`].
    pub lands_again: bool,
    /// The process's number among all processes, including dead ones.
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
            advertised: BTreeMap::new(),
            stages: Stages::default(),
            landing: Arc::default(),
            lands_again: spec.lands_again,
            sources: Sources::default(),
            drained: 0,
            given: 0,
            done: u64::MAX,
            under_way: BTreeMap::new(),
            // Keys differ between lives of a process: writes to an earlier life do not reach this
            // one, as their connections are gone.
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
            reports_segment: spec.reports_segment,
            uc: spec.uc,
        }
    }

    /// A write or read starts.
    pub(crate) fn give(&mut self, token: u64) {
        self.under_way.insert(token, self.given);
        self.given += 1;
    }

    /// Reports the end of a write or read.
    pub(crate) fn took(&mut self, token: u64) {
        let number = self.under_way.remove(&token);
        self.done = number.map_or(self.done, |number| self.done.min(number));
    }

    /// The memory of direct writes.
    pub(crate) fn landing(&self, key: u64) -> Arc<Registrations> {
        let granted = self.registered.get(&key).filter(|_| self.lands_again);
        if let Some(&(base, len)) = granted {
            let base = std::ptr::with_exposed_provenance_mut(base);
            self.landing.remove(key);
            self.landing.add(key, base, len);
        }
        self.landing.clone()
    }

    /// Transmission time of this many bytes.
    pub(crate) fn takes_ns(&self, bytes: u64) -> u64 {
        let divisor = self.slow.iter().max().unwrap_or(&1);
        bytes * divisor * 1_000_000_000 / self.rate
    }

    /// Time at which a full queue has room again; `None` if it has room.
    pub fn blocked_until(&self, local: u64) -> Option<u64> {
        if self.hung > 0 {
            return Some(local + HUNG_LOOK_NS);
        }
        let full = self.egress_free > local + 2 * self.queue_ns / 3;
        full.then(|| self.egress_free - self.queue_ns / 3)
    }

    /// Number of packets to deliver at once.
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
