//! Turns of an endpoint: the application polls and posts, the thread wakes, the engine's actions
//! are checked against the truth, and its packets go to the network.

use crate::base::spare;
use crate::machine::host::{index_of, Machine};
use crate::machine::log::{Entry, Log};
use crate::machine::out::Out;
use crate::network::sums::{decrypted, seed_of};
use crate::run::frames::frames_text;
use crate::traffic::writes::swap_datagrams;
use crate::truth::messages::Put;
use crate::world::endpoint::Endpoint;
use crate::world::state::{Next, World};
use crate::world::trace::Trace;
use marline_checksum::{crc32c, sum, Algorithm};
use marline_proto::{sum_seed, DropReason, Event, Node};
use marline_wire::{DirectHead, Frame, Header, Packet, FLAG_PUT, FLAG_READ_REPLY, FLAG_UNSUMMED};

/// Polls per turn.
const POLLS_MAX: u32 = 64;
/// Successive empty polls after which a turn ends. (Packets on rails that were not polled are left
/// for the next turn.)
const EMPTY_POLLS: u32 = 6;
/// Least polling interval of an application that polls without pause.
const TOUCH_NS: u64 = 300_000;
/// Delay of an alarm at least (`ALARM_NS` of the engine's thread).
const ALARM_NS: u64 = 100_000;
/// Pause between two polls while a socket is full.
const BLOCKED_NS: u64 = 20_000;
/// Clock step per reading while a close waits.
const CLOSE_LOOK_NS: u64 = 50_000_000;
/// Longest time by which a sleep exceeds the request.
const SLACK_NS: u64 = 50_000;

impl World {
    /// A turn of an endpoint.
    pub(crate) fn run(&mut self, e: u32) {
        let ep = &self.eps[e as usize];
        if !ep.runs() || ep.held_until > self.now {
            return;
        }
        let back = ep.away_until();
        if back > self.now {
            return self.wake(e, back);
        }
        self.turn(e);
        self.plan(e);
    }

    pub(crate) fn turn(&mut self, e: u32) {
        let before = self.hash;
        let read = |machine: &Machine| (machine.taken(), machine.events());
        let taken = read(&self.eps[e as usize].machine);
        self.set_clock(e);
        self.follow_addresses(e);
        let mut steps = false;
        if self.eps[e as usize].computing == 0 {
            self.poll(e);
            steps = self.eps[e as usize].app.next_at <= self.now;
            if steps {
                self.app_step(e);
            }
        }
        self.thread(e);
        self.check_bounds(e);
        // Packets for an earlier process of this host have no effect, but count as activity, and so
        // does the end of each of many writes.
        let came = read(&self.eps[e as usize].machine) != taken;
        let busy = steps || came || self.hash != before || self.is_blocked(e);
        self.check_spinning(e, busy);
    }

    /// True if the queue of a rail is full.
    fn is_blocked(&self, e: u32) -> bool {
        let machine = &self.eps[e as usize].machine;
        let local = machine.peek_now();
        let wires = machine.wires();
        wires.ports.iter().any(|p| p.blocked_until(local).is_some())
    }

    fn set_clock(&mut self, e: u32) {
        let ep = &self.eps[e as usize];
        ep.machine.set_now(self.now + ep.clock_ns);
    }

    /// Polls the application's queues while it knows of more entries or packets wait.
    fn poll(&mut self, e: u32) {
        let mut empty = 0;
        for _ in 0..POLLS_MAX {
            let taken = self.eps[e as usize].machine.taken();
            let left = self.read_queues(e);
            let ep = &self.eps[e as usize];
            let (came, waiting) = (ep.machine.taken() != taken, ep.machine.waiting());
            empty = if came || left { 0 } else { empty + 1 };
            if empty == EMPTY_POLLS || !(waiting || left || came && ep.habits.looks_twice) {
                break;
            }
        }
        self.eps[e as usize].polled_at = self.now;
    }

    /// The application reads its queues until they are empty.
    pub(crate) fn read_all(&mut self, e: u32) {
        let unread = |ep: &Endpoint| ep.due.iter().map(|due| due.len()).sum::<usize>();
        let mut before = usize::MAX;
        while self.read_queues(e) && unread(&self.eps[e as usize]) < before {
            before = unread(&self.eps[e as usize]);
        }
    }

