//! The engine under its lock: endpoints, operations, queues, rails. Single-threaded; every call
//! takes the time. The simulator drives it as it is; `shared` puts the lock and the thread
//! around it.

use crate::api::{AvId, Completion, Counter, CqId, EpId, FiAddr, LogLevel, LogSink, SubmitError};
use crate::core::av::Av;
use crate::core::backpressure::Backpressure;
use crate::core::coalesce::Coalescer;
use crate::core::direct_write::WriteNotice;
use crate::core::fast_path::FastPath;
use crate::core::publish::ClosedRow;
use crate::core::remote_write::{OutstandingWrite, Pending, Rkeys};
use crate::core::rma::Registered;
use crate::core::sum_ahead::Ahead;
use crate::memory::autotune::Autotune;
use crate::memory::op_table::{OpTable, RecvOp, SendOp};
use crate::memory::pool::Pool;
use crate::memory::tx_buffers::TxBuffers;
use crate::memory::unpack::Bounces;
use crate::platform::system::{System, Watch};
use crate::stats::peer_rows::Together;
use crate::stats::{ProcessCounters, RailCounters};
use marline_proto::{Claim, Config, Delivery, Node, PeerId, RailSpec, Spans};
use marline_rails::{Caps, RailTx, Writes};
use marline_wire::{RailAddr, PACKET_MAX};
use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;

/// Bytes of a staging buffer: one super-packet (design rule 8).
pub(crate) const STAGING: usize = PACKET_MAX + 512;

/// Rendezvous bytes in flight to this process at most, however large the socket's buffer: more
/// than 12 GB/s times 100 us, and little enough for the kernel's copies to stay in the
/// processor's cache (4 MiB messages: 3.3 GB/s with 0.8 to 2 MB, 2.8 with 5.6 MB).
const IN_FLIGHT_MAX: u64 = 2 << 20;

/// A rail with what the engine keeps of it.
pub struct RailState<T> {
    /// Sending half.
    pub tx: T,
    /// Interface name, for people.
    pub name: String,
    /// Counters.
    pub counters: RailCounters,
    /// A batch that the kernel had no room for.
    pub pending: Option<Pending>,
    /// It waits for room.
    pub backpressure: Option<Backpressure>,
    /// When it was last given up for having none.
    pub stuck_ns: Option<u64>,
    /// A packet that tells of a direct write, and is to leave with the next one or after it.
    pub notice: Option<WriteNotice>,
    /// Writes that the rail has not done with, oldest first.
    pub outstanding: Vec<OutstandingWrite>,
    /// Time to try again after an error of the rail.
    pub retry_at: Option<u64>,
    /// Length of the packets of the last batch received.
    pub segment: usize,
    /// Datagrams of a direct write, as its nodes know it.
    pub direct_datagrams: usize,
    /// Bytes of direct writes that may still come in parts, and until when.
    pub strays: (usize, u64),
    /// Link state as last told.
    pub up: bool,
}

/// An endpoint: its node and what is bound to it.
pub struct Endpoint {
    pub(crate) node: Node,
    pub(crate) av: Option<AvId>,
    pub(crate) tx_cq: Option<CqId>,
    pub(crate) rx_cq: Option<CqId>,
    pub(crate) reads: Option<Arc<Counter>>,
    pub(crate) writes: Option<Arc<Counter>>,
    pub(crate) min_multi: u64,
    pub(crate) enabled: bool,
    /// Index and peer by the slot of the address vector, as far as looked up.
    pub(crate) peers: Vec<(FiAddr, PeerId)>,
    /// Address index by peer.
    pub(crate) addrs: Vec<FiAddr>,
}

/// How an engine is made.
#[derive(Clone)]
pub struct CoreConfig {
    /// Protocol.
    pub proto: Config,
    /// Bound of the sender's log in bytes.
    pub log_bytes: usize,
    /// Sends of a burst that leave at once.
    pub aggregate_after: u32,
    /// Cap on datagrams in bytes, 0: none.
    pub mtu: usize,
    /// Bytes of a message that are summed while its grant is under way.
    pub sum_ahead_bytes: u32,
}

/// Source of random identities.
pub type Random = Box<dyn FnMut() -> Result<u64, String> + Send>;

