//! Departure and arrival of packets.

use crate::base::spare;
use crate::machine::out::{News, Out, OutWrite};
use crate::machine::place::{port_of, target_of};
use crate::machine::port::TRUESIZE;
use crate::network::forge::{hurt, socket_of, Damage};
use crate::network::strangers::{is_stranger, Seen, FAR};
use crate::network::sums::{replace_payload, REPLACED};
use crate::setup::writes::LATE_NS;
use crate::world::state::{Flying, Next, World};
use marline_rails::RailEvent;
use marline_wire::{DirectHead, Header};

impl World {
    /// Puts a packet on the network.
    pub(crate) fn launch(&mut self, e: u32, out: &Out, mut bytes: Vec<u8>, at: u64, lost: bool) {
        let mut held = false;
        let mut at = at;
        self.net.light = out.light;
        if self.setup.connects(out.rail) && !out.light {
            let Some(leaves) = self.departure_time(e, out.rail, &out.to, at) else {
                self.net.stats.broken += 1;
                return spare::give(bytes);
            };
            (held, at) = (leaves > at, leaves);
        }
        let (from, to) = (self.eps[e as usize].host, out.to);
        let target = target_of(&to);
        let start = (from, out.rail);
        if self.is_swallowed(e, out, start, target) {
            return spare::give(bytes);
        }
        let immediate = out.write.as_ref().and_then(OutWrite::immediate);
        let datagram = bytes.len().min(out.segment);
        let fate = self
            .net
            .send(at, start, target, (bytes.len(), datagram), (lost, held));
        if fate.copies[0].is_none() && !out.light {
            self.lost_part(e, start, target, datagram);
        }
        let stream = self.net.is_stream(out.rail, target.1);
        self.net.light = false;
        let breaks = stream.then(|| self.breaks(e, start, target));
        if let Some(mtu) = fate.too_big {
            let news = News::TooBig(to, mtu);
            let machine = &self.eps[e as usize].machine;
            machine.queue_event(&mut machine.wires(), out.rail, news);
        }
        let direct = DirectHead::parse(&bytes);
        let head = match &direct {
            Some(direct) => direct.lead(),
            None => u16::from_le_bytes([bytes[6], bytes[7]]) as usize,
        };
        self.attract(e, out, &bytes, at);
        let mut copies = fate.copies;
        if direct.is_some() && self.setup.direct_again && self.rng.one_in(8) {
            let late = self.rng.pick(&LATE_NS);
            copies[1] = copies[0].map(|c| (c.0 + self.rng.below(late), Damage::Payload));
        }
        let mut copies = copies.into_iter().flatten().peekable();
        while let Some((at, damage)) = copies.next() {
            let slot = self.new_flight();
            let flying = &mut self.flying[slot as usize];
            flying.bytes = match copies.peek() {
                Some(_) => spare::copy(&bytes),
                None => std::mem::take(&mut bytes),
            };
            flying.to = target;
            flying.port = port_of(&to);
            flying.from = e;
            flying.rail = out.rail;
            flying.reply_to = Some(to);
            flying.breaks = breaks;
            flying.immediate = immediate;
            let damage = match damage {
                Damage::Forged if direct.is_some() => Damage::Head,
                damage => damage,
            };
            self.hurt_flying(slot, head, damage);
            self.under_way(e, out, at);
            self.push(at, Next::Arrive(slot));
        }
        spare::give(bytes);
    }

    /// Damages a packet with a head of this length. In jobs in which payload sums have keys, every
    /// second damaged payload is replaced by one with the same sum without a key.
    fn hurt_flying(&mut self, slot: u32, head: usize, damage: Damage) {
        let bytes = &mut self.flying[slot as usize].bytes;
        let known = (head, self.setup.node.key_mark != 0);
        let keyed = damage == Damage::Payload && self.setup.sums_payloads_with_key();
        let replaces = keyed && self.rng.one_in(2);
        match replaces && replace_payload(bytes, &mut self.rng) {
            true => *self.troubles.entry(REPLACED).or_default() += 1,
            false => hurt(bytes, known, damage, &mut self.rng),
        }
    }

    /// Returns whether a packet that endpoint `e` processed is a stranger's first contact, which
    /// asks for nothing; complains of one that no peer can have sent.
    pub(crate) fn is_strange(&mut self, (e, src): (u32, u32), of: &Header, taken: bool) -> bool {
        if taken && of.number >= FAR {
            self.broken(e, format!("took number {}", of.number));
        }
        is_stranger(src) && self.setup.node.key_mark == 0
    }

