//! Checks reports of an engine against the truth, and bounds that hold after every turn.

use crate::machine::host::index_of;
use crate::setup::choices::{Fault, Trouble};
use crate::truth::memory::{Buffer, OpKind, ReadOp, SCRAP};
use crate::truth::messages::{Match, Msg};
use crate::world::endpoint::{Due, Endpoint};
use crate::world::state::World;
use crate::world::trace::Trace;
use marline_engine::{flag, Completion, OpError};
use marline_proto::Evidence;

/// Largest number of endpoints with which watched peers are checked after each turn.
const ASKED_MAX: usize = 64;

impl World {
    /// The engine puts an entry into a queue of `e`.
    pub(crate) fn completed(&mut self, e: u32, entry: &Completion) -> Result<(), String> {
        if self.tracing {
            let text = format!("{entry:?}");
            let now = self.now;
            self.eps[e as usize].note(now, Trace::Did(text));
        }
        let error = entry.error.map_or(0, |e| e as u64 + 1);
        self.mix(&[self.now, 3, entry.context as u64, entry.len as u64, error]);
        if entry.context == 0 {
            return self.data_completed(e, entry);
        }
        let handle = entry.context.wrapping_sub(1) as u32;
        let ep = &mut self.eps[e as usize];
        let op = ep
            .ops
            .get(handle as usize)
            .ok_or_else(|| format!("an entry of no operation: {entry:?}"))?;
        let receive = matches!(
            op.kind,
            OpKind::Recv(_) | OpKind::Peek { .. } | OpKind::Discard
        );
        let due = match op.kind {
            OpKind::Send { .. } => self.send_completed(e, handle, entry),
            OpKind::Put { .. } => self.put_completed(e, handle, entry),
            OpKind::Atomic(_) => self.atomic_completed(e, handle, entry),
            OpKind::Window => Err("an entry of a window".into()),
            OpKind::Recv(_) => self.recv_completed(e, handle, entry),
            OpKind::Read { .. } => self.read_completed(e, handle, entry),
            OpKind::Peek { .. } => self.peek_completed(e, handle, entry),
            OpKind::Discard => self.end(e, handle).map(|()| Due::of(entry)),
        };
        let due = due.map_err(|text| format!("{text}: {entry:?}"))?;
        if due.last {
            self.check_lent(e, &self.eps[e as usize].ops[handle as usize].buffer)?;
        }
        let ep = &mut self.eps[e as usize];
        let queue = ep.queue(receive);
        ep.due[queue].push_back(due);
        Ok(())
    }

    /// Handles an entry that the application reads: it must be the next one, with its data present.
    pub(crate) fn read_entry(&mut self, e: u32, which: usize, entry: &Completion) {
        if let Err(text) = self.reads(e, which, entry) {
            self.broken(e, format!("{text}: {entry:?}"));
        }
    }

    fn reads(&mut self, e: u32, which: usize, entry: &Completion) -> Result<(), String> {
        let ep = &mut self.eps[e as usize];
        let due = ep.due[which]
            .pop_front()
            .ok_or("read an entry that was never put there")?;
        let same = (due.context, due.len, due.error) == (entry.context, entry.len, entry.error);
        if !same {
            return Err(format!("entries out of order, {due:?} is next"));
        }
        // The application reacts to completions.
        ep.app.next_at = ep.app.next_at.min(self.now + 1);
        if due.context == 0 {
            return Ok(());
        }
        let op = &mut ep.ops[due.context - 1];
        if let Some((base, offset)) = due.content {
            let (from, to) = (offset as usize, offset as usize + due.bytes);
            let bytes = op.buffer.get(from, to).ok_or("beyond the buffer")?;
            if let Some(at) = self.content.differs(base, bytes) {
                return Err(format!("wrong byte at {at}"));
            }
            let more = matches!(&op.kind, OpKind::Recv(recv) if recv.multi || recv.has_parts);
            op.buffer.check(if more { op.buffer.len() } else { to })?;
            op.buffer.poison(from, to);
        }
        if due.last {
            let mut buffer = std::mem::take(&mut op.buffer);
            // Received data was checked above; other buffers were only read, or failed.
            if due.content.is_none() {
                buffer.check(buffer.len())?;
                buffer.poison(0, SCRAP);
            }
            self.tear_down_buffer(e, due.context as u32 - 1, buffer);
        }
        Ok(())
    }

