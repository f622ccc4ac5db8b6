//! The receiving side of one connection: parses frames from the stream.

use super::broken::Break;
use super::frame::{foreign_version, is_right, Head, Kind, To, FRAME_MAX, HEAD_LEN, PLACE_LEN};
use super::proof::{refused, Proof};
use crate::frame_word::word_at;
use crate::rail::KeyMismatch;
use crate::sys::{Errno, Place, Stream};
use crate::Registrations;
use marline_auth::{Challenge, FrameKey};
use marline_wire::DirectHead;

/// Bytes of a buffer: twice the largest frame, so that an incomplete frame at its end is only
/// occasionally moved to the front.
const BUFFER_LEN: usize = 2 * (FRAME_MAX + HEAD_LEN);
/// Most unused buffers that are retained.
const SPARE_MAX: usize = 4;
/// Bytes read beyond a write: its notification and the next frame's head. More would read bytes of
/// a following write into the buffer, which costs a copy; the kernel otherwise puts them in place.
const AHEAD: usize = 1024;
/// Most bytes read at once from an end that has not proven itself: more than its first frames.
const UNPROVEN_MAX: usize = 256;
/// Most bytes read from one connection before the others are read.
const TURN_MAX: usize = 256 * 1024;

/// Unused buffers, shared by all connections.
#[derive(Debug, Default)]
pub(super) struct Spare(Vec<Box<[u8]>>);

impl Spare {
    fn take(&mut self) -> Box<[u8]> {
        let new = || vec![0; BUFFER_LEN].into_boxed_slice();
        self.0.pop().unwrap_or_else(new)
    }
}

/// A write whose bytes are being received.
#[derive(Clone, Copy, Debug)]
struct Landing {
    to: To,
    /// Bytes still to come.
    left: usize,
}

/// The receiving state of a connection.
#[derive(Debug)]
pub(super) struct Input {
    buffer: Option<Box<[u8]>>,
    /// The received bytes that were not handed on: a range of the buffer.
    start: usize,
    end: usize,
    landing: Option<Landing>,
    /// Number of further frames after which another write is unlikely.
    writes: u8,
    proof: Proof,
    accepted: bool,
    /// This end has the job's key.
    keyed: bool,
    /// The key of the other end's frames.
    key: Option<FrameKey>,
}

/// Handles the frames of a stream.
pub(super) trait Sink {
    /// The other end's challenge; returns the key of its frames.
    fn challenge(&mut self, challenge: &Challenge) -> Result<FrameKey, Break>;
    /// The handshake of an accepted connection; with a key, it had the right tag.
    fn handshake(&mut self, handshake: &[u8]) -> Result<(), Break>;
    /// The answer to our handshake, with the right tag.
    fn answer(&mut self);
    /// Packets of `segment` bytes each, except the last.
    fn packets(&mut self, bytes: &[u8], segment: usize);
    /// The last frame of a connection that the other end wants to close (idle eviction).
    fn evicted(&mut self);
    /// A request to send on this connection instead of the one with this token.
    fn join(&mut self, token: u64);
}

impl Input {
    /// The state of a new connection; `keyed`: this end has the job's key.
    pub(super) fn new(accepted: bool, keyed: bool) -> Input {
        Input {
            buffer: None,
            start: 0,
            end: 0,
            landing: None,
            writes: 0,
            proof: Proof::new(accepted, keyed),
            accepted,
            keyed,
            key: None,
        }
    }

    /// Returns whether handshake and proof are complete.
    pub(super) fn is_known(&self) -> bool {
        self.proof == Proof::Done
    }

    /// Returns whether the other end has made the connection.
    pub(super) fn is_accepted(&self) -> bool {
        self.accepted
    }

    /// Returns whether the other end has proven that it has the job's key.
    pub(super) fn has_proof(&self) -> bool {
        self.key.is_some() && self.is_known()
    }