    /// Lets strangers act on a packet that they see.
    fn attract(&mut self, e: u32, out: &Out, bytes: &[u8], at: u64) {
        let plain = DirectHead::parse(bytes).is_none() && out.write.is_none();
        if !plain || self.setup.connects(out.rail) {
            return;
        }
        let keyed = self.setup.node.key_mark != 0;
        if !keyed && !self.setup.node.reliable {
            return; // numbers mean nothing then
        }
        let late_ns = match keyed {
            true => self.setup.node.peer_timeout_ns,
            false => self.net.packet_faults.reorder_ns,
        };
        let seen = Seen {
            bytes,
            to: out.to,
            late_ns,
        };
        let ppm = self.net.packet_faults.strangers;
        let Some(sent) = self.strangers.send(&seen, keyed, ppm) else {
            return;
        };
        self.net.stats.strange += 1;
        let slot = self.new_flight();
        self.flying[slot as usize] = Flying {
            bytes: sent.bytes,
            to: target_of(&sent.to),
            port: port_of(&sent.to),
            from: e,
            rail: out.rail,
            ..Flying::default()
        };
        self.push(at + sent.after_ns, Next::Arrive(slot));
    }

    /// Returns whether packets are lost at departure: their source address is gone, their
    /// connection is stuck, or the network has forgotten it.
    fn is_swallowed(
        &mut self,
        e: u32,
        out: &Out,
        start: (usize, usize),
        target: (usize, usize),
    ) -> bool {
        let gone = self.eps[e as usize].sites.is_gone(out.rail);
        if gone || !out.light && self.is_stuck(e, start, target) {
            self.net.stats.swallowed += 1;
            self.net.stats.forgotten += u64::from(!gone && self.setup.renews(out.rail));
            return true;
        }
        let forgotten = self.is_forgotten(e, out);
        self.net.stats.forgotten += u64::from(forgotten);
        forgotten
    }

    pub(crate) fn arrive(&mut self, slot: u32) {
        if self.flying[slot as usize].write.is_some() {
            return self.land_write(slot);
        }
        let flying = &self.flying[slot as usize];
        let (host, rail) = flying.to;
        let (port, from, len) = (flying.port, flying.from, flying.bytes.len() as u64);
        let stream = flying.breaks.is_some();
        let start = (self.eps[from as usize].host, flying.rail);
        if flying
            .breaks
            .is_some_and(|b| b != self.breaks(from, start, (host, rail)))
        {
            self.net.stats.broken += 1;
            self.end_flight(slot);
            return;
        }
        let here = self.on_host[host].filter(|&e| {
            let ep = &self.eps[e as usize];
            ep.alive && !ep.closed && ep.listens(rail, port)
        });
        let wall = self.net.refuses((host, rail)) && !stream;
        let Some(e) = here.filter(|_| !wall) else {
            self.hang_up(start, (host, rail));
            let flying = &self.flying[slot as usize];
            self.net.stats.nobody += u64::from(!wall);
            self.net.stats.refused += u64::from(wall);
            let left = here.is_none() && self.has_left((host, rail), port);
            let refuses = self.setup.refuses && !left || wall;
            if let Some(addr) = flying.reply_to.filter(|_| refuses) {
                let rail = flying.rail;
                let sender = &self.eps[from as usize];
                if sender.alive {
                    let machine = &sender.machine;
                    machine.queue_event(&mut machine.wires(), rail, News::Refused(addr));
                }
                self.wake(from, self.now + 20_000);
            }
            self.end_flight(slot);
            return;
        };
        if !self.believes(e, slot) {
            self.net.stats.doubted += 1;
            return self.end_flight(slot);
        }
        self.touch(e);
        let machine = &self.eps[e as usize].machine;
        let mut wires = machine.wires();
        let waiting = wires.ports[rail].inbox_bytes;
        // Packets of a stream without room wait at the sender.
        if waiting + len + TRUESIZE > self.setup.socket_bytes && !stream {
            self.net.stats.socket_full += 1;
            machine.queue_event(&mut wires, rail, News::Rail(RailEvent::ReceiverDrops(1)));
        } else {
            let bytes = std::mem::take(&mut self.flying[slot as usize].bytes);
            machine.deliver(&mut wires, rail, socket_of(from, &bytes), bytes);
        }
        drop(wires);
        self.end_flight(slot);
        if self.eps[e as usize].computing == 0 {
            let at = self.now + self.rng.range(200, self.eps[e as usize].habits.pace_ns);
            self.wake(e, at);
        } else if self.eps[e as usize].threaded {
            self.wake_thread(e);
            let at = self.eps[e as usize].thread_at.max(self.now);
            self.wake(e, at);
        }
    }
}