    /// Returns an operation's memory to the application.
    pub(crate) fn tear_down_buffer(&mut self, e: u32, handle: u32, buffer: Buffer) {
        let torn_down = self.eps[e as usize].retired.tear_down(handle, buffer);
        if let Err((handle, text)) = torn_down {
            self.broken(e, format!("{text}, {handle}"));
        }
    }

    pub(crate) fn end(&mut self, e: u32, handle: u32) -> Result<(), String> {
        let now = self.now;
        self.progress_ns = now;
        self.worked_ns = now;
        let ended = self.eps[e as usize].end_op(handle, now);
        ended
            .then_some(())
            .ok_or_else(|| format!("operation {handle} ends twice"))
    }

    /// True if `e` may fail operations that name `other`.
    pub(crate) fn lost_peer(&self, e: u32, other: u32) -> bool {
        let there = &self.eps[other as usize];
        !there.alive || there.closed || self.eps[e as usize].believes_dead(other)
    }

    /// Checks that an operation failed within the detection time after the death of `other`.
    pub(crate) fn prompt(&self, e: u32, handle: u32, other: u32) -> Result<(), String> {
        let (here, there) = (&self.eps[e as usize], &self.eps[other as usize]);
        let posted = here.ops[handle as usize].posted_ns;
        let since = posted.max(there.died_ns);
        let asleep = |f: &Fault| {
            let (host, ends_ns) = match f.what {
                Trouble::Stopped { host } => (host, f.to_ns),
                Trouble::ClockJump { host, .. } => (host, f.from_ns),
                // Without a progress thread no timer runs while the application computes.
                Trouble::Compute { host } if !self.setup.threaded => (host, f.to_ns),
                _ => return false,
            };
            host == here.host && f.from_ns <= self.now && ends_ns >= since
        };
        if there.alive || self.setup.faults.iter().any(asleep) {
            return Ok(());
        }
        // Arrival of the last packet that the peer had sent.
        let heard = here.last_words.get(&other).copied().unwrap_or(0);
        let since = since.max(heard);
        let late = self.now - since;
        let bound = self.declared_within_ns(here.host, since);
        (late <= bound).then_some(()).ok_or_else(|| {
            format!(
                "operation {handle} outlived its peer by {} ms",
                late / 1_000_000
            )
        })
    }

    /// The node reports the end of a send: delivered completely, or failed.
    pub(crate) fn sent(
        &mut self,
        e: u32,
        handle: u32,
        end: Result<(), OpError>,
    ) -> Result<(), String> {
        let ok = end.is_ok();
        self.mix(&[self.now, 2, handle as u64, ok as u64]);
        (self.progress_ns, self.worked_ns) = (self.now, self.now);
        let ep = &mut self.eps[e as usize];
        let uid = match ep.ops[handle as usize].kind {
            OpKind::Send { uid, .. } => uid,
            OpKind::Put { .. } => return self.put_over(e, handle, end),
            OpKind::Atomic(_) => return self.atomic_over(e, handle, end),
            OpKind::Read(_) if ep.ops[handle as usize].buffer.len() == 0 => return Ok(()),
            _ => return Err(format!("operation {handle} is not a send")),
        };
        ep.open -= 1;
        let dst = self.truth.msgs[uid as usize].dst;
        let there = &self.eps[dst as usize];
        let all_acked_bye = there.alive && there.closed && !self.eps[e as usize].believes_dead(dst);
        if !ok && all_acked_bye && self.truth.msgs[uid as usize].delivered {
            let text = format!("send of message {uid} failed, which endpoint {dst} received");
            return Err(text);
        }
        if !ok {
            self.truth.settle(uid);
        }
        let msg = &mut self.truth.msgs[uid as usize];
        if msg.send_done.replace(ok).is_some() {
            return Err(format!("send of message {uid} ends twice"));
        }
        // A message to the endpoint itself stays in the sender's memory until received.
        let taken = msg.src != dst || msg.matched.is_some() || msg.discarded;
        // Natively sent messages count as delivered.
        let kept = self.setup.node.native_rails == 0;
        if ok && kept && !(msg.head_seen && msg.complete() && taken) {
            let text = format!("send of message {uid} is over before its data is safe");
            return Err(text);
        }
        msg.forget();
        self.check_lent(e, &self.eps[e as usize].ops[handle as usize].buffer)?;
        if !ok {
            self.prompt(e, handle, dst)?;
        }
        if !ok && !self.lost_peer(e, dst) {
            let text = format!("send of message {uid} failed, but endpoint {dst} lives");
            return Err(text);
        }
        Ok(())
    }