/// The engine under its lock.
pub struct Core<S: System> {
    pub(crate) cfg: CoreConfig,
    pub(crate) rails: Vec<RailState<S::Tx>>,
    pub(crate) eps: Vec<Option<Endpoint>>,
    /// Rails that have no room now, bit n for rail n.
    pub(crate) full_rails: u32,
    /// Endpoint index by endpoint id.
    pub(crate) by_id: Vec<(u64, u32)>,
    pub(crate) sends: OpTable<SendOp>,
    pub(crate) recvs: OpTable<RecvOp>,
    pub(crate) cqs: Vec<Option<VecDeque<Completion>>>,
    pub(crate) avs: Vec<Option<Av>>,
    pub(crate) pool: Pool,
    pub(crate) bounces: Bounces,
    pub(crate) regions: BTreeMap<u64, Registered>,
    pub(crate) claims: BTreeMap<(u32, usize), Claim>,
    /// What peers may write into.
    pub(crate) rkeys: Rkeys,
    /// Names of writes so far.
    pub(crate) write_token: u64,
    pub(crate) tx_buffers: TxBuffers,
    /// Whether direct writes are summed before they leave, or after it.
    pub(crate) sum_first: Autotune,
    pub(crate) spans: Spans,
    /// Sums made before the grant.
    pub(crate) ahead: Ahead,
    pub(crate) coalescer: Coalescer,
    pub(crate) fast_path: FastPath,
    /// Bytes copied into the log since the rails were last looked at for the application.
    pub(crate) copied: usize,
    /// Sends were posted that have not been flushed.
    pub(crate) deferred: bool,
    /// When the application last polled.
    pub(crate) polled_ns: u64,
    pub(crate) stats: ProcessCounters,
    pub(crate) log: LogSink,
    pub(crate) random: Random,
    pub(crate) poisoned: bool,
    /// Counters of peers of endpoints that were closed.
    pub(crate) closed_rows: Vec<ClosedRow>,
    /// Of those that left, and of closed ones beyond the rows.
    pub(crate) past: Together,
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
        let rails = rails
            .into_iter()
            .map(|(name, tx)| RailState {
                tx,
                name,
                counters: RailCounters::default(),
                pending: None,
                backpressure: None,
                stuck_ns: None,
                notice: None,
                strays: (0, 0),
                direct_datagrams: 0,
                outstanding: Vec::new(),
                retry_at: None,
                segment: PACKET_MAX,
                up: true,
            })
            .collect();
        let pool = Pool::new(cfg.log_bytes);
        let ahead = Ahead::new(cfg.sum_ahead_bytes);
        Core {
            tx_buffers: TxBuffers::new(),
            sum_first: Autotune::new(),
            fast_path: FastPath::new(),
            cfg,
            rails,
            full_rails: 0,
            eps: Vec::new(),
            by_id: Vec::new(),
            sends: OpTable::default(),
            recvs: OpTable::default(),
            cqs: Vec::new(),
            avs: Vec::new(),
            pool,
            bounces: Bounces::new(),
            regions: BTreeMap::new(),
            claims: BTreeMap::new(),
            rkeys: Rkeys::new(),
            write_token: 0,
            spans: Spans::new(),
            ahead,
            coalescer: Coalescer::default(),
            copied: 0,
            deferred: false,
            polled_ns: 0,
            stats: ProcessCounters::default(),
            log,
            random,
            poisoned: false,
            closed_rows: Vec::new(),
            past: Together::default(),
            watch,
        }
    }

    pub(crate) fn say(&self, level: LogLevel, text: &str) {
        (self.log.0)(level, text);
    }

    fn rail_specs(&self) -> Vec<RailSpec> {
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
            addr.mtu = datagram_max as u16;
            addr.kind |= match caps.writes {
                Writes::No => 0,
                Writes::Direct => RailAddr::DIRECT,
                Writes::Unordered | Writes::Ordered => RailAddr::WRITES,
            };
            // Half of the buffer, and of that two thirds: what a packet occupies in the kernel
            // is up to half more than its bytes (measured: 71 KB for a 64 KB super-packet).
            let receive_budget =
                (caps.receive_buffer_bytes as u64 / 3).clamp(64_000, IN_FLIGHT_MAX);
            RailSpec {
                addr,
                datagram_max,
                receive_budget,
                delivery: Delivery::DATAGRAMS,
                ordered_writes: caps.writes == Writes::Ordered,
                direct_datagrams: direct_datagrams(&caps),
            }
        };
        self.rails.iter().enumerate().map(spec).collect()
    }

    /// A new endpoint with a random identity.
    pub fn ep_open(&mut self, now: u64) -> Result<EpId, SubmitError> {
        let (id, token) = (self.number()? | 1, self.number()? as u32);
        // The epoch tells lives apart; any number that differs from the last life's will do.
        let epoch = (now / 1_000_000) as u32 ^ self.number()? as u32;
        let mut node = Node::new(self.cfg.proto, id, token, epoch, self.rail_specs());
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
            reads: None,
            writes: None,
            min_multi: 64,
            enabled: false,
            peers: Vec::new(),
            addrs: Vec::new(),
        };
        let index = free_slot(&mut self.eps);
        self.eps[index] = Some(endpoint);
        self.by_id.push((id, index as u32));
        Ok(EpId(index as u32))
    }

    /// A number of an identity. Without one there is no endpoint: its peers would take it for
    /// others that have none.
    fn number(&mut self) -> Result<u64, SubmitError> {
        (self.random)().map_err(|why| {
            (self.log.0)(LogLevel::Warn, &why);
            SubmitError::NoIdentity
        })
    }

    /// The endpoint of a handle.
    pub(crate) fn ep(&mut self, ep: EpId) -> Option<&mut Endpoint> {
        self.eps.get_mut(ep.0 as usize)?.as_mut()
    }

    /// The node of an endpoint.
    pub fn node(&self, ep: EpId) -> Option<&Node> {
        Some(&self.eps.get(ep.0 as usize)?.as_ref()?.node)
    }

    /// Bytes of the pool that are in use: of the sender's log, of unexpected messages.
    pub fn pool_bytes(&self) -> (usize, usize) {
        self.pool.out_bytes()
    }

    /// Operations that are open: sends, receives.
    pub fn open_ops(&self) -> (usize, usize) {
        (self.sends.len(), self.recvs.len())
    }

    /// Address blob of an endpoint.
    pub fn ep_name(&mut self, ep: EpId) -> Option<([u8; 64], usize)> {
        Some(self.ep(ep)?.node.address().encode())
    }

    /// A new completion queue.
    pub fn cq_open(&mut self) -> CqId {
        let index = free_slot(&mut self.cqs);
        self.cqs[index] = Some(VecDeque::new());
        CqId(index as u32)
    }

    pub(crate) fn cq(&mut self, cq: CqId) -> Option<&mut VecDeque<Completion>> {
        self.cqs.get_mut(cq.0 as usize)?.as_mut()
    }

    pub(crate) fn complete(&mut self, cq: Option<CqId>, entry: Completion) {
        self.watch.completed(&entry);
        if let Some(queue) = cq.and_then(|cq| self.cq(cq)) {
            queue.push_back(entry);
        }
    }

    /// Whether messages get sums from now on, of the lengths that are to have any.
    pub(crate) fn set_sums(&mut self, on: bool) {
        let none = (u64::MAX, u64::MAX);
        let lengths = if on { self.cfg.proto.summed } else { none };
        let endpoints = self.eps.iter_mut().flatten();
        endpoints.for_each(|endpoint| endpoint.node.set_summed(lengths));
    }

    /// Earliest deadline of all endpoints and rails.
    pub fn next_deadline(&self) -> Option<u64> {
        let nodes = self
            .eps
            .iter()
            .flatten()
            .filter_map(|e| e.node.next_deadline());
        nodes
            .chain(self.rails.iter().filter_map(RailState::deadline))
            .min()
    }

    /// Whether packets wait to be built or to be taken by the kernel, but for those of rails that
    /// had no room when they were tried (`tick` knows when to try again).
    pub fn has_output(&self) -> bool {
        self.deferred
            || (self.rails.iter()).any(|r| r.notice.is_some() && r.backpressure.is_none())
            || self.eps.iter().flatten().any(|e| e.node.wants_transmit())
    }
}

/// Most datagrams of a direct write; 0: the rail has none.
pub(crate) fn direct_datagrams(caps: &Caps) -> usize {
    match caps.writes {
        Writes::Direct => caps.batch_segments_max,
        _ => 0,
    }
}

/// Index of an empty slot, made if there is none.
pub(crate) fn free_slot<V>(slots: &mut Vec<Option<V>>) -> usize {
    slots.iter().position(Option::is_none).unwrap_or_else(|| {
        slots.push(None);
        slots.len() - 1
    })
}