    /// Reads the queues once. Returns whether there is more to read.
    fn read_queues(&mut self, e: u32) -> bool {
        for which in 0..2 {
            let ep = &self.eps[e as usize];
            let cq = ep.cqs[which];
            if which == 1 && cq == ep.cqs[0] {
                break;
            }
            let most = ep.habits.batch;
            let read = ep.engine.cq_read(cq, &mut self.entries[..most]);
            self.absorb(e);
            match read {
                Ok(n) => {
                    for i in 0..n {
                        let entry = self.entries[i];
                        self.read_entry(e, which, &entry);
                    }
                }
                Err(()) => match self.eps[e as usize].engine.cq_take_error(cq) {
                    Some(entry) => self.read_entry(e, which, &entry),
                    None => self.broken(e, "an error entry that is not there".into()),
                },
            }
        }
        // A read stops before an error entry, so the number read does not tell whether more is
        // there.
        self.eps[e as usize].due.iter().any(|due| !due.is_empty())
    }

    /// Makes up for the polls of an application that polls continuously.
    pub(crate) fn touch(&mut self, e: u32) {
        let ep = &self.eps[e as usize];
        let idle = self.now - ep.polled_at;
        let here = ep.held_until.max(ep.away_until()) <= self.now;
        if ep.runs() && ep.computing == 0 && here && idle > TOUCH_NS {
            self.set_clock(e);
            self.eps[e as usize].engine.progress();
            self.absorb(e);
            self.eps[e as usize].polled_at = self.now;
        }
    }

    /// The application closes its endpoint.
    pub(crate) fn close(&mut self, e: u32) {
        self.set_clock(e);
        let ep = &mut self.eps[e as usize];
        // The close waits for its last acks within the call, so time must pass quickly.
        ep.machine.set_look(CLOSE_LOOK_NS);
        ep.last_rails = ep.rails();
        ep.engine.ep_close(ep.ep);
        // No peer could answer while this clock ran ahead, so live peers may have been declared
        // dead.
        ep.closed = true;
        self.absorb(e);
        let ep = &mut self.eps[e as usize];
        let left = ep
            .engine
            .inspect(|core| (core.pool_bytes(), core.open_ops()));
        if left != ((0, 0), (0, 0)) {
            self.broken(e, format!("a closed endpoint keeps {left:?}"));
        }
    }

    /// The progress thread's turn, if due.
    fn thread(&mut self, e: u32) {
        let now = self.now;
        let ep = &mut self.eps[e as usize];
        let rung = ep.alarm_at <= now;
        if !ep.threaded || ep.closed || !(rung || ep.thread_at <= now) {
            return;
        }
        if rung {
            ep.alarm_at = u64::MAX;
        }
        let (next, armed) = ep.engine.thread_turn(rung);
        ep.armed = armed;
        ep.thread_at = next.saturating_sub(ep.clock_ns).max(now + 1_000);
        ep.thread_at += self.rng.below(SLACK_NS);
        self.absorb(e);
        if armed && self.eps[e as usize].machine.waiting() {
            self.wake_thread(e);
        }
    }

    /// A packet wakes the thread if it sleeps on the rails' descriptors.
    pub(crate) fn wake_thread(&mut self, e: u32) {
        let at = self.now + self.rng.range(5_000, 60_000);
        let ep = &mut self.eps[e as usize];
        if ep.armed && ep.threaded {
            ep.thread_at = ep.thread_at.min(at);
        }
    }

    /// Schedules the endpoint's next run.
    fn plan(&mut self, e: u32) {
        let ep = &self.eps[e as usize];
        let mut next = u64::MAX;
        if ep.threaded {
            next = ep.alarm_at;
        }
        // While the application polls, ticks of the thread find no work, and are skipped until
        // there is some. (Otherwise most turns would be such ticks.)
        if ep.threaded && ep.computing > 0 {
            next = next.min(ep.thread_at);
        }
        if ep.computing == 0 {
            let look = |core: &marline_engine::Core<_>| (core.next_deadline(), core.has_output());
            let (deadline, output) = ep.engine.inspect(look);
            let wires = ep.machine.wires();
            let local = ep.machine.peek_now();
            let free = wires.ports.iter().filter_map(|p| p.blocked_until(local));
            let free = free.min().filter(|_| output);
            if ep.threaded && output {
                next = next.min(ep.thread_at);
            }
            if let Some(at) = free {
                next = next.min(at.saturating_sub(ep.clock_ns).max(self.now + 1_000));
            } else if output {
                next = next.min(self.now + 1_000);
            }
            if let Some(deadline) = deadline {
                // Work that is due without room stays due, and is retried at intervals.
                let pause = if free.is_some() { BLOCKED_NS } else { 1 };
                next = next.min(deadline.saturating_sub(ep.clock_ns).max(self.now + pause));
            }
            // There are more packets, or entries that the polls of one turn did not reach.
            if ep.machine.waiting() || ep.due.iter().any(|due| !due.is_empty()) {
                next = next.min(self.now + 500);
            }
            next = next.min(ep.app.next_at.max(self.now + 1));
        }
        if next != u64::MAX {
            self.wake(e, next);
        }
    }

