//! What a node reports, held against the truth; and the bounds that must hold after every turn.

use crate::endpoint::Trace;
use crate::memory::{OpKind, RecvOp};
use crate::setup::Trouble;
use crate::truth::Match;
use crate::world::World;
use marline_proto::{Event, PeerId};
use marline_wire::MsgHead;

/// Regions with this bit in their key do not exist.
pub(crate) const BAD_KEY: u64 = 1 << 63;

/// A completed receive, as the node tells it.
struct Received {
    handle: u32,
    peer: PeerId,
    head: MsgHead,
    offset: u64,
    len: u64,
    bounce: Option<u64>,
    last: bool,
}

impl World {
    /// Takes all events of an endpoint.
    pub(crate) fn drain(&mut self, e: u32) {
        while let Some(event) = self.eps[e as usize].node.poll_event() {
            if self.tracing {
                let now = self.now;
                self.eps[e as usize].note(now, Trace::Said(event));
            }
            if let Err(text) = self.on_event(e, event) {
                self.broken(e, format!("{text}: {event:?}"));
            }
        }
    }

    fn on_event(&mut self, e: u32, event: Event) -> Result<(), String> {
        match event {
            Event::SendDone { handle, ok } => {
                self.mix(&[self.now, 2, handle as u64, ok as u64]);
                self.send_done(e, handle, ok)
            }
            Event::RecvDone {
                handle,
                peer,
                head,
                offset,
                len,
                bounce,
                last,
            } => {
                self.mix(&[self.now, 3, handle as u64, head.number as u64, len]);
                self.recv_done(
                    e,
                    &Received {
                        handle,
                        peer,
                        head,
                        offset,
                        len,
                        bounce,
                        last,
                    },
                )
            }
            Event::RecvFailed { handle } => self.recv_failed(e, handle),
            Event::BounceFree { inbound } => {
                self.eps[e as usize].bounces.remove(&inbound);
                Ok(())
            }
            Event::ReadDone { handle, ok } => self.read_done(e, handle, ok),
            Event::ReadAsked {
                peer,
                number,
                key,
                addr,
                len,
                upto,
            } => {
                if key & BAD_KEY != 0 {
                    self.eps[e as usize].node.refuse_read(peer, number);
                    return Ok(());
                }
                let now = self.now;
                let ep = &mut self.eps[e as usize];
                let reader = ep.endpoint_of(peer);
                let kind = OpKind::Serve {
                    base: key.wrapping_add(addr),
                    reader,
                };
                let handle = ep.add_op(kind, now, false);
                ep.open += 1;
                ep.node.serve_read(handle, peer, number, len, upto);
                Ok(())
            }
            Event::PeerDead { peer, .. } => self.peer_dead(e, peer),
            Event::PathChanged { .. } | Event::AlgorithmAgreed { .. } => Ok(()),
            Event::PeerMismatch { .. } => Err("settings are the same everywhere".into()),
        }
    }

    fn end(&mut self, e: u32, handle: u32) -> Result<(), String> {
        let now = self.now;
        self.progress_ns = now;
        self.worked_ns = now;
        let ep = &mut self.eps[e as usize];
        let ended = ep.end_op(handle, now);
        // The application looks at its completions.
        ep.app.next_at = ep.app.next_at.min(now + 1);
        ended
            .then_some(())
            .ok_or_else(|| format!("operation {handle} ends twice"))
    }

    /// Whether `e` may fail what names `other`.
    fn lost_peer(&self, e: u32, other: u32) -> bool {
        let there = &self.eps[other as usize];
        !there.alive || there.closed || self.eps[e as usize].believes_dead(other)
    }

    /// An operation that failed because `other` died did so within the detection time.
    fn prompt(&self, e: u32, handle: u32, other: u32) -> Result<(), String> {
        let there = &self.eps[other as usize];
        let own_pause = |f: &crate::setup::Fault| {
            matches!(f.what, Trouble::Stopped { .. } | Trouble::ClockJump { .. })
        };
        if there.alive || self.setup.faults.iter().any(own_pause) {
            return Ok(());
        }
        // The timeout, a fifth of it between two questions, and ticks of a computing application.
        let bound = self.setup.node.peer_timeout_ns * 5 / 4 + 50_000_000;
        let posted = self.eps[e as usize].ops[handle as usize].posted_ns;
        let late = self.now - posted.max(there.died_ns);
        (late <= bound).then_some(()).ok_or_else(|| {
            format!(
                "operation {handle} outlived its peer by {} ms",
                late / 1_000_000
            )
        })
    }

