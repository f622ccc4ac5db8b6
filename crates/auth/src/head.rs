//! Tags over the heads of packets, sums of their payloads, and the keys of directions.

use crate::job::JobKey;
use crate::key::{CipherKey, HeadKey, PayloadKey};
use hkdf::Hkdf;
use sha2::Sha256;
use zeroize::Zeroize;

/// A direction between two lives of endpoints, as every packet's header names it. Ids and tokens
/// are random in each life, so a key never serves two lives of either end.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Direction {
    /// The sender's id.
    pub src_id: u64,
    /// The sender's epoch.
    pub src_epoch: u32,
    /// The receiver's id.
    pub dst_id: u64,
    /// The receiver's token.
    pub dst_token: u32,
}

/// Bytes of a direction in the derivation of its key.
const DIRECTION_LEN: usize = 24;

impl Direction {
    fn bytes(&self) -> [u8; DIRECTION_LEN] {
        let mut out = [0; DIRECTION_LEN];
        out[..8].copy_from_slice(&self.src_id.to_le_bytes());
        out[8..12].copy_from_slice(&self.src_epoch.to_le_bytes());
        out[12..20].copy_from_slice(&self.dst_id.to_le_bytes());
        out[20..].copy_from_slice(&self.dst_token.to_le_bytes());
        out
    }
}

/// A direction with its key.
#[derive(Clone, Copy, Default)]
struct Known {
    of: Direction,
    key: HeadKey,
    payloads: PayloadKey,
    cipher: Option<CipherKey>,
}

impl Known {
    #[inline]
    fn keys(&self) -> PacketKeys {
        PacketKeys {
            head: self.key,
            payloads: self.payloads,
            cipher: self.cipher,
        }
    }
}

/// The keys of packets to a peer.
#[derive(Clone, Copy, Debug)]
pub struct PacketKeys {
    /// Key of the tags.
    pub head: HeadKey,
    /// Key of the payload sums, where they have one.
    pub payloads: PayloadKey,
    /// Key under which payloads are encrypted, if they are.
    pub cipher: Option<CipherKey>,
}

/// The keys of one endpoint's directions. Keys are derived when first used and kept by the index of
/// the peer, one for each way.
pub struct HeadKeys {
    heads: Hkdf<Sha256>,
    payloads: Hkdf<Sha256>,
    ciphers: Option<Hkdf<Sha256>>,
    sent: Vec<Known>,
    received: Vec<Known>,
}

impl HeadKeys {
    /// The keys of an endpoint in the job with this key.
    pub fn new(job: &JobKey) -> HeadKeys {
        HeadKeys {
            heads: job.heads(),
            payloads: job.payloads(),
            ciphers: job.ciphers(),
            sent: Vec::new(),
            received: Vec::new(),
        }
    }

    /// The keys of packets to peer `index`.
    #[inline]
    pub fn to(&mut self, index: u32, of: &Direction) -> PacketKeys {
        match self.sent.get(index as usize) {
            Some(known) if known.of == *of => known.keys(),
            _ => self.keep_to(index, of),
        }
    }

    /// The key of the payload sums of packets that come from a peer; `index`: where the key is
    /// kept, if it is.
    #[inline]
    pub fn payloads_from(&self, index: u32, of: &Direction) -> PayloadKey {
        match self.received.get(index as usize) {
            Some(known) if known.of == *of => known.payloads,
            _ => self.derive_payloads(of),
        }
    }

    /// The key under which the payloads of packets from a peer are encrypted, if they are; `index`:
    /// where the key is kept, if it is.
    #[inline]
    pub fn cipher_from(&self, index: u32, of: &Direction) -> Option<CipherKey> {
        match self.received.get(index as usize) {
            Some(known) if known.of == *of => known.cipher,
            _ => self.derive_cipher(of),
        }
    }

