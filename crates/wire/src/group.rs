//! Packets of a group: a head of their own, then control frames, then at most one chunk with its
//! payload.
//!
//! ```text
//!  0  u32 head CRC-32C over [4, head_len)
//!  4  u8  version            5  u8  payload algorithm     6  u16 head_len
//!  8  u64 group id
//! 16  u32 group token        20 u16 source's member number 22 u16 reserved (0)
//! 24  u64 source endpoint id
//! 32  u32 source epoch       36 u8 lane  37 u8 flags  38 u8 0  39 u8 kind: 1
//! 40  frames, then the chunk; with a tag first number and destination (`group_seal.rs`)
//! ```
//!
//! The first eight bytes are those of every packet, and a packet between two endpoints has 0 in the
//! place of the kind. Frames and chunks begin with `kind u8, flags or count u8, root u16, u32`:
//!
//! ```text
//! ACK    1  flags  root  0              next u64
//! NACK   2  0      root  missing, of    first u64, masks u64 * 2: bit i is chunk first + i
//! TAIL   3  count  root  0              next u64, asked u16 * count, padded to 8
//! PROBE  4  0      0     0
//! CHUNK  8  flags  root  len            number, broadcast, offset, total, sum: u64 each
//! PARITY 9  count  root  len            the same
//! PIECE  10 flags  root  len u16, piece u16  the same
//! ```
//!
//! Frames of kinds from 128 on have their length in place of the root, a multiple of 8, and are
//! skipped by it.
//!
//! A PIECE is a part of a chunk, with its own offset, length and sum. Pieces of a chunk count from
//! 1, and all but the last have [`PIECE_LEN`] bytes.

use crate::group_flags::AckFlags;
use crate::group_seal::GroupSeal;
use crate::header::{u16_at, u32_at, u64_at, KIND_AT, TAG_LEN};
use crate::packet::ParseError;
use crate::skip::Extension;

/// Bytes of the head without frames and chunk.
pub const GROUP_HEAD_LEN: usize = 40;
/// Bytes of a chunk's head.
pub const CHUNK_HEAD_LEN: usize = 48;
/// Most members that a TAIL names. A TAIL that asks more members names none, which means all.
pub const ASKED_MAX: usize = 8;
/// Number of masks in a NACK, which covers 128 chunks.
const GAP_MASKS: usize = 2;
/// Most chunks covered by one parity.
pub const PARITY_MAX: u8 = 32;
/// Bytes of a piece: with all heads it fits into 576 bytes, which every IPv4 host accepts (RFC
/// 1122).
pub const PIECE_LEN: u32 = 384;
/// Pieces of a chunk, at most: a longer chunk than any datagram.
pub const PIECES_MAX: u16 = 255;

/// Offset of the flags.
const FLAGS_AT: usize = 37;

/// The version of a group's packets, which all members' descriptors name: groups are not formed
/// where these differ.
const GROUP_VERSION: u8 = 4;
const KIND: u8 = 1;
const ACK: u8 = 1;
const NACK: u8 = 2;
const TAIL: u8 = 3;
const PROBE: u8 = 4;
const CHUNK: u8 = 8;
const PARITY: u8 = 9;
const PIECE: u8 = 10;
const ASKS: u8 = 1;
const LEAVES: u8 = 2;

/// The sender of a packet, and its group.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct GroupHead {
    /// Algorithm number of the payload's sum.
    pub algorithm: u8,
    /// Random id of the group.
    pub group: u64,
    /// Random token of the group; packets with another token are counted and dropped.
    pub token: u32,
    /// The sender's member number.
    pub member: u16,
    /// The sender's endpoint id.
    pub src_id: u64,
    /// The sender's epoch.
    pub src_epoch: u32,
    /// The rail on which the packet was sent, as an index among the group's rails.
    pub network: u8,
    /// [`GroupHead::FLAG_MULTICAST`] and [`GroupHead::FLAG_TAGGED`], which the writer sets.
    pub flags: u8,
}

impl GroupHead {
    /// The packet was sent to the group's address, not to one member.
    pub const FLAG_MULTICAST: u8 = 1;
    /// The packet has a number, a destination and a tag (docs/design/security.md).
    pub const FLAG_TAGGED: u8 = 2;

