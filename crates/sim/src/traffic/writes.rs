//! Remote writes of simulated rails: their transmission, where they land, and checks that no memory
//! is read or written after its return to the application.
//!
//! A stream rail with writes is like a reliable connection: its packets never overtake its writes,
//! and a refused write breaks it. Other rails lose and reorder writes as they do packets, and the
//! beginning of a lost write may land.

use crate::base::rng::Rng;
use crate::base::spare;
use crate::machine::out::{News, Out, OutWrite};
use crate::machine::place::{port_of, target_of};
use crate::machine::port::Port;
use crate::network::hurt::{put, WriteDamage};
use crate::network::net::Net;
use crate::network::sums::seed_of;
use crate::setup::choices::FalseReport;
use crate::truth::memory::Buffer;
use crate::world::state::{Next, World};
use marline_checksum::{sum, Algorithm};
use marline_proto::sum_seed;
use marline_rails::immediate::of_write;
use marline_rails::RailEvent;
use marline_wire::{Header, Written, FLAG_READ_REPLY, FLAG_UNSUMMED};

/// Bytes that are lost together.
const PACKET: usize = 4_096;

/// Times of a write's landing and of its completion at the sender.
pub(crate) struct WriteFate {
    pub lands: Option<u64>,
    pub hurt: WriteDamage,
    pub over: u64,
    /// True if the receiver gets the immediate (after landing, unless the rail reports falsely).
    pub said: bool,
    /// True if the bytes land after the immediate.
    pub late: bool,
    /// Time at which the write should land.
    pub arrives: u64,
}

impl Net {
    /// One write of `len` bytes; `held` as in [`Net::carry`].
    pub(crate) fn write(
        &mut self,
        now: u64,
        from: (usize, usize),
        to: (usize, usize),
        (len, held): (usize, bool),
    ) -> WriteFate {
        self.stats.writes += 1;
        let stream = self.is_stream(from.1, to.1);
        let (leaves, fate) = self.carry(now, from, to, (len, held));
        let mut hurt = WriteDamage::Whole;
        let mut lost = 0;
        for at in 0..len.div_ceil(PACKET) * (!stream) as usize {
            if self.rng.ppm(fate.drop_ppm) && lost == 0 {
                lost = 1;
                hurt = WriteDamage::Upto(at * PACKET);
            }
        }
        if self.rng.ppm(fate.hurt_ppm) {
            lost = 1;
            hurt = self
                .rng
                .pick(&[WriteDamage::Flips, WriteDamage::Flips, WriteDamage::Line]);
        }
        self.stats.writes_hurt += lost;
        let mut lands = fate.arrives;
        let arrives = lands.unwrap_or(leaves);
        let (said, mut late) = (
            lands.is_some() && !matches!(hurt, WriteDamage::Upto(_)),
            false,
        );
        let mut over = match lands {
            Some(at) if stream => at + self.latency(from.1),
            _ => leaves,
        };
        match fate.lie {
            Some(FalseReport::Never) => lands = None,
            Some(FalseReport::Late(ns)) => {
                late = true;
                lands = lands.map(|at| at + self.rng.below(ns));
                // Late but correct bytes would do no harm.
                if self.rng.one_in(2) {
                    hurt = WriteDamage::Flips;
                }
            }
            Some(FalseReport::OverEarly) => over = now,
            Some(FalseReport::NeverOver) => over = u64::MAX,
            None => {}
        }
        self.stats.writes_lost += lands.is_none() as u64;
        WriteFate {
            lands,
            hurt,
            over,
            said,
            late,
            arrives,
        }
    }
}

impl World {
    /// Puts a write on the network; the packet that reports it follows.
    pub(crate) fn launch_write(&mut self, e: u32, out: &Out, write: &OutWrite, at: u64) {
        let len: usize = write.pieces.iter().map(|p| p.1).sum();
        let (from, target) = (self.eps[e as usize].host, target_of(&out.to));
        let start = (from, out.rail);
        // The write stays in order with the packet that reports it.
        let heals = self.held_until(out.rail, start, target);
        let leaves = heals.map_or(at, |heals| at.max(heals + 1));
        let parts = write.parts();
        let fates: Vec<WriteFate> = (parts.iter())
            .map(|part| (self.net).write(leaves, start, target, (part.len(), heals.is_some())))
            .collect();
        self.mix(&[at, 5, write.key, write.offset, len as u64]);
        let over = fates.iter().map(|fate| fate.over).max().unwrap_or(at);
        if over != u64::MAX {
            let at = over.max(self.now);
            self.under_way(e, out, at);
            if write.copied.is_none() {
                let order = self.push(at, Next::WriteOver);
                self.overs.insert(order, (e, out.rail, write.token, target));
            }
        }
        let drained = self.eps[e as usize].machine.wires().ports[out.rail].drained;
        let drained = drained != write.drained && write.copied.is_none();
        if drained || self.is_stuck(e, start, target) {
            return; // drained in the same call: nothing is read any more (mutation, seed 1803)
        }
        let comes = |fate: &WriteFate| fate.lands.is_some() || write.call.is_some() && fate.said;
        if !fates.iter().any(comes) {
            return;
        }
        let mut bytes = spare::take();
        if let Some(copied) = &write.copied {
            bytes.extend_from_slice(copied);
        } else if let Err(text) = self.read_pieces(e, out, write, &mut bytes) {
            return self.broken(e, text);
        }
        for (which, (part, fate)) in parts.into_iter().zip(&fates).enumerate() {
            let immediate = write.call.map(|call| of_write(call, which));
            let place = (write.key, write.offset + part.start as u64);
            self.fly(e, out, (place, &bytes[part]), fate, immediate);
        }
        spare::give(bytes);
    }

