//! Operations of an application: posting them and recording them in the truth.

use crate::base::content::PIECE;
use crate::base::rng::Rng;
use crate::truth::memory::{Buffer, OpKind, ReadOp, RecvOp, CUTS_MAX, SCRAP};
use crate::truth::messages::PlainRecv;
use crate::truth::remote::{Piece, Spot, Wrong, KEY, NONE};
use crate::world::app::LateSend;
use crate::world::state::World;
use crate::world::trace::Trace;
use crate::world::windows::User;
use marline_engine::{
    FiAddr, IoVec, OpFlags, RecvReq, RemoteReq, SendReq, SubmitError, ADDR_UNSPEC, INJECT_MAX,
};

/// Longest read, within the region.
const READ_MAX: u64 = PIECE as u64 - 5_000;

/// Draws the flags of a send of this length.
fn draw_flags(rng: &mut Rng, len: usize) -> OpFlags {
    let what = rng.below(4);
    let inject = what == 0 && len <= INJECT_MAX;
    OpFlags {
        inject,
        completion: !inject,
        delivery_complete: what == 1,
        ..OpFlags::default()
    }
}

/// Draws where an operation's memory is split into pieces: usually nowhere.
pub(crate) fn draw_cuts(rng: &mut Rng, len: usize) -> Vec<usize> {
    if !rng.one_in(8) {
        return Vec::new();
    }
    let count = rng.range(1, CUTS_MAX as u64);
    let mut cuts: Vec<usize> = (0..count)
        .map(|_| rng.below(len as u64 + 1) as usize)
        .collect();
    cuts.sort_unstable();
    cuts
}

/// A remote read or write by the next operation of an endpoint that had `ops`. `entry`: success
/// writes an entry. `data` goes to the peer's queue.
pub(crate) fn remote_request<'a>(
    dest: FiAddr,
    iov: &'a [IoVec],
    remote: &'a [(u64, usize, u64)],
    ops: usize,
    (entry, data): (bool, Option<u64>),
) -> RemoteReq<'a> {
    let flags = OpFlags {
        completion: entry,
        ..OpFlags::default()
    };
    RemoteReq {
        dest,
        iov,
        remote,
        data,
        context: ops + 1,
        flags,
    }
}

impl World {
    /// Ends an operation without an entry. (Its counter would report it.)
    pub(crate) fn end_without_entry(&mut self, e: u32, handle: u32) -> Result<(), String> {
        self.end(e, handle)?;
        let now = self.now;
        let ep = &mut self.eps[e as usize];
        ep.open -= 1;
        ep.app.next_at = ep.app.next_at.min(now + 1);
        let mut buffer = std::mem::take(&mut ep.ops[handle as usize].buffer);
        buffer.check(buffer.len())?;
        buffer.poison(0, SCRAP);
        self.tear_down_buffer(e, handle, buffer);
        Ok(())
    }

    /// Checks that a call was accepted.
    pub(crate) fn accepted(&mut self, e: u32, what: &str, result: Result<(), SubmitError>) {
        if let Err(error) = result {
            self.broken(e, format!("{what} refused: {error:?}"));
        }
        self.absorb(e);
    }

    /// The address for the source of a receive.
    pub(crate) fn source_of(&mut self, e: u32, source: Option<u32>) -> u64 {
        let Some(other) = source else {
            return ADDR_UNSPEC;
        };
        self.addr(e, other)
    }

    pub(crate) fn addr(&mut self, e: u32, other: u32) -> u64 {
        if let Some(&addr) = self.eps[e as usize].addrs.get(&other) {
            return addr;
        }
        let blob = self.eps[other as usize].blob.clone();
        let found = self.eps[e as usize].insert_addr(other, &blob);
        found.unwrap_or_else(|error| {
            self.broken(e, format!("address refused: {error:?}"));
            ADDR_UNSPEC
        })
    }

    pub(crate) fn cancel(&mut self, e: u32, handle: u32) {
        let ep = &mut self.eps[e as usize];
        let want = ep.plain.cancel(handle);
        let got = match ep.engine.cancel(ep.ep, handle as usize + 1) {
            Ok(()) => true,
            Err(SubmitError::NotFound) => false,
            Err(error) => return self.accepted(e, "cancel", Err(error)),
        };
        if self.tracing {
            ep.note(self.now, Trace::Did(format!("cancel {handle}: {got}")));
        }
        if got != want {
            return self.broken(e, format!("cancel of {handle}: {got}, not {want}"));
        }
        if let Some(recv) = ep.recv_mut(handle) {
            recv.cancelled |= want;
        }
        self.absorb(e);
    }

    /// Cancels every receive without a match.
    pub(crate) fn cancel_all(&mut self, e: u32) {
        let posted = &self.eps[e as usize].plain.posted;
        let handles: Vec<u32> = posted.iter().map(|p| p.handle).collect();
        for handle in handles {
            self.cancel(e, handle);
        }
    }

