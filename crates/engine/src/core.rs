//! The engine under its lock: endpoints, operations, queues, rails. Single-threaded; every call
//! takes the time as argument. The simulator calls it directly; `shared` adds the lock and the
//! thread.

mod admission;
mod aggregate;
pub(crate) mod atomic;
pub(crate) mod awaited;
mod backpressure;
mod borrow;
mod complete;
mod decrypt;
mod direct_write;
mod execute;
mod flush;
mod group_close;
mod group_io;
mod group_open;
mod group_send;
mod ingest;
mod link_upkeep;
mod locate;
mod outages;
mod parts;
mod peer_rows;
mod peer_scan;
pub(crate) mod publish;
mod remote_read;
mod remote_write;
mod report;
mod rma;
pub(crate) mod rpc;
mod submit;
mod tick;
mod unpack;
mod versions;

use crate::api::{Completion, CqId, EpId, LogLevel, LogSink, SubmitError};
use crate::platform::random::Random;
use crate::platform::system::{System, Watch};
use crate::state::admission::Admission;
use crate::state::buffers::Buffers;
use crate::state::coalesce::Coalescer;
use crate::state::counters::Counters;
use crate::state::directory::{Directory, Endpoint};
use crate::state::group_table::Groups;
use crate::state::outages::Outages;
use crate::state::pairing::ByKind;
use crate::state::rails::{RailState, Rails};
use crate::state::regions::Operations;
use crate::state::rpcs::Rpcs;
use crate::state::write::direct_datagrams;
use marline_codes::Code;
use marline_proto::{Config, Delivery, Node, RailSpec};
use marline_rails::pairing::same_host;
use marline_rails::{RailTx, RemoteWrites};
use marline_wire::{RailWrites, PACKET_MAX};

/// Most rendezvous bytes in flight to this process, however large the socket's buffer: more than
/// the bandwidth-delay product of 12 GB/s and 100 us, and little enough for the kernel's copies to
/// stay in the processor's cache.
const IN_FLIGHT_MAX: u64 = 2 << 20;

/// Configuration of an engine.
#[derive(Clone)]
pub struct CoreConfig {
    /// Settings of the protocol.
    pub proto: Config,
    /// Bound of the sender's log in bytes.
    pub log_bytes: usize,
    /// Long eager sends of a burst borrow their caller's memory instead of being copied.
    pub borrow: bool,
    /// Sends of a burst that leave immediately, before later ones are coalesced.
    pub aggregate_after: u32,
    /// Short remote writes travel as RPCs; otherwise they wait for grants like long ones.
    pub rpcs: bool,
    /// Upper bound of datagram lengths in bytes; 0: none.
    pub mtu: usize,
}

/// The engine under its lock.
pub struct Core<S: System> {
    pub(crate) cfg: CoreConfig,
    /// Endpoints, address vectors and completion queues.
    pub(crate) dir: Directory,
    /// Open operations, and memory that peers may access.
    pub(crate) ops: Operations,
    /// RPCs that wait for their responses.
    pub(crate) rpcs: Rpcs,
    /// Old values fetched by the atomic in execution.
    pub(crate) calls_result: Vec<u8>,
    /// Groups of which endpoints are members.
    pub(crate) groups: Groups,
    /// The rails and their pending packets.
    pub(crate) rails: Rails<S::Tx>,
    /// The engine's own buffers.
    pub(crate) buffers: Buffers,
    /// Counters of the process and of closed endpoints.
    pub(crate) counters: Counters,
    /// The job's key, if packets have tags.
    pub(crate) admission: Admission,
    pub(crate) outages: Outages,
    pub(crate) coalescer: Coalescer,
    /// Posted sends wait for a flush.
    pub(crate) deferred: bool,
    /// An endpoint's last open remote operation has ended.
    pub(crate) answered: bool,
    /// An RPC of a peer was executed.
    pub(crate) served: bool,
    /// A peek found no message since the last `awaits_packets`.
    pub(crate) peeked: bool,
    /// Some endpoint has a counter of messages.
    pub(crate) counts_messages: bool,
    /// The last posted send, if it is still to be copied into the log.
    pub(crate) unlogged: Option<u32>,
    /// Time of the application's last poll.
    pub(crate) polled_ns: u64,
    pub(crate) log: LogSink,
    pub(crate) random: Random,
    pub(crate) poisoned: bool,
    pub(crate) watch: S::Watch,
}

