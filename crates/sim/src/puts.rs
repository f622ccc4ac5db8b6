//! Remote writes of applications, into windows of others (`windows`).

use crate::endpoint::{Due, Trace};
use crate::memory::{Buffer, OpKind};
use crate::ops::{draw_cuts, remote_request, NONE};
use crate::remote::{head_of, Ask, Call, SHORT_MAX};
use crate::truth::Put;
use crate::windows::{User, Wrong};
use crate::world::World;
use marline_engine::{flag, Completion, OpError, SubmitError};

/// A remote write that is to be posted.
#[derive(Clone, Copy)]
struct NewPut {
    dst: u32,
    len: u64,
    /// It must be refused, as far as can be said now.
    bad: bool,
    /// An entry tells of its success.
    entry: bool,
    /// For the queue of its target.
    data: Option<u64>,
}

impl NewPut {
    /// It goes in a call.
    fn is_call(&self, calls: bool) -> bool {
        calls && self.len > 0 && self.len <= SHORT_MAX
    }
}

/// Posting.
impl World {
    /// Posts a remote write.
    pub(crate) fn post_put(&mut self, e: u32, dst: u32, len: u64, bad: bool, in_round: bool) {
        let rng = &mut self.windows_rng;
        let none = rng.one_in(40) || len == 0 && rng.one_in(2);
        let data = (self.setup.calls && !none && rng.one_in(4)).then(|| rng.next());
        let put = NewPut {
            dst,
            len: if none { 0 } else { len.max(1) },
            bad,
            entry: !rng.one_in(4),
            data,
        };
        match none {
            true => self.put_nothing(e, &put, in_round),
            false => self.put_bytes(e, &put, in_round),
        }
    }

    /// One of no bytes: nobody is asked, so that nothing can be wrong.
    fn put_nothing(&mut self, e: u32, put: &NewPut, in_round: bool) {
        let spot = self.no_room(put.dst);
        let mut buffer = Buffer::new(0);
        let dest = self.addr(e, put.dst);
        let ep = &mut self.eps[e as usize];
        let iov = buffer.pieces(&[]);
        let remote = [(spot.addr, 0, spot.key)];
        let request = remote_request(dest, &iov, &remote, ep.ops.len(), (put.entry, None));
        let result = ep.engine.put(ep.ep, &request);
        if self.put_left_out(e, put, result) {
            return;
        }
        let (now, entry) = (self.now, put.entry);
        let ep = &mut self.eps[e as usize];
        ep.add_op(OpKind::Put { uid: NONE, entry }, buffer, now, in_round);
        ep.open += 1;
        self.accepted(e, "put", result);
    }

    fn put_bytes(&mut self, e: u32, put: &NewPut, in_round: bool) {
        let &NewPut {
            dst,
            len,
            bad,
            entry,
            data,
        } = put;
        let cuts = draw_cuts(&mut self.eps[e as usize].app.rng, len as usize);
        let uid = self.truth.msgs.len() as u32;
        let spot = match bad {
            true => {
                let wrong = Wrong::draw(&mut self.windows_rng);
                self.wrong_spot(dst, len, wrong, self.truth.base_of(uid))
            }
            false => self.find_room(dst, len, None),
        };
        let mut buffer = Buffer::with(self.content, self.truth.base_of(uid), len as usize);
        let dest = self.addr(e, dst);
        let ep = &mut self.eps[e as usize];
        let iov = buffer.pieces(&cuts);
        let remote = [(spot.addr, len as usize, spot.key)];
        let request = remote_request(dest, &iov, &remote, ep.ops.len(), (entry, data));
        let result = ep.engine.put(ep.ep, &request);
        if self.put_left_out(e, put, result) {
            return;
        }
        let uid = self.truth.add(e, dst, None, None, len);
        self.truth.settle(uid);
        let msg = &mut self.truth.msgs[uid as usize];
        msg.put = Some(Put::new(spot, data));
        if put.is_call(self.setup.calls) && dst != e {
            let mut bytes = head_of(spot.key, spot.addr, data);
            bytes.extend_from_slice(buffer.get(0, len as usize).unwrap_or_default());
            msg.call = Some(Call::new(Ask::Put, bytes));
        }
        self.used_by(dst, spot.window, User::Put(uid));
        let now_done = put.is_call(self.setup.calls) && dst == e;
        self.put_due(e, dst, uid, now_done);
        let (now, ep) = (self.now, &mut self.eps[e as usize]);
        let handle = ep.add_op(OpKind::Put { uid, entry }, buffer, now, in_round);
        ep.open += 1;
        if self.tracing {
            let text = format!(
                "put {handle} = message {uid} of {len} B to {dst}, bad {bad}, \
                entry {entry}, {spot:x?}"
            );
            ep.note(now, Trace::Did(text));
        }
        if dst == e {
            let msg = &mut self.truth.msgs[uid as usize];
            (msg.head_seen, msg.arrived) = (true, true);
        }
        self.accepted(e, "put", result);
    }

