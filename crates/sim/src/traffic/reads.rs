//! Remote reads over simulated reliable connections (RDMA read). They may land late, in part or
//! never, are refused if the memory is closed, and end with the connection. No memory is read or
//! written after its return to the application.

use crate::base::rng::Rng;
use crate::machine::connections::End;
use crate::machine::halves::SimTx;
use crate::machine::out::News;
use crate::machine::place::{port_of, target_of};
use crate::machine::reading::{Answer, OutRead, Reading};
use crate::setup::choices::{FalseReport, Setup};
use crate::traffic::dials::end_of;
use crate::world::state::{Next, World};
use crate::Verbs;
use marline_rails::{LinkId, Piece, RailEvent, RailFault, Read, RemoteRead, SendOutcome};
use marline_wire::BLOCK_BYTES;

impl RemoteRead for SimTx {
    fn advertise(&mut self, base: *const u8, len: usize) -> Option<u64> {
        let port = &mut self.machine.wires().ports[self.rail];
        port.next_key += 1;
        port.advertised.insert(port.next_key, (base as usize, len));
        Some(port.next_key)
    }

    fn open(&mut self, pieces: &[Piece]) -> Option<u64> {
        let port = &mut self.machine.wires().ports[self.rail];
        let pieces = pieces.iter().map(|p| (p.base as usize, p.len)).collect();
        Some(port.sources.open(pieces, port.registered_max))
    }

    fn read(&mut self, link: LinkId, read: &Read) -> SendOutcome {
        let at = self.machine.peek_now();
        let to = self.links.key(link).filter(|_| self.is_up(link));
        let wires = &mut *self.machine.wires();
        let port = &mut wires.ports[self.rail];
        if port.broken {
            const ENETDOWN: i32 = 100;
            return SendOutcome::Fault(RailFault::Down(ENETDOWN));
        }
        let Some(to) = to.filter(|_| port.blocked_until(at).is_none()) else {
            return SendOutcome::Busy;
        };
        let drained = port.drained;
        port.give(read.token);
        wires.pulls.push(OutRead {
            rail: self.rail,
            to,
            key: read.key,
            into: read.into,
            at: read.at,
            len: read.len,
            token: read.token,
            drained,
        });
        self.machine.stir();
        SendOutcome::Sent
    }
}

impl World {
    /// Starts a read.
    pub(crate) fn launch_read(&mut self, e: u32, read: OutRead) {
        self.net.stats.reads += 1;
        let (start, target) = ((self.eps[e as usize].host, read.rail), target_of(&read.to));
        let way = (start.min(target), start.max(target));
        let end = end_of(e, read.rail, &read.to);
        let up = self.connections.up.contains_key(&end);
        if !up || self.connections.eviction.evicted_links.contains_key(&way) {
            return self.read_over(e, &read, false);
        }
        self.mix(&[self.now, 7, read.key, read.len as u64]);
        if self.net.breaks_connection() {
            // The read is in flight when the connection breaks.
            let at = self.now + self.rng.below(1_000_000);
            let order = self.push(at, Next::Dialled);
            self.connections.resets.insert(order, (start, target));
        }
        let at = self.now + self.net.latency(read.rail);
        let answer = None;
        self.fly_read(at, Reading { e, read, answer });
    }

    fn fly_read(&mut self, at: u64, reading: Reading) {
        let (host, rail) = (self.eps[reading.e as usize].host, reading.read.rail);
        let (start, target) = ((host, rail), target_of(&reading.read.to));
        let busy = &mut self.connections.eviction.busy;
        let busy = busy
            .entry((start.min(target), start.max(target)))
            .or_default();
        *busy = at.max(*busy);
        let order = self.push(at, Next::Dialled);
        self.connections.reads.insert(order, reading);
    }

    /// The next step of a read; `false` for other events.
    pub(crate) fn step_of_read(&mut self, order: u64) -> bool {
        let Some(mut reading) = self.connections.reads.remove(&order) else {
            return false;
        };
        match reading.answer.take() {
            None => self.serve_read(reading),
            Some(answer) if answer.late_ns > 0 => {
                let at = self.now + self.rng.below(answer.late_ns);
                self.read_over(reading.e, &reading.read, true);
                reading.answer = Some(Answer {
                    late_ns: 0,
                    reports: false,
                    ..answer
                });
                self.fly_read(at, reading);
            }
            Some(answer) => {
                if answer.lands && self.land_read(&reading, &answer.bytes).is_none() {
                    // The memory is closed, which breaks the connection.
                    self.snap_read(&reading);
                } else if answer.reports {
                    self.read_over(reading.e, &reading.read, true);
                }
            }
        }
        true
    }

