//! Windows: memory that peers write and read. A window is one region under one key, for one user or
//! for several with separate ranges; some are addressed by offset, some by virtual address. The
//! owner closes a window when all users are done, or sometimes earlier; keys are reused, some at
//! once. A request concerns the region that has its key on arrival: if its range is inside, it is
//! granted, otherwise refused, whichever region its user meant.

use crate::app::ops::draw_cuts;
use crate::truth::memory::{Buffer, OpKind, ReadOp, SCRAP};
use crate::truth::messages::Put;
use crate::truth::remote::{Admissions, Spot, Wrong, KEY, NONE};
use crate::world::state::World;
use crate::world::trace::Trace;
use crate::world::windows::{Place, User, Window, Within};
use marline_engine::Region;

/// First key of windows; the key below it belongs to no window.
const WINDOWS: u64 = 1 << 32;
/// Most spare bytes on either side of a range.
const BESIDE: u64 = 100;
/// Most users of one window.
const USERS_MAX: usize = 6;
/// Most bytes for users after the first.
const MORE_MAX: u64 = 40_000;
/// A window in use is closed once in this number of its owner's steps.
const EARLY_CLOSE_ODDS: [u64; 4] = [1_000, 300, 300, 50];
/// Longest time that a window stays open for further users.
const STAY_NS: u64 = 3_000_000;
/// Closed keys kept for reuse.
const KEYS_MAX: usize = 8;

/// Users look for memory.
impl World {
    /// Finds room for `len` bytes in a window of `dst`: to write, or holding content to read.
    pub(crate) fn find_room(&mut self, dst: u32, len: u64, base: Option<u64>) -> Spot {
        let there = &self.eps[dst as usize];
        if !there.alive || there.closed {
            return self.no_room(dst);
        }
        let rng = &mut self.windows_rng;
        let (gap, count) = (rng.below(BESIDE), there.windows.open.len() as u64);
        let some = (rng.below(count) as usize, rng.one_in(2));
        let fits = |w: &&Window| {
            let room = w.taken + gap + len <= w.len && w.users.len() < USERS_MAX;
            some.1 && room && (w.writable || base.is_some())
        };
        let found = there.windows.open.get(some.0).filter(fits);
        let at = match found {
            Some(window) => {
                let shared = self.troubles.entry("window of several users");
                *shared.or_default() += !window.users.is_empty() as u64;
                some.0
            }
            None => {
                let more = match rng.one_in(2) {
                    true => rng.below(BESIDE),
                    false => (rng.range(1, 4) * (len + BESIDE)).min(MORE_MAX),
                };
                let writable = base.is_none() || rng.one_in(2);
                let (key, fresh) = self.new_key(dst);
                let virt_addr = fresh && self.windows_rng.one_in(2);
                self.open(dst, (key, virt_addr), gap + len + more, writable)
            }
        };
        let content = self.content;
        let ep = &mut self.eps[dst as usize];
        let window = &mut ep.windows.open[at];
        let (from, to) = (window.taken + gap, window.taken + gap + len);
        window.taken = to;
        if let Some(base) = base {
            let what = Within::Content(base);
            window.places.push(Place { from, to, what });
            let buffer = &mut ep.ops[window.handle as usize].buffer;
            buffer.fill_with(content, base, (from as usize, to as usize));
        }
        Spot {
            window: window.handle,
            key: window.key,
            addr: window.origin.wrapping_add(from),
        }
    }

    /// A key that belongs to no memory of `dst` at present.
    pub(crate) fn no_room(&mut self, dst: u32) -> Spot {
        let keys = &self.eps[dst as usize].windows.keys_free;
        let rng = &mut self.windows_rng;
        let old = keys.get(rng.below(keys.len() as u64) as usize).copied();
        Spot {
            window: NONE,
            key: old.filter(|_| rng.one_in(2)).unwrap_or(WINDOWS - 1),
            addr: rng.below(BESIDE),
        }
    }

    /// A request for `len` bytes of `dst` that must be refused, as far as is known at present.
    pub(crate) fn wrong_spot(&mut self, dst: u32, len: u64, wrong: Wrong, base: u64) -> Spot {
        if wrong == Wrong::Key {
            return self.no_room(dst);
        }
        let base = (wrong == Wrong::ReadOnly).then_some(base);
        let mut spot = self.find_room(dst, len, base);
        let windows = &self.eps[dst as usize].windows.open;
        let Some(window) = windows.iter().find(|w| w.handle == spot.window) else {
            return spot;
        };
        let (end, origin) = (window.origin + window.len, window.origin);
        match wrong {
            Wrong::Beyond => spot.addr = end + 1 - len,
            Wrong::Before => spot.addr = origin.wrapping_sub(1),
            _ => {}
        }
        spot
    }

