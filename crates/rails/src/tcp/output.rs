//! The sending side of one connection, which queues what the kernel has no room for.

use super::frame::{seal_late, Head, Kind, To, HEAD_LEN, PLACE_LEN};
use crate::sys::{Errno, Stream, IOV_MAX};
use crate::{Piece, Write};
use marline_auth::FrameKey;
use std::collections::VecDeque;

/// A part of the queue, in order.
#[derive(Clone, Copy, Debug)]
enum Part {
    /// Bytes of `owned`, by offset and length.
    Owned { start: usize, len: usize },
    /// Application memory by address, valid until the write is done.
    Lent { base: usize, len: usize },
    /// The end of the write with this token.
    End(u64),
}

/// How frames are marked as the sender's.
#[derive(Debug, Default)]
enum Seal {
    /// By inverted words.
    #[default]
    Plain,
    /// By tags, under a key that the connection has not yet; where in `owned` they will stand.
    Awaited(Vec<Mark>),
    /// By tags.
    Keyed(FrameKey),
}

/// A place in the queue for a tag.
#[derive(Clone, Copy, Debug)]
enum Mark {
    Head(usize),
    Place(usize),
}

/// The queue of a connection.
#[derive(Debug, Default)]
pub(super) struct Output {
    seal: Seal,
    parts: VecDeque<Part>,
    owned: Vec<u8>,
    /// Bytes of `owned` that have not been sent.
    waiting: usize,
}

/// Sent bytes are discarded when they exceed this limit and the number of unsent bytes.
const LEFT_MAX: usize = 1 << 20;
/// An empty buffer is shrunk to this size.
const KEPT_MAX: usize = 256 << 10;

impl Output {
    /// Returns whether the queue is empty.
    #[inline]
    pub(super) fn is_empty(&self) -> bool {
        self.parts.is_empty()
    }

    /// Unsent bytes of our own memory, without application memory.
    pub(super) fn owned_len(&self) -> usize {
        self.waiting
    }

    /// The queue of a connection that gets its key later: nothing can leave before.
    pub(super) fn awaiting_key() -> Output {
        Output {
            seal: Seal::Awaited(Vec::new()),
            ..Output::default()
        }
    }

    /// Tags all frames by this key, those of the queue included.
    pub(super) fn set_key(&mut self, mut key: FrameKey) {
        if let Seal::Awaited(marks) = std::mem::take(&mut self.seal) {
            for mark in marks {
                match mark {
                    Mark::Head(at) => seal_late(&mut self.owned[at..], &key, &[]),
                    Mark::Place(at) => {
                        let place = &mut self.owned[at..at + PLACE_LEN];
                        let mut offset = [0; 8];
                        offset.copy_from_slice(To::covered(place));
                        seal_late(place, &key, &offset);
                    }
                }
                key.advance();
            }
        }
        self.seal = Seal::Keyed(key);
    }

    /// The key of all frames.
    pub(super) fn into_key(self) -> Option<FrameKey> {
        match self.seal {
            Seal::Keyed(key) => Some(key),
            Seal::Plain | Seal::Awaited(_) => None,
        }
    }

    /// Takes over the queue of a connection that never carried anything.
    pub(super) fn adopt(&mut self, mut queue: Output) {
        std::mem::swap(self, &mut queue);
        if let Seal::Keyed(key) = std::mem::take(&mut queue.seal) {
            self.set_key(key);
        }
    }

    /// Encodes a head; `body`: the part of its frame's body that a tag covers.
    #[inline]
    fn head(&self, head: &Head, body: &[u8]) -> [u8; HEAD_LEN] {
        match &self.seal {
            Seal::Keyed(key) => head.seal(key, body),
            Seal::Plain | Seal::Awaited(_) => head.write(),
        }
    }

    /// Counts a head or destination that was encoded and is now part of the stream: the next tag
    /// has the next number.
    #[inline]
    fn sealed(&mut self) {
        if let Seal::Keyed(key) = &mut self.seal {
            key.advance();
        }
    }

    /// Sends a batch of packets of `segment` bytes each; `false` if there was no room for even the
    /// first byte.
    #[inline]
    pub(super) fn send(
        &mut self,
        stream: &Stream,
        bytes: &[u8],
        segment: usize,
    ) -> Result<bool, Errno> {
        let head = self.head(&packets_head(bytes, segment), &[]);
        self.send_framed(stream, &head, bytes)
    }