    /// The key of packets that come from a peer; `index`: where the key is kept, if it is. Does not
    /// keep a new key, since the packet may be forged.
    #[inline]
    pub fn from(&self, index: u32, of: &Direction) -> HeadKey {
        let kept = self.kept_from(index, of);
        kept.unwrap_or_else(|| self.derive(of))
    }

    /// The key of packets from peer `index`, if it is kept.
    #[inline]
    pub fn kept_from(&self, index: u32, of: &Direction) -> Option<HeadKey> {
        let known = self.received.get(index as usize)?;
        (known.of == *of).then_some(known.key)
    }

    /// Keeps the key of packets from peer `index`, after a packet had the right tag.
    #[cold]
    pub fn keep_from(&mut self, index: u32, of: &Direction) {
        let known = self.know(of);
        keep(&mut self.received, index, known);
    }

    #[cold]
    fn keep_to(&mut self, index: u32, of: &Direction) -> PacketKeys {
        let known = self.know(of);
        keep(&mut self.sent, index, known);
        known.keys()
    }

    fn know(&self, of: &Direction) -> Known {
        Known {
            of: *of,
            key: self.derive(of),
            payloads: self.derive_payloads(of),
            cipher: self.derive_cipher(of),
        }
    }

    #[cold]
    fn derive_cipher(&self, of: &Direction) -> Option<CipherKey> {
        let root = self.ciphers.as_ref()?;
        Some(CipherKey::derive(root, &[&of.bytes()]))
    }

    #[cold]
    fn derive_payloads(&self, of: &Direction) -> PayloadKey {
        PayloadKey::derive(&self.payloads, &[&of.bytes()])
    }

    #[cold]
    fn derive(&self, of: &Direction) -> HeadKey {
        let mut bytes = [0; 16];
        // (HKDF refuses only more than 255 blocks.)
        let derived = self.heads.expand(&of.bytes(), &mut bytes);
        debug_assert!(derived.is_ok());
        let key = HeadKey::of(bytes);
        bytes.zeroize();
        key
    }
}

impl Drop for HeadKeys {
    fn drop(&mut self) {
        for known in self.sent.iter_mut().chain(&mut self.received) {
            known.key.wipe();
            known.payloads.wipe();
            known.cipher.iter_mut().for_each(CipherKey::wipe);
        }
    }
}

