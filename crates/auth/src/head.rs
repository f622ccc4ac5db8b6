//! Tags over the heads of packets, and the keys of directions.

use crate::job::JobKey;
use crate::key::HeadKey;
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
}

/// The keys of one endpoint's directions. Keys are derived when first used and kept by the index of
/// the peer, one for each way.
pub struct HeadKeys {
    heads: Hkdf<Sha256>,
    sent: Vec<Known>,
    received: Vec<Known>,
}

impl HeadKeys {
    /// The keys of an endpoint in the job with this key.
    pub fn new(job: &JobKey) -> HeadKeys {
        HeadKeys {
            heads: job.heads(),
            sent: Vec::new(),
            received: Vec::new(),
        }
    }

    /// The key of packets to peer `index`.
    #[inline]
    pub fn to(&mut self, index: u32, of: &Direction) -> HeadKey {
        match self.sent.get(index as usize) {
            Some(known) if known.of == *of => known.key,
            _ => self.keep_to(index, of),
        }
    }

    /// The key of packets that come from a peer; `index`: where the key is kept, if it is. Does not
    /// keep a new key, since the packet may be forged.
    #[inline]
    pub fn from(&self, index: u32, of: &Direction) -> HeadKey {
        match self.received.get(index as usize) {
            Some(known) if known.of == *of => known.key,
            _ => self.derive(of),
        }
    }

    /// Returns whether the key of packets from peer `index` is kept.
    #[inline]
    pub fn keeps_from(&self, index: u32, of: &Direction) -> bool {
        let kept = self.received.get(index as usize);
        kept.is_some_and(|known| known.of == *of)
    }

    /// Keeps the key of packets from peer `index`, after a packet had the right tag.
    #[cold]
    pub fn keep_from(&mut self, index: u32, of: &Direction) {
        let key = self.derive(of);
        keep(&mut self.received, index, Known { of: *of, key });
    }

    #[cold]
    fn keep_to(&mut self, index: u32, of: &Direction) -> HeadKey {
        let key = self.derive(of);
        keep(&mut self.sent, index, Known { of: *of, key });
        key
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
    use crate::job::JOB_KEY_LEN;
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
        let tag = keys(7).to(0, &direction()).tag(b"head");
        assert_eq!(tag, keys(7).from(9, &direction()).tag(b"head"));
        // Computed by another program.
        assert_eq!(tag, 0xbb4e_bd9b_9c17_e17b);
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
        let before = keys.to(3, &old).tag(b"x");
        assert_ne!(keys.to(3, &new).tag(b"x"), before);
        assert_eq!(keys.to(3, &old).tag(b"x"), before);
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
