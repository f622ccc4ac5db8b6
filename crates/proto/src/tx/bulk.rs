//! Outgoing bulk: fragments of long messages, one per packet, in packets of equal length, so that
//! the engine can hand the kernel a whole batch. The first packet of a batch is built like any
//! other; the following packets of the same message differ only in number and offset, and are built
//! in one loop ([`Node::continue_bulk`]).

use crate::base::config::RailPolicy;
use crate::base::mutation::Mutation;
use crate::base::slab::Key;
use crate::base::types::{sum_seed, Batch, PathState, Spans, Transmit};
use crate::node::Node;
use crate::state::congestion::{product_over, NS_PER_S};
use crate::state::conn::Conn;
use crate::state::credit::Credit;
use crate::state::path::Path;
use crate::state::transfer::{SendKind, SendXfer};
use crate::tx::packet_builder::{add_credit, Builder};
use alloc::boxed::Box;
use marline_wire::{
    align8, blocks, FragmentHead, Frame, BLOCK_BYTES, EAGER_LEN, FLAG_UNSUMMED, FRAGMENT_HEAD_LEN,
    HEADER_LEN, PACKET_MAX,
};

/// Bulk waits for the best path rather than use a path that would finish this much later, unless
/// all queued data takes as long anyway.
const STALE_NS: u64 = 200_000;
/// Messages counted as queued data, at most: enough to keep unequal paths busy.
const LOOK_AHEAD: usize = 8;

/// Acks wait for the end of a message with at most so many bytes left: the longest eager message,
/// two super-packets, which leave within tens of microseconds.
const PIGGYBACK_MAX: u64 = 2 * PACKET_MAX as u64;

/// Packets that continue a batch: consecutive fragments of one message.
#[derive(Clone, Copy, Debug)]
pub struct Run {
    /// Number of packets.
    pub packets: usize,
    /// Handle of the send in the engine.
    pub handle: u32,
    /// Offset of the first fragment in the message, in bytes.
    pub offset: u64,
    /// Bytes of each fragment.
    pub fragment: usize,
    /// The packets carry checksums; else 0 in their place.
    pub summed: bool,
    src_id: u64,
    number: u32,
    reply: bool,
}

impl Run {
    /// Checksum seed of the fragment at `offset`.
    #[inline]
    pub fn seed(&self, offset: u64) -> u64 {
        sum_seed(self.src_id, self.number, self.reply, offset, self.fragment)
    }
}

impl Node {
    /// The path on which a batch of bulk would arrive first; `None`: wait for its congestion
    /// window.
    pub(crate) fn bulk_path(&self, conn: &Conn) -> Option<usize> {
        let unproven = !conn.paths.iter().any(|p| p.usable());
        if unproven || self.cfg.policy == RailPolicy::Standby {
            let at = conn.small_path(None, true, self.local.full)?;
            return conn.paths[at].window_has_room().then_some(at);
        }
        if let Some(at) = self.lone_path(conn) {
            return Some(at);
        }
        let healthy = conn
            .paths
            .iter()
            .any(|p| p.usable() && p.state() == PathState::Up);
        let good = |p: &Path| p.usable() && (p.state() == PathState::Up || !healthy);
        // (Network traffic inside a host would take processor time from the copies.)
        let tiers = conn.paths.iter().filter(|p| good(p)).map(|p| p.policy.tier);
        let tier = tiers.min()?;
        let good = |p: &Path| good(p) && p.policy.tier == tier;
        let finish = |i: usize| conn.paths[i].finish_ns(64_000);
        let all = || (0..conn.paths.len()).filter(|&i| good(&conn.paths[i]));
        let best = all().map(finish).min()?;
        let at = all()
            .filter(|&i| conn.paths[i].has_room(self.local.full))
            .filter(|&i| conn.paths[i].window_has_room())
            .min_by_key(|&i| finish(i))?;
        let soon = finish(at) <= 2 * best + STALE_NS;
        (soon || finish(at) <= self.all_arrived_ns(conn, all())).then_some(at)
    }

