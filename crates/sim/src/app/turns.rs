//! The application of each endpoint: its operations and its end.

use crate::base::rng::Rng;
use crate::setup::choices::Work;
use crate::setup::sample::turn_ns;
use crate::truth::memory::{Buffer, OpKind, Pieces};
use crate::truth::messages::{Match, PlainRecv};
use crate::world::state::World;
use crate::world::trace::Trace;
use marline_engine::{OpFlags, RecvReq, ADDR_UNSPEC};

/// Message sizes around all thresholds of the protocol.
const SIZES: [u64; 34] = [
    0,
    1,
    8,
    63,
    64,
    65,
    447,
    448,
    449,
    896,
    897,
    1_000,
    1_040,
    1_041,
    1_060,
    1_100,
    1_144,
    1_145,
    1_343,
    1_344,
    1_345,
    2_000,
    4_096,
    8_191,
    8_192,
    8_193,
    28_672,
    28_673,
    65_535,
    65_536,
    65_537,
    100_000,
    262_144,
    1 << 20,
];
/// Room of receives for any message: enough for the longest message, rarely more than this.
const ROOM: u64 = 131_072;
/// Open operations of the random application at most.
const OPEN_MAX: u32 = 300;

pub(crate) fn draw_size(rng: &mut Rng, max: u64) -> u64 {
    let size = match rng.below(10) {
        0..=3 => rng.below(200),
        4 => rng.below(2_000),
        5 => rng.below(max + 1),
        _ => rng.pick(&SIZES),
    };
    // Large messages are rare, to keep runs short.
    if size > max || (size > 100_000 && !rng.one_in(4)) {
        size % (max.min(70_000) + 1)
    } else {
        size
    }
}

impl World {
    /// A step of an endpoint's application.
    pub(crate) fn app_step(&mut self, e: u32) {
        let pause = self.setup.pause_ns;
        let app = &mut self.eps[e as usize].app;
        app.next_at = self.now + 1 + app.rng.below(2 * pause + 1);
        if self.asks(e) {
            return;
        }
        self.close_windows(e);
        self.close_cells(e);
        if !self.post_late(e) {
            self.make_room(e);
            return;
        }
        let app = &mut self.eps[e as usize].app;
        let done = app.done || app.left == 0 || (app.work == Work::Random && self.calm);
        if app.work != Work::Random {
            if app.pending > 0 {
                // The next step comes with a completion, or after a pause.
                app.next_at = self.now + 20_000_000;
                return;
            }
            let turn = match app.work {
                Work::Sampled => turn_ns(&self.setup, e, app.round),
                _ => 0,
            };
            if !done && turn > self.now {
                app.next_at = turn;
                return;
            }
            if !done {
                app.left -= 1;
                app.round += 1;
                self.round(e);
                let ep = &mut self.eps[e as usize];
                ep.open_max = ep.open_max.max(ep.app.pending as u64);
                return;
            }
        } else if !done {
            for _ in 0..app.rng.range(1, 4) {
                let ep = &mut self.eps[e as usize];
                if ep.open >= OPEN_MAX {
                    // A completion triggers the next step.
                    ep.app.next_at = self.now + 1_000_000;
                    break;
                }
                ep.app.left = ep.app.left.saturating_sub(1);
                self.random_op(e);
            }
            return;
        }
        self.eps[e as usize].app.done = true;
        self.wind_down(e);
    }

