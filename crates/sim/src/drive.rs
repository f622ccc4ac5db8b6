//! What the engine does with a node: packets in, timers, packets out, events.

use crate::endpoint::Trace;
use crate::memory::{Lander, Note, OpKind};
use crate::world::{World, TRUESIZE};
use marline_checksum::{crc32c, sum, Algorithm};
use marline_proto::{sum_seed, Batch, DropReason, Spans, Transmit};
use marline_wire::{Frame, Packet, FLAG_READ_REPLY};

/// Packets taken per run before the rest of the work gets its turn.
const RECEIVE_MAX: usize = 256;
/// Segments and bytes of one super-packet (design rule 8).
const SEGMENTS_MAX: usize = 64;

impl World {
    /// One turn of an endpoint.
    pub(crate) fn run(&mut self, e: u32) {
        let ep = &mut self.eps[e as usize];
        if !ep.alive || ep.closed || ep.stopped > 0 {
            return;
        }
        let local = self.now + ep.clock_ns;
        let polls = ep.computing == 0;
        let before = self.hash;
        if polls {
            ep.node.on_poll(local, false);
        }
        self.socket_news(e, local);
        self.receive_all(e);
        self.eps[e as usize].node.handle_timeouts(local);
        self.drain(e);
        let steps = polls && self.eps[e as usize].app.next_at <= self.now;
        if steps {
            self.app_step(e);
        }
        let blocked = self.transmit_all(e);
        self.drain(e);
        self.check_bounds(e);
        self.check_spinning(e, steps || self.hash != before || blocked.is_some());
        self.plan(e, blocked);
    }

    fn socket_news(&mut self, e: u32, local: u64) {
        let ep = &mut self.eps[e as usize];
        for (rail, down) in std::mem::take(&mut ep.rail_news) {
            ep.node.on_rail(local, rail, down);
        }
        for (rail, to, max) in std::mem::take(&mut ep.too_big) {
            ep.node.on_too_big(local, rail, &to, max);
        }
        for from in std::mem::take(&mut ep.refused) {
            ep.node.on_refused(local, &from);
        }
        self.drain(e);
    }

    /// When the endpoint runs next.
    fn plan(&mut self, e: u32, blocked: Option<u64>) {
        let ep = &self.eps[e as usize];
        let mut next = blocked.unwrap_or(u64::MAX);
        if let Some(deadline) = ep.node.next_deadline() {
            let world = deadline.saturating_sub(ep.clock_ns).max(self.now + 1);
            // While the application computes, the thread sleeps a little longer than asked.
            next = next.min(if ep.computing > 0 {
                world + 50_000
            } else {
                world
            });
        }
        if let Some(until) = blocked {
            next = next.max(self.now + 1_000).min(until);
        }
        if ep.computing == 0 && ep.app.next_at != u64::MAX {
            next = next.min(ep.app.next_at.max(self.now + 1));
        }
        if !ep.inbox.is_empty() {
            next = self.now + 500;
        }
        if ep.node.wants_transmit() && blocked.is_none() {
            next = next.min(self.now + 1_000);
        }
        if next != u64::MAX {
            self.wake(e, next);
        }
    }

    fn receive_all(&mut self, e: u32) {
        for _ in 0..RECEIVE_MAX {
            let ep = &mut self.eps[e as usize];
            let Some((rail, slot)) = ep.inbox.pop_front() else {
                return;
            };
            let bytes = std::mem::take(&mut self.flying[slot as usize].bytes);
            ep.inbox_bytes[rail] -= bytes.len() as u64 + TRUESIZE;
            self.receive(e, &bytes);
            self.flying[slot as usize].bytes = bytes;
            self.free.push(slot);
            self.drain(e);
        }
    }

