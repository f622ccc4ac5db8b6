//! Progress: packets in, timers, packets out. What the nodes say of it goes to `events.rs`.

use crate::api::LogLevel;
use crate::core::Core;
use crate::memory::EngineMemory;
use crate::pack::{fill, fill_run, head_of};
use crate::stats::raise;
use crate::system::{System, Watch};
use crate::writes::Pending;
use marline_checksum::crc32c;
use marline_proto::{DropReason, Mutation, Transmit};
use marline_rails::{RailEvent, RailFault, RailTx, Received, SendOutcome};
use marline_wire::{Packet, ParseError, RailAddr, DIRECT_HEAD_LEN, HEADER_LEN};

/// The shortest packet is one header: two of them are the shortest batch.
const GRO_MIN: usize = 2 * HEADER_LEN - 1;
/// Bytes before those of a direct write, at least.
const HEAD_LINE: usize = 64;
/// Parts of a direct write that came apart follow its beginning within this time.
const STRAYS_NS: u64 = 10_000_000;
/// After an error of the rail that no link event explains, it is tried again so often.
const RETRY_NS: u64 = 100_000_000;

impl<S: System> Core<S> {
    /// Takes what a rail received: one datagram or a batch of equal ones.
    pub fn ingest(&mut self, now: u64, rail: usize, received: &Received<'_>) {
        let (mut rest, mut first) = (received.bytes, None);
        if received.missing > 0 {
            self.rails[rail].strays = (received.missing, now + STRAYS_NS);
        }
        if received.beside > 0 {
            let rail = &mut self.rails[rail];
            // The first of them has the packet, which is counted below, or at least a line of head.
            let longest = rail.tx.caps().datagram_max.max(1);
            let datagrams = (received.beside + HEAD_LINE).div_ceil(longest);
            let below = usize::from(!received.bytes.is_empty());
            rail.counters.wire_packets_received += (datagrams - below) as u64;
            rail.counters.wire_bytes_received += received.beside as u64;
        }
        let mut segment = received.segment;
        // One small datagram in most cases: no batch is that short.
        if segment == 0 && rest.len() <= GRO_MIN {
            segment = rest.len();
        } else if segment == 0 {
            first = Packet::parse(rest, crc32c).ok().map(Packet::alone);
            segment = self.segment_of(rail, first.as_ref()).min(rest.len());
        }
        while !rest.is_empty() {
            let (datagram, after) = rest.split_at(segment.clamp(1, rest.len()));
            let more = self.ingest_one(now, rail, datagram, after, first.take());
            rest = &after[more * datagram.len()..];
        }
    }

    /// Length of the packets in a buffer whose rail does not tell: as long as the first. If that
    /// one is damaged, as long as the last batch's (wrong only costs a repair).
    fn segment_of(&mut self, rail: usize, first: Option<&Packet<'_>>) -> usize {
        let segment = &mut self.rails[rail].segment;
        if let Some(packet) = first {
            *segment = packet.wire_len();
        }
        *segment
    }