    /// Time at which all queued data would have arrived if these paths shared it by their rates: a
    /// slow path is worth using for data that arrives earlier.
    fn all_arrived_ns(&self, conn: &Conn, paths: impl Iterator<Item = usize>) -> u64 {
        let sends = conn.tx.bulk.iter().take(LOOK_AHEAD);
        let sends = sends.filter_map(|&key| self.ops.sends.get(key));
        let waiting: u64 = sends.map(|s| s.head.total.saturating_sub(s.next)).sum();
        let (queued, rate) = paths.fold((waiting, 0), |(queued, rate), i| {
            let path = &conn.paths[i];
            let of_all = rate + path.congestion.share_bytes_per_s();
            (queued + path.ring.in_flight(), of_all)
        });
        product_over(queued, NS_PER_S, rate.max(1))
    }

    /// The path of small packets, if an eager message is all there is to send. Then no acks wait on
    /// another path until they leave alone, at either end; and for a single message, measured rates
    /// do not tell which path finishes first.
    fn lone_path(&self, conn: &Conn) -> Option<usize> {
        let mut waiting = conn.tx.bulk.iter().chain(&conn.tx.queue);
        let send = self.ops.sends.get(*waiting.next()?)?;
        if waiting.next().is_some() {
            return None;
        }
        let left = match send.kind {
            SendKind::Queued => send.head.total,
            SendKind::Eager => send.upto.saturating_sub(send.next),
            SendKind::Rendezvous | SendKind::Reply => return None,
        };
        let at = conn.small_path(None, false, self.local.full)?;
        let path = &conn.paths[at];
        (path.healthy()
            && path.ring.in_flight() + left <= PIGGYBACK_MAX.min(path.congestion.cwnd()))
        .then_some(at)
    }

    /// Builds a packet with one full fragment of the next bulk message; `segment`: it continues a
    /// batch of packets of that length.
    pub(crate) fn bulk_packet(
        &mut self,
        now: u64,
        conn: &mut Box<Conn>,
        at: usize,
        segment: Option<usize>,
        out: &mut [u8],
        spans: &mut Spans,
    ) -> Option<Transmit> {
        let path = &conn.paths[at];
        if !path.window_has_room() {
            return None;
        }
        let limit = segment.unwrap_or_else(|| whole_packet(path.datagram_max()));
        let limit = limit.min(path.datagram_max());
        let key = self.next_bulk(conn, limit, segment.is_some())?;
        if segment.is_some() && self.placed_next(conn, at) {
            return None;
        }
        let mut b = self.begin(conn, limit, out, spans);
        let send = self.ops.sends.get(key)?;
        let offset = send.next;
        let begins = send.kind == SendKind::Eager && offset == 0;
        let most = (send.upto - offset).min(self.cfg.fragment_max as u64);
        let pushed = self.push_data(key, offset, most as u32, &mut b);
        if let Some(len) = pushed {
            self.ops.advance(key, offset + len as u64);
            if len == self.cfg.fragment_max {
                self.push_more(key, &mut b);
            }
            self.leave_bulk(conn, key);
            let ended = conn.tx.bulk.front() != Some(&key);
            if ended {
                self.add_acks(now, conn, at, &mut b);
                add_credit(conn, &mut b);
            }
            // A whole fragment stays alone, so that a run can follow it.
            if (begins || ended) && limit <= self.cfg.fragment_max as usize {
                self.fill_up(conn, at, limit, &mut b);
            }
        }
        let alone = pushed.is_none() && segment.is_none() && lone_hello(conn, at);
        let packet = self.finish(now, conn, at, b, pushed.is_none() && !alone, !alone);
        // Without reliability no ack will come.
        conn.session.hello_acked |= alone && !self.cfg.reliable;
        packet
    }

    /// True if the acks of path `at`, and credit, need no packet of their own: the next packet on
    /// it, a write or the end of a message, takes them along. (A packet for them costs a system
    /// call at both ends.) `urgent`: some are due and must not wait for several messages.
    pub(crate) fn acks_piggyback(&self, conn: &Conn, at: usize, urgent: bool) -> bool {
        let only_acks = !conn.paths[at].probing.is_requested()
            && conn.session.hello_acked
            && !conn.has_control();
        let only_acks = only_acks && !conn.reachability.echoes;
        let behind = conn.tx.bulk.len() + conn.tx.queue.len();
        let write = || {
            let more = conn.credit.is_due() || !conn.tx.queue.is_empty();
            !more && self.writes_next(conn, at)
        };
        let end = || (!urgent || behind == 1) && self.ends_soon(conn, at);
        only_acks && behind > 0 && (write() || end()) && self.bulk_path(conn) == Some(at)
    }