fn keep(list: &mut Vec<Known>, index: u32, known: Known) {
    let at = index as usize;
    if at >= list.len() {
        list.resize(at + 1, Known::default());
    }
    list[at] = known;
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::job::{Level, JOB_KEY_LEN};
    use proptest::prelude::*;

    fn direction() -> Direction {
        Direction {
            src_id: 1,
            src_epoch: 2,
            dst_id: 3,
            dst_token: 4,
        }
    }

    fn keys(job: u8) -> HeadKeys {
        HeadKeys::new(&JobKey::new([job; JOB_KEY_LEN]))
    }

    /// The derivation is part of the protocol: versions that derive differently cannot communicate.
    #[test]
    fn keys_follow_from_the_job_and_the_direction_alone() {
        let tag = keys(7).to(0, &direction()).head.tag(b"head");
        assert_eq!(tag, keys(7).from(9, &direction()).tag(b"head"));
        // Computed by another program.
        assert_eq!(tag, 0xbb4e_bd9b_9c17_e17b);
    }

    /// Payload sums have keys of their own, the same at both ends.
    #[test]
    fn payload_keys_follow_from_the_job_and_the_direction_alone() {
        let of = direction();
        let mut there = keys(7);
        let key = keys(7).to(0, &of).payloads;
        assert_eq!(there.payloads_from(9, &of), key);
        there.keep_from(2, &of);
        assert_eq!(there.payloads_from(2, &of), key);
        let back = Direction {
            src_id: of.dst_id,
            dst_id: of.src_id,
            ..of
        };
        assert_ne!(there.payloads_from(2, &back), key);
        assert_ne!(keys(8).payloads_from(2, &of), key);
        assert_ne!(
            HeadKey::of(key.bytes()).tag(b"head"),
            there.from(2, &of).tag(b"head")
        );
        // Computed by another program.
        assert_eq!(HeadKey::of(key.bytes()).tag(b"head"), 0x0ff8_df74_2c7f_6e3a);
    }

    /// Both ends have the same cipher, and no other direction or level has it.
    #[test]
    fn ciphers_follow_from_the_job_and_the_direction_alone() {
        let of = direction();
        let job = |level| JobKey::new([7; JOB_KEY_LEN]).at(level);
        let encrypted = || HeadKeys::new(&job(Level::Encrypted));
        let text = *b"payload of a packet";
        let apply = |key: Option<CipherKey>, nonce, mut bytes: [u8; 19]| {
            key.map(|key| key.apply(nonce, &mut bytes)).map(|()| bytes)
        };
        let to = encrypted().to(0, &of).cipher;
        let hidden = apply(to, [1, 2], text).unwrap();
        let from = encrypted().cipher_from(9, &of);
        assert_eq!(apply(from, [1, 2], hidden), Some(text));
        let mut kept = encrypted();
        kept.keep_from(2, &of);
        assert_eq!(apply(kept.cipher_from(2, &of), [1, 2], hidden), Some(text));
        for nonce in [[2, 2], [1, 3], [2, 1]] {
            assert_ne!(apply(from, nonce, hidden), Some(text));
        }
        let back = Direction {
            src_id: of.dst_id,
            dst_id: of.src_id,
            ..of
        };
        assert_ne!(
            apply(encrypted().cipher_from(2, &back), [1, 2], hidden),
            Some(text)
        );
        let without = HeadKeys::new(&job(Level::Payloads)).to(0, &of).cipher;
        assert!(without.is_none());
        // Computed by another program.
        assert_eq!(hidden[..8], [184, 189, 111, 206, 239, 110, 142, 253]);
    }

    #[test]
    fn every_part_of_a_direction_and_the_job_count() {
        let base = direction();
        let tag = |job: u8, of: Direction| keys(job).from(0, &of).tag(b"head");
        let mut others = [base; 5];
        others[0].src_id ^= 1 << 63;
        others[1].src_epoch ^= 1 << 31;
        others[2].dst_id ^= 1;
        others[3].dst_token ^= 1;
        others[4] = Direction {
            src_id: base.dst_id,
            dst_id: base.src_id,
            ..base
        };
        for other in others {
            assert_ne!(tag(7, base), tag(7, other), "{other:?}");
        }
        assert_ne!(tag(7, base), tag(8, base));
    }

    #[test]
    fn another_life_of_a_peer_gets_another_key() {
        let mut keys = keys(1);
        let (old, mut new) = (direction(), direction());
        new.dst_token = 5;
        let before = keys.to(3, &old).head.tag(b"x");
        assert_ne!(keys.to(3, &new).head.tag(b"x"), before);
        assert_eq!(keys.to(3, &old).head.tag(b"x"), before);
        keys.keep_from(2, &old);
        assert_eq!(keys.from(2, &old).tag(b"x"), before);
        assert_ne!(keys.from(2, &new).tag(b"x"), before);
        assert_eq!(keys.received.len(), 3, "from() keeps nothing");
    }

    proptest! {
        #[test]
        fn a_flipped_bit_or_another_tag_is_noticed(head: Vec<u8>, tag: u64, at: usize) {
            let key = keys(3).from(0, &direction());
            let right = key.tag(&head);
            prop_assert!(key.is_tag(&head, right));
            prop_assert_eq!(key.is_tag(&head, tag), tag == right);
            if !head.is_empty() {
                let mut other = head.clone();
                other[at % head.len()] ^= 1 << (at % 8);
                prop_assert!(!key.is_tag(&other, right));
            }
        }
    }
}
