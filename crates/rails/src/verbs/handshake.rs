//! Handshake messages between rails with connections, sent as datagrams: to set a connection up, to
//! evict it and to end it.
//!
//! ```text
//!  0 u32 magic                  4 u8  type (Say)             5 u8  kind of rail
//!  6 u8  length of the address  7 u8  path MTU of the sender's port (an exponent)
//!  8     the sender's address   32 u32 its queue pair        36 u32 its first PSN
//! 40 u64 its name of the link   48 u64 the receiver's name of the link, 0: unknown
//! ```

use super::addr::VerbsAddr;
use crate::sys::verbs::QueueType;
use marline_wire::{RailAddr, RailKind};

/// Bytes of a handshake message.
pub(super) const HANDSHAKE_LEN: usize = 56;
/// Offset of the address, and its maximum length.
const ADDR_AT: usize = 8;
const ADDR_MAX: usize = 24;
/// The lowest byte is the version.
const MAGIC: u32 = 0x4d52_5602;

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
    Rested = 6,
}

/// A handshake message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Handshake {
    pub(super) say: Say,
    pub(super) kind: QueueType,
    /// The sender's address.
    pub(super) from: VerbsAddr,
    /// The sender's end of the link.
    pub(super) end: End,
    /// The receiver's name of the link, as far as the sender knows it.
    pub(super) to: u64,
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

impl Handshake {
    /// Encodes the message.
    pub(super) fn encode(&self) -> [u8; HANDSHAKE_LEN] {
        let mut out = [0; HANDSHAKE_LEN];
        let addr = self.from.rail(self.kind);
        out[..4].copy_from_slice(&MAGIC.to_le_bytes());
        out[4] = self.say as u8;
        out[5] = addr.kind as u8;
        out[6] = addr.bytes().len() as u8;
        out[7] = self.end.mtu;
        out[ADDR_AT..][..addr.bytes().len()].copy_from_slice(addr.bytes());
        out[32..36].copy_from_slice(&self.end.number.to_le_bytes());
        out[36..40].copy_from_slice(&self.end.psn.to_le_bytes());
        out[40..48].copy_from_slice(&self.end.name.to_le_bytes());
        out[48..].copy_from_slice(&self.to.to_le_bytes());
        out
    }

    /// Reads a message; `None` if it is malformed.
    pub(super) fn read(bytes: &[u8]) -> Option<Handshake> {
        let bytes: &[u8; HANDSHAKE_LEN] = bytes.try_into().ok()?;
        let u32_at = |at: usize| u32::from_le_bytes(std::array::from_fn(|i| bytes[at + i]));
        let u64_at = |at: usize| u64::from_le_bytes(std::array::from_fn(|i| bytes[at + i]));
        if u32_at(0) != MAGIC {
            return None;
        }
        let say = match bytes[4] {
            1 => Say::Ask,
            2 => Say::Answer,
            3 => Say::Ready,
            4 => Say::Over,
            5 => Say::Eviction,
            6 => Say::Rested,
            _ => return None,
        };
        let rail_kind = RailKind::of(bytes[5])?;
        let kind = match rail_kind {
            RailKind::Rc => QueueType::Rc,
            RailKind::Uc => QueueType::Uc,
            _ => return None,
        };
        let len = Some(usize::from(bytes[6])).filter(|len| *len <= ADDR_MAX)?;
        let addr = RailAddr::new(rail_kind, &bytes[ADDR_AT..ADDR_AT + len]);
        let end = End {
            name: u64_at(40),
            number: u32_at(32),
            psn: u32_at(36),
            mtu: bytes[7],
        };
        let possible = end.name != 0
            && (2..1 << 24).contains(&end.number)
            && end.psn < 1 << 24
            && (1..=5).contains(&end.mtu);
        possible.then_some(Handshake {
            say,
            kind,
            from: VerbsAddr::of(&addr)?,
            end,
            to: u64_at(48),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::super::addr::Node;
    use super::*;
    use std::net::Ipv4Addr;

    fn handshake() -> Handshake {
        Handshake {
            say: Say::Answer,
            kind: QueueType::Uc,
            from: VerbsAddr {
                node: Node::V4 {
                    ip: Ipv4Addr::new(10, 0, 0, 1),
                    prefix_len: 24,
                },
                number: 17,
            },
            end: End {
                name: 0x0102_0304_0506_0708,
                number: 18,
                psn: 0x12_3456,
                mtu: 3,
            },
            to: 9,
        }
    }

    #[test]
    fn handshakes_are_read_as_written() {
        let said = handshake();
        assert_eq!(Handshake::read(&said.encode()), Some(said));
    }

    #[test]
    fn no_byte_makes_one_that_cannot_be() {
        let bytes = handshake().encode();
        for at in 0..HANDSHAKE_LEN {
            for value in [0, 1, 0x7f, 0xff] {
                let mut other = bytes;
                other[at] = value;
                if let Some(read) = Handshake::read(&other) {
                    assert_eq!(read.encode()[..6], other[..6], "{at}");
                    assert!(read.end.mtu <= 5 && read.end.psn < 1 << 24);
                }
            }
        }
        assert_eq!(Handshake::read(&bytes[1..]), None);
        assert_eq!(Handshake::read(&[]), None);
    }
}