    /// Processes the engine's actions of its last call.
    pub(crate) fn absorb(&mut self, e: u32) {
        // Most calls have no effect.
        if !self.eps[e as usize].machine.take_stir() {
            return;
        }
        let mut log = self.eps[e as usize].machine.log();
        std::mem::swap(&mut *log, &mut self.log);
        drop(log);
        let mut log = std::mem::take(&mut self.log);
        for entry in &log.entries {
            self.take_entry(e, entry, &log);
        }
        log.clear();
        self.log = log;
        self.settle_overwritten(e);
        self.poll_windows(e);
        self.check_cells(e);
        let ep = &mut self.eps[e as usize];
        if ep.machine.take_alarm() {
            ep.alarm_at = self.now + ALARM_NS + self.rng.below(SLACK_NS);
            let at = ep.alarm_at;
            self.wake(e, at);
        }
        let mut wires = self.eps[e as usize].machine.wires();
        let dials = std::mem::take(&mut wires.dials);
        let remakes = std::mem::take(&mut wires.remakes);
        let pulls = std::mem::take(&mut wires.pulls);
        let announcing = std::mem::take(&mut wires.announcing);
        let asks = dials.is_empty() && remakes.is_empty() && pulls.is_empty();
        let none = asks && announcing.is_empty();
        if wires.outbox.is_empty() && none {
            return;
        }
        let mut outbox = std::mem::take(&mut wires.outbox);
        drop(wires);
        dials
            .into_iter()
            .for_each(|(rail, to)| self.dial(e, rail, to));
        remakes
            .into_iter()
            .for_each(|(rail, to)| self.remake(e, rail, to));
        let host = self.eps[e as usize].host;
        for rail in announcing {
            self.tell_neighbours((host, rail));
        }
        for read in pulls {
            self.launch_read(e, read);
        }
        for out in outbox.drain(..) {
            self.mail(e, out);
        }
        self.eps[e as usize].machine.wires().outbox = outbox;
    }

    fn take_entry(&mut self, e: u32, entry: &Entry, log: &Log) {
        let result = match *entry {
            Entry::Ingested {
                src,
                at,
                result,
                upto,
            } => {
                return match log.packet(at) {
                    Some(bytes) => self.ingested(e, src, bytes, result, upto),
                    None => self.broken(e, "took a packet that no rail handed over".into()),
                };
            }
            Entry::Said(event, who) => {
                if self.tracing {
                    let now = self.now;
                    self.eps[e as usize].note(now, Trace::Said(event));
                }
                match event {
                    Event::PeerDead { .. } if crate::network::strangers::is_stranger(who) => Ok(()),
                    Event::PeerDead { refused, .. } => self.peer_dead(e, (who, refused)),
                    Event::PutAsked { key, addr, len, .. } => {
                        self.put_asked(e, who, (key, addr, len))
                    }
                    Event::ReadAsked {
                        number,
                        key,
                        addr,
                        len,
                        ..
                    } => self.read_asked(e, (who, number), (key, addr, len)),
                    Event::Pulled {
                        number, at, len, ..
                    } => self.pulled(e, (who, number), (at, len)),
                    Event::RpcArrived { head, .. } => self.called(e, who, head.number),
                    Event::PeerMismatch { .. } => Err("settings are the same everywhere".into()),
                    _ => Ok(()),
                }
            }
            Entry::Sent(0, _) => Ok(()),
            Entry::Sent(context, end) => self.sent(e, context as u32 - 1, end),
            Entry::DataFollows(context) => self.data_follows(e, context as u32 - 1),
            Entry::PartsDone(who, key) => self.parts_done(e, (who, key)),
            Entry::Completed(entry) => self.completed(e, &entry),
        };
        if let Err(text) = result {
            self.broken(e, text);
        }
    }