    /// Sends a handshake, the answer to it, or the last frame before an eviction, as
    /// [`Output::send`].
    pub(super) fn send_control(
        &mut self,
        stream: &Stream,
        kind: Kind,
        body: &[u8],
    ) -> Result<bool, Errno> {
        let head = Head {
            kind,
            len: body.len(),
            segment: 0,
        };
        let head = self.head(&head, &body[..head.covered()]);
        self.send_framed(stream, &head, body)
    }

    /// Asks the other end to send on this connection instead of its own connection of this token,
    /// as [`Output::send`].
    pub(super) fn join(&mut self, stream: &Stream, token: u64) -> Result<bool, Errno> {
        self.send_control(stream, Kind::Join, &token.to_le_bytes())
    }

    #[inline]
    fn send_framed(
        &mut self,
        stream: &Stream,
        head: &[u8; HEAD_LEN],
        bytes: &[u8],
    ) -> Result<bool, Errno> {
        let pieces = [piece(head), piece(bytes)];
        let sent = match stream.send(&pieces) {
            Ok(sent) => sent,
            Err(libc::EAGAIN | libc::ENOBUFS) => return Ok(false),
            Err(errno) => return Err(errno),
        };
        self.sealed();
        if sent < HEAD_LEN + bytes.len() {
            self.keep(&head[sent.min(HEAD_LEN)..]);
            self.keep(&bytes[sent.saturating_sub(HEAD_LEN)..]);
        }
        Ok(true)
    }

    /// Queues a batch of packets for [`Output::flush`].
    pub(super) fn take(&mut self, bytes: &[u8], segment: usize) {
        let head = self.head(&packets_head(bytes, segment), &[]);
        self.keep_marked(&head, Mark::Head);
        self.keep(bytes);
    }

    /// Queues a write with its notification for [`Output::flush`].
    pub(super) fn write(&mut self, write: &Write<'_>, packet: &[u8]) {
        let len: usize = write.pieces.iter().map(|piece| piece.len).sum();
        let head = Head {
            kind: Kind::Write,
            len: PLACE_LEN + len,
            segment: 0,
        };
        let to = To {
            rkey: write.key,
            offset: write.offset,
        };
        let head = self.head(&head, &[]);
        self.keep_marked(&head, Mark::Head);
        let mut place = to.write();
        if let Seal::Keyed(key) = &self.seal {
            seal_late(&mut place, key, &to.offset.to_le_bytes());
        }
        self.keep_marked(&place, Mark::Place);
        for piece in write.pieces {
            self.parts.push_back(Part::Lent {
                base: piece.base.expose_provenance(),
                len: piece.len,
            });
        }
        self.parts.push_back(Part::End(write.token));
        self.take(packet, packet.len());
    }

    /// Queues a head or destination.
    fn keep_marked(&mut self, bytes: &[u8], mark: fn(usize) -> Mark) {
        self.sealed();
        self.keep(bytes);
        let at = self.owned.len() - bytes.len();
        if let Seal::Awaited(marks) = &mut self.seal {
            marks.push(mark(at)); // nothing of `owned` is discarded before it was sent
        }
    }

    /// Sends as much of the queue as there is room for; adds to `over` the tokens of writes whose
    /// memory is no longer needed. Returns whether the queue is empty.
    pub(super) fn flush(
        &mut self,
        stream: &Stream,
        over: &mut VecDeque<u64>,
    ) -> Result<bool, Errno> {
        while !self.parts.is_empty() {
            let mut pieces = [piece(&[]); IOV_MAX];
            let mut count = 0;
            for part in &self.parts {
                let found = match *part {
                    Part::Owned { start, len } => piece(&self.owned[start..start + len]),
                    Part::Lent { base, len } => Piece {
                        base: std::ptr::with_exposed_provenance(base),
                        len,
                    },
                    Part::End(_) => continue,
                };
                let Some(slot) = pieces.get_mut(count) else {
                    break;
                };
                (*slot, count) = (found, count + 1);
            }
            let sent = match stream.send(&pieces[..count]) {
                _ if count == 0 => 0,
                Ok(sent) => sent,
                Err(libc::EAGAIN | libc::ENOBUFS) => return Ok(false),
                Err(libc::EINTR) => continue,
                Err(errno) => return Err(errno),
            };
            self.advance(sent, over);
        }
        Ok(true)
    }

