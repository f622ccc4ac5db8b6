//! The engine under its lock: endpoints, operations, queues, rails. Single-threaded; every call
//! takes the time. The simulator drives it as it is; `shared` puts the lock and the thread
//! around it.

use crate::api::{Completion, CqId, EpId, LogLevel, LogSink, SubmitError};
use crate::platform::random::Random;
use crate::platform::system::{System, Watch};
use crate::state::buffers::Buffers;
use crate::state::calls::Calls;
use crate::state::coalesce::Coalescer;
use crate::state::counters::Counters;
use crate::state::directory::{Directory, Endpoint};
use crate::state::fast_path::FastPath;
use crate::state::groups::Groups;
use crate::state::operations::Operations;
use crate::state::outages::Outages;
use crate::state::pairing::ByKind;
use crate::state::rails::{RailState, Rails};
use crate::state::write::direct_datagrams;
use marline_proto::{Config, Delivery, Node, RailSpec};
use marline_rails::{RailTx, RemoteWrites};
use marline_wire::{RailWrites, PACKET_MAX};

/// Rendezvous bytes in flight to this process at most, however large the socket's buffer: more
/// than 12 GB/s times 100 us, and little enough for the kernel's copies to stay in the
/// processor's cache (4 MiB messages: 3.3 GB/s with 0.8 to 2 MB, 2.8 with 5.6 MB).
const IN_FLIGHT_MAX: u64 = 2 << 20;

/// How an engine is made.
#[derive(Clone)]
pub struct CoreConfig {
    /// Protocol.
    pub proto: Config,
    /// Bound of the sender's log in bytes.
    pub log_bytes: usize,
    /// Long eager sends of a burst leave from the memory of their caller, who waits for their end.
    pub borrow: bool,
    /// Sends of a burst that leave at once.
    pub aggregate_after: u32,
    /// Short remote writes go in calls; else they wait for their grants, as long ones do.
    pub calls: bool,
    /// Cap on datagrams in bytes, 0: none.
    pub mtu: usize,
}

/// The engine under its lock.
pub struct Core<S: System> {
    pub(crate) cfg: CoreConfig,
    /// Endpoints, address vectors and completion queues.
    pub(crate) dir: Directory,
    /// Operations that are open, and memory that peers may name.
    pub(crate) ops: Operations,
    /// Calls that wait for their answers.
    pub(crate) calls: Calls,
    /// Old values that the atomic which is being done has fetched.
    pub(crate) calls_result: Vec<u8>,
    /// Groups that endpoints are members of.
    pub(crate) groups: Groups,
    /// The rails, and what waits for them.
    pub(crate) rails: Rails<S::Tx>,
    /// Memory of the engine's own.
    pub(crate) buffers: Buffers,
    /// Counters of the process, and of what is closed.
    pub(crate) counters: Counters,
    pub(crate) outages: Outages,
    pub(crate) coalescer: Coalescer,
    pub(crate) fast_path: FastPath,
    /// Sends were posted that have not been flushed.
    pub(crate) deferred: bool,
    /// The last remote operation of an endpoint that was open has ended.
    pub(crate) answered: bool,
    /// An operation of a peer was done that was asked for by a call.
    pub(crate) served: bool,
    /// A peek found nothing since this was asked last.
    pub(crate) peeked: bool,
    /// An endpoint has a counter of its messages.
    pub(crate) counts_messages: bool,
    /// The send that was posted last, if it is still to be copied into the log.
    pub(crate) unlogged: Option<u32>,
    /// When the application last polled.
    pub(crate) polled_ns: u64,
    pub(crate) log: LogSink,
    pub(crate) random: Random,
    pub(crate) poisoned: bool,
    pub(crate) watch: S::Watch,
}

// SAFETY: raw pointers inside (regions, pieces) are user memory that the callers lend to the
// engine from any thread; the engine itself is used under one lock.
unsafe impl<S: System> Send for Core<S> {}

