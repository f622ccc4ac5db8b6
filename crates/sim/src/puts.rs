//! Remote writes of applications. Each has memory of its own at its target, registered for it alone
//! (as if both had agreed on it before): a window, which its owner closes when the write is over,
//! or, now and then, before. So have some of the reads.

use crate::check::SCRAP;
use crate::endpoint::{Due, Trace, User, Window, KEY};
use crate::memory::{Buffer, OpKind};
use crate::ops::{draw_cuts, remote_request};
use crate::rng::Rng;
use crate::truth::Put;
use crate::world::World;
use marline_engine::{flag, Completion, OpError, Region, SubmitError};

/// Keys of windows, from here on.
const WINDOWS: u64 = 1 << 32;
/// Bytes on either side of a write in its window, at most.
const BESIDE: u64 = 100;
/// Steps of an application until it closes a window that is still written into.
const HASTE: u64 = 300;
/// No message.
const NONE: u32 = u32::MAX;

/// What is wrong with a remote write.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Wrong {
    Nothing,
    /// There is no such memory.
    Key,
    /// Peers may only read it.
    ReadOnly,
    /// It ends one byte before the write does.
    Short,
}

impl Wrong {
    fn draw(rng: &mut Rng, bad: bool) -> Wrong {
        match bad {
            true => rng.pick(&[Wrong::Key, Wrong::ReadOnly, Wrong::Short]),
            false => Wrong::Nothing,
        }
    }
}

/// The writer.
impl World {
    /// Posts a remote write.
    pub(crate) fn post_put(&mut self, e: u32, dst: u32, len: u64, bad: bool, in_round: bool) {
        let len = len.max(1);
        let there = &self.eps[dst as usize];
        let gone = !there.alive || there.closed;
        let rng = &mut self.eps[e as usize].app.rng;
        let (wrong, at) = (Wrong::draw(rng, bad), rng.below(BESIDE));
        let cuts = draw_cuts(rng, len as usize);
        let windowed = !gone && matches!(wrong, Wrong::Nothing | Wrong::Short);
        let (window, key) = match windowed {
            true => self.open_window(e, dst, at + len, wrong),
            false if wrong == Wrong::ReadOnly => (NONE, KEY),
            false => (NONE, WINDOWS - 1),
        };
        let uid = self.truth.msgs.len() as u32;
        let mut buffer = Buffer::with(self.content, self.truth.base_of(uid), len as usize);
        let dest = self.addr(e, dst);
        let ep = &mut self.eps[e as usize];
        let iov = buffer.pieces(&cuts);
        let remote = [(at, len as usize, key)];
        let request = remote_request(dest, &iov, &remote, ep.ops.len());
        let result = ep.engine.put(ep.ep, &request);
        if result == Err(SubmitError::Again) && dst == e {
            return self.absorb(e); // messages to itself have no room: it leaves this one out
        }
        if result == Err(SubmitError::PeerDead) {
            if !(gone || ep.believes_dead(dst)) {
                self.broken(e, format!("put to live peer {dst} refused"));
            }
            return;
        }
        let uid = self.truth.add(e, dst, None, None, len);
        self.truth.settle(uid);
        let open = windowed && wrong == Wrong::Nothing;
        self.truth.msgs[uid as usize].put = Some(Put {
            window,
            at,
            open,
            bad: !open,
        });
        if windowed {
            self.used_by(dst, User::Put(uid));
        }
        let (now, ep) = (self.now, &mut self.eps[e as usize]);
        let handle = ep.add_op(OpKind::Put { uid }, buffer, now, in_round);
        ep.open += 1;
        if self.tracing {
            let text = format!("put {handle} = message {uid} of {len} B to {dst}, bad {bad}");
            ep.note(now, Trace::Did(text));
        }
        if dst == e {
            let msg = &mut self.truth.msgs[uid as usize];
            (msg.head_seen, msg.arrived) = (true, true);
            msg.land(0, len);
        }
        self.accepted(e, "put", result);
    }

    /// The node is done with a remote write.
    pub(crate) fn put_over(
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
        let put = msg.put.ok_or("not a put")?;
        msg.delivered = true;
        msg.forget();
        let how = if end.is_ok() { "put" } else { "put failed" };
        *self.troubles.entry(how).or_default() += 1;
        match end {
            Ok(()) if put.bad => return Err("a put that must be refused".into()),
            Ok(()) if !whole => return Err(format!("put {uid} is over before its data is safe")),
            Ok(()) if put.open => self.check_window(dst, uid)?,
            Err(OpError::BadRemoteMemory) if put.open => return Err("a good put failed".into()),
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
        self.check_lent(e, &self.eps[e as usize].ops[handle as usize].buffer)
    }

    pub(crate) fn put_completed(
        &mut self,
        e: u32,
        handle: u32,
        entry: &Completion,
    ) -> Result<Due, String> {
        let OpKind::Put { uid } = self.eps[e as usize].ops[handle as usize].kind else {
            return Err("not a put".into());
        };
        if entry.flags != flag::RMA | flag::WRITE {
            return Err("wrong flags".into());
        }
        if self.truth.msgs[uid as usize].send_done != Some(entry.error.is_none()) {
            return Err(format!("put of message {uid} is not what its entry says"));
        }
        self.end(e, handle)?;
        self.eps[e as usize].open -= 1;
        Ok(Due::of(entry))
    }
}

/// The owner of the memory.
impl World {
    /// Memory of `dst` for one write of `e` that ends at `end`; the operation, and its key.
    fn open_window(&mut self, e: u32, dst: u32, end: u64, wrong: Wrong) -> (u32, u64) {
        let more = self.eps[e as usize].app.rng.below(BESIDE);
        let len = if wrong == Wrong::Short {
            end - 1
        } else {
            end + more
        };
        self.open(dst, Buffer::new(len as usize), true)
    }