    fn snap_read(&mut self, reading: &Reading) {
        let (rail, host) = (reading.read.rail, self.eps[reading.e as usize].host);
        self.net.stats.reads_refused += 1;
        self.break_connection((host, rail), target_of(&reading.read.to));
        // (If the end was reported before, no reader waits.)
        self.read_over(reading.e, &reading.read, false);
    }

    /// Serves a read that has reached the memory to be read.
    fn serve_read(&mut self, mut reading: Reading) {
        let read = reading.read;
        let target = target_of(&read.to);
        let start = (self.eps[reading.e as usize].host, read.rail);
        if self.is_drained(&reading) {
            return;
        }
        let there = self.on_host[target.0].filter(|&e| {
            let ep = &self.eps[e as usize];
            ep.alive && !ep.closed && ep.listens(target.1, port_of(&read.to))
        });
        let advertised = there.and_then(|e| {
            let wires = self.eps[e as usize].machine.wires();
            let advertised = wires.ports[target.1].advertised.get(&read.key).copied();
            advertised.map(|advertised| (e, advertised))
        });
        let Some((e, (base, len))) = advertised.filter(|of| read.at + read.len <= of.1 .1) else {
            return self.snap_read(&reading);
        };
        debug_assert!(read.at + read.len <= len);
        let base = base + read.at;
        let ops = self.eps[e as usize].ops.iter();
        let mut open = ops.filter(|op| op.done_ns.is_none());
        let bytes = open.find_map(|op| op.buffer.at_address(base, read.len));
        let Some(bytes) = bytes.map(<[u8]>::to_vec) else {
            return self.broken(e, "a read reads memory of a finished operation".into());
        };
        let (leaves, fate) = self.net.carry(self.now, target, start, (read.len, false));
        let Some(arrives) = fate.arrives else {
            self.net.stats.reads_lost += 1;
            return self.never(leaves, reading);
        };
        let mut bytes = bytes;
        if self.rng.ppm(fate.hurt_ppm) {
            let at = self.rng.below(bytes.len() as u64) as usize;
            bytes[at] ^= 1 << self.rng.below(8);
        }
        reading.answer = Some(Answer {
            bytes,
            late_ns: match fate.lie {
                Some(FalseReport::Late(ns)) => ns,
                _ => 0,
            },
            lands: fate.lie != Some(FalseReport::Never),
            reports: fate.lie != Some(FalseReport::NeverOver),
        });
        self.fly_read(arrives.max(self.now), reading);
    }

    /// The answer is lost: the connection retransmits in vain and breaks.
    fn never(&mut self, at: u64, reading: Reading) {
        let start = (self.eps[reading.e as usize].host, reading.read.rail);
        let gives_up = at.max(self.now) + self.setup.silent_ns + 1;
        let order = self.push(gives_up, Next::Dialled);
        let target = target_of(&reading.read.to);
        self.connections.resets.insert(order, (start, target));
        self.connections.waiting.push(reading);
    }

    fn is_drained(&self, reading: &Reading) -> bool {
        let wires = self.eps[reading.e as usize].machine.wires();
        wires.ports[reading.read.rail].drained != reading.read.drained
    }

    /// Puts the read bytes in place; `None` if the memory is closed.
    fn land_read(&mut self, reading: &Reading, bytes: &[u8]) -> Option<()> {
        let (e, read) = (reading.e, reading.read);
        let ep = &mut self.eps[e as usize];
        if !ep.alive || ep.closed || self.is_drained(reading) {
            return Some(()); // no reader is left
        }
        let ep = &mut self.eps[e as usize];
        let open = ep.machine.wires().ports[read.rail]
            .registered
            .get(&read.into)
            .copied();
        let base = open?.0 + read.at;
        let mut ops = ep.ops.iter_mut().filter(|op| op.done_ns.is_none());
        let place = ops.find(|op| op.buffer.at_address(base, bytes.len()).is_some());
        let put = match place {
            Some(op) => op.buffer.put(base, bytes),
            None => Err("a read lands in memory of a finished operation"),
        };
        if let Err(text) = put {
            self.broken(e, text.into());
        }
        Some(())
    }