// SAFETY: raw pointers inside (regions, pieces) are user memory that callers lend to the engine
// from any thread; the engine is used under one lock.
unsafe impl<S: System> Send for Core<S> {}

impl<S: System> Core<S> {
    /// Creates an engine on these rails (name, sending half).
    pub fn new(
        cfg: CoreConfig,
        rails: Vec<(String, S::Tx)>,
        (log, random): (LogSink, Random),
        watch: S::Watch,
    ) -> Core<S> {
        Core {
            dir: Directory::default(),
            ops: Operations::default(),
            rpcs: Rpcs::default(),
            calls_result: Vec::new(),
            groups: Groups::default(),
            rails: Rails::new(rails, &cfg.proto),
            buffers: Buffers::new(cfg.log_bytes),
            counters: Counters::default(),
            admission: Admission::default(),
            outages: Outages::default(),
            coalescer: Coalescer::default(),
            deferred: false,
            answered: false,
            served: false,
            peeked: false,
            counts_messages: false,
            unlogged: None,
            polled_ns: 0,
            log,
            random,
            poisoned: false,
            watch,
            cfg,
        }
    }

    pub(crate) fn say(&self, level: LogLevel, text: &str) {
        (self.log.0)(level, text);
    }

    pub(crate) fn warn(&self, code: Code, text: &str) {
        self.say(LogLevel::Warn(code), text);
    }

    /// Describes the rails to nodes.
    pub(crate) fn rail_specs(&self) -> Vec<RailSpec> {
        let cap = if self.cfg.mtu == 0 {
            PACKET_MAX
        } else {
            self.cfg.mtu
        };
        let spec = |(index, rail): (usize, &RailState<S::Tx>)| {
            let caps = rail.tx.caps();
            let datagram_max = caps.datagram_max.min(cap).min(PACKET_MAX);
            let mut addr = rail.tx.local_addr();
            addr.index = index as u8;
            let next = self.rails.get(index + 1);
            addr.backed = next.is_some_and(|next| next.tx.caps().standby);
            addr.datagram_max = datagram_max as u16;
            addr.writes = match caps.remote_write {
                RemoteWrites::None => RailWrites::None,
                RemoteWrites::Direct => RailWrites::Direct,
                RemoteWrites::Unordered | RemoteWrites::Ordered => RailWrites::Keyed,
            };
            // A third of the buffer: half of it is usable at most, and a packet takes up to 1.5
            // times its length in the kernel's accounting.
            let receive_budget =
                (caps.receive_buffer_bytes as u64 / 3).clamp(64_000, IN_FLIGHT_MAX);
            RailSpec {
                addr,
                datagram_max,
                receive_budget,
                delivery: Delivery {
                    ordered: caps.ordered,
                    lossless: caps.lossless,
                    fixed_mtu: caps.fixed_mtu,
                },
                connected: caps.connected,
                ordered_writes: caps.remote_write == RemoteWrites::Ordered,
                direct_datagrams: direct_datagrams(&caps),
                standby: caps.standby,
                bulk_rail: self.bulk_rail(index),
            }
        };
        self.rails.iter().enumerate().map(spec).collect()
    }

    /// The rail on a rail's port that carries long messages in its place.
    fn bulk_rail(&self, index: usize) -> Option<u8> {
        let own = &self.rails[index].tx;
        let cuts = |rail: &RailState<S::Tx>| {
            let caps = rail.tx.caps();
            !caps.per_packet
                && caps.batch_segments_max > 1
                && same_host(&own.local_addr(), &rail.tx.local_addr())
        };
        let at = self.rails.iter().position(cuts);
        at.filter(|_| own.caps().per_packet).map(|at| at as u8)
    }

