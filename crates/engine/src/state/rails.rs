//! The rails, and what waits for each of them.

use crate::api::EpId;
use crate::memory::autotune::Autotune;
use crate::memory::op_table::Pieces;
use crate::memory::sums::{Owner, Part, Sums};
use crate::state::write::{OutstandingWrite, PendingWrite, WriteNotice};
use crate::stats::RailCounters;
use marline_proto::{Config, Dest, Transmit};
use marline_rails::{BufId, GroupLink, LinkId, Piece, RailTx, SendOutcome};
use marline_wire::PACKET_MAX;
use std::collections::BTreeMap;
use std::ops::{Deref, DerefMut};

/// After so long the rail is given up, as one whose writes do not end.
pub(crate) const STUCK_NS: u64 = 100_000_000;
/// The thread waits at least so long between two tries.
const PAUSE_NS: u64 = 20_000;

/// Keys of registered memory: (rail, key) by (endpoint index, inbound name).
pub type Rkeys = BTreeMap<(u32, u64), Vec<(u8, u64)>>;

/// A read of a peer's memory that is under way.
#[derive(Clone, Copy, Debug)]
pub struct OutstandingRead {
    /// The rail's name for it.
    pub token: u64,
    /// The inbound message: its endpoint, the node's name for it, and the offset in it.
    pub of: (EpId, u64, u64),
    /// Bytes.
    pub len: usize,
    /// The receive, and where the bytes are in its memory.
    pub(crate) place: (u32, u64),
    /// The sum that workers may make.
    pub(crate) part: Option<Part>,
    /// Time that it may take once nothing is before it.
    pub patience_ns: u64,
    /// When it was first looked at, or something before it ended since.
    pub since_ns: Option<u64>,
    /// How many things the rail's device was given before it.
    pub(crate) ahead: u64,
}

/// Bytes that were read, and that workers were given to sum before the node is told.
#[derive(Clone, Copy, Debug)]
pub(crate) struct SummedRead {
    /// As of [`OutstandingRead`].
    pub(crate) of: (EpId, u64, u64),
    pub(crate) part: Part,
    /// When to look again: what no worker has begun by then is taken back.
    pub(crate) look_ns: u64,
}

/// A rail with what the engine keeps of it.
pub struct RailState<T> {
    /// Sending half.
    pub tx: T,
    /// Interface name, for people.
    pub name: String,
    /// Counters.
    pub counters: RailCounters,
    /// The buffer of the rail in which packets for it are built; `None`: all of its buffers wait or
    /// are in flight.
    pub buffer: Option<BufId>,
    /// A batch that the rail had no room for.
    pub pending: Option<Pending>,
    /// It waits for room.
    pub backpressure: Option<Backpressure>,
    /// It is not given up sooner: if it is native what it holds is lost then, and if it is the only
    /// rail nothing else carries that.
    pub patience_ns: u64,
    /// When it was last given up for having none.
    pub stuck_ns: Option<u64>,
    /// A packet that tells of a direct write, and is to leave with the next one or after it.
    pub notice: Option<WriteNotice>,
    /// Writes that the rail has not done with, oldest first.
    pub outstanding: Vec<OutstandingWrite>,
    /// Reads that are under way.
    pub reads: Vec<OutstandingRead>,
    /// Time to try again after an error of the rail.
    pub retry_at: Option<u64>,
    /// Length of the packets of the last batch received.
    pub segment: usize,
    /// Datagrams of a direct write, as its nodes know it.
    pub direct_datagrams: usize,
    /// Bytes of direct writes that may still come in parts, and until when.
    pub strays: (usize, u64),
    /// State of the rail as last told.
    pub up: bool,
    /// When it went down, the last time.
    pub down_ns: u64,
    /// It had waited for its interface, and is about to be up for the first time.
    pub came: bool,
    /// Writes may name memory that its device was let read; not, since it said so.
    pub opens: bool,
}

/// A batch (or a write with its packet) that a rail had no room for.
pub struct Pending {
    /// Where to.
    pub dest: Dest,
    /// The packets.
    pub body: Body,
}

/// The packets of a [`Pending`].
pub enum Body {
    /// A batch, in the buffer in which it was built.
    Batch {
        /// A buffer that the rail has lent.
        buffer: BufId,
        /// Bytes in it.
        len: usize,
        /// Length of each packet.
        segment: usize,
    },
    /// A packet, and the write that it tells of.
    Write(Vec<u8>, PendingWrite),
}

impl Pending {
    /// The send whose memory is still to be written.
    pub(crate) fn write(&self) -> Option<u32> {
        match &self.body {
            Body::Batch { .. } => None,
            Body::Write(_, write) => Some(write.handle),
        }
    }
}

/// How long a rail has had no room.
#[derive(Clone, Copy, Debug)]
pub struct Backpressure {
    pub(crate) since_ns: u64,
    pub(crate) try_ns: u64,
    pub(crate) rerouted: bool,
}

impl Backpressure {
    /// When to try again, at the latest.
    pub(crate) fn deadline(&self) -> u64 {
        self.try_ns + PAUSE_NS
    }
}