    /// Adds a user to a window.
    pub(crate) fn used_by(&mut self, dst: u32, handle: u32, user: User) {
        let windows = &mut self.eps[dst as usize].windows.open;
        if let Some(window) = windows.iter_mut().rev().find(|w| w.handle == handle) {
            window.users.push(user);
        }
    }
}

/// The owner of windows.
impl World {
    /// A key, and whether it is new. Only windows with new keys may have virtual addresses:
    /// otherwise a late request for an older window of the same key might name an address that the
    /// process happens to have reused, and runs would differ.
    fn new_key(&mut self, dst: u32) -> (u64, bool) {
        let ep = &mut self.eps[dst as usize];
        let rng = &mut self.windows_rng;
        let at = rng.below(ep.windows.keys_free.len() as u64) as usize;
        if at < ep.windows.keys_free.len() && rng.one_in(2) {
            return (ep.windows.keys_free.swap_remove(at), false);
        }
        ep.windows.keys_made += 1;
        (WINDOWS + ep.windows.keys_made, true)
    }

    /// Opens a window of `len` bytes; returns its index.
    fn open(&mut self, dst: u32, (key, virt_addr): (u64, bool), len: u64, writable: bool) -> usize {
        let mut buffer = Buffer::new(len as usize);
        buffer.fill_all();
        let base = buffer.pieces(&[])[0].base;
        let rng = &mut self.windows_rng;
        let cuts = match self.setup.segments {
            true => draw_cuts(rng, len as usize),
            false => Vec::new(),
        };
        let pieces = buffer.pieces(&cuts);
        let (now, ep) = (self.now, &mut self.eps[dst as usize]);
        ep.windows.open.push(Window {
            handle: ep.ops.len() as u32,
            key,
            len,
            origin: if virt_addr { base as u64 } else { 0 },
            writable,
            users: Vec::new(),
            places: Vec::new(),
            taken: 0,
            until: now + rng.one_in(2) as u64 * rng.below(STAY_NS),
            haste: rng.pick(&EARLY_CLOSE_ODDS),
            admissions: Admissions::default(),
        });
        let handle = ep.add_op(OpKind::Window, buffer, now, false);
        if self.tracing {
            let text = format!(
                "window {handle}: {len} B, key {key:#x}, virtual {virt_addr}, writable {writable}"
            );
            ep.note(now, Trace::Did(text));
        }
        let at = ep.windows.open.len() - 1;
        let counters = ep.windows.open[at].admissions.counters.clone();
        let region = Region {
            key,
            base,
            len: len as usize,
            virt_addr,
            readable: true,
            writable,
        };
        let opened = ep.engine.mr_open_pieces(&region, &pieces);
        self.accepted(dst, "window", opened);
        for (counts, counter) in [[true, false], [false, true]].into_iter().zip(&counters) {
            let engine = &self.eps[dst as usize].engine;
            let bound = engine.mr_bind_counter(key, counts, counter);
            self.accepted(dst, "counter", bound);
        }
        at
    }

    /// Closes finished windows, and now and then another.
    pub(crate) fn close_windows(&mut self, e: u32) {
        let mut at = 0;
        while let Some(window) = self.eps[e as usize].windows.open.get(at) {
            let used = !window.users.iter().all(|&user| self.is_over(user));
            let stays = used || self.now < window.until;
            if stays && !(used && self.windows_rng.one_in(window.haste)) {
                at += 1;
                continue;
            }
            let (key, len, handle) = (window.key, window.len, window.handle);
            if used {
                *self.troubles.entry("window closed early").or_default() += 1;
            }
            if let Err(text) = self.close_window(e, at) {
                self.broken(e, format!("window {handle}: {text}"));
            }
            let again = used && self.windows_rng.one_in(2);
            if again {
                *self.troubles.entry("key used again at once").or_default() += 1;
                let len = self
                    .windows_rng
                    .pick(&[len, len, len + BESIDE, len / 2 + 1]);
                let writable = !self.windows_rng.one_in(8);
                self.open(e, (key, false), len, writable);
            } else {
                let keys = &mut self.eps[e as usize].windows.keys_free;
                keys.push(key);
                if keys.len() > KEYS_MAX {
                    keys.remove(0);
                }
            }
        }
    }