    /// Puts a write, or one part of it, in flight.
    fn fly(
        &mut self,
        e: u32,
        out: &Out,
        ((key, offset), bytes): ((u64, u64), &[u8]),
        fate: &WriteFate,
        immediate: Option<u32>,
    ) {
        let (from, target) = (self.eps[e as usize].host, target_of(&out.to));
        let start = (from, out.rail);
        let breaks = self.breaks(e, start, target);
        let (lost, partly) = (
            fate.lands.is_none(),
            matches!(fate.hurt, WriteDamage::Upto(_)),
        );
        if immediate.is_some() && (lost || partly) && bytes.len() > PACKET {
            self.stick(e, start, target);
        }
        // The immediate comes with the bytes, or, if the rail reports falsely or the bytes are
        // late, before them; or it alone is lost.
        let said = immediate.filter(|_| fate.said && !self.rng.ppm(self.net.packet_faults.drop));
        let alone = said.filter(|_| fate.late || lost);
        let flights = [
            fate.lands.map(|at| (at, fate.hurt, said.xor(alone))),
            alone.map(|immediate| (fate.arrives, WriteDamage::Upto(0), Some(immediate))),
        ];
        for (at, hurt, immediate) in flights.into_iter().flatten() {
            let slot = self.new_flight();
            let flying = &mut self.flying[slot as usize];
            flying.bytes = spare::copy(bytes);
            flying.to = target;
            flying.port = port_of(&out.to);
            flying.from = e;
            flying.rail = out.rail;
            flying.reply_to = None;
            flying.breaks = Some(breaks);
            flying.write = Some((key, offset, hurt));
            flying.immediate = immediate;
            self.under_way(e, out, at);
            self.push(at.max(self.now), Next::Arrive(slot));
        }
    }

    /// Number of breaks of the connection for packets and writes between two rails.
    pub(crate) fn breaks(&self, e: u32, from: (usize, usize), to: (usize, usize)) -> u32 {
        let drained = self.eps[e as usize].machine.wires().ports[from.1].drained;
        self.net.breaks(from, to) + drained
    }

    /// Reads the bytes to write from the memory of a send or region in progress. Copies in the
    /// engine's log are not accessible here; their message determines the contents.
    pub(crate) fn read_pieces(
        &self,
        e: u32,
        out: &Out,
        write: &OutWrite,
        to: &mut Vec<u8>,
    ) -> Result<(), String> {
        let ep = &self.eps[e as usize];
        let crc = u32::from_le_bytes([out.bytes[0], out.bytes[1], out.bytes[2], out.bytes[3]]);
        let packet = marline_wire::Packet::parse(&out.bytes, |_| crc);
        let packet = packet.map_err(|_| "a write with a packet that does not parse")?;
        let written = packet.frames().find_map(|(frame, _)| match frame {
            marline_wire::Frame::Written(w) => Some(w),
            _ => None,
        });
        let written = written.ok_or("a write that nobody tells of")?;
        let message = match written.flags & FLAG_READ_REPLY {
            0 => {
                let dst = crate::machine::host::index_of(packet.header.dst_id);
                self.truth.find(e, dst, written.number)
            }
            _ => None,
        };
        let (region, region_len) = self.content.region();
        let mut offset = write.offset;
        for &(address, len) in &write.pieces {
            let in_region = address.wrapping_sub(region as usize);
            let ops = ep.ops.iter().filter(|op| op.done_ns.is_none());
            let here = ops
                .filter_map(|op| op.buffer.at_address(address, len))
                .next();
            if let Some(bytes) = here {
                to.extend_from_slice(bytes);
            } else if in_region < region_len {
                to.extend_from_slice(self.content.slice(0, in_region as u64, len));
            } else if ep.retired.holds(address) {
                return Err("a write reads memory of a finished operation".into());
            } else if let Some(uid) = message {
                let base = self.truth.msgs[uid as usize].base;
                to.extend_from_slice(self.content.slice(base, offset, len));
            } else {
                return Err("a write reads memory of nobody".into());
            }
            offset += len as u64;
        }
        Ok(())
    }