    /// Posts a send.
    pub(crate) fn post_send(
        &mut self,
        e: u32,
        dst: u32,
        tag: Option<u64>,
        data: Option<u64>,
        len: u64,
        in_round: bool,
    ) {
        let late = LateSend {
            dst,
            tag,
            data,
            len,
            in_round,
        };
        // Waiting sends are posted first.
        let ep = &mut self.eps[e as usize];
        ep.app.pending += in_round as u32;
        if !ep.late.is_empty() || !self.try_send(e, &late) {
            self.eps[e as usize].late.push_back(late);
        }
    }

    /// Posts sends that were refused for lack of room. Returns whether all were posted.
    pub(crate) fn post_late(&mut self, e: u32) -> bool {
        while let Some(&late) = self.eps[e as usize].late.front() {
            if !self.try_send(e, &late) {
                return false;
            }
            self.eps[e as usize].late.pop_front();
        }
        true
    }

    /// `false`: the log has no room.
    fn try_send(&mut self, e: u32, send: &LateSend) -> bool {
        let &LateSend { dst, tag, data, .. } = send;
        let (now, len) = (self.now, send.len as usize);
        let addr = self.addr(e, dst);
        let uid = self.truth.msgs.len() as u32;
        let mut buffer = Buffer::with(self.content, self.truth.base_of(uid), len);
        let ep = &mut self.eps[e as usize];
        let flags = draw_flags(&mut ep.app.rng, len);
        let cuts = draw_cuts(&mut ep.app.rng, len);
        let request = SendReq {
            dest: addr,
            iov: &buffer.pieces(&cuts),
            tag,
            data,
            context: ep.ops.len() + 1,
            flags,
        };
        match ep.engine.send(ep.ep, &request) {
            Ok(()) => {}
            Err(SubmitError::Again) => {
                self.absorb(e);
                self.check_refused(e, dst, len);
                return false;
            }
            Err(SubmitError::PeerDead) => {
                let known = ep.believes_dead(dst) || self.eps[dst as usize].closed;
                self.eps[e as usize].app.pending -= send.in_round as u32;
                if !known {
                    self.broken(e, format!("send to live peer {dst} refused"));
                }
                return true;
            }
            Err(error) => self.broken(e, format!("send refused: {error:?}")),
        }
        let eager = len as u64 <= self.setup.node.eager_max;
        let delivery = !(flags.inject || eager && !flags.delivery_complete);
        let held = delivery || (self.setup.borrow && flags.completion);
        let uid = self.truth.add(e, dst, tag, data, len as u64);
        let kind = OpKind::Send {
            uid,
            delivery,
            held,
            entry: flags.completion,
        };
        let ep = &mut self.eps[e as usize];
        ep.app.pending -= send.in_round as u32;
        let handle = ep.add_op(kind, Buffer::default(), now, send.in_round);
        ep.open += 1;
        ep.awaited += flags.completion as u32;
        if self.tracing {
            let text = format!("send {handle} = message {uid} to {dst}: {len} B, tag {tag:?}");
            ep.note(now, Trace::Did(text));
        }
        if held {
            ep.ops[handle as usize].buffer = buffer;
        } else {
            // The application reuses an injected send's memory at once.
            buffer.poison(0, len);
            self.tear_down_buffer(e, handle, buffer);
        }
        if !flags.completion {
            self.eps[e as usize].end_op(handle, now);
        }
        if dst == e {
            self.own_arrives(e, uid);
        }
        self.absorb(e);
        true
    }

    /// Handles a message to the endpoint itself, which arrives at once without packets and is
    /// matched before its send returns.
    fn own_arrives(&mut self, e: u32, uid: u32) {
        *self.troubles.entry("message to itself").or_default() += 1;
        let msg = &mut self.truth.msgs[uid as usize];
        (msg.head_seen, msg.arrived) = (true, true);
        msg.land(0, msg.len);
        let msg = &self.truth.msgs[uid as usize];
        if let Some(found) = self.eps[e as usize].plain.arrive(uid, msg) {
            self.note_match(e, found);
        }
    }