    fn write(&self, head_len: u16, out: &mut [u8]) {
        out[0..4].fill(0);
        out[4] = GROUP_VERSION;
        out[5] = self.algorithm;
        out[6..8].copy_from_slice(&head_len.to_le_bytes());
        out[8..16].copy_from_slice(&self.group.to_le_bytes());
        out[16..20].copy_from_slice(&self.token.to_le_bytes());
        out[20..22].copy_from_slice(&self.member.to_le_bytes());
        out[22..24].fill(0);
        out[24..32].copy_from_slice(&self.src_id.to_le_bytes());
        out[32..36].copy_from_slice(&self.src_epoch.to_le_bytes());
        out[36] = self.network;
        out[FLAGS_AT] = self.flags;
        out[38] = 0;
        out[KIND_AT] = KIND;
    }

    fn is_tagged(&self) -> bool {
        self.flags & GroupHead::FLAG_TAGGED != 0
    }

    fn read(b: &[u8]) -> GroupHead {
        GroupHead {
            algorithm: b[5],
            group: u64_at(b, 8),
            token: u32_at(b, 16),
            member: u16_at(b, 20),
            src_id: u64_at(b, 24),
            src_epoch: u32_at(b, 32),
            network: b[36],
            flags: b[FLAGS_AT],
        }
    }
}

/// A chunk of a broadcast, a piece of a chunk, or the parity of several chunks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Chunk {
    /// The member that sends the broadcast.
    pub root: u16,
    /// Number of the chunk among all chunks of this root to the group; for a parity, that of its
    /// first chunk.
    pub number: u64,
    /// Number of the broadcast in the group.
    pub broadcast: u64,
    /// Offset of the chunk in the broadcast, in bytes.
    pub offset: u64,
    /// Bytes of the chunk; never 0.
    pub len: u32,
    /// Length of the broadcast in bytes.
    pub total: u64,
    /// 0: a chunk. Otherwise a parity: the payload is the exclusive or of this many chunks,
    /// beginning with this one.
    pub parity: u8,
    /// 0: a whole chunk. Otherwise the number of a piece, from 1 on: `offset` and `len` are the
    /// piece's own.
    pub piece: u8,
    /// Requests an acknowledgement of this chunk and all before: the root's memory is free then.
    pub asks: bool,
    /// The network does not deliver this group's packets to all members: the group is abandoned
    /// after an agreed number of broadcasts.
    pub leaves: bool,
}

impl Chunk {
    /// Offset in bytes of a piece in its chunk; 0 for a whole chunk.
    pub fn within(&self) -> u32 {
        (self.piece.max(1) as u32 - 1) * PIECE_LEN
    }

    /// Seed of the payload's sum, so that a payload is correct in its own place only.
    pub fn seed(&self, group: u64) -> u64 {
        let mut z = group ^ (self.root as u64) << 8 ^ self.parity as u64;
        z = (z ^ z >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z ^= self.broadcast.rotate_left(32) ^ self.offset.rotate_left(17);
        z = (z ^ z >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^= self.number ^ (self.len as u64 | (self.piece as u64) << 32).rotate_left(48);
        z ^ z >> 31
    }

    fn write(&self, sum: u64, out: &mut [u8]) {
        let flags = (self.asks as u8 * ASKS) | (self.leaves as u8 * LEAVES);
        let (kind, flags, len) = match (self.parity, self.piece) {
            (0, 0) => (CHUNK, flags, self.len),
            (0, piece) => (PIECE, flags, self.len | (piece as u32) << 16),
            (count, _) => (PARITY, count, self.len),
        };
        begin(out, (kind, flags), self.root, len);
        let fields = [self.number, self.broadcast, self.offset, self.total, sum];
        put_all(&mut out[8..], fields);
    }

    /// Reads a chunk's head and its payload's sum; `None` if a value is impossible.
    fn read(b: &[u8]) -> Option<(Chunk, u64)> {
        let parity = if b[0] == PARITY { b[1] } else { 0 };
        let flags = if b[0] == PARITY { 0 } else { b[1] };
        let (piece, len) = match b[0] {
            PIECE => (u16_at(b, 6), u16_at(b, 4) as u32),
            _ => (0, u32_at(b, 4)),
        };
        let chunk = Chunk {
            root: u16_at(b, 2),
            number: u64_at(b, 8),
            broadcast: u64_at(b, 16),
            offset: u64_at(b, 24),
            len,
            total: u64_at(b, 32),
            parity,
            piece: piece as u8,
            asks: flags & ASKS != 0,
            leaves: flags & LEAVES != 0,
        };
        let end = chunk.offset.checked_add(chunk.len as u64)?;
        let counts = match b[0] {
            CHUNK => flags <= ASKS | LEAVES,
            PIECE => {
                flags <= ASKS | LEAVES && (1..=PIECES_MAX).contains(&piece) && len <= PIECE_LEN
            }
            _ => (2..=PARITY_MAX).contains(&parity),
        };
        let sane = chunk.len > 0 && end <= chunk.total && counts;
        sane.then(|| (chunk, u64_at(b, 40)))
    }
}

/// Missing chunks of a member.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Gaps {
    first: u64,
    masks: [u64; GAP_MASKS],
    /// Total number of missing chunks, and of chunks sent.
    pub missing: u16,
    /// See `missing`.
    pub of: u16,
}

impl Gaps {
    /// Adds a chunk, in ascending order. Returns `false` and ignores a chunk too far behind the
    /// first.
    pub fn push(&mut self, number: u64) -> bool {
        if self.is_empty() {
            self.first = number;
        }
        let at = number.wrapping_sub(self.first);
        let mask = self.masks.get_mut((at / 64) as usize);
        let fits = mask.is_some();
        mask.into_iter().for_each(|mask| *mask |= 1 << (at % 64));
        fits
    }