    fn is_over(&self, user: User) -> bool {
        let (by, ended) = match user {
            User::Put(uid) => {
                let msg = &self.truth.msgs[uid as usize];
                (msg.src, msg.send_done.is_some())
            }
            User::Read(by, (handle, _)) => {
                let op = &self.eps[by as usize].ops[handle as usize];
                (by, op.done_ns.is_some())
            }
        };
        let ep = &self.eps[by as usize];
        ended || !ep.alive || ep.closed
    }

    fn close_window(&mut self, e: u32, at: usize) -> Result<(), String> {
        let ep = &mut self.eps[e as usize];
        let (key, handle) = (ep.windows.open[at].key, ep.windows.open[at].handle);
        if self.tracing {
            let text = format!("window {handle} of key {key:#x} closes");
            ep.note(self.now, Trace::Did(text));
        }
        ep.engine.mr_close(key);
        // Reports not yet read still concern this window.
        self.absorb(e);
        let now = self.now;
        let ep = &mut self.eps[e as usize];
        let window = ep.windows.open.remove(at);
        let mut buffer = std::mem::take(&mut ep.ops[handle as usize].buffer);
        ep.end_op(handle, now);
        self.check_lent(e, &buffer)?;
        self.check_left(&window, &buffer)?;
        self.check_admissions(&window.admissions)?;
        for place in &window.places {
            if let Within::User(user) = place.what {
                self.close_to(user);
            }
        }
        buffer.poison(0, SCRAP);
        self.tear_down_buffer(e, handle, buffer);
        Ok(())
    }

    /// Closes a window for one user. The user's request may be refused from now on, and must be if
    /// its operation is not done.
    fn close_to(&mut self, user: User) {
        match user {
            User::Put(uid) => {
                if let Some(put) = &mut self.truth.msgs[uid as usize].put {
                    put.open = false;
                }
            }
            User::Read(by, handle) => {
                if let Some(read) = self.read_mut(by, handle) {
                    read.closed = true;
                }
            }
        }
    }

    /// Checks a window just closed: it holds the bytes written and reported, the bytes that its
    /// owner stored, and nothing else.
    fn check_left(&self, window: &Window, buffer: &Buffer) -> Result<(), String> {
        buffer.check(buffer.len())?;
        let mut edges: Vec<u64> = vec![0, window.len];
        for place in &window.places {
            edges.extend([place.from, place.to]);
            if let Within::User(User::Put(uid)) = place.what {
                let msg = &self.truth.msgs[uid as usize];
                let Some(put) = msg.put.filter(|put| !put.loose) else {
                    continue;
                };
                let bytes = buffer.get(place.from as usize, place.to as usize);
                let wrong = self.place_differs(msg, &put, bytes.unwrap_or_default());
                if let (Some(at), Some(true)) = (wrong, msg.send_done) {
                    return Err(format!("what message {uid} wrote is gone, at {at}"));
                }
            }
        }
        edges.sort_unstable();
        for edge in edges.windows(2).filter(|edge| edge[0] < edge[1]) {
            let (from, to) = (edge[0], edge[1]);
            let written = window.meets(from, to).any(|u| matches!(u, User::Put(_)));
            if written {
                continue;
            }
            let base = window.places.iter().find_map(|p| match p.what {
                Within::Content(base) if p.from <= from && to <= p.to => Some((base, p.from)),
                _ => None,
            });
            let (from, to) = (from as usize, to as usize);
            match base {
                None => buffer.check_untouched(from, to)?,
                Some((base, start)) => {
                    let bytes = buffer.get(from, to).unwrap_or_default();
                    let base = base + from as u64 - start;
                    if let Some(at) = self.content.differs(base, bytes) {
                        return Err(format!("was written at {}", from + at));
                    }
                }
            }
        }
        Ok(())
    }
}