    fn random_op(&mut self, e: u32) {
        let size_max = self.setup.size_max;
        let n = self.setup.hosts as u64;
        let rng = &mut self.eps[e as usize].app.rng;
        let (what, host) = (rng.below(100), rng.below(n) as usize);
        let tag = (!rng.one_in(5)).then(|| rng.below(4));
        let len = draw_size(rng, size_max);
        // Some messages go to the endpoint itself, most over the network.
        let own = rng.one_in(4);
        let other = self.on_host[host].filter(|&o| o != e || own);
        match (what, other) {
            (0..=42, Some(dst)) if self.setup.remote && self.windows_rng.one_in(2) => {
                self.random_remote(e, dst, len);
            }
            (0..=42, Some(dst)) => {
                let rng = &mut self.eps[e as usize].app.rng;
                let data = rng.one_in(4).then(|| rng.next());
                let burst = if rng.one_in(40) { 100 } else { 1 };
                for _ in 0..burst {
                    let len = if burst > 1 { len % 3_000 } else { len };
                    self.post_send(e, dst, tag, data, len, false);
                }
            }
            (45..=81, _) => self.random_recv(e, tag, other, len),
            (82..=87, _) => self.random_peek(e, tag, other),
            (88..=91, _) => self.random_claim_end(e),
            (92..=94, _) => self.random_cancel(e),
            (95..=97, Some(dst)) => {
                let bad = self.eps[e as usize].app.rng.one_in(8);
                self.post_read(e, dst, len, bad);
            }
            (43..=44 | 98..=99, Some(dst)) => {
                let bad = self.eps[e as usize].app.rng.one_in(8);
                if self.setup.calls && self.windows_rng.one_in(2) {
                    return self.post_atomic(e, dst);
                }
                self.post_put(e, dst, len, bad, false);
            }
            _ => {}
        }
    }

    fn random_remote(&mut self, e: u32, dst: u32, len: u64) {
        let bad = self.windows_rng.one_in(8);
        match self.windows_rng.below(4) {
            0 => self.post_read(e, dst, len, bad),
            1 if self.setup.calls => self.post_atomic(e, dst),
            2 => self.post_put(e, dst, len % 5_000, bad, false),
            _ => self.post_put(e, dst, len, bad, false),
        }
    }

    fn random_pattern(&mut self, e: u32, tag: Option<u64>, other: Option<u32>) -> PlainRecv {
        let rng = &mut self.eps[e as usize].app.rng;
        let ignore = rng.pick(&[0, 0, 1, 3, u64::MAX]);
        let source = if rng.one_in(2) { other } else { None };
        let tag = tag.map(|t| (t, ignore));
        PlainRecv {
            handle: u32::MAX,
            source,
            tag,
            capacity: 0,
            multi_min: None,
            used: 0,
            order: 0,
        }
    }

    /// Room for a message of any length.
    fn any_size(&mut self, e: u32) -> u64 {
        let size_max = self.setup.size_max.max(1);
        let rng = &mut self.eps[e as usize].app.rng;
        if rng.one_in(8) {
            return size_max;
        }
        size_max.min(ROOM)
    }

    fn random_recv(&mut self, e: u32, tag: Option<u64>, other: Option<u32>, len: u64) {
        let p = self.random_pattern(e, tag, other);
        let any = self.any_size(e);
        let rng = &mut self.eps[e as usize].app.rng;
        let (capacity, multi) = match rng.below(12) {
            0..=2 => (len, None),
            3 if p.tag.is_none() => (rng.range(1, 100_000), Some(rng.pick(&[1, 64, 2_000]))),
            _ => (any, None),
        };
        self.post_recv(e, p.source, p.tag, capacity, multi, false);
    }

    fn random_peek(&mut self, e: u32, tag: Option<u64>, other: Option<u32>) {
        let p = self.random_pattern(e, tag, other);
        let now = self.now;
        let source = self.source_of(e, p.source);
        let ep = &mut self.eps[e as usize];
        let claim = ep.app.rng.one_in(2);
        let want = ep.plain.peek(&p, &self.truth.msgs);
        let handle = ep.add_op(OpKind::Peek { want, claim }, Buffer::default(), now, false);
        ep.awaited += 1;
        let flags = OpFlags {
            peek: true,
            claim,
            ..OpFlags::COMPLETION
        };
        let request = RecvReq {
            source,
            iov: &[],
            tag: p.tag,
            context: handle as usize + 1,
            flags,
        };
        let result = ep.engine.recv(ep.ep, &request);
        if self.tracing {
            let text = format!("peek {handle} at {p:?}, claim {claim}: must find {want:?}");
            ep.note(now, Trace::Did(text));
        }
        self.accepted(e, "peek", result);
    }