/// The link and flow of a packet to one peer; what goes to a group has none.
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
    /// Rails that have no room now, bit n for rail n.
    pub(crate) full_mask: u32,
    /// Memory that peers may write into.
    pub(crate) rkeys: Rkeys,
    /// Memory of sends that peers may read: rail and key by operation.
    pub(crate) offers: BTreeMap<u32, (u8, u64)>,
    /// Memory of sends that rails' own devices may read: the key by operation and rail.
    pub(crate) sources: BTreeMap<(u32, u8), u64>,
    /// Names of writes and reads so far.
    pub(crate) write_token: u64,
    /// Direct writes are summed before they leave, or after it.
    pub(crate) sum_first: Autotune,
    /// Sums that workers make of what is written, and of what was read.
    pub(crate) sums: Sums,
    /// Reads that are over, whose bytes they sum.
    pub(crate) summed: Vec<SummedRead>,
    /// The memory that the write under hand reads; empty between writes, kept for its room.
    pub(crate) pieces: Vec<Piece>,
    /// An empty buffer for the packet of the next write.
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
    /// Rails of these names and sending halves.
    pub(crate) fn new(rails: Vec<(String, T)>, cfg: &Config) -> Rails<T> {
        let mut list: Vec<_> = rails.into_iter().map(RailState::new).collect();
        let alone = list.len() == 1;
        for (index, rail) in list.iter_mut().enumerate() {
            let native = cfg.native_rails.checked_shr(index as u32).unwrap_or(0) & 1 == 1;
            if native || alone {
                let timeout_ns = cfg.rail_timeout_ns.min(cfg.peer_timeout_ns);
                rail.patience_ns = timeout_ns.max(STUCK_NS);
            }
        }
        Rails {
            list,
            built_for: 0,
            full_mask: 0,
            rkeys: Rkeys::new(),
            offers: BTreeMap::new(),
            sources: BTreeMap::new(),
            write_token: 0,
            sum_first: Autotune::new(),
            sums: Sums::new(),
            summed: Vec::new(),
            pieces: Vec::new(),
            spare: Vec::new(),
        }
    }

    /// The buffer in which the next packet is built, before it is known which rail carries it: that
    /// of the rail that carried the last, if it has one.
    #[inline]
    pub(crate) fn build_buffer(&self) -> Option<(usize, BufId)> {
        let last = self.list.get(self.built_for).and_then(|rail| rail.buffer);
        let any = || {
            let mut rails = self.list.iter().enumerate();
            rails.find_map(|(at, rail)| Some((at, rail.buffer?)))
        };
        last.map(|id| (self.built_for, id)).or_else(any)
    }

    /// The packet just built in the buffer of rail `at` leaves by another: its head goes to a
    /// buffer of that one. `None`: it has none.
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

    /// The key under which the memory of a send is open to the device of a rail: from now on, if it
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

    /// Closes the memory of a send.
    pub(crate) fn close_source(&mut self, handle: u32) {
        let of_it = (handle, 0)..=(handle, u8::MAX);
        while let Some((&of, &key)) = self.sources.range(of_it.clone()).next() {
            self.sources.remove(&of);
            self.list[of.1 as usize].tx.deregister(key);
        }
    }

    /// Takes the buffer of a packet that has left, for that of the next write.
    pub(crate) fn reuse(&mut self, mut packet: Vec<u8>) {
        packet.clear();
        self.spare = packet;
    }

    /// Ends the registration of an inbound message's memory; workers read it no more.
    pub(crate) fn deregister(&mut self, of: (u32, u64)) {
        self.sums
            .withdraw(|owner| owner == Owner::Inbound(of.0, of.1));
        for (rail, key) in self.rkeys.remove(&of).unwrap_or_default() {
            self.list[rail as usize].tx.deregister(key);
        }
    }

    /// Ends the registrations of those endpoints (by index) that satisfy `of`.
    pub(crate) fn deregister_all_of(&mut self, of: impl Fn(u32) -> bool) {
        let keys: Vec<_> = (self.rkeys.keys().copied()).filter(|k| of(k.0)).collect();
        keys.into_iter().for_each(|key| self.deregister(key));
    }
}

impl<T: RailTx> RailState<T> {
    /// Its interface is called so from now on. (Verbs rails have none.)
    pub(crate) fn call(&mut self, interface: &str) {
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
            patience_ns: STUCK_NS,
            stuck_ns: None,
            notice: None,
            strays: (0, 0),
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

    /// Sends the first `len` bytes of the buffer in which packets were built. After `Busy` they are
    /// still there.
    #[inline]
    pub(crate) fn send_built(&mut self, first: &Transmit, len: usize) -> SendOutcome {
        let Some(buffer) = self.buffer else {
            return SendOutcome::Sent; // built nowhere: lost
        };
        let (link, flow) = link_of(first.dest);
        let outcome = (self.tx).send_buffer(link, buffer, len, first.len, flow);
        if outcome != SendOutcome::Busy {
            self.buffer = self.tx.lend();
        }
        outcome
    }

    /// Sends packets of `segment` bytes each.
    pub(crate) fn send_to(&mut self, dest: Dest, bytes: &[u8], segment: usize) -> SendOutcome {
        match dest {
            Dest::Link { link, flow } => self.tx.send(LinkId(link), bytes, segment, flow),
            Dest::Group(group) => self.tx.send_group(GroupLink(group), bytes, segment),
        }
    }

    /// The packets in the buffer wait for room; what is built next is built in another.
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
    /// Notes which reads are under way, and what its device has done with since it was looked at
    /// last: the patience with all that was given to it behind that begins anew.
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

    /// When the oldest write, or a read, has not ended for too long. Where a peer's processor makes
    /// the copy, it may be busy, and a peer that is gone takes its link with it.
    pub(crate) fn stuck_at(&self) -> Option<u64> {
        let oldest = self.outstanding.first();
        let oldest = oldest.filter(|_| !self.tx.caps().one_copy);
        let written = oldest.map(|write| write.since_ns + self.patience_ns);
        let due =
            |read: &OutstandingRead| Some(read.since_ns? + read.patience_ns.max(self.patience_ns));
        let read = self.reads.iter().filter_map(due).min();
        [written, read].into_iter().flatten().min()
    }

    /// When `tick` has something to do for the rail.
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