    /// A write reaches its target.
    pub(crate) fn land_write(&mut self, slot: u32) {
        let flying = &mut self.flying[slot as usize];
        let (Some((key, offset, hurt)), to) = (flying.write.take(), flying.to) else {
            return;
        };
        let bytes = std::mem::take(&mut flying.bytes);
        let mut immediate = flying.immediate.take();
        let (port, from, start) = (flying.port, flying.from, flying.rail);
        let breaks = flying.breaks.take();
        self.free.push(slot);
        let start = (self.eps[from as usize].host, start);
        let mut hurt = hurt;
        if breaks != Some(self.breaks(from, start, to)) {
            let Some(less) = self.lands_broken(start.1, bytes.len(), hurt) else {
                self.net.stats.writes_lost += 1;
                return;
            };
            immediate = immediate.filter(|_| less == hurt);
            hurt = less;
        }
        let here = self.on_host[to.0].filter(|&e| {
            let ep = &self.eps[e as usize];
            ep.alive && !ep.closed && ep.listens(to.1, port)
        });
        let Some(e) = here else {
            self.net.stats.writes_lost += 1;
            return;
        };
        if self.land_staged((e, to.1), (key, offset), &bytes, hurt) {
            self.mix(&[self.now, 8, key, offset]);
            self.net.stats.staged += 1;
            self.said(e, from, start.1, immediate);
            return spare::give(bytes);
        }
        let granted = self.eps[e as usize].machine.wires().ports[to.1]
            .registered
            .get(&key)
            .copied();
        let inside = |&(_, len): &(usize, usize)| offset + bytes.len() as u64 <= len as u64;
        let Some((base, _)) = granted.filter(inside) else {
            self.net.stats.writes_refused += 1;
            if self.setup.connects(start.1) && self.net.is_stream(start.1, to.1) {
                self.break_connection(start, to);
            } else if self.net.is_stream(start.1, to.1) {
                self.net.break_stream(start, to);
            } else if immediate.is_some() {
                self.stick(from, start, to);
            }
            return;
        };
        self.mix(&[self.now, 6, key, offset]);
        let address = base + offset as usize;
        hurt = self.replaced(hurt);
        let rng = &mut self.rng;
        let ops = self.eps[e as usize].ops.iter_mut();
        let place = ops.filter(|op| op.done_ns.is_none());
        let place = place.map(|op| &mut op.buffer);
        let mut place = place.filter(|b| b.at_address(address, bytes.len()).is_some());
        let Some(buffer) = place.next() else {
            return self.broken(e, "a write lands in memory of a finished operation".into());
        };
        let to = |at: usize, part: &[u8]| buffer.put(address + at, part);
        if let Err(text) = put(&bytes, hurt, rng, to) {
            self.broken(e, text.into());
        }
        self.said(e, from, start.1, immediate);
        spare::give(bytes);
    }

    /// The damage of a write: in jobs in which payload sums have keys, every second damaged payload
    /// is replaced by one with the same sum without a key.
    fn replaced(&mut self, hurt: WriteDamage) -> WriteDamage {
        match hurt {
            WriteDamage::Flips if self.setup.sums_payloads_with_key() && self.rng.one_in(2) => {
                WriteDamage::Replaced
            }
            hurt => hurt,
        }
    }

    /// The rail reports the end of a write.
    pub(crate) fn write_over(&mut self, e: u32, rail: usize, token: u64) {
        let ep = &self.eps[e as usize];
        if ep.alive && !ep.closed {
            let machine = &ep.machine;
            machine.queue_event(
                &mut machine.wires(),
                rail,
                News::Rail(RailEvent::Done(token)),
            );
            self.wake(e, self.now + 500);
        }
    }