    /// Opens an endpoint with a random identity.
    pub fn ep_open(&mut self, now: u64) -> Result<EpId, SubmitError> {
        let (id, token) = (self.number()? | 1, self.number()? as u32);
        // The epoch distinguishes lives of an endpoint: any number that differs from the last one
        // will do.
        let epoch = (now / 1_000_000) as u32 ^ self.number()? as u32;
        let mut node = Node::new(
            self.cfg.proto,
            (id, token, epoch),
            self.rail_specs(),
            &ByKind,
        );
        node.set_secret((self.number()?, self.number()?));
        for (i, rail) in self.rails.iter().enumerate() {
            if !rail.up {
                node.on_rail(now, i, true);
            }
        }
        let endpoint = Endpoint {
            node,
            keys: self.admission.keys(),
            av: None,
            tx_cq: None,
            rx_cq: None,
            counters: Default::default(),
            remote_open: 0,
            min_multi: 64,
            source_err: false,
            enabled: false,
            peers: Vec::new(),
            addrs: Vec::new(),
        };
        Ok(self.dir.ep_insert(id, endpoint))
    }

    /// A random number for an identity. An error prevents the endpoint, because peers could confuse
    /// endpoints with constant identities.
    fn number(&mut self) -> Result<u64, SubmitError> {
        (self.random)().map_err(|why| {
            self.warn(Code::CannotStart, &why);
            SubmitError::NoIdentity
        })
    }

    /// The node of an endpoint.
    pub fn node(&self, ep: EpId) -> Option<&Node> {
        self.dir.node(ep)
    }

    /// Bytes of all address vectors and of the endpoints' tables of addresses.
    pub fn address_bytes(&self) -> usize {
        self.dir.address_bytes()
    }

    /// Bytes of the pool in use: by the sender's log, by unexpected messages.
    pub fn pool_bytes(&self) -> (usize, usize) {
        self.buffers.pool.out_bytes()
    }

    /// Numbers of open sends and open receives.
    pub fn open_ops(&self) -> (usize, usize) {
        (self.ops.sends.len(), self.ops.recvs.len())
    }

    /// True if the application may be waiting for packets: an operation of its own is open, or it
    /// has just peeked. Multi-receive buffers do not count, since MPICH keeps some posted all the
    /// time.
    pub(crate) fn awaits_packets(&mut self) -> bool {
        let buffers: usize = self.dir.nodes().map(|node| node.buffers()).sum();
        std::mem::take(&mut self.peeked)
            || self.ops.sends.len() > 0
            || self.ops.recvs.len() > buffers
            || self.rpcs.ops.len() > 0
            || self.groups.is_awaited()
    }

    /// Address blob of an endpoint.
    pub fn ep_name(&mut self, ep: EpId) -> Option<([u8; 64], usize)> {
        Some(self.dir.ep(ep)?.node.address().encode())
    }

    #[inline]
    pub(crate) fn complete(&mut self, cq: Option<CqId>, entry: Completion) {
        self.watch.completed(&entry);
        if let Some(queue) = cq.and_then(|cq| self.dir.cq(cq)) {
            queue.push_back(entry);
            self.dir.ring(cq);
        }
    }

    /// Switches message checksums on or off, for the lengths that the settings select.
    pub(crate) fn set_sums(&mut self, on: bool) {
        let none = (u64::MAX, u64::MAX);
        let lengths = if on { self.cfg.proto.summed } else { none };
        self.dir.nodes().for_each(|node| node.set_summed(lengths));
    }

    /// Earliest deadline of all endpoints and rails.
    pub fn next_deadline(&self) -> Option<u64> {
        let nodes = self
            .dir
            .eps
            .iter()
            .flatten()
            .filter_map(|e| e.node.next_deadline());
        nodes
            .chain(self.rails.iter().filter_map(RailState::deadline))
            .chain(self.rails.summed.iter().map(|read| read.look_ns))
            .chain(self.groups.due_at)
            .min()
    }

    /// True if packets wait to be built or sent. Packets of rails without room do not count: `tick`
    /// has the time of their next attempt.
    pub fn has_output(&self) -> bool {
        self.deferred
            || (self.rails.iter()).any(|r| r.notification.is_some() && r.backpressure.is_none())
            || self
                .dir
                .eps
                .iter()
                .flatten()
                .any(|e| e.node.wants_transmit())
    }
}