    /// Returns whether no chunk was added.
    pub fn is_empty(&self) -> bool {
        self.masks[0] == 0
    }

    /// The first chunk.
    pub fn first(&self) -> Option<u64> {
        (!self.is_empty()).then_some(self.first)
    }

    /// The chunks in order.
    pub fn iter(&self) -> impl Iterator<Item = u64> + '_ {
        let bits = 0..64 * GAP_MASKS as u64;
        let set = bits.filter(|at| self.masks[(at / 64) as usize] >> (at % 64) & 1 == 1);
        set.map(|at| self.first + at)
    }
}

/// Members that a TAIL asks.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Asked {
    count: u8,
    members: [u16; ASKED_MAX],
}

impl Asked {
    /// Names the members if they are few enough; otherwise none, which stands for all.
    pub fn of(members: &[u16]) -> Asked {
        let mut asked = Asked::default();
        if let Some(slots) = asked.members.get_mut(..members.len()) {
            slots.copy_from_slice(members);
            asked.count = members.len() as u8;
        }
        asked
    }

    /// The member numbers; empty: all.
    pub fn members(&self) -> &[u16] {
        &self.members[..self.count as usize]
    }
}

/// Control frames that members exchange in addition to chunks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum GroupFrame {
    /// All chunks below a number arrived; a co-root reports this for all members of its part.
    Ack {
        /// The root of the chunks.
        root: u16,
        /// The number.
        next: u64,
        /// Flags.
        flags: AckFlags,
    },
    /// Some chunks are missing.
    Nack {
        /// The root of the chunks.
        root: u16,
        /// The missing chunks.
        gaps: Gaps,
    },
    /// All chunks below a number have been sent: members that miss some must ask for them.
    Tail {
        /// The root of the chunks.
        root: u16,
        /// The number.
        next: u64,
        /// Members that must report their progress; none: all that acknowledge to the sender.
        asked: Asked,
    },
    /// No content; its arrival shows that multicast reaches the member.
    Probe,
}

impl GroupFrame {
    /// Encoded length in bytes.
    pub fn wire_len(&self) -> usize {
        match self {
            GroupFrame::Ack { .. } => 16,
            GroupFrame::Nack { .. } => 16 + 8 * GAP_MASKS,
            GroupFrame::Tail { asked, .. } => 16 + crate::align8(2 * asked.count as usize),
            GroupFrame::Probe => 8,
        }
    }

    fn write(&self, out: &mut [u8]) {
        match self {
            GroupFrame::Ack { root, next, flags } => {
                begin(out, (ACK, flags.bits()), *root, 0);
                put_all(&mut out[8..], [*next]);
            }
            GroupFrame::Nack { root, gaps } => {
                let lost = gaps.missing as u32 | (gaps.of as u32) << 16;
                begin(out, (NACK, 0), *root, lost);
                put_all(&mut out[8..], [gaps.first, gaps.masks[0], gaps.masks[1]]);
            }
            GroupFrame::Tail { root, next, asked } => {
                begin(out, (TAIL, asked.count), *root, 0);
                put_all(&mut out[8..], [*next]);
                out[16..].fill(0);
                for (out, member) in out[16..].chunks_exact_mut(2).zip(asked.members()) {
                    out.copy_from_slice(&member.to_le_bytes());
                }
            }
            GroupFrame::Probe => begin(out, (PROBE, 0), 0, 0),
        }
    }