    fn send_completed(&mut self, e: u32, handle: u32, entry: &Completion) -> Result<Due, String> {
        let ep = &mut self.eps[e as usize];
        let OpKind::Send {
            uid,
            delivery,
            held,
            entry: due,
        } = &mut ep.ops[handle as usize].kind
        else {
            return Err("not a send".into());
        };
        let (uid, delivery, held) = (*uid, *delivery, *held);
        if !std::mem::take(due) {
            return Err("an entry that nobody asked for".into());
        }
        ep.awaited -= 1;
        let msg = &self.truth.msgs[uid as usize];
        let kind = if msg.tag.is_some() {
            flag::TAGGED
        } else {
            flag::MSG
        };
        if entry.flags != flag::SEND | kind {
            return Err("wrong flags".into());
        }
        let fine = match (delivery, entry.error) {
            (true, None) => msg.send_done == Some(true),
            (_, Some(OpError::PeerDead)) if held => msg.send_done == Some(false),
            (false, None) => true,
            _ => false,
        };
        if !fine {
            return Err(format!("message {uid} is {:?}", msg.send_done));
        }
        self.end(e, handle)?;
        let mut due = Due::of(entry);
        if !held {
            // The memory was free when the call returned.
            due.last = false;
        }
        Ok(due)
    }

    fn recv_completed(&mut self, e: u32, handle: u32, entry: &Completion) -> Result<Due, String> {
        if self.eps[e as usize].ops[handle as usize].done_ns.is_some() {
            return Err("entry of a finished receive".into());
        }
        match entry.error {
            None if entry.flags == flag::MULTI_RECV => self.released(e, handle, entry),
            None | Some(OpError::Truncated) => self.received(e, handle, entry),
            Some(OpError::Cancelled) => self.recv_cancelled(e, handle, entry),
            Some(OpError::PeerDead) => self.recv_failed(e, handle).map(|()| Due::of(entry)),
            Some(_) => Err("not an error of a receive".into()),
        }
    }