    /// The node processed a packet.
    fn ingested(
        &mut self,
        e: u32,
        src: u32,
        bytes: &[u8],
        result: Result<(), DropReason>,
        upto: u64,
    ) {
        let clear = decrypted(&self.setup, bytes);
        let bytes = clear.as_deref().unwrap_or(bytes);
        let seal = u32::from_le_bytes([bytes[0], bytes[1], bytes[2], bytes[3]]);
        let Ok(packet) = Packet::parse(bytes, |_| seal) else {
            return self.broken(e, "took a packet that does not parse".into());
        };
        let header = &packet.header;
        self.mix(&[
            self.now,
            e as u64,
            header.number,
            header.path as u64,
            result.is_ok() as u64,
        ]);
        let ep = &mut self.eps[e as usize];
        if self.tracing {
            let text = format!("{result:?} {}", frames_text(&packet));
            ep.note(self.now, Trace::Came(src, header.path, header.number, text));
        }
        if header.dst_token != ep.token && result != Err(DropReason::Token) {
            return self.broken(e, format!("took a forged packet: {result:?}"));
        }
        self.count_came(e, src, bytes.len(), &packet);
        if self.is_strange((e, src), header, result.is_ok()) {
            return;
        }
        use DropReason::{CorruptPayload, Duplicate, NoMemory, Unwritten};
        // Every genuine packet of the peer is a sign of life, even if it is late or useless.
        let heard = matches!(
            result,
            Ok(()) | Err(CorruptPayload | Duplicate | NoMemory | Unwritten)
        );
        if heard && self.eps.get(src as usize).is_some_and(|there| !there.alive) {
            self.eps[e as usize].last_words.insert(src, self.now);
        }
        if !matches!(result, Ok(()) | Err(CorruptPayload | NoMemory | Unwritten)) {
            return;
        }
        let packet_of = (src, header.path, header.number);
        let keyed = self.setup.node.key_mark != 0;
        if keyed && result.is_ok() && !self.eps[e as usize].taken.insert(packet_of) {
            return self.broken(e, format!("took packet {} again", header.number));
        }
        if src as usize >= self.eps.len() {
            return self.broken(e, "took a packet of nobody".into());
        }
        self.land(e, src, &packet, result.is_ok());
        self.matched_now(e, src, upto);
    }

    /// Records the heads and payloads of a packet. `taken`: the node accepted the whole packet.
    fn land(&mut self, e: u32, src: u32, packet: &Packet<'_>, taken: bool) {
        let algorithm = Algorithm::from_u8(packet.header.algorithm).unwrap_or_default();
        for (frame, payload) in packet.frames() {
            let (number, offset, want, head, flags) = match frame {
                Frame::Eager(f) => (f.head.number, 0, Some(f.sum), true, f.head.flags),
                Frame::Data(f) if f.flags & FLAG_READ_REPLY == 0 => {
                    (f.number, f.offset, Some(f.sum), false, f.flags)
                }
                Frame::Rts(f) => (f.head.number, 0, None, true, 0),
                Frame::Written(w) => {
                    self.land_written((e, src), &packet.header, &w, taken);
                    continue;
                }
                _ => continue,
            };
            let Some(uid) = self.truth.find(src, e, number) else {
                return self.broken(e, format!("took message {number} of {src}: never sent"));
            };
            let msg = &mut self.truth.msgs[uid as usize];
            msg.head_seen |= head;
            // (The bytes of an eager remote write may come before its place is known.)
            let closed = |put: Put| put.asked && !put.open;
            if msg.put.is_some() && flags & FLAG_PUT != 0 {
                *self.troubles.entry("eager put").or_default() += 1;
            }
            if msg.call.is_none() && msg.put.is_some_and(closed) {
                continue; // without a place
            }
            let number_of = sum_seed(packet.header.src_id, number, false, offset, payload.len());
            let seed = seed_of(&self.setup, &packet.header, number_of);
            let algorithm = match flags & FLAG_UNSUMMED {
                0 => algorithm,
                _ => Algorithm::None,
            };
            let call = msg.call.is_some();
            if msg.put.is_some() && !call {
                self.check_shown(e, uid, (offset, payload.len() as u64));
            }
            if want != Some(sum(algorithm, seed, payload)) {
                continue;
            }
            let msg = &mut self.truth.msgs[uid as usize];
            let right = match &msg.call {
                Some(call) => call.has(offset, payload),
                None => self.content.slice(msg.base, offset, payload.len()) == payload,
            };
            if !right {
                let text = format!("wrong bytes pass their sum: message {uid} at {offset}");
                return self.broken(src, text);
            }
            msg.land(offset, payload.len() as u64);
        }
    }

    /// Applies the node's matches to the plain model.
    fn matched_now(&mut self, e: u32, src: u32, upto: u64) {
        let from = self.eps[e as usize].matched.insert(src, upto).unwrap_or(0);
        for number in from..upto {
            let Some(uid) = self.truth.find(src, e, number as u32) else {
                return self.broken(e, format!("matched message {number} of {src}: never sent"));
            };
            let msg = &mut self.truth.msgs[uid as usize];
            if msg.arrived || !msg.head_seen {
                let text = format!("matched message {uid} twice or without its head");
                return self.broken(e, text);
            }
            msg.arrived = true;
            if msg.put.is_some() || msg.call.is_some() {
                continue;
            }
            let found = self.eps[e as usize]
                .plain
                .arrive(uid, &self.truth.msgs[uid as usize]);
            if let Some(found) = found {
                self.note_match(e, found);
            }
        }
    }