    /// Receives up to about [`TURN_MAX`] waiting bytes; returns their number.
    pub(super) fn receive(
        &mut self,
        stream: &Stream,
        memory: &Registrations,
        spare: &mut Spare,
        sink: &mut impl Sink,
    ) -> Result<usize, Break> {
        let mut total = 0;
        while total < TURN_MAX {
            let (room, got) = match self.landing {
                Some(landing) => {
                    let got = self.land(stream, memory, landing, spare);
                    (landing.left + AHEAD, got.ok_or(Break::NoPlace)?)
                }
                None => self.fill(stream, spare),
            };
            let got = match got {
                Ok(0) => return Err(Break::Closed),
                Ok(got) => got,
                Err(libc::EAGAIN | libc::EINTR) => break,
                Err(errno) => return Err(Break::Failed(errno)),
            };
            total += got;
            self.hand_on(memory, sink)?;
            if got < room {
                break; // most likely nothing is left
            }
        }
        if self.start == self.end {
            self.give_back(spare);
        }
        Ok(total)
    }

    /// Reads into the buffer; returns its room and the result.
    fn fill(&mut self, stream: &Stream, spare: &mut Spare) -> (usize, Result<usize, Errno>) {
        let buffer = self.buffer.get_or_insert_with(|| spare.take());
        if self.start == self.end {
            (self.start, self.end) = (0, 0);
        } else if buffer.len() - self.start < HEAD_LEN + FRAME_MAX {
            buffer.copy_within(self.start..self.end, 0);
            (self.start, self.end) = (0, self.end - self.start);
        }
        let most = match self.writes {
            _ if self.proof != Proof::Done => UNPROVEN_MAX,
            0 => BUFFER_LEN,
            _ => AHEAD,
        };
        let len = most.min(buffer.len() - self.end);
        let room = &mut buffer[self.end..self.end + len];
        let got = stream.recv(room);
        self.end += got.unwrap_or(0);
        (len, got)
    }