    /// Reads the frame at the start of `b`. Also returns the frame's length.
    fn read(b: &[u8]) -> Option<(GroupFrame, usize)> {
        let (&[kind, count], root) = (b.first_chunk()?, u16_at(b.get(..8)?, 2));
        let body = |len: usize| b.get(8..8 + len);
        let frame = match kind {
            ACK if count < 4 => GroupFrame::Ack {
                root,
                next: u64_at(body(8)?, 0),
                flags: AckFlags::of(count),
            },
            NACK if count == 0 => {
                let body = body(8 + 8 * GAP_MASKS)?;
                let gaps = Gaps {
                    first: u64_at(body, 0),
                    masks: [u64_at(body, 8), u64_at(body, 16)],
                    missing: u16_at(b, 4),
                    of: u16_at(b, 6),
                };
                let far = gaps.first > u64::MAX - 64 * GAP_MASKS as u64;
                (gaps.masks[0] & 1 == 1 && !far).then_some(())?;
                GroupFrame::Nack { root, gaps }
            }
            TAIL if count as usize <= ASKED_MAX => {
                let body = body(8 + crate::align8(2 * count as usize))?;
                let mut asked = Asked {
                    count,
                    members: [0; ASKED_MAX],
                };
                let members = body[8..].chunks_exact(2).take(count as usize);
                for (slot, member) in asked.members.iter_mut().zip(members) {
                    *slot = u16_at(member, 0);
                }
                let next = u64_at(body, 0);
                GroupFrame::Tail { root, next, asked }
            }
            PROBE if count == 0 => GroupFrame::Probe,
            _ => return None,
        };
        Some((frame, frame.wire_len()))
    }
}

/// Length of the frame at the start of `b`, if it is of a later version.
fn skipped(b: &[u8]) -> Option<usize> {
    let prefix: &[u8; 4] = b.first_chunk()?;
    Extension::frame_len(prefix[0], u16_at(prefix, 2)).filter(|len| *len <= b.len())
}

fn begin(out: &mut [u8], (kind, second): (u8, u8), root: u16, word: u32) {
    out[0] = kind;
    out[1] = second;
    out[2..4].copy_from_slice(&root.to_le_bytes());
    out[4..8].copy_from_slice(&word.to_le_bytes());
}

fn put_all<const N: usize>(out: &mut [u8], values: [u64; N]) {
    for (out, value) in out.chunks_exact_mut(8).zip(values) {
        out.copy_from_slice(&value.to_le_bytes());
    }
}

/// A received packet of a group, whose head CRC passed and whose frames are all valid.
#[derive(Clone, Copy, Debug)]
pub struct GroupPacket<'a> {
    /// The packet's sender and group.
    pub head: GroupHead,
    bytes: &'a [u8],
    /// Offsets of the frames and of their end.
    words_at: usize,
    words_end: usize,
    head_len: usize,
    chunk: Option<(Chunk, u64)>,
}

impl<'a> GroupPacket<'a> {
    /// Returns whether these bytes claim to be a packet of a group, without any check.
    pub fn claimed(bytes: &[u8]) -> bool {
        bytes.len() >= GROUP_HEAD_LEN && bytes[KIND_AT] == KIND
    }