    fn receive(&mut self, e: u32, bytes: &[u8]) {
        let Ok(packet) = Packet::parse(bytes, crc32c) else {
            self.mix(&[self.now, e as u64, 1]);
            return;
        };
        let src = (packet.header.src_id & 0xffff) as u32;
        let notes = self.notes(e, src, &packet);
        let ep = &mut self.eps[e as usize];
        let local = self.now + ep.clock_ns;
        let mut lander = Lander {
            ops: &mut ep.ops,
            bounces: &mut ep.bounces,
            truth: &mut self.truth,
            content: self.content,
            notes: &notes,
            pair: (src, e),
            wrong: None,
            taken: 0,
        };
        let result = ep
            .node
            .handle_packet(local, &packet, bytes.len(), &mut lander);
        let (wrong, taken) = (lander.wrong, lander.taken);
        let header = &packet.header;
        if self.tracing {
            let text = format!("{result:?} {}", frames_text(&packet));
            ep.note(self.now, Trace::Came(src, header.path, header.number, text));
        }
        self.mix(&[
            self.now,
            e as u64,
            header.number,
            header.path as u64,
            result.is_ok() as u64,
        ]);
        if let Some(text) = wrong {
            self.broken(e, text);
        }
        use DropReason::{Duplicate, Epoch, Gone, Stranger, Token};
        if taken > 0 && matches!(result, Err(Token | Epoch | Stranger | Gone | Duplicate)) {
            self.broken(e, format!("a packet dropped as {result:?} was written"));
        }
        self.matched_now(e, src);
    }

    /// Payloads of a packet; marks the heads that it brings.
    fn notes(&mut self, e: u32, src: u32, packet: &Packet<'_>) -> Vec<Note> {
        let mut notes = Vec::new();
        for (frame, payload) in packet.frames() {
            let (number, reply, offset) = match frame {
                Frame::Eager(eager) => (eager.head.number, false, 0),
                Frame::Data(data) => (data.number, data.flags & FLAG_READ_REPLY != 0, data.offset),
                Frame::Rts(rts) => {
                    self.see_head(e, src, rts.head.number);
                    continue;
                }
                _ => continue,
            };
            if matches!(frame, Frame::Eager(_)) {
                self.see_head(e, src, number);
            }
            let seed = sum_seed(packet.header.src_id, number, reply, offset, payload.len());
            notes.push(Note {
                seed,
                number,
                reply,
                offset,
            });
        }
        notes
    }

    fn see_head(&mut self, e: u32, src: u32, number: u32) {
        if let Some(uid) = self.truth.find(src, e, number) {
            self.truth.msgs[uid as usize].head_seen = true;
        }
    }

    /// Tells the plain model which messages the node matched.
    fn matched_now(&mut self, e: u32, src: u32) {
        if src as usize >= self.eps.len() {
            return;
        }
        let address = self.address_of(src);
        let ep = &mut self.eps[e as usize];
        let peer = ep.node.peer(&address);
        let upto = ep.node.matched_upto(peer);
        let from = ep.matched.insert(peer, upto).unwrap_or(0);
        for number in from..upto {
            let Some(uid) = self.truth.find(src, e, number as u32) else {
                return self.broken(e, format!("matched message {number} of {src}: never sent"));
            };
            let msg = &mut self.truth.msgs[uid as usize];
            if msg.arrived || !msg.head_seen {
                return self.broken(
                    e,
                    format!("matched message {uid} twice or without its head"),
                );
            }
            msg.arrived = true;
            let found = self.eps[e as usize]
                .plain
                .arrive(uid, &self.truth.msgs[uid as usize]);
            if let Some(found) = found {
                self.note_match(e, found);
            }
        }
    }

    /// Sends what the node has to send; when to go on, if a socket is full.
    fn transmit_all(&mut self, e: u32) -> Option<u64> {
        let mut spans = Spans::new();
        let mut follow: Option<Batch> = None;
        let (mut segments, mut bytes, mut lost) = (0, 0, false);
        for _ in 0..4096 {
            let local = self.now + self.eps[e as usize].clock_ns;
            let mut out = std::mem::take(&mut self.out);
            let node = &mut self.eps[e as usize].node;
            let packet = node.poll_transmit(local, &mut out, &mut spans, follow.as_ref());
            self.out = out;
            let Some(t) = packet else {
                if follow.take().is_some() {
                    continue;
                }
                return None;
            };
            if follow.is_none() {
                (segments, bytes) = (0, 0);
                lost = self.rng.ppm(self.net.weather.batch_drop);
            }
            self.fill(e, &t, &spans);
            self.check_number(e, &t, follow.as_ref());
            self.launch(e, t.rail, t.to, t.len, lost);
            (segments, bytes) = (segments + 1, bytes + t.len);
            let segment = follow.map_or(t.len, |f| f.segment);
            let more = t.batch.bulk
                && t.len == segment
                && segments < SEGMENTS_MAX
                && bytes + segment <= marline_wire::PACKET_MAX;
            follow = more.then_some(Batch { segment, ..t.batch });
            if follow.is_none() {
                let host = self.eps[e as usize].host;
                if let Some(until) = self.net.blocked_until(host, t.rail, self.now) {
                    return Some(until);
                }
            }
        }
        None
    }