    fn send_done(&mut self, e: u32, handle: u32, ok: bool) -> Result<(), String> {
        self.end(e, handle)?;
        let ep = &mut self.eps[e as usize];
        ep.open -= 1;
        ep.failed += !ok as u32;
        let (uid, dst) = match ep.ops[handle as usize].kind {
            OpKind::Send { uid } => (uid, self.truth.msgs[uid as usize].dst),
            OpKind::Serve { reader, .. } => {
                let fine = ok || self.lost_peer(e, reader);
                return fine.then_some(()).ok_or("serving failed".into());
            }
            _ => return Err("not a send".into()),
        };
        if !ok {
            self.truth.settle(uid);
        }
        let msg = &mut self.truth.msgs[uid as usize];
        msg.send_done = Some(ok);
        if ok && !(msg.head_seen && msg.complete()) {
            return Err(format!(
                "send of message {uid} completed before its data was safe"
            ));
        }
        msg.forget();
        if !ok {
            self.prompt(e, handle, dst)?;
        }
        if !ok && !self.lost_peer(e, dst) {
            return Err(format!(
                "send of message {uid} failed, but endpoint {dst} lives"
            ));
        }
        Ok(())
    }

    fn recv_done(&mut self, e: u32, r: &Received) -> Result<(), String> {
        let ep = &mut self.eps[e as usize];
        let src = ep.endpoint_of(r.peer);
        let bounced = r
            .bounce
            .map(|b| ep.bounces.remove(&b).ok_or("no such bounce buffer"));
        let bounced = bounced.transpose()?;
        let op = ep
            .ops
            .get_mut(r.handle as usize)
            .ok_or("no such operation")?;
        if op.done_ns.is_some() {
            return Err("completion of a finished receive".into());
        }
        let OpKind::Recv(recv) = &mut op.kind else {
            return Err("not a receive".into());
        };
        let msgs = &mut self.truth.msgs;
        let is_it = |m: &&mut (Match, bool)| {
            let msg = &msgs[m.0.uid as usize];
            !m.1 && msg.src == src && msg.number == r.head.number
        };
        let found = recv.matches.iter_mut().find(is_it);
        let Some((matched, done)) = found else {
            let due: Vec<_> = recv
                .matches
                .iter()
                .filter(|m| !m.1)
                .map(|m| m.0.uid)
                .collect();
            return Err(format!("matching order: it must get {due:?}"));
        };
        *done = true;
        let msg = &mut msgs[matched.uid as usize];
        let head = (r.head.tag, r.head.data, r.head.total);
        if head != (msg.tag.unwrap_or(0), msg.data.unwrap_or(0), msg.len) {
            return Err(format!("its head differs from {msg:?}"));
        }
        if r.len != msg.len.min(matched.room) || r.offset != matched.base || !msg.complete() {
            return Err(format!("wrong place, length or too early: {matched:?}"));
        }
        let (from, to) = (r.offset as usize, (r.offset + r.len) as usize);
        let bytes = match &bounced {
            Some(bytes) => bytes.get(..r.len as usize),
            None if r.len == 0 => Some(&[][..]),
            None => recv.buf.get(from..to),
        };
        let bytes = bytes.ok_or("fewer bytes than it says")?;
        if let Some(at) = self.content.differs(msg.base, bytes) {
            return Err(format!("wrong byte at {at} of message {}", matched.uid));
        }
        if let (Some(bytes), true) = (&bounced, recv.multi) {
            recv.buf.resize(recv.buf.len().max(to), 0);
            recv.buf[from..to].copy_from_slice(&bytes[..to - from]);
        }
        msg.delivered = true;
        msg.forget();
        // A receive whose peer is gone takes what is there, then fails.
        let left = recv.bereft || recv.matches.iter().any(|m| !m.1);
        let multi = recv.multi;
        ep.owed -= 1;
        self.progress_ns = self.now;
        let posted = self.eps[e as usize]
            .plain
            .posted
            .iter()
            .any(|p| p.handle == r.handle);
        if r.last == (left || posted) {
            return Err(format!("multi {multi}: last is wrong"));
        }
        if r.last {
            self.end(e, r.handle)?;
        }
        Ok(())
    }