    /// Takes a datagram, and those `after` it in its batch that continue it: how many. `parsed`:
    /// the datagram's packet, where that is known already.
    fn ingest_one<'a>(
        &mut self,
        now: u64,
        rail: usize,
        datagram: &'a [u8],
        after: &[u8],
        parsed: Option<Packet<'a>>,
    ) -> usize {
        let counters = &mut self.rails[rail].counters;
        counters.wire_packets_received += 1;
        counters.wire_bytes_received += datagram.len() as u64;
        let Some(packet) = parsed.or_else(|| self.parse(now, rail, datagram, after)) else {
            return 0;
        };
        let dst = packet.header.dst_id;
        let Some(&(_, ep)) = self.by_id.iter().find(|(id, _)| *id == dst) else {
            self.rails[rail].counters.wrong_token += 1;
            return 0;
        };
        let Some(endpoint) = self.eps[ep as usize].as_mut() else {
            return 0;
        };
        let mut memory = EngineMemory {
            recvs: &self.recvs,
            bounces: &mut self.bounces,
            pool: &mut self.pool,
            granted: &mut self.granted,
            rails: &mut self.rails,
            ep,
        };
        let node = &mut endpoint.node;
        let result = node.handle_packet(now, &packet, datagram.len(), &mut memory);
        self.watch.ingested(node, datagram, result);
        let more = match result {
            // A short packet is its batch's last one.
            Ok(peer) if !after.is_empty() && packet.wire_len() == datagram.len() => {
                node.handle_run(now, peer, &packet, after, crc32c, &mut memory)
            }
            _ => 0,
        };
        for datagram in after.chunks(datagram.len()).take(more) {
            self.watch.ingested(node, datagram, result);
        }
        let counters = &mut self.rails[rail].counters;
        counters.wire_packets_received += more as u64;
        counters.wire_bytes_received += (more * datagram.len()) as u64;
        match result {
            Err(DropReason::Token) => counters.wrong_token += 1,
            Err(DropReason::Epoch) => counters.wrong_epoch += 1,
            Err(DropReason::Stranger | DropReason::Nonsense) => counters.unknown += 1,
            Err(DropReason::Algorithm) => counters.wrong_algorithm += 1,
            _ => {}
        }
        more
    }

    /// What a datagram says, if its head is good; each is counted. `after` it in its batch there
    /// is more.
    fn parse<'a>(
        &mut self,
        now: u64,
        rail: usize,
        datagram: &'a [u8],
        after: &[u8],
    ) -> Option<Packet<'a>> {
        let row = &mut self.rails[rail];
        let (left, until) = &mut row.strays;
        let stray = *left > 0 && now <= *until;
        let counters = &mut row.counters;
        match Packet::parse(datagram, crc32c) {
            Ok(packet) => return Some(packet),
            Err(_) if stray => {
                *left = left.saturating_sub(datagram.len());
                counters.torn += 1;
            }
            Err(ParseError::Truncated) => counters.truncated += 1,
            Err(ParseError::Version) => counters.wrong_version += 1,
            Err(ParseError::HeadCrc) if self.cfg.proto.errs(Mutation::TrustHeads) => {
                let claimed = datagram.first_chunk().map_or(0, |c| u32::from_le_bytes(*c));
                return Packet::parse(datagram, |_| claimed).ok();
            }
            Err(ParseError::HeadCrc) => self.on_bad_head(now, rail, datagram, after),
            Err(ParseError::Malformed) => counters.unknown += 1,
        }
        None
    }

    /// A datagram that fails its check is a damaged packet if anything in its head is ours; or a
    /// direct write with a damaged head, if that is so behind this one, and then what is `after`
    /// it are its bytes. Anything else is a stranger's, and says nothing of the rail.
    fn on_bad_head(&mut self, now: u64, rail: usize, datagram: &[u8], after: &[u8]) {
        let mut is_ours = |head: &[u8]| {
            let mut ours = false;
            for endpoint in self.eps.iter_mut().flatten() {
                ours |= endpoint.node.on_bad_head(head);
            }
            ours
        };
        let packet = is_ours(datagram);
        // Cut at a wrong length, the first datagram may end before.
        let mut second = [0; HEADER_LEN];
        let behind = datagram.iter().chain(after).skip(DIRECT_HEAD_LEN);
        second
            .iter_mut()
            .zip(behind)
            .for_each(|(to, from)| *to = *from);
        let written = !packet && is_ours(&second);
        let rail = &mut self.rails[rail];
        match packet || written {
            true => rail.counters.corrupt_heads += 1,
            false => rail.counters.unknown += 1,
        }
        if written {
            rail.strays = (after.len(), now + STRAYS_NS);
        }
    }

    /// Everything that time or the rails ask for; call when a poll brought nothing, and at least
    /// every few polls.
    pub fn tick(&mut self, now: u64) {
        for index in 0..self.eps.len() {
            if let Some(endpoint) = self.eps[index].as_mut() {
                if endpoint.node.next_deadline().is_some_and(|at| at <= now) {
                    endpoint.node.handle_timeouts(now);
                }
            }
        }
        for rail in 0..self.rails.len() {
            while let Some(event) = self.rails[rail].tx.poll_event() {
                self.on_rail_event(now, rail, event);
            }
            self.watch_direct(rail);
            self.watch_room(now, rail);
            if self.watch_writes(now, rail) {
                let outcome = SendOutcome::Fault(RailFault::Down(0));
                self.after_send(now, rail, &RailAddr::NONE, outcome);
            }
            if self.rails[rail].retry_at.is_some_and(|at| at <= now) {
                self.rails[rail].retry_at = None;
                self.set_rail(now, rail, true);
            }
        }
        self.settle();
        self.sum_ahead();
    }

    /// Tells the nodes that their owner polls (see `Node::on_poll`).
    #[inline]
    pub fn on_poll(&mut self, now: u64, by_thread: bool) {
        for endpoint in self.eps.iter_mut().flatten() {
            endpoint.node.on_poll(now, by_thread);
        }
        if by_thread {
            return;
        }
        if self.polled_ns != 0 {
            raise(
                &mut self.stats.poll_gap_max_ns,
                now.saturating_sub(self.polled_ns),
            );
        }
        self.polled_ns = now;
        self.collector.polled(now);
    }

    /// Tells the nodes that nothing is left to be read.
    #[inline]
    pub fn caught_up(&mut self) {
        for endpoint in self.eps.iter_mut().flatten() {
            endpoint.node.caught_up();
        }
    }

    fn on_rail_event(&mut self, now: u64, rail: usize, event: RailEvent) {
        match event {
            RailEvent::Fault(RailFault::Down(_)) => self.set_rail(now, rail, false),
            RailEvent::Fault(RailFault::Up) => self.set_rail(now, rail, true),
            RailEvent::Refused(addr) => {
                self.rails[rail].counters.icmp_errors += 1;
                for endpoint in self.eps.iter_mut().flatten() {
                    endpoint.node.on_refused(now, rail, &addr);
                }
            }
            RailEvent::TooBig(addr, max) => {
                for endpoint in self.eps.iter_mut().flatten() {
                    endpoint.node.on_too_big(now, rail, &addr, max);
                }
            }
            RailEvent::Written(token) => self.on_written(rail, token),
            RailEvent::ReceiverDrops(n) => self.rails[rail].counters.receiver_drops += n,
        }
    }

    /// The state of a rail's link changed.
    pub fn set_rail(&mut self, now: u64, rail: usize, up: bool) {
        let Some(state) = self.rails.get_mut(rail) else {
            return;
        };
        if state.up != up {
            state.up = up;
            state.counters.downs += !up as u64;
            let word = if up { "is back" } else { "is down" };
            let text = format!("rail {} {word}", state.name);
            self.say(LogLevel::Info, &text);
        }
        self.drop_pending(rail);
        self.rails[rail].told = None;
        for endpoint in self.eps.iter_mut().flatten() {
            endpoint.node.on_rail(now, rail, !up);
        }
    }

    /// Sends all that may leave.
    pub fn flush(&mut self, now: u64) {
        if self.poisoned {
            return; // what it would read may be gone
        }
        if self.full_rails != 0 {
            self.send_pending(now);
        }
        self.deferred = false;
        self.collector.flushed();
        for index in 0..self.eps.len() {
            while self.flush_batch(now, index) {}
        }
        self.send_all_told(now);
        assert!(!self.early.waits(), "what was sent was not built");
        if self.cfg.proto.reliable {
            return;
        }
        self.settle();
    }

    /// Builds and sends one batch of an endpoint; `false`: nothing left that a rail has room for.
    fn flush_batch(&mut self, now: u64, index: usize) -> bool {
        let Some(endpoint) = self.eps[index].as_mut() else {
            return false;
        };
        let (node, stage) = (&mut endpoint.node, self.stages.buffer());
        node.set_full(self.full_rails);
        let Some(first) = node.build(now, stage, &mut self.spans, None) else {
            return false;
        };
        if let Some(outcome) = self.early.settle(&first, stage) {
            self.batch_sent(now, index, &first, (1, first.len), outcome);
            return true;
        }
        if first.written {
            self.send_written(now, index, &first);
            return true;
        }
        fill(
            &mut stage[..first.len],
            &first,
            &self.spans,
            &self.sends,
            &mut self.ahead,
        );
        let (segment, mut model) = (first.len, head_of(stage, &first));
        let caps = self.rails[first.rail].tx.caps();
        let most = caps
            .batch_segments_max
            .min(caps.batch_bytes_max / segment.max(1));
        let (mut count, mut short, mut whole) = (1, 0, first.batch.bulk);
        while whole && count < most {
            let node = &mut endpoint.node;
            let out = &mut stage[count * segment..];
            if let Some(model) = model.take() {
                let run = node.continue_bulk(now, &first.batch, &model, out, most - count);
                if let Some(run) = run {
                    let ahead = &mut self.ahead;
                    fill_run(out, &run, segment, first.algorithm, &self.sends, ahead);
                    count += run.packets;
                    continue;
                }
            }
            let out = &mut out[..segment];
            let Some(next) = node.poll_transmit(now, out, &mut self.spans, Some(&first.batch))
            else {
                break;
            };
            fill(
                &mut out[..next.len],
                &next,
                &self.spans,
                &self.sends,
                &mut self.ahead,
            );
            model = head_of(out, &next);
            (short, count) = (segment - next.len, count + 1);
            whole = short == 0;
        }
        self.send_batch(now, index, &first, (count, count * segment - short));
        true
    }

    /// Sends `count` packets, `len` bytes, of the staging buffer.
    fn send_batch(
        &mut self,
        now: u64,
        index: usize,
        first: &Transmit,
        (count, len): (usize, usize),
    ) {
        // In order: what tells of a direct write before what was built after it.
        if !self.send_told(now, first.rail) {
            return self.batch_sent(now, index, first, (count, len), SendOutcome::Busy);
        }
        let (rail, stage) = (&mut self.rails[first.rail], self.stages.buffer());
        let outcome = (rail.tx).send(&first.to, &stage[..len], first.len, first.flow);
        self.batch_sent(now, index, first, (count, len), outcome)
    }

    /// Draws the conclusions from what the kernel said of a batch.
    fn batch_sent(
        &mut self,
        now: u64,
        index: usize,
        first: &Transmit,
        (count, len): (usize, usize),
        outcome: SendOutcome,
    ) {
        if let Some(endpoint) = self.eps[index].as_mut() {
            endpoint.node.sent(now);
        }
        let rail = &mut self.rails[first.rail];
        rail.counters.send_calls += 1;
        rail.counters.wire_packets_sent += count as u64;
        rail.counters.wire_bytes_sent += len as u64;
        if outcome == SendOutcome::Busy {
            rail.counters.busy += 1;
            let batch = Pending {
                bytes: self.stages.buffer()[..len].to_vec(),
                segment: first.len,
                to: first.to,
                flow: first.flow,
                write: None,
            };
            return self.no_room(now, first.rail, Some(batch));
        }
        self.after_send(now, first.rail, &first.to, outcome);
    }

    pub(crate) fn after_send(
        &mut self,
        now: u64,
        rail: usize,
        to: &RailAddr,
        outcome: SendOutcome,
    ) {
        match outcome {
            SendOutcome::Sent | SendOutcome::Busy => {}
            SendOutcome::TooBig(max) => {
                for endpoint in self.eps.iter_mut().flatten() {
                    endpoint.node.on_too_big(now, rail, to, max);
                }
            }
            SendOutcome::Fault(_) => {
                self.rails[rail].counters.errors += 1;
                self.rails[rail].retry_at = Some(now + RETRY_NS);
                self.set_rail(now, rail, false);
            }
        }
    }
}
