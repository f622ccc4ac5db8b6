//! The handshake, the first message of each end of a connection: its rail, its slot for
//! notifications, and the canary of its memory.

use super::addr::ShmAddr;
use crate::sys::CanaryAt;

/// Bytes of a handshake message.
pub(super) const HANDSHAKE_LEN: usize = 64;
/// First word of a handshake message. Its lowest byte is the version, which counts on with each
/// change of the handshake, of the proof before it ([`super::proof`]), and of memory and frames.
pub(super) const MAGIC: u32 = 0x6d72_6c01;

/// A handshake message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Handshake {
    /// The sender's rail.
    pub(super) from: ShmAddr,
    /// The sender's index of this connection, by which its inbox is notified.
    pub(super) slot: u32,
    pub(super) canary: CanaryAt,
}

impl Handshake {
    pub(super) fn write(&self) -> [u8; HANDSHAKE_LEN] {
        let mut out = [0; HANDSHAKE_LEN];
        let mut at = 0;
        let mut put = |bytes: &[u8]| {
            out[at..at + bytes.len()].copy_from_slice(bytes);
            at += bytes.len();
        };
        put(&MAGIC.to_le_bytes());
        put(&self.slot.to_le_bytes());
        put(&self.from.host);
        put(&self.from.name.to_le_bytes());
        put(&self.canary.address.to_le_bytes());
        self.canary
            .words
            .iter()
            .for_each(|word| put(&word.to_le_bytes()));
        out
    }

    pub(super) fn read(bytes: &[u8]) -> Option<Handshake> {
        let bytes: &[u8; HANDSHAKE_LEN] = bytes.try_into().ok()?;
        let word = |at: usize| {
            let mut word = [0; 8];
            word.copy_from_slice(&bytes[at..at + 8]);
            u64::from_le_bytes(word)
        };
        let mut host = [0; 16];
        host.copy_from_slice(&bytes[8..24]);
        let handshake = Handshake {
            slot: (word(0) >> 32) as u32,
            from: ShmAddr {
                host,
                name: word(24),
            },
            canary: CanaryAt {
                address: word(32),
                words: [word(40), word(48)],
            },
        };
        let rest = word(56) == 0;
        (word(0) as u32 == MAGIC && rest).then_some(handshake)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn handshakes_are_read_as_written() {
        let handshake = Handshake {
            from: ShmAddr {
                host: [9; 16],
                name: u64::MAX,
            },
            slot: 4095,
            canary: CanaryAt {
                address: 0x7fff_1234_5678,
                words: [1, 2],
            },
        };
        let bytes = handshake.write();
        assert_eq!(Handshake::read(&bytes), Some(handshake));
        assert_eq!(Handshake::read(&bytes[1..]), None);
        assert_eq!(Handshake::read(&[0; HANDSHAKE_LEN]), None);
        let mut longer = bytes;
        longer[HANDSHAKE_LEN - 1] = 1;
        assert_eq!(Handshake::read(&longer), None);
    }
}