    /// The rail reports the end of a read.
    fn read_over(&mut self, e: u32, read: &OutRead, came: bool) {
        let ep = &self.eps[e as usize];
        let mut wires = ep.machine.wires();
        if !ep.alive || ep.closed || wires.ports[read.rail].drained != read.drained {
            return;
        }
        self.net.stats.reads_failed += !came as u64;
        let event = RailEvent::Pulled(read.token, came);
        ep.machine
            .queue_event(&mut wires, read.rail, News::Rail(event));
        drop(wires);
        self.wake(e, self.now + 500);
    }

    /// Ends all reads of one end of a broken connection; parts of them may have landed.
    pub(crate) fn flush_reads(&mut self, (e, rail, target, _): End) {
        let of = |reading: &Reading| {
            (reading.e, reading.read.rail, target_of(&reading.read.to)) == (e, rail, target)
        };
        let reads = &mut self.connections.reads;
        let orders: Vec<u64> = (reads.iter()).filter(|r| of(r.1)).map(|r| *r.0).collect();
        let flying = orders.iter().filter_map(|order| reads.remove(order));
        let mut over: Vec<Reading> = flying.collect();
        let waiting = std::mem::take(&mut self.connections.waiting);
        let (mine, others): (Vec<Reading>, Vec<Reading>) = waiting.into_iter().partition(of);
        self.connections.waiting = others;
        over.extend(mine);
        for mut reading in over {
            let answer = reading.answer.take();
            if answer.as_ref().is_some_and(|answer| !answer.reports) {
                continue;
            }
            let bytes = answer.map_or(Vec::new(), |answer| answer.bytes);
            let part = self.rng.below(bytes.len() as u64 + 1) as usize;
            if part > 0 {
                let _closed = self.land_read(&reading, &bytes[..part]);
            }
            self.read_over(e, &reading.read, false);
        }
    }

    /// The reader reports a segment as read: its bytes must be in place.
    pub(crate) fn pulled(
        &mut self,
        e: u32,
        (src, number): (u32, u32),
        (offset, len): (u64, u64),
    ) -> Result<(), String> {
        let Some(uid) = self.truth.find(src, e, number) else {
            return Err(format!("read message {number} of {src}: never sent"));
        };
        let msg = &self.truth.msgs[uid as usize];
        let (base, matched) = (msg.base, msg.matched);
        let ep = &mut self.eps[e as usize];
        let recv = matched.and_then(|(handle, _)| ep.recv_mut(handle));
        let place = recv.and_then(|r| r.matches.iter().find(|m| m.0.uid == uid));
        let Some((handle, at)) = place.map(|m| (m.0.handle, m.0.base)) else {
            return Err(format!("read message {uid}, which has no place"));
        };
        let from = (at + offset) as usize;
        let bytes = ep.ops[handle as usize]
            .buffer
            .get(from, from + len as usize);
        let differs = |bytes| self.content.differs(base + offset, bytes);
        let wrong = bytes.map_or(Some(0), differs);
        if let Some(at) = wrong {
            return Err(format!("wrong bytes were read: message {uid} at {at}"));
        }
        self.truth.msgs[uid as usize].land(offset, len);
        Ok(())
    }
}

impl Setup {
    /// Makes all reliable connections read long messages.
    pub fn read_all(&mut self) {
        let rc = |kind: &Option<Verbs>| *kind == Some(Verbs::Rc);
        let rails = self.verbs.iter().enumerate();
        let rails = rails.filter(|(_, kind)| rc(kind));
        self.node.read_rails = rails.fold(0, |mask, (rail, _)| mask | 1 << rail);
        let blocks = Rng::new(self.seed, 43).pick(&[5, 20, 20, 100, 586]);
        self.node.segment_min = blocks * BLOCK_BYTES;
    }
    /// Makes reliable connections read long messages in half of the seeds. (From separate random
    /// numbers: other draws are unaffected.)
    pub(crate) fn draw_reads(&mut self) {
        if Rng::new(self.seed, 42).one_in(2) {
            self.read_all();
        }
    }
}