    /// Posts a receive.
    pub(crate) fn post_recv(
        &mut self,
        e: u32,
        source: Option<u32>,
        tag: Option<(u64, u64)>,
        capacity: u64,
        multi_min: Option<u64>,
        in_round: bool,
    ) {
        let now = self.now;
        let multi = multi_min.is_some();
        let recv = RecvOp {
            source,
            ignore: tag.map_or(0, |tag| tag.1),
            multi,
            ..RecvOp::default()
        };
        let addr = self.source_of(e, source);
        let ep = &mut self.eps[e as usize];
        let mut buffer = Buffer::new(capacity as usize);
        let cuts = match multi {
            true => Vec::new(),
            false => draw_cuts(&mut ep.app.rng, capacity as usize),
        };
        let iov = buffer.pieces(&cuts);
        let handle = ep.add_op(OpKind::Recv(Box::new(recv)), buffer, now, in_round);
        if self.tracing {
            let text = format!(
                "receive {handle} from {source:?}: {capacity} B, tag {tag:?}, multi {multi_min:?}"
            );
            ep.note(now, Trace::Did(text));
        }
        let plain = PlainRecv {
            handle,
            source,
            tag,
            capacity,
            multi_min,
            used: 0,
            order: 0,
        };
        let gone = source.is_some_and(|s| ep.believes_dead(s));
        let matches = ep.plain.post(plain, &self.truth.msgs);
        // A multi-receive from a dead source must fail at once.
        let lost_with_sender = gone && ep.plain.cancel(handle) && multi || ep.plain.is_news(handle);
        if let Some(recv) = ep.recv_mut(handle) {
            recv.lost_with_sender = lost_with_sender;
        }
        for found in matches {
            self.note_match(e, found);
        }
        let ep = &mut self.eps[e as usize];
        if let Some(min) = multi_min {
            ep.engine.ep_set_min_multi_recv(ep.ep, min as usize);
        }
        let flags = OpFlags {
            multi_recv: multi,
            ..OpFlags::COMPLETION
        };
        let request = RecvReq {
            source: addr,
            iov: &iov,
            tag,
            context: handle as usize + 1,
            flags,
        };
        let result = ep.engine.recv(ep.ep, &request);
        self.accepted(e, "receive", result);
    }

    pub(crate) fn post_read(&mut self, e: u32, dst: u32, len: u64, bad: bool) {
        let (now, len) = (self.now, len.min(READ_MAX));
        let dest = self.addr(e, dst);
        let base = self.eps[e as usize].app.rng.below(5_000);
        let pieces = self.draw_pieces(len, bad, |world, (from, len), bad| {
            world.read_spot((e, dst), base + from, len, bad)
        });
        let remote = self.named(&pieces);
        let ep = &mut self.eps[e as usize];
        let mut buffer = Buffer::new(len as usize);
        let cuts = draw_cuts(&mut ep.app.rng, len as usize);
        let iov = buffer.pieces(&cuts);
        let request = remote_request(dest, &iov, &remote, ep.ops.len(), (true, None));
        let result = ep.engine.read(ep.ep, &request);
        if len == 0 && self.call_left_out(e, dst, &[0], result) {
            return;
        }
        let ep = &mut self.eps[e as usize];
        if result == Err(SubmitError::PeerDead) {
            if !ep.believes_dead(dst) {
                self.broken(e, format!("read from live peer {dst} refused"));
            }
            return;
        }
        let read = |piece: &Piece| ReadOp {
            server: dst,
            base: base + piece.from,
            from: piece.from,
            len: piece.len,
            key: piece.spot.key,
            addr: piece.spot.addr,
            window: piece.spot.window,
            ..ReadOp::default()
        };
        let reads = pieces.iter().map(read).collect();
        let handle = ep.add_op(OpKind::Read(reads), buffer, now, false);
        ep.open += 1;
        self.counts(dst, true);
        for (at, piece) in pieces.iter().enumerate() {
            self.used_by(dst, piece.spot.window, User::Read(e, (handle, at)));
            if len > 0 {
                let due = &mut self.eps[dst as usize].windows.reads_due;
                due.entry(e).or_default().push((handle, at));
            } else if let Err(text) = self.call_read(e, dst, handle) {
                self.broken(e, text);
            }
        }
        let ep = &mut self.eps[e as usize];
        if self.tracing {
            let text = format!("read {handle} of {len} B from {dst}, bad {bad}, {pieces:x?}");
            ep.note(now, Trace::Did(text));
        }
        self.accepted(e, "read", result);
    }

    /// A place from which `e` reads `len` bytes of `dst`: in memory that stays or may be closed at
    /// any time. `bad`: with an invalid key or a range that ends outside.
    fn read_spot(&mut self, (e, dst): (u32, u32), base: u64, len: u64, bad: bool) -> Spot {
        let of_all = |key, addr| Spot {
            window: NONE,
            key,
            addr,
        };
        match (bad, self.eps[e as usize].app.rng.one_in(2)) {
            (false, false) => of_all(KEY, base),
            (false, true) => self.find_room(dst, len, Some(base)),
            (true, false) => of_all(KEY, PIECE as u64 - len + 1),
            (true, true) => {
                let wrong = Wrong::draw_read(&mut self.windows_rng);
                self.wrong_spot(dst, len, wrong, base)
            }
        }
    }
}