    /// Checks that memory returned to the application is neither granted nor read by a rail.
    pub(crate) fn check_lent(&self, e: u32, buffer: &Buffer) -> Result<(), String> {
        if !self.setup.writes.contains(&true) {
            return Ok(());
        }
        let (from, to) = buffer.range();
        let overlaps = |&(base, len): &(usize, usize)| base < to && from < base + len;
        let wires = self.eps[e as usize].machine.wires();
        if wires
            .ports
            .iter()
            .any(|p| p.registered.values().any(overlaps))
        {
            return Err("memory is given back that may still be written".into());
        }
        if let Some(text) = wires.ports.iter().find_map(|p| p.sources.mistake) {
            return Err(text.into());
        }
        let advertisements = |p: &Port| p.advertised.values().any(overlaps);
        let reads = |p: &Port| advertisements(p) || p.sources.readable().any(overlaps);
        if wires.ports.iter().any(reads) {
            return Err("memory is given back that may still be read".into());
        }
        Ok(())
    }

    /// Checks that no memory is open when nothing is in progress.
    pub(crate) fn check_unlent(&self, e: u32) -> Result<(), String> {
        let wires = self.eps[e as usize].machine.wires();
        let lent = |p: &Port| {
            p.registered.len() + p.sources.count() + p.advertised.len() + p.stages.open.len()
        };
        match wires.ports.iter().map(lent).sum::<usize>() {
            0 => Ok(()),
            n => Err(format!("endpoint {e}: {n} ranges of memory are still lent")),
        }
    }

    /// Records a written fragment if its sum matches the memory. In a window the memory may have
    /// other bytes by now, although the node accepted the fragment: see `settle_overwritten`.
    pub(crate) fn land_written(
        &mut self,
        (e, src): (u32, u32),
        header: &Header,
        w: &Written,
        taken: bool,
    ) {
        if w.flags & FLAG_READ_REPLY != 0 {
            return;
        }
        let Some(uid) = self.truth.find(src, e, w.number) else {
            return self.broken(e, format!("took message {} of {src}: never sent", w.number));
        };
        let msg = &self.truth.msgs[uid as usize];
        let (base, matched, put) = (msg.base, msg.matched, msg.put);
        let ep = &mut self.eps[e as usize];
        let recv = matched.and_then(|(handle, _)| ep.recv_mut(handle));
        let place = recv.and_then(|r| r.matches.iter().find(|m| m.0.uid == uid));
        let window = put.filter(|put| put.open).map(|put| (put.window, put.at));
        let Some((handle, at)) = place.map(|m| (m.0.handle, m.0.base)).or(window) else {
            return;
        };
        let buffer = &ep.ops[handle as usize].buffer;
        let from = (at + w.offset) as usize;
        let Some(bytes) = buffer.get(from, from + w.len as usize) else {
            return;
        };
        let algorithm = match w.flags & FLAG_UNSUMMED {
            0 => Algorithm::from_u8(header.algorithm).unwrap_or_default(),
            _ => Algorithm::None,
        };
        let number = sum_seed(header.src_id, w.number, false, w.offset, bytes.len());
        let seed = seed_of(&self.setup, header, number);
        let summed = sum(algorithm, seed, bytes) == w.sum;
        if summed && self.content.slice(base, w.offset, bytes.len()) == bytes {
            self.truth.msgs[uid as usize].land(w.offset, w.len as u64);
        } else if put.is_some() {
            let overwritten = &mut self.eps[e as usize].windows.overwritten;
            overwritten.extend(taken.then_some((uid, w.offset, w.len as u64)));
        } else if summed {
            let text = format!("wrong bytes were written: message {uid} at {}", w.offset);
            self.broken(src, text);
        }
    }

    /// Decides, at the end of an engine call, about accepted writes into windows whose bytes are no
    /// longer there. Such a write counts if the node admitted another writer to the place, even
    /// later in the same call (seeds 19011451, 19016395: both were written; 36005467: the memory
    /// was poisoned for the other write, of which no byte had come).
    pub(crate) fn settle_overwritten(&mut self, e: u32) {
        for (uid, offset, len) in std::mem::take(&mut self.eps[e as usize].windows.overwritten) {
            let msg = &mut self.truth.msgs[uid as usize];
            if !msg.put.is_some_and(|put| put.loose) {
                let text = format!("took a write that is not there: message {uid} at {offset}");
                return self.broken(e, text);
            }
            msg.land(offset, len);
        }
    }
}

/// Swaps two datagrams of a direct write, excluding the first, which identifies it, and the last,
/// which is shorter. `false` if there are too few.
pub(crate) fn swap_datagrams(bytes: &mut [u8], datagram: usize, rng: &mut Rng) -> bool {
    let whole = bytes.len() / datagram.max(1);
    if whole < 3 {
        return false;
    }
    let a = rng.range(1, whole as u64 - 2) as usize;
    let b = rng.range(a as u64 + 1, whole as u64 - 1) as usize;
    let (before, after) = bytes.split_at_mut(b * datagram);
    before[a * datagram..][..datagram].swap_with_slice(&mut after[..datagram]);
    true
}
