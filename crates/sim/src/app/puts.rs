//! Remote writes of applications into windows of peers (`windows`).

use crate::app::ops::{draw_cuts, remote_request};
use crate::truth::memory::{Buffer, OpKind};
use crate::truth::messages::Put;
use crate::truth::remote::{head_of, Ask, Call, Piece, Wrong, SHORT_MAX};
use crate::world::endpoint::Due;
use crate::world::state::World;
use crate::world::trace::Trace;
use crate::world::windows::User;
use marline_engine::{flag, Completion, OpError, SubmitError};
use std::ops::Range;

/// A remote write to post.
#[derive(Clone, Copy, Debug)]
struct NewPut {
    dst: u32,
    len: u64,
    /// True if, as far as is known at present, the write must be refused.
    bad: bool,
    /// True if success writes an entry.
    entry: bool,
    /// Data for the target's queue.
    data: Option<u64>,
}

/// Posting.
impl World {
    /// Posts a remote write.
    pub(crate) fn post_put(&mut self, e: u32, dst: u32, len: u64, bad: bool, in_round: bool) {
        let rng = &mut self.windows_rng;
        let none = rng.one_in(40) || len == 0 && rng.one_in(2);
        let data = (self.setup.calls && rng.one_in(4)).then(|| rng.next());
        let put = NewPut {
            dst,
            len: if none { 0 } else { len.max(1) },
            bad,
            entry: !rng.one_in(4),
            data,
        };
        self.put_bytes(e, &put, in_round);
    }

    fn put_bytes(&mut self, e: u32, put: &NewPut, in_round: bool) {
        let &NewPut {
            dst, len, entry, ..
        } = put;
        let cuts = draw_cuts(&mut self.eps[e as usize].app.rng, len as usize);
        let uid = self.truth.msgs.len() as u32;
        let base = self.truth.base_of(uid);
        let pieces = self.draw_pieces(len, put.bad, |world, (from, len), bad| match bad {
            true => {
                let wrong = Wrong::draw(&mut world.windows_rng);
                world.wrong_spot(dst, len, wrong, base + from)
            }
            false => world.find_room(dst, len, None),
        });
        let remote = self.named(&pieces);
        let mut buffer = Buffer::with(self.content, base, len as usize);
        let dest = self.addr(e, dst);
        let ep = &mut self.eps[e as usize];
        let iov = buffer.pieces(&cuts);
        let request = remote_request(dest, &iov, &remote, ep.ops.len(), (entry, put.data));
        let result = ep.engine.put(ep.ep, &request);
        if self.put_left_out(e, put, &pieces, result) {
            return;
        }
        self.add_puts(e, put, &pieces, &buffer);
        let in_call = pieces.len() == 1 && self.is_rpc(pieces[0].len);
        let kind = OpKind::Put {
            dst,
            uid,
            pieces: pieces.len() as u32,
            entry,
            data: put.data.filter(|_| !in_call),
        };
        let (now, ep) = (self.now, &mut self.eps[e as usize]);
        let handle = ep.add_op(kind, buffer, now, in_round);
        ep.open += 1;
        if self.tracing {
            let text = format!("put {handle} = messages from {uid} on: {put:x?} in {pieces:x?}");
            ep.note(now, Trace::Did(text));
        }
        self.counts(dst, false);
        self.accepted(e, "put", result);
    }

    /// Records a write's messages: one per segment.
    fn add_puts(&mut self, e: u32, put: &NewPut, pieces: &[Piece], buffer: &Buffer) {
        let (dst, own) = (put.dst, put.dst == e);
        let base = self.truth.base_of(self.truth.msgs.len() as u32);
        let mut at_once = Vec::new();
        for (i, &Piece { spot, from, len }) in pieces.iter().enumerate() {
            let is_rpc = self.is_rpc(len);
            let data = put.data.filter(|_| is_rpc && pieces.len() == 1);
            let alone = pieces.len() == 1 && put.data == data;
            let uid = self.truth.add(e, dst, None, None, len);
            self.truth.settle(uid);
            let msg = &mut self.truth.msgs[uid as usize];
            let put = Put::new(spot, data);
            (msg.base, msg.put) = (base + from, Some(Put { alone, ..put }));
            (msg.head_seen, msg.arrived) = (own, own);
            if is_rpc && !own {
                let mut bytes = head_of(spot.key, spot.addr, data);
                let (from, to) = (from as usize, (from + len) as usize);
                bytes.extend_from_slice(buffer.get(from, to).unwrap_or_default());
                let mut call = Call::new(Ask::Put, bytes);
                call.more = i + 1 < pieces.len();
                msg.call = Some(call);
            }
            if is_rpc && !own {
                self.join_calls(e, uid);
            }
            self.used_by(dst, spot.window, User::Put(uid));
            match is_rpc && own {
                true => at_once.push(uid),
                false => self.put_due(e, dst, uid, false),
            }
        }
        for uid in at_once.into_iter().rev() {
            self.put_due(e, dst, uid, true);
        }
    }

    /// Returns whether a write of this length is an RPC.
    fn is_rpc(&self, len: u64) -> bool {
        len == 0 || self.setup.calls && len <= SHORT_MAX
    }

    /// Makes `dst` expect a write of `e`: after earlier writes, or (`at_once`) next.
    pub(crate) fn put_due(&mut self, e: u32, dst: u32, uid: u32, at_once: bool) {
        let due = &mut self.eps[dst as usize].windows.puts_due;
        let due = due.entry(e).or_default();
        match at_once {
            true => due.push_front(uid),
            false => due.push_back(uid),
        }
    }