    fn received(&mut self, e: u32, handle: u32, entry: &Completion) -> Result<Due, String> {
        let ep = &mut self.eps[e as usize];
        let offset = ep.ops[handle as usize].buffer.offset_of(entry.buf);
        let found = ep.take_match(handle, offset, entry, &self.truth.msgs);
        let (matched, left, multi, lost_with_sender) = found?;
        self.check_turn(e, &matched)?;
        let msg = &mut self.truth.msgs[matched.uid as usize];
        check_head(entry, msg, &matched)?;
        if !msg.complete() {
            return Err(format!("too early: {matched:?}"));
        }
        let (base, src) = (msg.base, msg.src);
        msg.delivered = true;
        msg.forget();
        let ep = &mut self.eps[e as usize];
        if !ep.source_is(src, entry.source) {
            return Err(format!("it came from endpoint {src}"));
        }
        ep.owed -= 1;
        self.progress_ns = self.now;
        // A receive from a dead peer takes complete messages, then fails; a cancelled receive ends
        // with its own entry.
        let ep = &self.eps[e as usize];
        let posted = multi && ep.plain.posted.iter().any(|p| p.handle == handle);
        let OpKind::Recv(recv) = &ep.ops[handle as usize].kind else {
            return Err("not a receive".into());
        };
        let goes_on = left || posted || recv.cancelled;
        let last = !multi || entry.flags & flag::MULTI_RECV != 0;
        // If a message was lost with its sender it was the last one, and an error entry may or may
        // not follow: both look the same here. (A receive that never ends is found later.)
        if last == goes_on && (last || !lost_with_sender) {
            let end = format!("left {left}, sender died {lost_with_sender}, {posted} posted");
            return Err(format!("multi {multi}: wrong last ({end})"));
        }
        if last {
            self.end(e, handle)?;
        }
        Ok(Due {
            content: Some((base, offset)),
            last,
            ..Due::of(entry)
        })
    }

    fn recv_cancelled(&mut self, e: u32, handle: u32, entry: &Completion) -> Result<Due, String> {
        let ep = &mut self.eps[e as usize];
        let recv = ep.recv_mut(handle).ok_or("not a receive")?;
        if !recv.cancelled {
            return Err("nobody took it back".into());
        }
        if recv.matches.iter().any(|m| !m.1) {
            return Err("taken back while a message comes in".into());
        }
        if recv.multi != (entry.flags & flag::MULTI_RECV != 0) {
            return Err("wrong flags".into());
        }
        self.end(e, handle)?;
        Ok(Due::of(entry))
    }

    fn recv_failed(&mut self, e: u32, handle: u32) -> Result<(), String> {
        self.end(e, handle)?;
        let ep = &mut self.eps[e as usize];
        let OpKind::Recv(recv) = &mut ep.ops[handle as usize].kind else {
            return Err("not a receive".into());
        };
        let mut sources: Vec<u32> = recv.source.into_iter().collect();
        for (m, done) in recv.matches.iter_mut().filter(|m| !m.1) {
            *done = true;
            ep.owed -= 1;
            sources.push(self.truth.msgs[m.uid as usize].src);
        }
        let lost_with_sender = recv.lost_with_sender;
        if lost_with_sender && sources.is_empty() {
            *self.troubles.entry("told of a death").or_default() += 1;
        }
        if let [source] = sources[..] {
            self.prompt(e, handle, source)?;
        }
        let fine = lost_with_sender || sources.iter().any(|&s| self.lost_peer(e, s));
        fine.then_some(())
            .ok_or("a receive failed, but its peer lives".into())
    }

    fn read_completed(&mut self, e: u32, handle: u32, entry: &Completion) -> Result<Due, String> {
        let op = &self.eps[e as usize].ops[handle as usize];
        let OpKind::Read(reads) = &op.kind else {
            return Err("not a read".into());
        };
        let (len, ok) = (op.buffer.len(), entry.error.is_none());
        let (server, base) = (reads[0].server, reads[0].base);
        let refusable = reads.iter().any(|read| read.bad || read.closed);
        if entry.flags != flag::RMA | flag::READ {
            return Err("wrong flags".into());
        }
        if ok && reads.iter().any(|read| read.bad || !read.asked) {
            return Err("a read that must be refused".into());
        }
        let stray = |read: &&ReadOp| read.stray && !read.closed && !read.loose;
        for read in reads.iter().filter(stray).filter(|_| ok) {
            let window = &self.eps[server as usize].ops[read.window as usize].buffer;
            let (at, from, len) = (read.at as usize, read.from as usize, read.len as usize);
            if window.get(at, at + len) != op.buffer.get(from, from + len) {
                return Err("what it read was never in the window".into());
            }
        }
        let known = ok && reads.iter().all(|read| !read.stray && !read.loose);
        self.end(e, handle)?;
        let ep = &mut self.eps[e as usize];
        ep.open -= 1;
        if !ok && !refusable {
            self.prompt(e, handle, server)?;
        }
        if !(ok || refusable || self.lost_peer(e, server)) {
            return Err("a good read failed".into());
        }
        self.counts_read(e, handle, ok);
        Ok(Due {
            content: known.then_some((base, 0)),
            last: true,
            bytes: len,
            ..Due::of(entry)
        })
    }