/// The owner's node asks for memory: the truth determines the answer.
impl World {
    /// A remote write of `src` is next in order.
    pub(crate) fn put_asked(
        &mut self,
        e: u32,
        src: u32,
        (key, addr, len): (u64, u64, u64),
    ) -> Result<(), String> {
        let due = self.eps[e as usize].windows.puts_due.get_mut(&src);
        let next = due.and_then(|due| due.pop_front());
        let uid = next.ok_or("asked for a write that nobody posted")?;
        let msg = &self.truth.msgs[uid as usize];
        let put = msg.put.ok_or("not a put")?;
        if (put.key, put.addr, msg.len) != (key, addr, len) {
            return Err(format!("asked for key {key:#x} at {addr:#x}, not {put:?}"));
        }
        let entered = self.enter(e, (key, addr, len), User::Put(uid));
        if let Some(data) = put.data.filter(|_| entered.is_some()) {
            let due = &mut self.eps[e as usize].windows.data_due;
            due.push_back((src, data, put.data_after.max(len as usize)));
        }
        let stray = entered.is_some_and(|(window, _)| window != put.window);
        if stray {
            *self.troubles.entry("late put in a new window").or_default() += 1;
        }
        let polled = entered.is_some_and(|(window, at)| self.nothing_at(e, window, (at, len)));
        let polled = polled && src != e;
        let msg = &mut self.truth.msgs[uid as usize];
        let mut put = put;
        (put.asked, put.bad, put.open) = (true, entered.is_none(), entered.is_some());
        if let Some((window, at)) = entered {
            (put.window, put.at) = (window, at);
            put.polled = polled;
            if src == e {
                msg.land(0, len);
            }
        }
        // Zero bytes need no check.
        let loose = len == 0 || msg.put.is_some_and(|put| put.loose);
        msg.put = Some(Put { loose, ..put });
        if put.bad {
            self.truth.refuse(uid);
        }
        Ok(())
    }

    /// A read of `src` arrived.
    pub(crate) fn read_asked(
        &mut self,
        e: u32,
        (src, number): (u32, u32),
        (key, addr, len): (u64, u64, u64),
    ) -> Result<(), String> {
        let due = self.eps[e as usize].windows.reads_due.get(&src);
        let handle = due.and_then(|due| due.get(number as usize)).copied();
        let handle = handle.ok_or("asked for a read that nobody posted")?;
        self.read_next(e, (src, handle), (key, addr, len))
    }

    /// Admits or refuses a read of `src`, or a segment of such a read.
    pub(crate) fn read_next(
        &mut self,
        e: u32,
        (src, handle): (u32, (u32, usize)),
        (key, addr, len): (u64, u64, u64),
    ) -> Result<(), String> {
        let user = User::Read(src, handle);
        let entered = match key {
            KEY => {
                let (_, whole) = self.content.region();
                let fits = addr.checked_add(len).is_some_and(|end| end <= whole as u64);
                fits.then_some((NONE, addr))
            }
            _ => self.enter(e, (key, addr, len), user),
        };
        let read = self.read_mut(src, handle).ok_or("not a read")?;
        if read.asked || (read.key, read.addr) != (key, addr) {
            return Err(format!("asked for key {key:#x} at {addr:#x}, not {read:?}"));
        }
        (read.asked, read.bad) = (true, entered.is_none());
        let mut stray = false;
        if let Some((window, at)) = entered {
            stray = len > 0 && window != read.window;
            (read.window, read.at, read.stray) = (window, at, stray);
        }
        if stray {
            *self
                .troubles
                .entry("late read of a new window")
                .or_default() += 1;
        }
        Ok(())
    }

    /// Admits a user to the window that has the key at present; returns the window and the range's
    /// offset.
    fn enter(
        &mut self,
        e: u32,
        (key, addr, len): (u64, u64, u64),
        user: User,
    ) -> Option<(u32, u64)> {
        let write = matches!(user, User::Put(_));
        let admission = self.admission_of(user);
        let windows = &mut self.eps[e as usize].windows.open;
        let window = windows.iter_mut().find(|w| w.key == key)?;
        let (from, handle) = (window.admits(addr, len, write)?, window.handle);
        window.admissions.add(admission);
        if len == 0 {
            return Some((handle, from));
        }
        let to = from + len;
        let met: Vec<User> = window.meets(from, to).collect();
        let what = Within::User(user);
        window.places.push(Place { from, to, what });
        window.taken = window.taken.max(to);
        if !window.users.contains(&user) {
            window.users.push(user);
        }
        // Ranges that overlap a write have undefined contents.
        for other in met {
            if write || matches!(other, User::Put(_)) {
                self.mark_overlapped(user);
                self.mark_overlapped(other);
            }
        }
        Some((handle, from))
    }

    fn mark_overlapped(&mut self, user: User) {
        match user {
            User::Put(uid) => {
                if let Some(put) = &mut self.truth.msgs[uid as usize].put {
                    put.loose = true;
                }
            }
            User::Read(by, handle) => {
                if let Some(read) = self.read_mut(by, handle) {
                    read.loose = true;
                }
            }
        }
    }

    fn read_mut(&mut self, e: u32, (handle, at): (u32, usize)) -> Option<&mut ReadOp> {
        match &mut self.eps[e as usize].ops.get_mut(handle as usize)?.kind {
            OpKind::Read(reads) => reads.get_mut(at),
            _ => None,
        }
    }
}