    /// True if a write was legitimately refused.
    fn put_left_out(
        &mut self,
        e: u32,
        put: &NewPut,
        pieces: &[Piece],
        result: Result<(), SubmitError>,
    ) -> bool {
        let dst = put.dst;
        let calls = pieces.iter().filter(|piece| self.is_rpc(piece.len));
        let bytes: Vec<usize> = calls.map(|call| call.len as usize).collect();
        if !bytes.is_empty() {
            return self.call_left_out(e, dst, &bytes, result);
        }
        if result == Err(SubmitError::Again) && dst == e {
            self.absorb(e); // without room for messages to itself, the endpoint skips this one
            return true;
        }
        if result != Err(SubmitError::PeerDead) {
            return false;
        }
        if !self.lost_peer(e, dst) {
            self.broken(e, format!("put to live peer {dst} refused"));
        }
        true
    }
}

/// Completion.
impl World {
    /// The node reports the end of a remote write.
    pub(crate) fn put_over(
        &mut self,
        e: u32,
        handle: u32,
        end: Result<(), OpError>,
    ) -> Result<(), String> {
        let op = &self.eps[e as usize].ops[handle as usize];
        let OpKind::Put {
            dst,
            uid,
            pieces,
            entry,
            data,
        } = op.kind
        else {
            return Err("not a put".into());
        };
        let kind = match (end.is_ok(), entry) {
            (true, true) => "put",
            (true, false) => "put without entry",
            (false, _) => "put failed",
        };
        *self.troubles.entry(kind).or_default() += 1;
        if end.is_ok() && data.is_some() {
            return Err(format!("put of message {uid} is over without its data"));
        }
        self.pieces_over(e, handle, uid..uid + pieces, end)?;
        if end.is_ok() {
            self.counts_done(dst, false);
        }
        self.check_lent(e, &self.eps[e as usize].ops[handle as usize].buffer)?;
        if end.is_err() || entry {
            return Ok(());
        }
        self.end_without_entry(e, handle)
    }

    fn pieces_over(
        &mut self,
        e: u32,
        handle: u32,
        uids: Range<u32>,
        end: Result<(), OpError>,
    ) -> Result<(), String> {
        let puts = self.truth.msgs[uids.start as usize..uids.end as usize].iter();
        let mut puts = puts.filter_map(|msg| msg.put);
        match end {
            Err(OpError::BadRemoteMemory) if !puts.any(|put| put.asked && !put.open) => Err(
                format!("put of messages {uids:?} refused, not in its turn or good"),
            ),
            Err(OpError::PeerDead) => {
                let dst = self.truth.msgs[uids.start as usize].dst;
                self.prompt(e, handle, dst)?;
                if self.lost_peer(e, dst) {
                    uids.into_iter()
                        .try_for_each(|uid| self.bytes_over(uid, end))
                } else {
                    Err(format!(
                        "put of messages {uids:?} failed, but endpoint {dst} lives"
                    ))
                }
            }
            Ok(()) | Err(OpError::BadRemoteMemory) => uids
                .into_iter()
                .try_for_each(|uid| self.bytes_over(uid, end)),
            Err(other) => Err(format!("not an error of a put: {other:?}")),
        }
    }

    /// Ends one segment of a write.
    fn bytes_over(&mut self, uid: u32, end: Result<(), OpError>) -> Result<(), String> {
        let msg = &mut self.truth.msgs[uid as usize];
        if msg.send_done.replace(end.is_ok()).is_some() {
            return Err(format!("put of message {uid} ends twice"));
        }
        let (dst, whole) = (msg.dst, msg.head_seen && msg.complete());
        let unanswered = msg.call.as_ref().is_some_and(|call| !call.answered);
        let put = msg.put.ok_or("not a put")?;
        msg.delivered = true;
        // The receiver may still execute an RPC although its sender has given it up.
        if msg.call.as_ref().is_none_or(|call| call.done) {
            msg.forget();
        }
        match end {
            Ok(()) if put.bad || !put.asked => Err("a put that must be refused".into()),
            Ok(()) if unanswered => Err(format!("put {uid} is over without an answer")),
            Ok(()) if !whole => Err(format!("put {uid} is over before its data is safe")),
            Ok(()) if put.open => self.check_window(dst, uid),
            _ => Ok(()),
        }
    }

    pub(crate) fn put_completed(
        &mut self,
        e: u32,
        handle: u32,
        entry: &Completion,
    ) -> Result<Due, String> {
        let op = &self.eps[e as usize].ops[handle as usize];
        let OpKind::Put {
            uid, entry: due, ..
        } = op.kind
        else {
            return Err("not a put".into());
        };
        if entry.flags != flag::RMA | flag::WRITE {
            return Err("wrong flags".into());
        }
        if entry.error.is_none() && !due {
            return Err("an entry that nobody asked for".into());
        }
        if self.truth.msgs[uid as usize].send_done != Some(entry.error.is_none()) {
            return Err(format!("put of message {uid} is not what its entry says"));
        }
        self.end(e, handle)?;
        self.eps[e as usize].open -= 1;
        Ok(Due::of(entry))
    }

    /// Checks that the window holds all written bytes and nothing else.
    fn check_window(&self, dst: u32, uid: u32) -> Result<(), String> {
        let msg = &self.truth.msgs[uid as usize];
        let alive = self.eps[dst as usize].alive;
        let Some(put) = msg.put.filter(|put| alive && !put.loose) else {
            return Ok(());
        };
        let buffer = &self.eps[dst as usize].ops[put.window as usize].buffer;
        let (from, to) = (put.at as usize, (put.at + msg.len) as usize);
        let bytes = buffer.get(from, to).ok_or("beyond the window")?;
        match self.place_differs(msg, &put, bytes) {
            Some(at) => Err(format!("put of message {uid}: wrong byte at {at}")),
            None => Ok(()),
        }
    }
}
