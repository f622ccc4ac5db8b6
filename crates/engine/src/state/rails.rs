//! The rails and their pending packets, writes and reads.

use crate::api::EpId;
use crate::memory::autotune::Autotune;
use crate::memory::op_table::Pieces;
use crate::memory::sums::{Owner, Part, Sums};
use crate::state::write::{OutstandingWrite, PendingWrite, WriteNotification};
use crate::stats::RailCounters;
use marline_proto::{Config, Dest, Transmit};
use marline_rails::{BufId, GroupLink, LinkId, Piece, RailTx, SendOutcome};
use marline_wire::PACKET_MAX;
use std::collections::BTreeMap;
use std::ops::{Deref, DerefMut};

/// Time in nanoseconds after which a rail with a full queue, or with a write that does not end, is
/// given up for a while.
pub(crate) const STUCK_NS: u64 = 100_000_000;
/// Shortest time in nanoseconds between two attempts of the thread.
const PAUSE_NS: u64 = 20_000;

/// Keys of registered memory: pairs (rail, key) by (endpoint index, inbound number).
pub type Rkeys = BTreeMap<(u32, u64), Vec<(u8, u64)>>;

/// A read of a peer's memory in flight.
#[derive(Clone, Copy, Debug)]
pub struct OutstandingRead {
    /// The rail's identifier of the read.
    pub token: u64,
    /// Endpoint, inbound number and offset of the message.
    pub of: (EpId, u64, u64),
    /// Bytes.
    pub len: usize,
    /// Handle of the receive, and the offset of the bytes in its memory.
    pub(crate) place: (u32, u64),
    /// The part whose checksum workers may compute.
    pub(crate) part: Option<Part>,
    /// Timeout in nanoseconds, counted from the time at which no earlier request is ahead of the
    /// read.
    pub completion_timeout_ns: u64,
    /// Start of the timeout: the first check of the read, or the end of an earlier request after
    /// that.
    pub since_ns: Option<u64>,
    /// Number of requests given to the rail's device before the read.
    pub(crate) ahead: u64,
}

/// Bytes that were read and are being summed by workers, before the node is notified.
#[derive(Clone, Copy, Debug)]
pub(crate) struct SummedRead {
    /// The read's owner, as in [`OutstandingRead::of`].
    pub(crate) of: (EpId, u64, u64),
    pub(crate) part: Part,
    /// Time of the next check, at which a part that no worker has begun is withdrawn.
    pub(crate) look_ns: u64,
}

/// A rail with the engine's state for it.
pub struct RailState<T> {
    /// Sending half.
    pub tx: T,
    /// Interface name, for display.
    pub name: String,
    /// Counters.
    pub counters: RailCounters,
    /// The rail's buffer in which its next packet is built; `None`: all of its buffers are pending
    /// or in flight.
    pub buffer: Option<BufId>,
    /// A batch for which the rail's queue had no room.
    pub pending: Option<Pending>,
    /// Set while the rail's queue is full.
    pub backpressure: Option<Backpressure>,
    /// Completion watchdog in nanoseconds. Longer if giving up costs data: on a native rail, which
    /// loses its pending packets, and on the only rail, which no other rail replaces.
    pub completion_timeout_ns: u64,
    /// Time at which the rail was last given up for a full queue.
    pub stuck_ns: Option<u64>,
    /// Notification of a direct write, to be sent with or after the next write.
    pub notification: Option<WriteNotification>,
    /// Writes that the rail has not completed, oldest first.
    pub outstanding: Vec<OutstandingWrite>,
    /// Reads in flight.
    pub reads: Vec<OutstandingRead>,
    /// Time of the next attempt after an error of the rail.
    pub retry_at: Option<u64>,
    /// Length of the packets in the batch received last.
    pub segment: usize,
    /// Datagrams per direct write, as configured in its nodes.
    pub direct_datagrams: usize,
    /// Bytes of direct writes that may still arrive as late fragments, and the time until then.
    pub late_fragments: (usize, u64),
    /// State of the rail as last reported.
    pub up: bool,
    /// Time at which the rail last went down.
    pub down_ns: u64,
    /// True if the rail waited for its interface and is about to be up for the first time.
    pub came: bool,
    /// True while writes may read registered source memory; cleared when the rail refuses
    /// registration.
    pub opens: bool,
}

/// A batch, or a write with its packet, for which a rail's queue had no room.
pub struct Pending {
    /// Destination.
    pub dest: Dest,
    /// The packets.
    pub body: Body,
}

/// The packets of a [`Pending`].
pub enum Body {
    /// A batch in the buffer in which it was built.
    Batch {
        /// The rail's buffer.
        buffer: BufId,
        /// Length of the batch in bytes.
        len: usize,
        /// Length of each packet.
        segment: usize,
    },
    /// A write notification and its write.
    Write(Vec<u8>, PendingWrite),
}

impl Pending {
    /// The send whose memory the pending write must still write.
    pub(crate) fn write(&self) -> Option<u32> {
        match &self.body {
            Body::Batch { .. } => None,
            Body::Write(_, write) => Some(write.handle),
        }
    }
}