    fn peek_completed(&mut self, e: u32, handle: u32, entry: &Completion) -> Result<Due, String> {
        let ep = &mut self.eps[e as usize];
        let OpKind::Peek { want, claim } = ep.ops[handle as usize].kind else {
            return Err("not a peek".into());
        };
        ep.awaited -= 1;
        match (want, entry.error) {
            (None, Some(OpError::NoMessage)) => {}
            (Some(uid), None) => {
                let msg = &self.truth.msgs[uid as usize];
                let matched = Match {
                    uid,
                    handle,
                    base: 0,
                    room: u64::MAX,
                };
                check_head(entry, msg, &matched)?;
                if !ep.source_is(msg.src, entry.source) {
                    return Err(format!("it came from endpoint {}", msg.src));
                }
                if claim {
                    ep.plain.unexpected.retain(|&u| u != uid);
                    ep.claims.push((handle, uid));
                }
            }
            _ => return Err(format!("it must find {want:?}")),
        }
        self.end(e, handle)?;
        Ok(Due {
            last: false,
            ..Due::of(entry)
        })
    }

    pub(crate) fn peer_dead(&mut self, e: u32, of: (u32, Option<Evidence>)) -> Result<(), String> {
        let (other, refused) = of;
        let ep = &mut self.eps[e as usize];
        ep.torn_down.push(other);
        ep.plain.tear_down(other, &self.truth.msgs);
        self.give_back(e, other);
        let ep = &mut self.eps[e as usize];
        // The death of a peer whose address was never inserted ends no receive from any source.
        let named = ep.addrs.contains_key(&other);
        for handle in if named {
            ep.plain.take_reported()
        } else {
            Vec::new()
        } {
            if let Some(recv) = ep.recv_mut(handle) {
                recv.lost_with_sender = true;
            }
        }
        // Messages matched by a multi-receive that is still posted fail without an entry.
        for op in ep.ops.iter_mut().filter(|op| op.done_ns.is_none()) {
            let OpKind::Recv(recv) = &mut op.kind else {
                continue;
            };
            if recv.multi {
                let gone = |m: &Match| self.truth.msgs[m.uid as usize].src == other;
                let before = recv.matches.len();
                recv.lost_with_sender |= recv.matches.iter().any(|(m, done)| !done && gone(m));
                recv.matches.retain(|(m, done)| *done || !gone(m));
                ep.owed -= (before - recv.matches.len()) as u32;
            }
        }
        let there = &self.eps[other as usize];
        let may_die = self.setup.may_die || self.now < self.rounds.deaths_until;
        let known = !there.alive || there.closed || may_die;
        let silent = there.believes_dead(e) || self.eps[e as usize].closed;
        let misled = refused.is_some_and(|why| self.every_path_refuses(e, other, why));
        (known || silent || misled || self.is_cut_off(e, other))
            .then_some(())
            .ok_or(format!("endpoint {other} is called dead, and lives"))
    }

    /// Checks that timers do not fire repeatedly without effect.
    pub(crate) fn check_spinning(&mut self, e: u32, busy: bool) {
        let now = self.now;
        let most = 200.max(4 * self.eps.len() as u32);
        let (turns, since) = &mut self.eps[e as usize].idle_turns;
        if busy || now - *since > 1_000_000 {
            (*turns, *since) = (0, now);
        }
        *turns += 1;
        // In large clusters each peer may have a timer of its own in that time.
        if *turns > most {
            let ep = &self.eps[e as usize];
            let at = ep.engine.inspect(|core| core.next_deadline());
            let in_ns = at.map(|at| at.saturating_sub(ep.machine.peek_now()));
            self.broken(e, format!("timers spin: next in {in_ns:?} ns"));
        }
    }

