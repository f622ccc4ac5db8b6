//! Handshake messages between rails with connections, sent as datagrams: to set a connection up, to
//! evict it and to end it.
//!
//! ```text
//!  0 u32 magic                  4 u8  type (Say)             5 u8  kind of rail
//!  6 u8  length of the address  7 u8  path MTU of the sender's port (an exponent)
//!  8     the sender's address   32 the sender's challenge (16), and 48 u64 the tag of all other
//!                               bytes ([`super::proof`]); 0 without a key
//! 56 u64 mark of the receiver's challenge, 0: unknown
//! 64 u32 its queue pair         68 u32 its first PSN
//! 72 u64 its name of the link   80 u64 the receiver's name of the link, 0: unknown
//! ```
//!
//! The first 56 bytes are the same in every version from 3 on; a refusal has no others, so that it
//! is no longer than any message that it answers.

use super::addr::VerbsAddr;
use crate::sys::verbs::QueueType;
use marline_auth::{Challenge, CHALLENGE_LEN};
use marline_wire::{RailAddr, RailKind};

/// Bytes of a handshake message, and of a refusal.
pub(super) const HANDSHAKE_LEN: usize = 88;
pub(super) const REFUSAL_LEN: usize = 56;
/// Longest message of another version that is examined.
const FOREIGN_MAX: usize = 256;
/// Offset of the address, and its maximum length.
const ADDR_AT: usize = 8;
const ADDR_MAX: usize = 24;
/// Offsets of challenge and tag.
const CHALLENGE_AT: usize = ADDR_AT + ADDR_MAX;
const TAG_AT: usize = CHALLENGE_AT + CHALLENGE_LEN;
/// Version of handshake messages, and the first one with challenge and tag.
pub(super) const VERSION: u8 = 3;
const VERSION_TAGGED: u8 = 3;
/// The lowest byte is the version.
const MAGIC: u32 = 0x4d52_5600 | VERSION as u32;
/// The challenge of an end without a key, and of an end that is not known yet.
pub(super) const NO_CHALLENGE: Challenge = [0; CHALLENGE_LEN];
/// Type of a refusal, in every version.
const REFUSAL: u8 = 8;

/// The type of a handshake message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub(super) enum Say {
    /// "This is my end of the link; which is yours?"
    Ask = 1,
    /// "This is mine, and I receive from yours."
    Answer = 2,
    /// "I receive from yours, too."
    Ready = 3,
    /// "My end of the link no longer exists."
    Over = 4,
    /// "Close this connection: I send nothing more on it, and all that I sent has arrived. The link
    /// stays."
    Eviction = 5,
    /// "I have closed the connection, with nothing of mine in flight."
    Closed = 6,
    /// "This is my challenge", to an end that asked without knowing it.
    Challenge = 7,
}

/// A handshake message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Handshake {
    pub(super) say: Say,
    pub(super) kind: QueueType,
    /// The sender's address.
    pub(super) from: VerbsAddr,
    /// The challenge of the sender's end.
    pub(super) challenge: Challenge,
    /// The mark ([`mark_of`]) of the receiver's challenge, as far as the sender knows it.
    pub(super) known: u64,
    /// The sender's end of the link; none in a challenge.
    pub(super) end: End,
    /// The receiver's name of the link, as far as the sender knows it.
    pub(super) to: u64,
}

/// A message in another version, as far as all versions agree.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Foreign {
    pub(super) version: u8,
    pub(super) is_refusal: bool,
    pub(super) kind: QueueType,
    pub(super) from: VerbsAddr,
    pub(super) challenge: Challenge,
    pub(super) tag: u64,
    /// The bytes that the tag covers; empty in versions without one.
    pub(super) covered: Box<[u8]>,
}

/// An end of a link.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct End {
    /// The owner's name of the link; later names are greater.
    pub(super) name: u64,
    /// The queue pair number.
    pub(super) number: u32,
    /// The PSN of the first packet that this end sends.
    pub(super) psn: u32,
    /// Largest packet of its port, as `ibv_mtu`.
    pub(super) mtu: u8,
}

impl End {
    /// No end.
    pub(super) const NONE: End = End {
        name: 0,
        number: 0,
        psn: 0,
        mtu: 0,
    };

    fn is_possible(&self) -> bool {
        self.name != 0
            && (2..1 << 24).contains(&self.number)
            && self.psn < 1 << 24
            && (1..=5).contains(&self.mtu)
    }
}

/// The mark by which messages name a challenge: its second half.
pub(super) fn mark_of(challenge: &Challenge) -> u64 {
    u64_at(challenge, CHALLENGE_LEN - 8)
}

fn u32_at(bytes: &[u8], at: usize) -> u32 {
    u32::from_le_bytes(std::array::from_fn(|i| bytes[at + i]))
}

fn u64_at(bytes: &[u8], at: usize) -> u64 {
    u64::from_le_bytes(std::array::from_fn(|i| bytes[at + i]))
}