/// The time for which a rail's queue has been full.
#[derive(Clone, Copy, Debug)]
pub struct Backpressure {
    pub(crate) since_ns: u64,
    pub(crate) try_ns: u64,
    pub(crate) rerouted: bool,
}

impl Backpressure {
    /// Latest time of the next attempt.
    pub(crate) fn deadline(&self) -> u64 {
        self.try_ns + PAUSE_NS
    }
}

/// Link and ECMP flow of a packet to one peer; packets to a group have none.
#[inline]
pub(crate) fn link_of(dest: Dest) -> (LinkId, u8) {
    match dest {
        Dest::Link { link, flow } => (LinkId(link), flow),
        Dest::Group(_) => (LinkId::NONE, 0),
    }
}

/// All rails of an engine.
pub struct Rails<T> {
    pub(crate) list: Vec<RailState<T>>,
    /// The rail in whose buffer the next packet is built.
    pub(crate) built_for: usize,
    /// Rails with full queues, bit n for rail n.
    pub(crate) full_mask: u32,
    /// Memory that peers may write into.
    pub(crate) rkeys: Rkeys,
    /// Memory of sends that peers may read: rail and key by operation.
    pub(crate) advertisements: BTreeMap<u32, (u8, u64)>,
    /// Memory of sends that our devices may read: key by operation and rail.
    pub(crate) sources: BTreeMap<(u32, u8), u64>,
    /// Last identifier of a write or read.
    pub(crate) write_token: u64,
    /// Learns whether to sum direct writes before or after they leave.
    pub(crate) sum_first: Autotune,
    /// Checksums that workers compute over written and read memory.
    pub(crate) sums: Sums,
    /// Completed reads whose bytes workers sum.
    pub(crate) summed: Vec<SummedRead>,
    /// Memory pieces of the current write; empty between writes, kept for its capacity.
    pub(crate) pieces: Vec<Piece>,
    /// Empty buffer for the packet of the next write.
    pub(crate) spare: Vec<u8>,
}

impl<T> Deref for Rails<T> {
    type Target = [RailState<T>];

    #[inline]
    fn deref(&self) -> &[RailState<T>] {
        &self.list
    }
}

impl<T> DerefMut for Rails<T> {
    #[inline]
    fn deref_mut(&mut self) -> &mut [RailState<T>] {
        &mut self.list
    }
}

impl<T: RailTx> Rails<T> {
    /// Creates the state of rails from names and sending halves.
    pub(crate) fn new(rails: Vec<(String, T)>, cfg: &Config) -> Rails<T> {
        let mut list: Vec<_> = rails.into_iter().map(RailState::new).collect();
        let alone = list.len() == 1;
        for (index, rail) in list.iter_mut().enumerate() {
            let native = cfg.native_rails.checked_shr(index as u32).unwrap_or(0) & 1 == 1;
            if native || alone {
                let timeout_ns = cfg.rail_timeout_ns.min(cfg.peer_timeout_ns);
                rail.completion_timeout_ns = timeout_ns.max(STUCK_NS);
            }
        }
        Rails {
            list,
            built_for: 0,
            full_mask: 0,
            rkeys: Rkeys::new(),
            advertisements: BTreeMap::new(),
            sources: BTreeMap::new(),
            write_token: 0,
            sum_first: Autotune::new(),
            sums: Sums::new(),
            summed: Vec::new(),
            pieces: Vec::new(),
            spare: Vec::new(),
        }
    }

    /// The buffer in which the next packet is built before its rail is known: a buffer of the rail
    /// that carried the last packet, if that rail has one.
    #[inline]
    pub(crate) fn build_buffer(&self) -> Option<(usize, BufId)> {
        let last = self.list.get(self.built_for).and_then(|rail| rail.buffer);
        let any = || {
            let mut rails = self.list.iter().enumerate();
            rails.find_map(|(at, rail)| Some((at, rail.buffer?)))
        };
        last.map(|id| (self.built_for, id)).or_else(any)
    }

    /// Moves the head of a packet that was built in a buffer of rail `at` to a buffer of the
    /// packet's actual rail. `None`: that rail has no buffer.
    #[cold]
    pub(crate) fn move_head(
        &mut self,
        (at, from): (usize, BufId),
        first: &Transmit,
    ) -> Option<BufId> {
        let to = self.list[first.rail].buffer?;
        let head = self.list[at].tx.buffer(from)[..first.head_len].to_vec();
        self.list[first.rail].tx.buffer(to)[..head.len()].copy_from_slice(&head);
        self.built_for = first.rail;
        Some(to)
    }

    /// The key under which a rail's device may read a send's memory, which is registered now if it
    /// was not. `None`: the rail has no such keys.
    pub(crate) fn source_of(&mut self, of: (u32, u8), send: &Pieces) -> Option<u64> {
        let rail = &mut self.list[of.1 as usize];
        if !rail.opens {
            return None;
        }
        if let Some(&key) = self.sources.get(&of) {
            return Some(key);
        }
        let filled = send.as_slice().iter().filter(|piece| piece.len > 0);
        self.pieces.clear();
        self.pieces.extend(filled.map(|piece| Piece {
            base: piece.base,
            len: piece.len,
        }));
        let key = rail.tx.open(&self.pieces);
        match key {
            Some(key) => _ = self.sources.insert(of, key),
            None => rail.opens = false,
        }
        key
    }