    /// Checks after each turn that memory is within its bounds (more in `bounds`), and, in small
    /// clusters, that a liveness probe of every awaited peer is in progress or scheduled.
    pub(crate) fn check_bounds(&mut self, e: u32) {
        self.check_kept(e);
        let small = self.eps.len() <= ASKED_MAX;
        let look = |node: &marline_proto::Node| {
            let (stats, unasked) = (node.stats(), small.then(|| node.unasked()).flatten());
            (unasked, stats.unexpected_bytes, stats.unexpected_bytes_max)
        };
        let Some((unasked, used, max)) = self.eps[e as usize].node(look) else {
            return;
        };
        if let Some(id) = unasked {
            let who = index_of(id);
            self.broken(e, format!("waits for {who}, and no timer asks it"));
        }
        let peers = self.eps.len() as u64;
        // Doubled for peers whose credit predates the shortage, plus first credits.
        let bound = 2 * self.setup.node.unexpected_bytes + peers * 16 * 1024;
        if used > bound || max < used {
            self.broken(e, format!("unexpected memory: {used} of {bound} bytes"));
        }
    }
}

/// Checks an entry's attributes against its message.
fn check_head(entry: &Completion, msg: &Msg, matched: &Match) -> Result<(), String> {
    let len = msg.len.min(matched.room);
    let cut = msg.len - len;
    let kind = if msg.tag.is_some() {
        flag::TAGGED
    } else {
        flag::MSG
    };
    let data = if msg.data.is_some() {
        flag::REMOTE_CQ_DATA
    } else {
        0
    };
    let error = (cut > 0).then_some(OpError::Truncated);
    let says = (
        entry.len as u64,
        entry.olen as u64,
        entry.error,
        entry.tag,
        entry.data,
        entry.flags & !flag::MULTI_RECV,
    );
    let want = (
        len,
        cut,
        error,
        msg.tag.unwrap_or(0),
        msg.data.unwrap_or(0),
        flag::RECV | kind | data,
    );
    (says == want)
        .then_some(())
        .ok_or_else(|| format!("it must say {want:?} of {msg:?}"))
}

impl Due {
    /// The contents of an entry of a finished operation without data.
    pub(crate) fn of(entry: &Completion) -> Due {
        Due {
            context: entry.context,
            len: entry.len,
            bytes: entry.len,
            error: entry.error,
            content: None,
            last: true,
        }
    }
}

impl Endpoint {
    /// Ends the message of an entry with this offset. Returns the message, and whether others
    /// remain.
    fn take_match(
        &mut self,
        handle: u32,
        offset: u64,
        entry: &Completion,
        msgs: &[Msg],
    ) -> Result<(Match, bool, bool, bool), String> {
        let addrs = &self.addrs;
        let recv = match &mut self.ops[handle as usize].kind {
            OpKind::Recv(recv) => recv,
            _ => return Err("not a receive".into()),
        };
        let is_it = |m: &&mut (Match, bool)| {
            let msg = &msgs[m.0.uid as usize];
            let source = addrs.get(&msg.src).copied();
            let source = source.unwrap_or(marline_engine::ADDR_UNSPEC);
            let fits = source == entry.source && msg.tag.unwrap_or(0) == entry.tag;
            !m.1 && m.0.base == offset && (!recv.multi || fits)
        };
        let Some(found) = recv.matches.iter_mut().find(is_it) else {
            let open = recv.matches.iter().filter(|m| !m.1).map(|m| m.0);
            let due: Vec<Match> = open.collect();
            return Err(format!("matching order: at {offset} it must get {due:?}"));
        };
        found.1 = true;
        let matched = found.0;
        let left = recv.matches.iter().any(|m| !m.1);
        Ok((matched, left, recv.multi, recv.lost_with_sender))
    }
}
