//! A whole packet: the writer of its head and the checked view of a received packet.

use crate::ack::{Ack, MasksView};
use crate::align8;
use crate::follow::FragmentHead;
use crate::frame::{
    read_lone_ack, read_lone_eager, Eager, Frame, FrameView, ACK_LONE_LEN, EAGER_LEN,
};
use crate::header::{
    u16_at, u32_at, u64_at, Header, TaggedHead, HEADER_LEN, KIND_AT, PACKET_NUMBER_MAX, TAG_LEN,
};
use crate::hello::Hello;
use crate::prefix::KIND_HELLO;
use crate::version::Versions;

/// The reason why a datagram is not a packet. The receiving rail counts each.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ParseError {
    /// Shorter than any header, or than the length in its head, whose CRC passed.
    Truncated,
    /// Another version of the protocol, which is not read here; the head's CRC passed.
    Version,
    /// The head's CRC-32C does not match, or its length is impossible.
    HeadCrc,
    /// The CRC matched, but a field has an impossible value.
    Malformed,
}

/// A received packet whose head CRC passed and whose frames are all valid.
#[derive(Clone, Copy, Debug)]
pub struct Packet<'a> {
    /// The fixed header.
    pub header: Header,
    bytes: &'a [u8],
    head_len: usize,
    len: usize,
}

impl<'a> Packet<'a> {
    /// Checks `bytes` (one datagram): length, head CRC by `crc32c`, version, then every frame's
    /// fields and that all payloads lie inside the datagram. No field is interpreted before the CRC
    /// has passed: a damaged version field counts as damage, not as another version. The caller
    /// checks that the version is the one agreed with the sender.
    #[inline]
    pub fn parse(bytes: &'a [u8], crc32c: impl Fn(&[u8]) -> u32) -> Result<Packet<'a>, ParseError> {
        if bytes.len() < HEADER_LEN {
            return Err(ParseError::Truncated);
        }
        let head_len = u16_at(bytes, 6) as usize;
        if head_len < HEADER_LEN || head_len > bytes.len() {
            return Err(ParseError::HeadCrc);
        }
        if crc32c(&bytes[4..head_len]) != u32_at(bytes, 0) {
            return Err(ParseError::HeadCrc);
        }
        let header = Header::read(bytes);
        if header.number > PACKET_NUMBER_MAX || head_len % 8 != 0 || bytes[KIND_AT] != 0 {
            return Err(ParseError::Malformed);
        }
        let mut packet = Packet {
            header,
            bytes,
            head_len,
            len: 0,
        };
        if !Versions::READABLE.has(bytes[4]) && !packet.is_refusal() {
            return Err(ParseError::Version);
        }
        packet.len = packet.validate()?;
        Ok(packet)
    }

    /// Returns whether the packet's only frame is a HELLO that refuses its destination, which every
    /// version can read.
    #[cold]
    fn is_refusal(&self) -> bool {
        let head = &self.bytes[HEADER_LEN..self.head_len];
        match FrameView::read(head) {
            Ok((FrameView::Hello(hello), len)) => len == head.len() && hello.refuses(),
            _ => false,
        }
    }

    /// Checks all frames; returns the packet's length.
    fn validate(&self) -> Result<usize, ParseError> {
        let (mut at, mut payload) = (HEADER_LEN, self.head_len);
        while at < self.head_len {
            let (frame, len) = FrameView::read(&self.bytes[at..self.head_len])
                .map_err(|_| ParseError::Malformed)?;
            at += len;
            payload += frame.payload_len();
            if payload > self.bytes.len() {
                return Err(ParseError::Truncated);
            }
            payload = align8(payload);
        }
        if !self.is_tagged() {
            return Ok(payload.min(self.bytes.len()));
        }
        match payload + TAG_LEN {
            len if len <= self.bytes.len() => Ok(len),
            _ => Err(ParseError::Truncated),
        }
    }

    #[inline]
    fn is_tagged(&self) -> bool {
        self.header.flags & Header::FLAG_TAGGED != 0
    }

    /// The packet's tag, if it has one.
    #[inline]
    pub fn tag(&self) -> Option<u64> {
        let at = self.len.checked_sub(TAG_LEN)?;
        self.is_tagged().then(|| u64_at(self.bytes, at))
    }

    /// The head: header and frames.
    pub fn head(&self) -> &'a [u8] {
        &self.bytes[..self.head_len]
    }

