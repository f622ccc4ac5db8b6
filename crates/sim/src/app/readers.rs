//! Readers that poll memory written by peers, and store there after the awaited bytes appeared. For
//! some writes a reader awaits the last word, after which the whole write must be visible, and
//! stores over all of it; for others it awaits one block and stores over that. Stored bytes must
//! stay, and no byte may appear that was not written.

use crate::truth::memory::{Buffer, FILLER};
use crate::truth::messages::{Msg, Put};
use crate::world::state::World;
use crate::world::windows::{User, Within};
use marline_wire::BLOCK_BYTES;

/// Most bytes compared to detect the end of a write.
const WORD: u64 = 8;
/// In places up to this length the reader always awaits the end and stores over everything.
const SHORT: u64 = 2 * BLOCK_BYTES;

/// The range of a write that its reader awaits, and the range that it stores over.
fn looks_at(uid: u32, len: u64) -> [(u64, u64); 2] {
    let hash = u64::from(uid).wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 32;
    if hash % 2 == 0 || len <= SHORT {
        // Await a word within the last block, which is stored last. A word that begins before this
        // block would be visible partially, or completely if its other bytes look unchanged (verbs
        // seed 710158).
        let end = len.saturating_sub(1) / BLOCK_BYTES * BLOCK_BYTES;
        return [(len.saturating_sub(WORD).max(end), len), (0, len)];
    }
    let block = hash / 2 % (len / BLOCK_BYTES - 1);
    [(block * BLOCK_BYTES, (block + 1) * BLOCK_BYTES); 2]
}

impl World {
    /// Lets an endpoint's readers look at its windows.
    pub(crate) fn poll_windows(&mut self, e: u32) {
        if !self.setup.polled {
            return;
        }
        let windows = self.eps[e as usize].windows.open.iter();
        let users = windows.flat_map(|window| &window.places);
        let puts = users.filter_map(|place| match place.what {
            Within::User(User::Put(uid)) => Some(uid),
            _ => None,
        });
        let waits = |uid: &u32| {
            let msg = &self.truth.msgs[*uid as usize];
            let put = msg.put.filter(|put| put.open && !put.loose);
            put.is_some_and(|put| put.polled && put.kept.is_none())
        };
        let waiting: Vec<u32> = puts.filter(waits).collect();
        for uid in waiting {
            if let Err(text) = self.look(e, uid) {
                return self.broken(e, format!("reader of message {uid}: {text}"));
            }
        }
    }

    /// Returns whether a part of a window is still untouched.
    pub(crate) fn nothing_at(&self, e: u32, window: u32, (at, len): (u64, u64)) -> bool {
        let buffer = &self.eps[e as usize].ops[window as usize].buffer;
        let (from, to) = (at as usize, (at + len) as usize);
        let checked = buffer.check_untouched(from, to);
        self.setup.polled && checked.is_ok()
    }

    fn look(&mut self, e: u32, uid: u32) -> Result<(), String> {
        let msg = &self.truth.msgs[uid as usize];
        let (Some(put), len, base) = (msg.put, msg.len, msg.base) else {
            return Ok(());
        };
        let [(from, to), stores] = looks_at(uid, len);
        let buffer = &self.eps[e as usize].ops[put.window as usize].buffer;
        let at = |of: u64| (put.at + of) as usize;
        let bytes = buffer.get(at(from), at(to)).ok_or("beyond the window")?;
        // A word equal to the filler does not show whether it was written.
        let nothing = self
            .content
            .differs(base + from, &vec![FILLER; bytes.len()]);
        if nothing.is_none() || self.content.differs(base + from, bytes).is_some() {
            return Ok(());
        }
        let all = buffer.get(at(stores.0), at(stores.1));
        let differs = self
            .content
            .differs(base + stores.0, all.unwrap_or_default());
        if let Some(first) = differs {
            return Err(format!("saw the last word before the byte at {first}"));
        }
        let buffer = &mut self.eps[e as usize].ops[put.window as usize].buffer;
        buffer.keep((at(stores.0), at(stores.1)));
        if let Some(put) = &mut self.truth.msgs[uid as usize].put {
            put.kept = Some(stores);
        }
        *self.troubles.entry("put seen by its reader").or_default() += 1;
        Ok(())
    }

    /// Checks the place of a fragment of a remote write that just arrived, correct or damaged: each
    /// byte is either untouched, written, or stored by the reader.
    pub(crate) fn check_shown(&mut self, e: u32, uid: u32, (offset, len): (u64, u64)) {
        let msg = &self.truth.msgs[uid as usize];
        let Some(put) = msg.put.filter(|put| put.open && put.polled && !put.loose) else {
            return;
        };
        let (from, to) = (put.at + offset, put.at + (offset + len).min(msg.len));
        let buffer = &self.eps[e as usize].ops[put.window as usize].buffer;
        let Some(bytes) = buffer.get(from as usize, to as usize) else {
            return;
        };
        let wanted = self.content.slice(msg.base, offset, bytes.len());
        let place = |at: usize| put.has_kept(offset + at as u64);
        let fine = |(at, (&byte, &wanted)): (usize, (&u8, &u8))| match place(at) {
            true => byte == Buffer::KEPT,
            false => byte == FILLER || byte == wanted,
        };
        let mut all = bytes.iter().zip(wanted).enumerate();
        if let Some((at, _)) = all.find(|&byte| !fine(byte)) {
            let what = if place(at) { "came back" } else { "is seen" };
            let text =
                format!("message {uid}: a byte {what} that is not right, at {offset} + {at}");
            self.broken(e, text);
        }
    }

    /// First place where the memory of a remote write has neither the written byte nor the
    /// reader's.
    pub(crate) fn place_differs(&self, msg: &Msg, put: &Put, bytes: &[u8]) -> Option<usize> {
        let Some((from, to)) = put.kept else {
            return self.content.differs(msg.base, bytes);
        };
        let (from, to) = (from as usize, (to as usize).min(bytes.len()));
        let kept = bytes[from..to]
            .iter()
            .position(|&byte| byte != Buffer::KEPT);
        let behind = || self.content.differs(msg.base + to as u64, &bytes[to..]);
        self.content
            .differs(msg.base, &bytes[..from])
            .or(kept.map(|at| from + at))
            .or_else(|| behind().map(|at| to + at))
    }
}

impl Put {
    /// Returns whether the reader stored a byte at this offset of the write.
    fn has_kept(&self, offset: u64) -> bool {
        self.kept
            .is_some_and(|(from, to)| (from..to).contains(&offset))
    }
}