    /// Ends the registrations of a send's memory.
    pub(crate) fn close_source(&mut self, handle: u32) {
        let of_it = (handle, 0)..=(handle, u8::MAX);
        while let Some((&of, &key)) = self.sources.range(of_it.clone()).next() {
            self.sources.remove(&of);
            self.list[of.1 as usize].tx.deregister(key);
        }
    }

    /// Retains the buffer of a sent packet for the next write's packet.
    pub(crate) fn reuse(&mut self, mut packet: Vec<u8>) {
        packet.clear();
        self.spare = packet;
    }

    /// Ends the registrations of an inbound message's memory, and workers' reads of it.
    pub(crate) fn deregister(&mut self, of: (u32, u64)) {
        self.sums
            .withdraw(|owner| owner == Owner::Inbound(of.0, of.1));
        for (rail, key) in self.rkeys.remove(&of).unwrap_or_default() {
            self.list[rail as usize].tx.deregister(key);
        }
    }

    /// Ends the registrations of all endpoints whose index satisfies `of`.
    pub(crate) fn deregister_all_of(&mut self, of: impl Fn(u32) -> bool) {
        let keys: Vec<_> = (self.rkeys.keys().copied()).filter(|k| of(k.0)).collect();
        keys.into_iter().for_each(|key| self.deregister(key));
    }
}

impl<T: RailTx> RailState<T> {
    /// Renames the rail after its interface. (Verbs rails have none.)
    pub(crate) fn rename(&mut self, interface: &str) {
        let kind = if self.name.starts_with("tcp:") {
            "tcp:"
        } else {
            ""
        };
        self.name = format!("{kind}{interface}");
    }

    fn new((name, mut tx): (String, T)) -> RailState<T> {
        RailState {
            buffer: tx.lend(),
            tx,
            name,
            counters: RailCounters::default(),
            pending: None,
            backpressure: None,
            completion_timeout_ns: STUCK_NS,
            stuck_ns: None,
            notification: None,
            late_fragments: (0, 0),
            direct_datagrams: 0,
            outstanding: Vec::new(),
            reads: Vec::new(),
            retry_at: None,
            segment: PACKET_MAX,
            up: true,
            down_ns: 0,
            came: false,
            opens: true,
        }
    }

    /// Sends packets of `segment` bytes each.
    pub(crate) fn send_to(&mut self, dest: Dest, bytes: &[u8], segment: usize) -> SendOutcome {
        match dest {
            Dest::Link { link, flow } => self.tx.send(LinkId(link), bytes, segment, flow),
            Dest::Group(group) => self.tx.send_group(GroupLink(group), bytes, segment),
        }
    }

    /// Sets the full build buffer aside until the rail has room; later packets use another buffer.
    pub(crate) fn keep_built(&mut self, first: &Transmit, len: usize) -> Option<Pending> {
        let buffer = self.buffer.take()?;
        self.buffer = self.tx.lend();
        let body = Body::Batch {
            buffer,
            len,
            segment: first.len,
        };
        Some(Pending {
            dest: first.dest,
            body,
        })
    }
}

impl<T: RailTx> RailState<T> {
    /// Starts the timeouts of new reads. If the device has completed requests since the last call,
    /// restarts the timeouts of writes and reads behind them.
    pub(crate) fn look_at_device(&mut self, now: u64) {
        if self.outstanding.is_empty() && self.reads.is_empty() {
            return;
        }
        let done = self.tx.take_done();
        let moved = |ahead: u64| done < ahead;
        for write in self.outstanding.iter_mut().filter(|w| moved(w.ahead)) {
            write.since_ns = now;
        }
        for read in &mut self.reads {
            if read.since_ns.is_none() || moved(read.ahead) {
                read.since_ns = Some(now);
            }
        }
    }

    /// Time at which the oldest write or a read exceeds its timeout. Excludes writes that the
    /// peer's processor copies: it may be busy, and a dead peer ends its link.
    pub(crate) fn stuck_at(&self) -> Option<u64> {
        let oldest = self.outstanding.first();
        let oldest = oldest.filter(|_| !self.tx.caps().one_copy);
        let written = oldest.map(|write| write.since_ns + self.completion_timeout_ns);
        let due = |read: &OutstandingRead| {
            Some(read.since_ns? + read.completion_timeout_ns.max(self.completion_timeout_ns))
        };
        let read = self.reads.iter().filter_map(due).min();
        [written, read].into_iter().flatten().min()
    }

    /// Time of the rail's next work in `tick`.
    pub(crate) fn deadline(&self) -> Option<u64> {
        let begun = self.reads.iter().any(|read| read.since_ns.is_none());
        let begun = begun.then_some(0);
        let written = self.stuck_at();
        let tried = self.backpressure.map(|full| full.deadline());
        [self.retry_at, written, tried, begun]
            .into_iter()
            .flatten()
            .min()
    }
}