    /// Checks `bytes` (one datagram): length, head CRC by `crc32c`, version, kind, then every frame
    /// and the chunk. No field is interpreted before the CRC has passed.
    pub fn parse(
        bytes: &'a [u8],
        crc32c: impl Fn(&[u8]) -> u32,
    ) -> Result<GroupPacket<'a>, ParseError> {
        if bytes.len() < GROUP_HEAD_LEN {
            return Err(ParseError::Truncated);
        }
        let head_len = u16_at(bytes, 6) as usize;
        if head_len < GROUP_HEAD_LEN || head_len > bytes.len() {
            return Err(ParseError::HeadCrc);
        }
        if crc32c(&bytes[4..head_len]) != u32_at(bytes, 0) {
            return Err(ParseError::HeadCrc);
        }
        if bytes[4] != GROUP_VERSION {
            return Err(ParseError::Version);
        }
        if !GroupPacket::claimed(bytes) {
            return Err(ParseError::Malformed);
        }
        let head = GroupHead::read(bytes);
        let words_at = GROUP_HEAD_LEN + GroupSeal::len(head.is_tagged());
        if head_len < words_at {
            return Err(ParseError::Malformed);
        }
        let mut packet = GroupPacket {
            head,
            bytes,
            words_at,
            words_end: words_at,
            head_len,
            chunk: None,
        };
        packet.validate()?;
        if packet.wire_len() > bytes.len() {
            return Err(ParseError::Truncated);
        }
        Ok(packet)
    }

    fn validate(&mut self) -> Result<(), ParseError> {
        let head = &self.bytes[..self.head_len];
        while self.words_end < self.head_len && self.chunk.is_none() {
            let rest = &head[self.words_end..];
            if let Some(len) = skipped(rest) {
                self.words_end += len;
                continue;
            }
            if rest[0] < CHUNK {
                let (_, len) = GroupFrame::read(rest).ok_or(ParseError::Malformed)?;
                self.words_end += len;
                continue;
            }
            let whole = rest.len() == CHUNK_HEAD_LEN && rest[0] <= PIECE;
            let read = whole.then(|| Chunk::read(rest)).flatten();
            let (chunk, sum) = read.ok_or(ParseError::Malformed)?;
            if self.bytes.len() - self.head_len < chunk.len as usize {
                return Err(ParseError::Truncated);
            }
            self.chunk = Some((chunk, sum));
        }
        Ok(())
    }

    /// Bytes of the packet, without any bytes after it.
    pub fn wire_len(&self) -> usize {
        self.payload_end() + if self.head.is_tagged() { TAG_LEN } else { 0 }
    }

    fn payload_end(&self) -> usize {
        self.head_len + self.chunk.map_or(0, |(chunk, _)| chunk.len as usize)
    }

    /// Number and destination, of a packet with a tag.
    pub fn seal(&self) -> Option<GroupSeal> {
        let read = || GroupSeal::read(&self.bytes[GROUP_HEAD_LEN..]);
        self.head.is_tagged().then(read)
    }

    /// The packet's tag, if it has one.
    pub fn tag(&self) -> Option<u64> {
        let read = || u64_at(self.bytes, self.payload_end());
        self.head.is_tagged().then(read)
    }

    /// The bytes under the head's CRC and under the tag.
    pub fn checked_head(&self) -> &'a [u8] {
        &self.bytes[4..self.head_len]
    }

    /// The frames in order.
    pub fn frames(&self) -> impl Iterator<Item = GroupFrame> + 'a {
        let mut rest = &self.bytes[self.words_at..self.words_end];
        core::iter::from_fn(move || {
            while let Some(len) = skipped(rest) {
                rest = &rest[len..];
            }
            let (frame, len) = GroupFrame::read(rest)?;
            rest = &rest[len..];
            Some(frame)
        })
    }

    /// The chunk, the sum of its payload, and the payload.
    pub fn chunk(&self) -> Option<(Chunk, u64, &'a [u8])> {
        let (chunk, sum) = self.chunk?;
        let payload = &self.bytes[self.head_len..self.head_len + chunk.len as usize];
        Some((chunk, sum, payload))
    }
}

/// Writes the head of one packet of a group. The payload follows the head, and the tag, if any, the
/// payload.
pub struct GroupWriter<'a> {
    out: &'a mut [u8],
    at: usize,
    seal: Option<GroupSeal>,
}

impl<'a> GroupWriter<'a> {
    /// Starts a packet without a tag in `out`.
    pub fn new(out: &'a mut [u8]) -> GroupWriter<'a> {
        GroupWriter::with_seal(out, None)
    }

    /// Starts a packet in `out`; with a tag, which the caller writes, if there is a `seal`.
    pub fn with_seal(out: &'a mut [u8], seal: Option<GroupSeal>) -> GroupWriter<'a> {
        let at = GROUP_HEAD_LEN + GroupSeal::len(seal.is_some());
        GroupWriter { out, at, seal }
    }

    /// Appends a frame; `false` if it does not fit.
    pub fn push(&mut self, frame: &GroupFrame) -> bool {
        let end = self.at + frame.wire_len();
        let Some(out) = self.out.get_mut(self.at..end) else {
            return false;
        };
        frame.write(out);
        self.at = end;
        true
    }

    /// Appends the chunk with its payload's sum after all frames, and writes the head; returns the
    /// head's length, where the payload begins. `None` if it does not fit. The CRC field is 0 until
    /// the caller stores `crc32c(&packet[4..head_len])` in bytes 0..4.
    pub fn finish(self, head: &GroupHead, chunk: Option<(&Chunk, u64)>) -> Option<usize> {
        let mut end = self.at;
        if let Some((chunk, sum)) = chunk {
            end += CHUNK_HEAD_LEN;
            chunk.write(sum, self.out.get_mut(self.at..end)?);
        }
        let out = self.out.get_mut(..end)?;
        head.write(end as u16, out);
        out[FLAGS_AT] &= !GroupHead::FLAG_TAGGED;
        if let Some(seal) = self.seal {
            out[FLAGS_AT] |= GroupHead::FLAG_TAGGED;
            seal.write(&mut out[GROUP_HEAD_LEN..]);
        }
        Some(end)
    }
}