    /// Memory of `dst` for one read; its key.
    pub(crate) fn open_to_read(&mut self, dst: u32, base: u64, len: u64) -> u64 {
        let there = &self.eps[dst as usize];
        if !there.alive || there.closed {
            return WINDOWS - 1;
        }
        let buffer = Buffer::with(self.content, base, len as usize);
        self.open(dst, buffer, false).1
    }

    fn open(&mut self, dst: u32, mut buffer: Buffer, writable: bool) -> (u32, u64) {
        let (base, len) = (buffer.pieces(&[])[0].base, buffer.len());
        let (now, ep) = (self.now, &mut self.eps[dst as usize]);
        let handle = ep.add_op(OpKind::Window, buffer, now, false);
        let user = User::Nobody;
        ep.windows.push(Window { handle, user });
        let key = WINDOWS + handle as u64;
        let region = Region {
            key,
            base,
            len,
            virt_addr: false,
            writable,
        };
        let opened = ep.engine.mr_open(&region);
        self.accepted(dst, "window", opened);
        (handle, key)
    }

    /// The newest window of `dst` is for this.
    pub(crate) fn used_by(&mut self, dst: u32, user: User) {
        if let Some(newest) = self.eps[dst as usize].windows.last_mut() {
            newest.user = user;
        }
    }

    /// What was written is there, and nothing beside it.
    fn check_window(&self, dst: u32, uid: u32) -> Result<(), String> {
        let msg = &self.truth.msgs[uid as usize];
        let Some(put) = msg.put.filter(|_| self.eps[dst as usize].alive) else {
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

    /// Closes the windows that are of no use any more, and now and then another.
    pub(crate) fn close_windows(&mut self, e: u32) {
        let mut at = 0;
        while let Some(&window) = self.eps[e as usize].windows.get(at) {
            let over = self.is_over(window.user);
            if !over && !self.eps[e as usize].app.rng.one_in(HASTE) {
                at += 1;
                continue;
            }
            self.eps[e as usize].windows.remove(at);
            if !over {
                *self.troubles.entry("window closed early").or_default() += 1;
            }
            if let Err(text) = self.close_window(e, window) {
                self.broken(e, format!("{window:?}: {text}"));
            }
        }
    }

    fn is_over(&self, user: User) -> bool {
        let (by, ended) = match user {
            User::Nobody => return true,
            User::Put(uid) => {
                let msg = &self.truth.msgs[uid as usize];
                (msg.src, msg.send_done.is_some())
            }
            User::Read(by, handle) => {
                let op = &self.eps[by as usize].ops[handle as usize];
                (by, op.done_ns.is_some())
            }
        };
        let ep = &self.eps[by as usize];
        ended || !ep.alive || ep.closed
    }

    fn close_window(&mut self, e: u32, window: Window) -> Result<(), String> {
        let Window { handle, user } = window;
        let ep = &mut self.eps[e as usize];
        if self.tracing {
            ep.note(self.now, Trace::Did(format!("{window:?} closes")));
        }
        ep.engine.mr_close(WINDOWS + handle as u64);
        self.absorb(e);
        let now = self.now;
        let ep = &mut self.eps[e as usize];
        let mut buffer = std::mem::take(&mut ep.ops[handle as usize].buffer);
        ep.end_op(handle, now);
        self.check_lent(e, &buffer)?;
        self.check_left(user, &buffer)?;
        buffer.poison(0, SCRAP);
        self.bury_buffer(e, handle, buffer);
        Ok(())
    }

    /// What is in a window that was just closed: nothing beside the place of the write, or still
    /// what was to be read.
    fn check_left(&mut self, user: User, buffer: &Buffer) -> Result<(), String> {
        let (mut from, mut to) = (0, 0);
        match user {
            User::Nobody => return Ok(()),
            User::Put(uid) => {
                let msg = &mut self.truth.msgs[uid as usize];
                if let Some(put) = msg.put.as_mut().filter(|put| put.open) {
                    put.open = false;
                    (from, to) = (put.at as usize, (put.at + msg.len) as usize);
                }
            }
            User::Read(by, handle) => {
                let op = &mut self.eps[by as usize].ops[handle as usize];
                if let OpKind::Read { base, closed, .. } = &mut op.kind {
                    *closed = true;
                    let bytes = buffer.get(0, buffer.len()).unwrap_or_default();
                    let differs = self.content.differs(*base, bytes);
                    return differs.map_or(Ok(()), |at| Err(format!("was written at {at}")));
                }
            }
        }
        buffer.check_untouched(0, from)?;
        buffer.check(to)?;
        Ok(())
    }
}