    /// Fills payloads and sums into the packet in `out`.
    fn fill(&mut self, e: u32, t: &Transmit, spans: &Spans) {
        let algorithm = Algorithm::from_u8(t.algorithm).unwrap_or_default();
        let mut wrong = None;
        for span in spans {
            let ep = &self.eps[e as usize];
            let op = &ep.ops[span.handle as usize];
            let (base, len) = match &op.kind {
                OpKind::Send { uid } => {
                    let msg = &self.truth.msgs[*uid as usize];
                    (msg.base, msg.len)
                }
                OpKind::Serve { base, .. } => (*base, u64::MAX),
                _ => (0, 0),
            };
            if op.done_ns.is_some() || span.offset + span.len as u64 > len {
                wrong = Some(format!("sends {span:?} of a finished or other operation"));
                continue;
            }
            let (at, n) = (span.payload_at as usize, span.len as usize);
            let bytes = self.content.slice(base, span.offset, n);
            self.out[at..at + n].copy_from_slice(bytes);
            let value = sum(algorithm, span.seed, bytes);
            let at = span.sum_at as usize;
            self.out[at..at + 8].copy_from_slice(&value.to_le_bytes());
        }
        let crc = crc32c(&self.out[4..t.head_len]);
        self.out[..4].copy_from_slice(&crc.to_le_bytes());
        if let Some(text) = wrong {
            self.broken(e, text);
        }
    }

    fn check_number(&mut self, e: u32, t: &Transmit, follow: Option<&Batch>) {
        let Ok(packet) = Packet::parse(&self.out[..t.len], crc32c) else {
            return self.broken(e, format!("built a packet that does not parse: {t:?}"));
        };
        let header = packet.header;
        let dst = (header.dst_id & 0xffff) as u32;
        if self.tracing {
            let text = frames_text(&packet);
            let sent = Trace::Sent(dst, header.path, header.number, t.len, text);
            let now = self.now;
            self.eps[e as usize].note(now, sent);
        }
        let beyond = self.truth.credits.leaves(e, dst, &packet).err();
        self.mix(&[self.now, dst as u64, header.number, t.len as u64]);
        if let Some(text) = beyond {
            self.broken(e, text);
        }
        let key = (t.batch.peer, header.path);
        let last = self.eps[e as usize].numbers.insert(key, header.number);
        if last.is_some_and(|l| header.number <= l) {
            self.broken(e, format!("packet number {} used again", header.number));
        }
        if follow
            .is_some_and(|f| t.len > f.segment || f.path != t.batch.path || f.peer != t.batch.peer)
        {
            self.broken(e, format!("packet does not continue its batch: {t:?}"));
        }
    }
}

fn frames_text(packet: &Packet<'_>) -> String {
    let mut text = String::new();
    for (frame, _) in packet.frames() {
        match frame {
            Frame::Eager(f) => {
                text += &format!("eager#{}:{}/{} ", f.head.number, f.len, f.head.total)
            }
            Frame::Data(f) => {
                text += &format!("data#{}@{}+{}/{} ", f.number, f.offset, f.len, f.total);
            }
            Frame::Rts(f) => text += &format!("rts#{}:{} ", f.head.number, f.head.total),
            Frame::Grant(f) => text += &format!("grant#{}:{}/{} ", f.number, f.upto, f.wanted),
            Frame::Ack(f) => {
                let newest: u32 = f.masks.bits.iter().map(|b| b.count_ones()).sum();
                text += &format!("ack {:02x}@{}x{} ", f.path, f.base, newest);
            }
            Frame::Hello(_) => text += "hello ",
            Frame::Read(f) => text += &format!("read#{}:{} ", f.number, f.len),
            other => text += &format!("{other:?} "),
        }
    }
    text
}