/// Kind of rail and address of a message's sender.
fn sender(bytes: &[u8; REFUSAL_LEN]) -> Option<(QueueType, VerbsAddr)> {
    let rail_kind = RailKind::of(bytes[5])?;
    let kind = match rail_kind {
        RailKind::Rc => QueueType::Rc,
        RailKind::Uc => QueueType::Uc,
        _ => return None,
    };
    let len = Some(usize::from(bytes[6])).filter(|len| *len <= ADDR_MAX)?;
    let addr = RailAddr::new(rail_kind, &bytes[ADDR_AT..ADDR_AT + len]);
    Some((kind, VerbsAddr::of(&addr)?))
}

/// Writes the bytes that all messages have, without a tag.
fn write_head(out: &mut [u8], say: u8, (kind, from): (QueueType, &VerbsAddr), ours: &Challenge) {
    let addr = from.rail(kind);
    out[..4].copy_from_slice(&MAGIC.to_le_bytes());
    out[4] = say;
    out[5] = addr.kind as u8;
    out[6] = addr.bytes().len() as u8;
    out[ADDR_AT..][..addr.bytes().len()].copy_from_slice(addr.bytes());
    out[CHALLENGE_AT..TAG_AT].copy_from_slice(ours);
}

/// Writes the tag into a message.
pub(super) fn add_tag(bytes: &mut [u8], tag: u64) {
    bytes[TAG_AT..TAG_AT + 8].copy_from_slice(&tag.to_le_bytes());
}

/// A refusal of a message in another version, without a tag.
pub(super) fn refusal(kind: QueueType, from: &VerbsAddr, ours: &Challenge) -> [u8; REFUSAL_LEN] {
    let mut out = [0; REFUSAL_LEN];
    write_head(&mut out, REFUSAL, (kind, from), ours);
    out
}

impl Handshake {
    /// Encodes the message, without a tag.
    pub(super) fn encode(&self) -> [u8; HANDSHAKE_LEN] {
        let mut out = [0; HANDSHAKE_LEN];
        let sender = (self.kind, &self.from);
        write_head(&mut out, self.say as u8, sender, &self.challenge);
        out[7] = self.end.mtu;
        out[56..64].copy_from_slice(&self.known.to_le_bytes());
        out[64..68].copy_from_slice(&self.end.number.to_le_bytes());
        out[68..72].copy_from_slice(&self.end.psn.to_le_bytes());
        out[72..80].copy_from_slice(&self.end.name.to_le_bytes());
        out[80..].copy_from_slice(&self.to.to_le_bytes());
        out
    }

    /// Reads a message and its tag; `None` if it is malformed.
    pub(super) fn read(bytes: &[u8]) -> Option<(Handshake, u64)> {
        let bytes: &[u8; HANDSHAKE_LEN] = bytes.try_into().ok()?;
        if u32_at(bytes, 0) != MAGIC {
            return None;
        }
        let say = match bytes[4] {
            1 => Say::Ask,
            2 => Say::Answer,
            3 => Say::Ready,
            4 => Say::Over,
            5 => Say::Eviction,
            6 => Say::Closed,
            7 => Say::Challenge,
            _ => return None,
        };
        let (kind, from) = sender(bytes.first_chunk()?)?;
        let end = End {
            name: u64_at(bytes, 72),
            number: u32_at(bytes, 64),
            psn: u32_at(bytes, 68),
            mtu: bytes[7],
        };
        let possible = match say {
            Say::Challenge => end == End::NONE,
            _ => end.is_possible(),
        };
        let handshake = Handshake {
            say,
            kind,
            from,
            challenge: std::array::from_fn(|at| bytes[CHALLENGE_AT + at]),
            known: u64_at(bytes, 56),
            end,
            to: u64_at(bytes, 80),
        };
        possible.then_some((handshake, u64_at(bytes, TAG_AT)))
    }
}

impl Foreign {
    /// Reads a message in another version; `None`: the bytes are none. (Packets may begin like one
    /// by chance, as they begin with a CRC, and have no address there.)
    pub(super) fn read(bytes: &[u8]) -> Option<Foreign> {
        let head: &[u8; REFUSAL_LEN] = bytes.first_chunk()?;
        let first = u32_at(head, 0);
        if (first ^ MAGIC) >> 8 != 0 || first == MAGIC || bytes.len() > FOREIGN_MAX {
            return None;
        }
        let (kind, from) = sender(head)?;
        let (version, tagged) = (first as u8, first as u8 >= VERSION_TAGGED);
        let mut covered: Box<[u8]> = if tagged { bytes.into() } else { Box::default() };
        if tagged {
            add_tag(&mut covered, 0);
        }
        Some(Foreign {
            version,
            is_refusal: bytes[4] == REFUSAL,
            kind,
            from,
            challenge: match tagged {
                true => std::array::from_fn(|at| head[CHALLENGE_AT + at]),
                false => NO_CHALLENGE,
            },
            tag: if tagged { u64_at(head, TAG_AT) } else { 0 },
            covered,
        })
    }
}

#[cfg(test)]
mod tests;
