//! The fixed packet header.
//!
//! ```text
//!  0  u32 head CRC-32C over [4, head_len)
//!  4  u8  version            5  u8  payload algorithm     6  u16 head_len
//!  8  u64 destination endpoint id
//! 16  u32 destination token  20 u32 destination's slot for the source (or all ones)
//! 24  u64 source endpoint id
//! 32  u32 source epoch       36 u16 path  38 u8 flags     39 u8 kind: 0 (see group.rs)
//! 40  u64 packet number (48 bits used)
//! ```
//!
//! These 48 bytes have the same meaning in every version from 4 on, the first eight in all. So the
//! CRC of a packet of another version can be checked, which distinguishes it from a damaged packet,
//! and a refusal can be read whatever the version of its sender (docs/design/wire.md).

/// Bytes of the fixed header.
pub const HEADER_LEN: usize = 48;
/// Offset of the flags.
pub(crate) const FLAGS_AT: usize = 38;
/// Offset of the kind of packet: 0 between two endpoints, 1 in a group (see also `place.rs`).
pub(crate) const KIND_AT: usize = 39;
/// Offset of the packet number.
pub(crate) const NUMBER_AT: usize = 40;
/// Bytes of the tag behind the payloads of a packet with [`Header::FLAG_TAGGED`].
pub const TAG_LEN: usize = 8;
/// The destination's slot for the source is unknown: its HELLO has not arrived yet.
pub const SLOT_UNKNOWN: u32 = u32::MAX;
/// Packet numbers stay below this (48 bits: two years at 4 M packets/s).
pub const PACKET_NUMBER_MAX: u64 = (1 << PACKET_NUMBER_BITS) - 1;
/// Bits of a packet number; the others of its field are 0.
const PACKET_NUMBER_BITS: u32 = 48;

/// A path as encoded in packets: the sender's rail index in the high byte, the receiver's rail
/// index in the low byte.
#[inline]
pub const fn path_code(source: u8, destination: u8) -> u16 {
    (source as u16) << 8 | destination as u16
}

/// The fixed header of every packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Header {
    /// Version of the packet: that agreed between both endpoints.
    pub version: u8,
    /// Algorithm number (`marline_checksum::Algorithm as u8`) of all payload sums in this packet.
    pub algorithm: u8,
    /// Destination endpoint's random id.
    pub dst_id: u64,
    /// Destination's random token of this life; packets with another token are counted and dropped.
    pub dst_token: u32,
    /// Index the destination keeps for the source, or [`SLOT_UNKNOWN`]. A hint only.
    pub dst_slot: u32,
    /// Source endpoint's random id.
    pub src_id: u64,
    /// Source's epoch, which distinguishes its lives.
    pub src_epoch: u32,
    /// Path, see [`path_code`].
    pub path: u16,
    /// [`Header::FLAG_ACK_NOW`] and the other flags.
    pub flags: u8,
    /// Number of this packet on its path; never reused.
    pub number: u64,
}

impl Header {
    /// The sender waits for the ack of this packet: ack at once, on this path.
    pub const FLAG_ACK_NOW: u8 = 1;
    /// Nothing in this packet needs an ack (pure acks, pongs), and it is not acknowledged.
    pub const FLAG_NO_ACK: u8 = 2;
    /// The sender has lost reachability: it knows of no working path. Answer on every path.
    pub const FLAG_EVERYWHERE: u8 = 4;
    /// The sender retains no copy of the data: a lost packet cannot be retransmitted.
    pub const FLAG_NATIVE: u8 = 8;
    /// The last [`TAG_LEN`] bytes of the packet are a tag over its head, which proves to the
    /// receiver that the sender has the job's key (docs/design/security.md).
    pub const FLAG_TAGGED: u8 = 16;

    /// Source rail index.
    #[inline]
    pub fn src_rail(&self) -> usize {
        (self.path >> 8) as usize
    }
    /// Destination rail index.
    #[inline]
    pub fn dst_rail(&self) -> usize {
        (self.path & 0xff) as usize
    }