    /// True if a message ends within the next packets of bulk, and no queued message fits a packet
    /// with others.
    fn ends_soon(&self, conn: &Conn, at: usize) -> bool {
        let queued = conn
            .tx
            .queue
            .front()
            .and_then(|&key| self.ops.sends.get(key));
        let path = &conn.paths[at];
        let limit = path.datagram_max() - path.acks.ack_len();
        if queued.is_some_and(|send| !self.is_bulk(conn, send, limit)) {
            return false;
        }
        let begun = conn
            .tx
            .bulk
            .front()
            .and_then(|&key| self.ops.sends.get(key));
        let left = match (begun, queued) {
            (Some(send), _) => send.upto.saturating_sub(send.next),
            (None, Some(send)) => send.head.total,
            (None, None) => return false,
        };
        left <= PIGGYBACK_MAX
    }

    /// True if an unsent message leaves eagerly in more than one packet.
    fn is_bulk(&self, conn: &Conn, send: &SendXfer, limit: usize) -> bool {
        let total = send.head.total;
        let fits = HEADER_LEN + EAGER_LEN + align8(total as usize) <= limit;
        !(fits && self.undivided(total)) && self.goes_eager(conn, send)
    }

    /// Fills the rest of the last packet of a message with the next message, or with padding: a
    /// shorter packet would end the batch (the kernel cuts batches into packets of one length) or
    /// make all packets of the next batch as short.
    fn fill_up(&mut self, conn: &mut Conn, at: usize, limit: usize, b: &mut Builder<'_, '_>) {
        let Some(key) = self.next_bulk(conn, limit, true) else {
            return;
        };
        if self.placed_next(conn, at) {
            return;
        }
        let next = self.ops.sends.get(key).map(|send| (send.next, send.upto));
        if let Some((offset, upto)) =
            next.filter(|_| b.writer.fits(EAGER_LEN, BLOCK_BYTES as usize))
        {
            let most = (upto - offset).min(self.cfg.fragment_max as u64);
            if let Some(len) = self.push_data(key, offset, most as u32, b) {
                self.ops.advance(key, offset + len as u64);
                self.leave_bulk(conn, key);
            }
        }
        let pad = |len: usize| Frame::Pad {
            len: len as u16,
            head: 0,
        };
        if let Some(room) = b.writer.room().checked_sub(pad(0).head_len()) {
            b.control(&pad(room), None);
        }
    }

    /// The message that bulk continues with: one that was begun, or the next eager message. In a
    /// batch it must be too long for one packet; otherwise `add_heads` has just rejected it (too
    /// long for the path of small packets, or beside HELLO, or no window there).
    fn next_bulk(&mut self, conn: &mut Conn, limit: usize, follows: bool) -> Option<Key> {
        while let Some(&key) = conn.tx.bulk.front() {
            match self.ops.sends.get(key) {
                Some(send) if send.next < send.upto => return Some(key),
                _ => drop(conn.tx.bulk.pop_front()),
            }
        }
        let &key = conn.tx.queue.front()?;
        let send = self.ops.sends.get(key)?;
        let total = send.head.total;
        let leaves = match follows {
            true => self.is_bulk(conn, send, limit),
            false => self.goes_eager(conn, send),
        };
        if !leaves {
            return None;
        }
        conn.tx.queue.pop_front();
        conn.credit.spend(Credit::cost(total));
        self.start(key, SendKind::Eager);
        self.ops.sends.get_mut(key)?.in_bulk = true;
        conn.tx.bulk.push_front(key);
        Some(key)
    }

    pub(crate) fn leave_bulk(&mut self, conn: &mut Conn, key: Key) {
        let Some(send) = self.ops.sends.get_mut(key) else {
            return;
        };
        if send.next >= send.upto && !send.skip() {
            send.in_bulk = false;
            conn.tx.bulk.pop_front();
        }
    }

    /// Writes the heads of up to `most` more packets of a batch, each `batch.segment` long, one
    /// after another in `out`. `model`: head of the packet before them. `None`: the next fragment
    /// is not a whole one of the same message; `poll_transmit` builds it.
    pub fn continue_bulk(
        &mut self,
        now_ns: u64,
        batch: &Batch,
        model: &FragmentHead,
        out: &mut [u8],
        most: usize,
    ) -> Option<Run> {
        if self.cfg.errs(Mutation::ReuseNumber) {
            return None;
        }
        let mut conn = self.take(batch.peer)?;
        let run = self.run(now_ns, &mut conn, batch, model, out, most);
        self.put(conn);
        run
    }