    /// `dst` is to be asked for a write of `e`: behind those before it, or at once.
    pub(crate) fn put_due(&mut self, e: u32, dst: u32, uid: u32, at_once: bool) {
        let due = &mut self.eps[dst as usize].windows.puts_due;
        let due = due.entry(e).or_default();
        match at_once {
            true => due.push_front(uid),
            false => due.push_back(uid),
        }
    }

    /// True if a write was not taken, as it may be.
    fn put_left_out(&mut self, e: u32, put: &NewPut, result: Result<(), SubmitError>) -> bool {
        let dst = put.dst;
        if put.is_call(self.setup.calls) {
            return self.call_left_out(e, dst, put.len as usize, result);
        }
        if result == Err(SubmitError::Again) && dst == e {
            self.absorb(e); // messages to itself have no room: it leaves this one out
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

/// The end.
impl World {
    /// The node is done with a remote write.
    pub(crate) fn put_over(
        &mut self,
        e: u32,
        handle: u32,
        (uid, entry): (u32, bool),
        end: Result<(), OpError>,
    ) -> Result<(), String> {
        let kind = match (end.is_ok(), entry) {
            (true, true) => "put",
            (true, false) => "put without entry",
            (false, _) => "put failed",
        };
        *self.troubles.entry(kind).or_default() += 1;
        match uid {
            NONE if end.is_ok() => {}
            NONE => return Err(format!("a put of nothing fails: {end:?}")),
            _ => self.bytes_over(e, handle, uid, end)?,
        }
        self.check_lent(e, &self.eps[e as usize].ops[handle as usize].buffer)?;
        if end.is_err() || entry {
            return Ok(());
        }
        self.end_untold(e, handle)
    }

    fn bytes_over(
        &mut self,
        e: u32,
        handle: u32,
        uid: u32,
        end: Result<(), OpError>,
    ) -> Result<(), String> {
        let msg = &mut self.truth.msgs[uid as usize];
        if msg.send_done.replace(end.is_ok()).is_some() {
            return Err(format!("put of message {uid} ends twice"));
        }
        let (dst, whole) = (msg.dst, msg.head_seen && msg.complete());
        let unanswered = msg.call.as_ref().is_some_and(|call| !call.answered);
        let put = msg.put.ok_or("not a put")?;
        msg.delivered = true;
        // A call that its sender has given up may still be done, while the other side has not.
        if msg.call.as_ref().is_none_or(|call| call.done) {
            msg.forget();
        }
        match end {
            Ok(()) if put.bad || !put.asked => return Err("a put that must be refused".into()),
            Ok(()) if unanswered => return Err(format!("put {uid} is over without an answer")),
            Ok(()) if !whole => return Err(format!("put {uid} is over before its data is safe")),
            Ok(()) if put.open => self.check_window(dst, uid)?,
            Err(OpError::BadRemoteMemory) if put.open => return Err("a good put failed".into()),
            Err(OpError::BadRemoteMemory) if !put.asked => {
                return Err("a put is refused before its turn".into());
            }
            Err(OpError::PeerDead) => {
                self.prompt(e, handle, dst)?;
                if !self.lost_peer(e, dst) {
                    return Err(format!(
                        "put of message {uid} failed, but endpoint {dst} lives"
                    ));
                }
            }
            Ok(()) | Err(OpError::BadRemoteMemory) => {}
            Err(other) => return Err(format!("not an error of a put: {other:?}")),
        }
        Ok(())
    }

    pub(crate) fn put_completed(
        &mut self,
        e: u32,
        handle: u32,
        entry: &Completion,
    ) -> Result<Due, String> {
        let OpKind::Put { uid, entry: due } = self.eps[e as usize].ops[handle as usize].kind else {
            return Err("not a put".into());
        };
        if entry.flags != flag::RMA | flag::WRITE {
            return Err("wrong flags".into());
        }
        if entry.error.is_none() && !due {
            return Err("an entry that nobody asked for".into());
        }
        let done = match uid {
            NONE => Some(true),
            _ => self.truth.msgs[uid as usize].send_done,
        };
        if done != Some(entry.error.is_none()) {
            return Err(format!("put of message {uid} is not what its entry says"));
        }
        self.end(e, handle)?;
        self.eps[e as usize].open -= 1;
        Ok(Due::of(entry))
    }

    /// Checks that all written bytes are there, and nothing beside them.
    fn check_window(&self, dst: u32, uid: u32) -> Result<(), String> {
        let msg = &self.truth.msgs[uid as usize];
        let alive = self.eps[dst as usize].alive;
        let Some(put) = msg.put.filter(|put| alive && !put.loose) else {
            return Ok(());
        };
        let buffer = &self.eps[dst as usize].ops[put.window as usize].buffer;
        let (from, to) = (put.at as usize, (put.at + msg.len) as usize);
        let bytes = buffer.get(from, to).ok_or("beyond the window")?;
        match self.content.differs(msg.base, bytes) {
            Some(at) => Err(format!("put of message {uid}: wrong byte at {at}")),
            None => Ok(()),
        }
    }
}