    /// Receives bytes of a write directly into their place, and following bytes into the buffer;
    /// `None` if the place is gone.
    fn land(
        &mut self,
        stream: &Stream,
        memory: &Registrations,
        landing: Landing,
        spare: &mut Spare,
    ) -> Option<Result<usize, Errno>> {
        let head = head_of(&landing, landing.left);
        let buffer = self.buffer.get_or_insert_with(|| spare.take());
        let got = memory.land(&head, |place: Place<'_>| {
            let got = stream.recv_place(&place, &mut buffer[..AHEAD]);
            (got, got.is_ok_and(|got| got >= landing.left))
        })?;
        let all = got.unwrap_or(0);
        let here = all.min(landing.left);
        self.landed(landing, here);
        (self.start, self.end) = (0, all - here); // earlier bytes belong to the write
        Some(got)
    }

    fn landed(&mut self, landing: Landing, got: usize) {
        let to = To {
            offset: landing.to.offset.wrapping_add(got as u64),
            ..landing.to
        };
        let left = landing.left - got;
        self.landing = (left > 0).then_some(Landing { to, left });
    }

    /// Hands on all complete frames in the buffer, and the received part of a write.
    fn hand_on(&mut self, memory: &Registrations, sink: &mut impl Sink) -> Result<(), Break> {
        let Some(buffer) = self.buffer.take() else {
            return Ok(());
        };
        let mut result = Ok(());
        while result.is_ok() && self.landing.is_none() {
            let rest = &buffer[self.start..self.end];
            match self.hand_on_one(rest, memory, sink) {
                Ok(0) => break,
                Ok(used) => self.start += used,
                Err(broken) => result = Err(broken),
            }
        }
        self.buffer = Some(buffer);
        result
    }

    /// Handles the first frame of `rest`; returns the number of bytes consumed, 0 if incomplete.
    fn hand_on_one(
        &mut self,
        rest: &[u8],
        memory: &Registrations,
        sink: &mut impl Sink,
    ) -> Result<usize, Break> {
        if rest.len() < HEAD_LEN {
            return Ok(0);
        }
        let head = Head::claimed(rest).ok_or_else(|| self.unclear(rest))?;
        let (start, rest) = rest.split_at(HEAD_LEN);
        self.proof.check(head.kind, (self.accepted, self.keyed))?;
        let Some(covered) = rest.get(..head.covered()) else {
            return Ok(0);
        };
        // A refusal comes from an end without this key.
        let key = self.key.as_ref().filter(|_| head.kind != Kind::Refusal);
        if !is_right(start, key, covered) {
            return Err(self.wrong_tag(head.kind));
        }
        if head.kind == Kind::Write {
            return self.begin_write(&head, rest, memory);
        }
        let Some(bytes) = rest.get(..head.len) else {
            self.writes *= u8::from(head.len < AHEAD);
            return Ok(0);
        };
        self.writes = self.writes.saturating_sub(1);
        self.advance();
        match head.kind {
            Kind::Packets => sink.packets(bytes, head.segment),
            Kind::Eviction => sink.evicted(),
            Kind::Join => sink.join(word_at(bytes, 0)),
            _ => self.prove(head.kind, bytes, sink)?,
        }
        Ok(HEAD_LEN + head.len)
    }

    /// A frame with the next tag is complete.
    #[inline]
    fn advance(&mut self) {
        if let Some(key) = &mut self.key {
            key.advance();
        }
    }

    /// The reason of a head that is none. Only the first frames, which have no tag, name versions.
    #[cold]
    fn unclear(&self, start: &[u8]) -> Break {
        let foreign = foreign_version(start).filter(|_| self.key.is_none());
        foreign.map_or(Break::Garbled, Break::Foreign)
    }

    /// The reason of a head without the right tag or inverted word.
    #[cold]
    fn wrong_tag(&self, kind: Kind) -> Break {
        match (&self.key, self.proof) {
            (None, _) => Break::Garbled,
            (Some(_), Proof::Tag) if kind != Kind::Refusal => Break::Forged(KeyMismatch::OtherKey),
            (Some(_), _) => Break::Forged(KeyMismatch::Tag),
        }
    }

    /// Handles a frame by which the other end proves itself, or refuses us.
    #[cold]
    fn prove(&mut self, kind: Kind, bytes: &[u8], sink: &mut impl Sink) -> Result<(), Break> {
        match kind {
            Kind::Challenge => {
                let challenge = bytes.try_into().map_err(|_| Break::Garbled)?;
                self.key = Some(sink.challenge(challenge)?);
                self.proof = Proof::Tag;
                return Ok(());
            }
            Kind::Refusal => return Err(Break::Refused(refused(bytes))),
            Kind::Handshake => sink.handshake(bytes)?,
            _ => sink.answer(),
        }
        self.proof = Proof::Done;
        Ok(())
    }

    fn begin_write(
        &mut self,
        head: &Head,
        rest: &[u8],
        memory: &Registrations,
    ) -> Result<usize, Break> {
        let Some(to) = rest.get(..PLACE_LEN) else {
            return Ok(0);
        };
        self.advance(); // past the head
        let to = To::read(to, self.key.as_ref()).ok_or(match self.key {
            Some(_) => Break::Forged(KeyMismatch::Tag),
            None => Break::Garbled,
        })?;
        self.advance();
        let landing = Landing {
            to,
            left: head.len - PLACE_LEN,
        };
        self.writes = 2; // its notification is a frame in between
        let here = &rest[PLACE_LEN..];
        let here = &here[..here.len().min(landing.left)];
        if !here.is_empty() {
            let landed = memory.land(&head_of(&landing, here.len()), |place| {
                place.fill(here);
                ((), true)
            });
            landed.ok_or(Break::NoPlace)?;
        }
        self.landed(landing, here.len());
        Ok(HEAD_LEN + PLACE_LEN + here.len())
    }

    /// Returns the buffer to the unused ones.
    pub(super) fn give_back(&mut self, spare: &mut Spare) {
        (self.start, self.end) = (0, 0);
        if let Some(buffer) = self.buffer.take() {
            if spare.0.len() < SPARE_MAX {
                spare.0.push(buffer);
            }
        }
    }
}

fn head_of(landing: &Landing, len: usize) -> DirectHead {
    DirectHead {
        key: landing.to.rkey,
        offset: landing.to.offset,
        len: len as u32,
        packet_len: 0,
        spare: 0,
    }
}