    /// Receives or discards a claimed message.
    fn random_claim_end(&mut self, e: u32) {
        let ep = &mut self.eps[e as usize];
        if ep.claims.is_empty() {
            return;
        }
        let at = ep.app.rng.below(ep.claims.len() as u64) as usize;
        let (handle, uid) = ep.claims.swap_remove(at);
        let msg = &mut self.truth.msgs[uid as usize];
        let (len, tagged) = (msg.len, msg.tag.is_some());
        let discard = ep.app.rng.one_in(3);
        let half = ep.app.rng.one_in(4);
        let room = if half { len / 2 } else { len + 10 };
        let op = &mut ep.ops[handle as usize];
        op.done_ns = None;
        op.posted_ns = self.now;
        let mut iov = Pieces::default();
        if discard {
            op.kind = OpKind::Discard;
            msg.discarded = true;
            self.truth.settle(uid);
        } else {
            op.kind = OpKind::Recv(Box::default());
            op.buffer = Buffer::new(room as usize);
            iov = op.buffer.pieces(&[]);
            self.note_match(
                e,
                Match {
                    uid,
                    handle,
                    base: 0,
                    room,
                },
            );
        }
        let flags = OpFlags {
            claim: true,
            discard,
            ..OpFlags::COMPLETION
        };
        let request = RecvReq {
            source: ADDR_UNSPEC,
            iov: &iov,
            tag: tagged.then_some((0, 0)),
            context: handle as usize + 1,
            flags,
        };
        let now = self.now;
        let ep = &mut self.eps[e as usize];
        let result = ep.engine.recv(ep.ep, &request);
        if self.tracing {
            let text = format!("claim {handle}: message {uid}, discard {discard}");
            ep.note(now, Trace::Did(text));
        }
        self.accepted(e, "claim", result);
    }

    fn random_cancel(&mut self, e: u32) {
        let ep = &mut self.eps[e as usize];
        if ep.plain.posted.is_empty() {
            return;
        }
        let at = ep.app.rng.below(ep.plain.posted.len() as u64) as usize;
        let handle = ep.plain.posted[at].handle;
        self.cancel(e, handle);
    }

    /// Ends an endpoint's work: its application receives the remaining messages and ends its
    /// claims.
    fn wind_down(&mut self, e: u32) {
        while !self.eps[e as usize].claims.is_empty() {
            self.random_claim_end(e);
        }
        let busy = self.post_missing(e);
        // Check less and less often while nothing is missing.
        let app = &mut self.eps[e as usize].app;
        app.pause_ns = match busy {
            true => 200_000,
            false => (2 * app.pause_ns).clamp(200_000, 20_000_000),
        };
        app.next_at = self.now + app.pause_ns;
    }

    /// Posts receives for the remaining messages; returns whether any were missing.
    fn post_missing(&mut self, e: u32) -> bool {
        let mut busy = false;
        for tagged in [false, true] {
            let (open, posted) = self.to_come(e, tagged);
            busy |= open > posted;
            for _ in posted..open.min(posted + 64) {
                let tag = tagged.then_some((0, u64::MAX));
                let room = self.any_size(e);
                self.post_recv(e, None, tag, room, None, false);
            }
        }
        busy
    }

    /// Posts receives for messages of the endpoint to itself, whose room no other receives free.
    fn make_room(&mut self, e: u32) {
        if self.eps[e as usize].app.work == Work::Random {
            self.post_missing(e);
        }
    }

    /// Unmatched messages in flight to `e`, and receives for any message.
    fn to_come(&self, e: u32, tagged: bool) -> (u32, u32) {
        let ep = &self.eps[e as usize];
        let open = self.truth.to_come(e, tagged);
        let any = |p: &&PlainRecv| {
            p.source.is_none()
                && p.multi_min.is_none()
                && match p.tag {
                    Some((_, ignore)) => tagged && ignore == u64::MAX,
                    None => !tagged,
                }
        };
        (open, ep.plain.posted.iter().filter(any).count() as u32)
    }
}
