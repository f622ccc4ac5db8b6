//! The sending side of one connection, which queues what the kernel has no room for.

use super::frame::{Head, Kind, To, HEAD_LEN, PLACE_LEN};
use crate::sys::{Errno, Stream, IOV_MAX};
use crate::{Piece, Write};
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

/// The queue of a connection.
#[derive(Debug, Default)]
pub(super) struct Output {
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

    /// Sends a batch of packets of `segment` bytes each; `false` if there was no room for even the
    /// first byte.
    #[inline]
    pub(super) fn send(
        &mut self,
        stream: &Stream,
        bytes: &[u8],
        segment: usize,
    ) -> Result<bool, Errno> {
        self.send_framed(stream, &packets_head(bytes, segment), bytes)
    }

    /// Sends the last frame before an eviction, as [`Output::send`].
    pub(super) fn rest(&mut self, stream: &Stream) -> Result<bool, Errno> {
        let head = Head {
            kind: Kind::Eviction,
            len: 0,
            segment: 0,
        };
        self.send_framed(stream, &head.write(), &[])
    }

    /// Asks the other end to send on this connection instead of its own connection of this token,
    /// as [`Output::send`].
    pub(super) fn join(&mut self, stream: &Stream, token: u64) -> Result<bool, Errno> {
        let token = token.to_le_bytes();
        let head = Head {
            kind: Kind::Join,
            len: token.len(),
            segment: 0,
        };
        self.send_framed(stream, &head.write(), &token)
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
        if sent < HEAD_LEN + bytes.len() {
            self.keep(&head[sent.min(HEAD_LEN)..]);
            self.keep(&bytes[sent.saturating_sub(HEAD_LEN)..]);
        }
        Ok(true)
    }

    /// Queues a batch of packets for [`Output::flush`].
    pub(super) fn take(&mut self, bytes: &[u8], segment: usize) {
        self.keep(&packets_head(bytes, segment));
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
        self.keep(&head.write());
        self.keep(&to.write());
        for piece in write.pieces {
            self.parts.push_back(Part::Lent {
                base: piece.base.expose_provenance(),
                len: piece.len,
            });
        }
        self.parts.push_back(Part::End(write.token));
        self.take(packet, packet.len());
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

/// Sends one frame on a connection with an empty queue; `false` if it was not sent whole.
pub(super) fn send_frame(stream: &Stream, kind: Kind, body: &[u8]) -> Result<bool, Errno> {
    let head = Head {
        kind,
        len: body.len(),
        segment: 0,
    };
    let head = head.write();
    match stream.send(&[piece(&head), piece(body)]) {
        Ok(sent) => Ok(sent == HEAD_LEN + body.len()),
        Err(libc::EAGAIN | libc::ENOBUFS | libc::EINTR) => Ok(false),
        Err(errno) => Err(errno),
    }
}

#[inline]
fn packets_head(bytes: &[u8], segment: usize) -> [u8; HEAD_LEN] {
    let head = Head {
        kind: Kind::Packets,
        len: bytes.len(),
        segment,
    };
    head.write()
}

fn piece(bytes: &[u8]) -> Piece {
    Piece {
        base: bytes.as_ptr(),
        len: bytes.len(),
    }
}