    fn run(
        &mut self,
        now: u64,
        conn: &mut Conn,
        batch: &Batch,
        model: &FragmentHead,
        out: &mut [u8],
        most: usize,
    ) -> Option<Run> {
        let segment = batch.segment;
        let fragment = segment.checked_sub(FRAGMENT_HEAD_LEN)? as u64;
        let &key = conn.tx.bulk.front()?;
        let send = self.ops.sends.get_mut(key)?;
        let flags = send.fragment_flags();
        if !model.is_of(send.head.number, flags) || fragment == 0 || fragment % BLOCK_BYTES != 0 {
            return None;
        }
        // The fragment with the last wanted byte requests an ack, so it is not part of a run.
        let end = send.upto.min(match send.urgent {
            true => send.wanted.saturating_sub(1),
            false => u64::MAX,
        });
        let path = &mut conn.paths[batch.path];
        let first = send.next;
        let number = path.ring.next_number();
        let left = end.saturating_sub(first) / fragment;
        let room = path.packets_that_fit(segment, self.cfg.reliable);
        let most = most.min(room.min(left) as usize);
        let mut packets = 0;
        for packet in out.chunks_exact_mut(segment).take(most) {
            model.write(packet, number + packets as u64, send.next);
            send.next += fragment;
            packets += 1;
        }
        if packets == 0 {
            return None;
        }
        let what = (key, first, fragment as u32);
        let when = (path.congestion.delivered(), now);
        let reliable = self.cfg.reliable && !model.is_native();
        match reliable {
            true => path.ring.push_fragments(what, packets, segment, when),
            false => (0..packets).for_each(|_| path.ring.push(&[], segment, when.0, now)),
        }
        path.probing.on_run_sent(reliable);
        path.stats.packets_sent += packets as u64;
        path.stats.bytes_sent += (packets * segment) as u64;
        if !reliable {
            send.acked
                .insert(first / BLOCK_BYTES, blocks(send.next - first));
            self.pending.native_done.push(key);
        }
        let run = Run {
            packets,
            handle: send.handle,
            offset: first,
            fragment: fragment as usize,
            summed: send.head.flags & FLAG_UNSUMMED == 0,
            src_id: self.local.id,
            number: send.head.number,
            reply: send.kind == SendKind::Reply,
        };
        conn.stats.queue_max = conn.stats.queue_max.max(conn.waiting() as u64);
        self.stats.queue_max = self.stats.queue_max.max(conn.stats.queue_max);
        if model.is_native() {
            self.noted_native(now, conn, batch.path, (number, packets as u64));
        }
        self.leave_bulk(conn, key);
        Some(run)
    }
}

impl Path {
    /// Time at which `bytes` more would have arrived, by the measured rate.
    fn finish_ns(&self, bytes: u64) -> u64 {
        // Unmeasured: 1 GB/s, so that the path is tried.
        let rate = match self.congestion.share_bytes_per_s() {
            0 => 1 << 30,
            rate => rate,
        };
        let queued = self.ring.in_flight() + bytes;
        product_over(queued, NS_PER_S, rate) + self.rtt.half_ns()
    }

    /// Packets of `segment` bytes that may leave while the window is not full before each.
    fn packets_that_fit(&self, segment: usize, reliable: bool) -> u64 {
        let window = self.congestion.room(self.ring.in_flight());
        match reliable {
            true => window.div_ceil(segment as u64),
            // No packet waits for an ack.
            false if window > 0 => u64::MAX,
            false => 0,
        }
    }
}

/// Length of a batch's packets, at most `limit`, with whole blocks.
fn whole_packet(limit: usize) -> usize {
    let block = BLOCK_BYTES as usize;
    match limit.saturating_sub(FRAGMENT_HEAD_LEN) / block {
        0 => limit,
        n => FRAGMENT_HEAD_LEN + n * block,
    }
}

/// True if HELLO leaves alone on the path because a block does not fit beside it (IPv4's minimum
/// MTU): once, until it is acknowledged and blocks leave without it.
pub(crate) fn lone_hello(conn: &Conn, at: usize) -> bool {
    !conn.session.hello_acked && conn.paths[at].ring.waiting() == 0
}