    /// Removes the first `sent` bytes, and completed writes.
    fn advance(&mut self, mut sent: usize, over: &mut VecDeque<u64>) {
        while let Some(part) = self.parts.front_mut() {
            match part {
                Part::End(token) => over.push_back(*token),
                Part::Owned { start, len } if sent < *len => {
                    (*start, *len) = (*start + sent, *len - sent);
                    self.waiting -= sent;
                    return;
                }
                Part::Lent { base, len } if sent < *len => {
                    (*base, *len) = (*base + sent, *len - sent);
                    return;
                }
                Part::Owned { len, .. } => {
                    sent -= *len;
                    self.waiting -= *len;
                }
                Part::Lent { len, .. } => sent -= *len,
            }
            self.parts.pop_front();
        }
    }

    /// Copies the memory of all queued writes, so that it is no longer needed.
    pub(super) fn copy_lent(&mut self, over: &mut VecDeque<u64>) {
        for at in 0..self.parts.len() {
            match self.parts[at] {
                Part::Owned { .. } => {}
                Part::Lent { base, len } => {
                    let start = self.owned.len();
                    let pieces = [Piece {
                        base: std::ptr::with_exposed_provenance(base),
                        len,
                    }];
                    let write = Write {
                        key: 0,
                        offset: 0,
                        pieces: &pieces,
                        token: 0,
                        source: None,
                    };
                    write.read(&mut self.owned);
                    self.waiting += len;
                    self.parts[at] = Part::Owned { start, len };
                }
                Part::End(token) => over.push_back(token),
            }
        }
        self.parts.retain(|part| !matches!(part, Part::End(_)));
    }

    /// Discards the queue after the connection broke.
    pub(super) fn clear(&mut self, over: &mut VecDeque<u64>) {
        self.waiting = 0;
        if let Seal::Awaited(marks) = &mut self.seal {
            marks.clear();
        }
        for part in self.parts.drain(..) {
            if let Part::End(token) = part {
                over.push_back(token);
            }
        }
    }

    /// Discards sent bytes and shrinks the buffer.
    fn forget_left(&mut self) {
        if self.parts.is_empty() {
            self.owned.clear();
            self.owned.shrink_to(KEPT_MAX);
        }
        let left = self.owned.len() - self.waiting;
        if left <= LEFT_MAX.max(self.waiting) {
            return;
        }
        let starts = self.parts.iter().filter_map(|part| match part {
            Part::Owned { start, .. } => Some(*start),
            Part::Lent { .. } | Part::End(_) => None,
        });
        let left = starts.min().unwrap_or(self.owned.len());
        self.owned.drain(..left);
        for part in &mut self.parts {
            if let Part::Owned { start, .. } = part {
                *start -= left;
            }
        }
    }

    fn keep(&mut self, bytes: &[u8]) {
        if bytes.is_empty() {
            return;
        }
        self.forget_left();
        let start = self.owned.len();
        self.owned.extend_from_slice(bytes);
        self.waiting += bytes.len();
        match self.parts.back_mut() {
            Some(Part::Owned { start: from, len }) if *from + *len == start => *len += bytes.len(),
            _ => self.parts.push_back(Part::Owned {
                start,
                len: bytes.len(),
            }),
        }
    }
}

/// Sends one frame without a tag on a new connection; `false` if it was not sent whole.
pub(super) fn send_plain(stream: &Stream, kind: Kind, body: &[u8]) -> Result<bool, Errno> {
    let mut output = Output::default();
    let sent = output.send_control(stream, kind, body)?;
    Ok(sent && output.is_empty())
}

#[inline]
fn packets_head(bytes: &[u8], segment: usize) -> Head {
    Head {
        kind: Kind::Packets,
        len: bytes.len(),
        segment,
    }
}

fn piece(bytes: &[u8]) -> Piece {
    Piece {
        base: bytes.as_ptr(),
        len: bytes.len(),
    }
}