    /// The part of the head under the tag.
    #[inline]
    pub fn tagged_head(&self) -> TaggedHead<'a> {
        TaggedHead::of(&self.bytes[..self.head_len])
    }

    /// Bytes of the packet including the padding of its payloads; in a buffer of several packets
    /// the next packet follows.
    #[inline]
    pub fn wire_len(&self) -> usize {
        self.len
    }

    /// The same packet without the bytes after it.
    #[inline]
    pub fn alone(self) -> Packet<'a> {
        Packet {
            bytes: &self.bytes[..self.len],
            ..self
        }
    }

    /// The packet's head, if its only frame is a DATA frame.
    #[inline]
    pub fn fragment_head(&self) -> Option<FragmentHead> {
        FragmentHead::of(self.bytes, self.head_len)
    }

    /// The ack and the message of a packet with exactly one mask and one message, which most
    /// replies are.
    #[inline]
    pub fn answer(&self) -> Option<(Ack<MasksView<'a>>, Eager, &'a [u8])> {
        let head = &self.bytes[HEADER_LEN..self.head_len];
        let (ack, eager) = head.split_at_checked(ACK_LONE_LEN)?;
        if eager.len() != EAGER_LEN {
            return None;
        }
        let (ack, eager) = read_lone_ack(ack).zip(read_lone_eager(eager))?;
        let payload = self
            .bytes
            .get(self.head_len..self.head_len + eager.len as usize)?;
        Some((ack, eager, payload))
    }

    /// The HELLO with which the packet begins, if it does.
    #[inline]
    pub fn first_hello(&self) -> Option<Hello<'a>> {
        if self.bytes[HEADER_LEN..self.head_len].first() != Some(&KIND_HELLO) {
            return None;
        }
        self.frames().find_map(|(frame, _)| match frame {
            FrameView::Hello(hello) => Some(hello.fields()),
            _ => None,
        })
    }

    /// The frames in order, each with its payload (empty for control).
    #[inline]
    pub fn frames(&self) -> Frames<'a> {
        Frames {
            bytes: self.bytes,
            at: HEADER_LEN,
            head_len: self.head_len,
            payload: self.head_len,
        }
    }
}

/// Iterator over a checked packet's frames.
pub struct Frames<'a> {
    bytes: &'a [u8],
    at: usize,
    head_len: usize,
    payload: usize,
}

impl<'a> Iterator for Frames<'a> {
    type Item = (FrameView<'a>, &'a [u8]);

    #[inline]
    fn next(&mut self) -> Option<(FrameView<'a>, &'a [u8])> {
        if self.at >= self.head_len {
            return None;
        }
        let (frame, len) = FrameView::read(&self.bytes[self.at..self.head_len]).ok()?;
        self.at += len;
        let from = self.payload;
        let to = from + frame.payload_len();
        self.payload = align8(to);
        Some((frame, self.bytes.get(from..to)?))
    }
}

/// The place of one payload in a packet under construction, and the place of its sum.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PayloadSlot {
    /// Offset of the frame's 8-byte sum field in the packet.
    pub sum_at: u32,
    /// Offset of the payload from the end of the head, whose length is known only after all frames
    /// are written.
    pub payload_at: u32,
    /// Payload bytes.
    pub len: u32,
}

/// Writes the head of one packet into a buffer: header, then frames. The caller puts the payloads
/// behind the head, at the offsets of their [`PayloadSlot`]s.
pub struct HeadWriter<'a> {
    out: &'a mut [u8],
    limit: usize,
    at: usize,
    payload: usize,
    tag: usize,
}

impl<'a> HeadWriter<'a> {
    /// Starts a packet of at most `limit` bytes in `out` (`limit <= out.len()`).
    pub fn new(out: &'a mut [u8], limit: usize) -> HeadWriter<'a> {
        HeadWriter::with_tag(out, limit, 0)
    }

    /// Starts a packet that ends with a tag of `tag` bytes ([`TAG_LEN`], or 0 for none). The caller
    /// writes the tag; the header must have the flag.
    #[inline]
    pub fn with_tag(out: &'a mut [u8], limit: usize, tag: usize) -> HeadWriter<'a> {
        let limit = limit.min(out.len()).saturating_sub(tag);
        HeadWriter {
            out,
            limit,
            at: HEADER_LEN,
            payload: 0,
            tag,
        }
    }

    /// Bytes still free for frames and payload together.
    #[inline]
    pub fn room(&self) -> usize {
        self.limit.saturating_sub(self.at + self.payload)
    }

    /// Returns whether a frame of this size (header and payload bytes) still fits.
    #[inline]
    pub fn fits(&self, head: usize, payload: usize) -> bool {
        self.at + head + self.payload + align8(payload) <= self.limit
    }

    /// Returns whether no frame was written yet.
    #[inline]
    pub fn is_empty(&self) -> bool {
        self.at == HEADER_LEN
    }

    /// Appends a frame; `None` if it does not fit. The slot's `payload_at` is relative to the
    /// head's end (see [`HeadWriter::finish`]).
    #[inline(always)]
    pub fn push(&mut self, frame: &Frame<Hello<'_>>) -> Option<PayloadSlot> {
        let (head, payload) = (frame.head_len(), frame.payload_len());
        if !self.fits(head, payload) {
            return None;
        }
        frame.write(&mut self.out[self.at..self.at + head]);
        let slot = PayloadSlot {
            sum_at: (self.at + head - 8) as u32,
            payload_at: self.payload as u32,
            len: payload as u32,
        };
        self.at += head;
        self.payload += align8(payload);
        Some(slot)
    }

    /// Appends an ACK frame with `count` masks, which `mask` supplies; `false` if it does not fit.
    #[inline]
    pub fn push_ack(&mut self, ack: &Ack<()>, count: u8, mask: impl FnMut(usize) -> u64) -> bool {
        let head = 16 + 8 * count as usize;
        let fits = self.fits(head, 0);
        if fits {
            ack.write(count, mask, &mut self.out[self.at..self.at + head]);
            self.at += head;
        }
        fits
    }

    /// Writes the header. Returns (head length, whole packet length). The CRC field is 0 until the
    /// caller, after writing all sums, stores `crc32c(&packet[4..head_len])` in bytes 0..4.
    #[inline]
    pub fn finish(self, header: &Header) -> (usize, usize) {
        header.write(self.at as u16, self.out);
        (self.at, self.at + self.payload + self.tag)
    }
}