    /// Writes the header (CRC field 0) into `out[..HEADER_LEN]`.
    #[inline]
    pub fn write(&self, head_len: u16, out: &mut [u8]) {
        let out = &mut out[..HEADER_LEN];
        out[0..4].fill(0);
        out[4] = self.version;
        out[5] = self.algorithm;
        out[6..8].copy_from_slice(&head_len.to_le_bytes());
        out[8..16].copy_from_slice(&self.dst_id.to_le_bytes());
        out[16..20].copy_from_slice(&self.dst_token.to_le_bytes());
        out[20..24].copy_from_slice(&self.dst_slot.to_le_bytes());
        out[24..32].copy_from_slice(&self.src_id.to_le_bytes());
        out[32..36].copy_from_slice(&self.src_epoch.to_le_bytes());
        out[36..38].copy_from_slice(&self.path.to_le_bytes());
        out[38] = self.flags;
        out[KIND_AT] = 0;
        out[40..48].copy_from_slice(&self.number.to_le_bytes());
    }

    /// The header fields of a packet whose head failed its check: they may be wrong, and serve
    /// statistics only.
    #[inline]
    pub fn claimed(bytes: &[u8]) -> Option<Header> {
        (bytes.len() >= HEADER_LEN).then(|| Header::read(bytes))
    }

    /// Reads a header whose length was checked by the caller.
    #[inline]
    pub(crate) fn read(b: &[u8]) -> Header {
        let b = &b[..HEADER_LEN];
        Header {
            version: b[4],
            algorithm: b[5],
            dst_id: u64_at(b, 8),
            dst_token: u32_at(b, 16),
            dst_slot: u32_at(b, 20),
            src_id: u64_at(b, 24),
            src_epoch: u32_at(b, 32),
            path: u16_at(b, 36),
            flags: b[38],
            number: u64_at(b, 40),
        }
    }
}

/// The two lives between which a packet goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Ends {
    /// Source endpoint's id.
    pub src_id: u64,
    /// Source's epoch.
    pub src_epoch: u32,
    /// Destination endpoint's id.
    pub dst_id: u64,
    /// Destination's token.
    pub dst_token: u32,
}

impl Ends {
    /// The ends that a packet's header names.
    #[inline]
    pub fn claimed(packet: &[u8]) -> Option<Ends> {
        let b = packet.first_chunk::<HEADER_LEN>()?;
        Some(Ends {
            src_id: u64_at(b, 24),
            src_epoch: u32_at(b, 32),
            dst_id: u64_at(b, 8),
            dst_token: u32_at(b, 16),
        })
    }
}

/// The part of a head that is under the packet's tag. Ids, token and epoch are not in it, as the
/// key of the tag follows from them; nor is the length of the head, which is that of `frames`.
#[derive(Clone, Copy, Debug)]
pub struct TaggedHead<'a> {
    /// Number, version and algorithm; path, flags, kind and slot.
    pub fixed: [u64; 2],
    /// The frames.
    pub frames: &'a [u8],
}

impl<'a> TaggedHead<'a> {
    /// The tagged part of `head`, which begins with a header.
    #[inline]
    pub fn of(head: &'a [u8]) -> TaggedHead<'a> {
        let (b, frames) = head.split_at(HEADER_LEN);
        let versions = u64::from(u16_at(b, 4)) << PACKET_NUMBER_BITS;
        let path = u64_at(b, 32) >> 32;
        TaggedHead {
            fixed: [
                u64_at(b, NUMBER_AT) ^ versions,
                path | u64::from(u32_at(b, 20)) << 32,
            ],
            frames,
        }
    }
}

#[inline]
pub(crate) fn u16_at(b: &[u8], at: usize) -> u16 {
    u16::from_le_bytes([b[at], b[at + 1]])
}
#[inline]
pub(crate) fn u32_at(b: &[u8], at: usize) -> u32 {
    let mut v = [0; 4];
    v.copy_from_slice(&b[at..at + 4]);
    u32::from_le_bytes(v)
}
#[inline]
pub(crate) fn u64_at(b: &[u8], at: usize) -> u64 {
    let mut v = [0; 8];
    v.copy_from_slice(&b[at..at + 8]);
    u64::from_le_bytes(v)
}