impl<S: System> Core<S> {
    /// An engine over these rails (name, sending half).
    pub fn new(
        cfg: CoreConfig,
        rails: Vec<(String, S::Tx)>,
        (log, random): (LogSink, Random),
        watch: S::Watch,
    ) -> Core<S> {
        Core {
            dir: Directory::default(),
            ops: Operations::default(),
            calls: Calls::default(),
            calls_result: Vec::new(),
            groups: Groups::default(),
            rails: Rails::new(rails, &cfg.proto),
            buffers: Buffers::new(cfg.log_bytes),
            counters: Counters::default(),
            outages: Outages::default(),
            coalescer: Coalescer::default(),
            fast_path: FastPath::new(),
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

    /// The rails as nodes know them.
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
            // Half of the buffer, and of that two thirds: what a packet occupies in the kernel
            // is up to half more than its bytes (measured: 71 KB for a 64 KB super-packet).
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
            }
        };
        self.rails.iter().enumerate().map(spec).collect()
    }

    /// A new endpoint with a random identity.
    pub fn ep_open(&mut self, now: u64) -> Result<EpId, SubmitError> {
        let (id, token) = (self.number()? | 1, self.number()? as u32);
        // The epoch tells lives apart; any number that differs from the last life's will do.
        let epoch = (now / 1_000_000) as u32 ^ self.number()? as u32;
        let mut node = Node::new(
            self.cfg.proto,
            (id, token, epoch),
            self.rail_specs(),
            &ByKind,
        );
        for (i, rail) in self.rails.iter().enumerate() {
            if !rail.up {
                node.on_rail(now, i, true);
            }
        }
        let endpoint = Endpoint {
            node,
            av: None,
            tx_cq: None,
            rx_cq: None,
            counters: Default::default(),
            remote_open: 0,
            min_multi: 64,
            tells_strangers: false,
            enabled: false,
            peers: Vec::new(),
            addrs: Vec::new(),
        };
        Ok(self.dir.ep_insert(id, endpoint))
    }

    /// A number of an identity. Without one there is no endpoint: its peers would take it for
    /// others that have none.
    fn number(&mut self) -> Result<u64, SubmitError> {
        (self.random)().map_err(|why| {
            (self.log.0)(LogLevel::Warn, &why);
            SubmitError::NoIdentity
        })
    }

    /// The node of an endpoint.
    pub fn node(&self, ep: EpId) -> Option<&Node> {
        self.dir.node(ep)
    }

    /// Bytes of the pool that are in use: of the sender's log, of unexpected messages.
    pub fn pool_bytes(&self) -> (usize, usize) {
        self.buffers.pool.out_bytes()
    }

    /// Operations that are open: sends, receives.
    pub fn open_ops(&self) -> (usize, usize) {
        (self.ops.sends.len(), self.ops.recvs.len())
    }

    /// Returns whether the application can be waiting for packets: one of its operations is open,
    /// or it peeked just now. Buffers for whatever comes do not count, as MPICH has some posted
    /// for as long as it lives.
    pub(crate) fn awaits_packets(&mut self) -> bool {
        let buffers: usize = self.dir.nodes().map(|node| node.buffers()).sum();
        std::mem::take(&mut self.peeked)
            || self.ops.sends.len() > 0
            || self.ops.recvs.len() > buffers
            || self.calls.ops.len() > 0
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

    /// Switches the sums of messages on or off, for the lengths that are to have any.
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

    /// Packets wait to be built or to be taken by the kernel, but for those of rails that
    /// had no room when they were tried (`tick` knows when to try again).
    pub fn has_output(&self) -> bool {
        self.deferred
            || (self.rails.iter()).any(|r| r.notice.is_some() && r.backpressure.is_none())
            || self
                .dir
                .eps
                .iter()
                .flatten()
                .any(|e| e.node.wants_transmit())
    }
}