    /// Sends a batch, at once or when its process runs again.
    fn mail(&mut self, e: u32, out: Out) {
        let ep = &self.eps[e as usize];
        let at = out.at.saturating_sub(ep.clock_ns).max(self.now);
        // Packets sent at the time of resumption come after the held packets.
        if ep.held_until >= self.now.max(1) {
            let until = ep.held_until;
            self.held.push_back((e, out));
            self.push(until, Next::Release);
            return;
        }
        self.post(e, out, at);
    }

    /// Sends held batches. Batches of one time were held in order.
    pub(crate) fn release(&mut self) {
        let Some(at) =
            (self.held.iter()).position(|h| self.eps[h.0 as usize].held_until <= self.now)
        else {
            return;
        };
        if let Some((e, out)) = self.held.remove(at) {
            if self.eps[e as usize].alive {
                self.post(e, out, self.now);
            }
        }
    }

    fn post(&mut self, e: u32, mut out: Out, at: u64) {
        if self.is_answer(e, &out, at) {
            return;
        }
        let lost = self.rng.ppm(self.net.packet_faults.batch_drop);
        self.strike(e, &out);
        if let Some(head) = DirectHead::parse(&out.bytes).filter(|_| out.direct) {
            self.net.stats.direct += 1;
            let mut bytes = std::mem::take(&mut out.bytes);
            let packet = head.packet(&bytes);
            if !packet.is_empty() {
                self.check_packet(e, packet, out.segment);
            }
            if self.setup.direct_shuffled && self.rng.one_in(8) {
                let swapped = swap_datagrams(&mut bytes, out.segment, &mut self.rng);
                self.net.stats.shuffled += swapped as u64;
            }
            self.launch(e, &out, bytes, at, lost);
            return;
        }
        for packet in out.bytes.chunks(out.segment) {
            self.check_packet(e, packet, out.segment);
        }
        if let Some(out) = self.hold_if_evicted(e, out) {
            self.leave(e, out, at, lost);
        }
    }

    /// Puts a batch on the network.
    pub(crate) fn leave(&mut self, e: u32, mut out: Out, at: u64, lost: bool) {
        if let Some(write) = &out.write {
            self.launch_write(e, &out, write, at);
        }
        let bytes = std::mem::take(&mut out.bytes);
        if bytes.len() <= out.segment {
            self.launch(e, &out, bytes, at, lost);
            return;
        }
        for packet in bytes.chunks(out.segment) {
            self.launch(e, &out, spare::copy(packet), at, lost);
        }
        spare::give(bytes);
    }

    fn check_packet(&mut self, e: u32, bytes: &[u8], segment: usize) {
        let Ok(packet) = Packet::parse(bytes, crc32c) else {
            let text = format!("built a packet of {} B that does not parse", bytes.len());
            return self.broken(e, text);
        };
        let header = packet.header;
        let dst = index_of(header.dst_id);
        if self.tracing {
            let text = format!("{} (of {segment})", frames_text(&packet));
            let sent = Trace::Sent(dst, header.path, header.number, bytes.len(), text);
            let now = self.now;
            self.eps[e as usize].note(now, sent);
        }
        let beyond = self.truth.credits.leaves(e, dst, &packet).err();
        if let Some(text) = beyond {
            self.broken(e, text);
        }
        self.mix(&[self.now, dst as u64, header.number, bytes.len() as u64]);
        self.check_amplification(e, dst, bytes.len());
        let numbers = &mut self.eps[e as usize].numbers;
        let last = numbers.insert((dst, header.path), header.number);
        if last.is_some_and(|l| header.number <= l) && !self.begins_anew(e, &packet) {
            self.broken(e, format!("packet number {} used again", header.number));
        }
    }
    /// Returns whether a packet may be the first one under numbers that begin anew: a stranger that
    /// was forgotten is known again, since it speaks or since the application sends to it. Numbers
    /// of tagged packets never repeat, as their keys do not change.
    fn begins_anew(&self, e: u32, packet: &Packet<'_>) -> bool {
        let forgotten = |node: &Node| node.stats().strangers_forgotten > 0;
        let header = packet.header;
        header.number == 0
            && header.flags & Header::FLAG_TAGGED == 0
            && self.eps[e as usize].node(forgotten) == Some(true)
    }
}