    fn recv_failed(&mut self, e: u32, handle: u32) -> Result<(), String> {
        self.end(e, handle)?;
        let ep = &mut self.eps[e as usize];
        ep.failed += 1;
        let OpKind::Recv(recv) = &mut ep.ops[handle as usize].kind else {
            return Err("not a receive".into());
        };
        let mut sources: Vec<u32> = recv.source.into_iter().collect();
        for (m, done) in recv.matches.iter_mut().filter(|m| !m.1) {
            *done = true;
            ep.owed -= 1;
            sources.push(self.truth.msgs[m.uid as usize].src);
        }
        let bereft = recv.bereft;
        if let [source] = sources[..] {
            self.prompt(e, handle, source)?;
        }
        let fine = bereft || sources.iter().any(|&s| self.lost_peer(e, s));
        fine.then_some(())
            .ok_or("a receive failed, but its peer lives".into())
    }

    fn read_done(&mut self, e: u32, handle: u32, ok: bool) -> Result<(), String> {
        let op = self.eps[e as usize]
            .ops
            .get(handle as usize)
            .ok_or("no such operation")?;
        let OpKind::Read {
            server,
            base,
            buf,
            len,
            bad,
        } = &op.kind
        else {
            return Err("not a read".into());
        };
        let (server, bad) = (*server, *bad);
        if ok && *len > 0 && (bad || (buf.len() as u64) < *len) {
            return Err("a read came back with less than it asked for".into());
        }
        if let Some(at) = self.content.differs(*base, buf).filter(|_| ok) {
            return Err(format!("wrong byte at {at} of a read"));
        }
        self.end(e, handle)?;
        let ep = &mut self.eps[e as usize];
        ep.open -= 1;
        ep.failed += !ok as u32;
        if !ok && !bad {
            self.prompt(e, handle, server)?;
        }
        let fine = ok || bad || self.lost_peer(e, server);
        fine.then_some(()).ok_or("a good read failed".into())
    }

    fn peer_dead(&mut self, e: u32, peer: PeerId) -> Result<(), String> {
        let other = self.eps[e as usize].endpoint_of(peer);
        let now = self.now;
        let ep = &mut self.eps[e as usize];
        ep.buried.push((other, now));
        ep.plain.bury(other, &self.truth.msgs);
        // Matched messages of a multi-receive that is still posted fail without a word.
        for op in ep.ops.iter_mut().filter(|op| op.done_ns.is_none()) {
            let OpKind::Recv(recv) = &mut op.kind else {
                continue;
            };
            if recv.multi {
                let gone = |m: &Match| self.truth.msgs[m.uid as usize].src == other;
                let before = recv.matches.len();
                recv.bereft |= recv.matches.iter().any(|(m, done)| !done && gone(m));
                recv.matches.retain(|(m, done)| *done || !gone(m));
                ep.owed -= (before - recv.matches.len()) as u32;
            }
        }
        let there = &self.eps[other as usize];
        let known = !there.alive || there.closed || self.setup.may_die;
        let silent = there.believes_dead(e);
        (known || silent).then_some(()).ok_or("it lives".into())
    }

    /// A receive matched a message.
    pub(crate) fn note_match(&mut self, e: u32, found: Match) {
        self.truth.msgs[found.uid as usize].matched = Some((found.handle, found.room));
        self.truth.settle(found.uid);
        let ep = &mut self.eps[e as usize];
        ep.owed += 1;
        if let Some(recv) = ep.recv_mut(found.handle) {
            recv.matches.push((found, false));
        }
    }

    /// Timers do not fire again and again for nothing.
    pub(crate) fn check_spinning(&mut self, e: u32, busy: bool) {
        let now = self.now;
        let (turns, since) = &mut self.eps[e as usize].idle_turns;
        if busy || now - *since > 1_000_000 {
            (*turns, *since) = (0, now);
        }
        *turns += 1;
        if *turns > 200 {
            let at = self.eps[e as usize].node.next_deadline();
            self.broken(e, format!("timers spin: next {at:?}"));
        }
    }

    /// Memory stays within its bounds.
    pub(crate) fn check_bounds(&mut self, e: u32) {
        let ep = &self.eps[e as usize];
        let stats = ep.node.stats();
        let peers = self.eps.len() as u64;
        // Twice for peers whose credit is older than the shortage, first credits on top.
        let bound = 2 * self.setup.node.unexpected_bytes + peers * 16 * 1024;
        let (used, max) = (stats.unexpected_bytes, stats.unexpected_bytes_max);
        if used > bound || max < used {
            self.broken(e, format!("unexpected memory: {used} of {bound} bytes"));
        }
    }
}

impl crate::endpoint::Endpoint {
    /// The receive with this handle.
    pub(crate) fn recv_mut(&mut self, handle: u32) -> Option<&mut RecvOp> {
        match &mut self.ops.get_mut(handle as usize)?.kind {
            OpKind::Recv(recv) => Some(recv),
            _ => None,
        }
    }
}
