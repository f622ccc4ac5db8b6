//! Keys of multicast groups.

use crate::job::JobKey;
use crate::key::{CipherKey, HeadKey, PayloadKey};
use zeroize::Zeroizing;

/// The key of a group's packets: all members have it, no other group of the job does. Wiped when
/// dropped.
#[derive(Debug)]
pub struct GroupKey {
    head: HeadKey,
    payloads: PayloadKey,
    cipher: Option<CipherKey>,
}

impl GroupKey {
    /// The key of the group with this id, token and members (id and epoch of each). Other members,
    /// another order of them, or another life of one give another key.
    pub fn new(job: &JobKey, id: u64, token: u32, members: &[(u64, u32)]) -> GroupKey {
        let (id, token) = (id.to_le_bytes(), token.to_le_bytes());
        let members: Vec<u8> = members
            .iter()
            .flat_map(|(id, epoch)| id.to_le_bytes().into_iter().chain(epoch.to_le_bytes()))
            .collect();
        let info: &[&[u8]] = &[&id, &token, &members];
        let mut bytes = Zeroizing::new([0; 16]);
        // (HKDF refuses only more than 255 blocks.)
        let derived = job.groups().expand_multi_info(info, bytes.as_mut());
        debug_assert!(derived.is_ok());
        GroupKey {
            head: HeadKey::of(*bytes),
            payloads: PayloadKey::derive(&job.group_payloads(), info),
            cipher: (job.group_ciphers()).map(|root| CipherKey::derive(&root, info)),
        }
    }

    /// The key for tags.
    #[inline]
    pub fn head_key(&self) -> HeadKey {
        self.head
    }

    /// The key for payload sums.
    pub fn payloads(&self) -> PayloadKey {
        self.payloads
    }

    /// The key under which payloads are encrypted, if they are.
    pub fn cipher(&self) -> Option<CipherKey> {
        self.cipher
    }
}

impl Drop for GroupKey {
    fn drop(&mut self) {
        self.head.wipe();
        self.payloads.wipe();
        self.cipher.iter_mut().for_each(CipherKey::wipe);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::job::JOB_KEY_LEN;

    fn tag(job: u8, id: u64, token: u32, members: &[(u64, u32)]) -> u64 {
        let key = GroupKey::new(&JobKey::new([job; JOB_KEY_LEN]), id, token, members);
        key.head_key().tag(b"head")
    }

    #[test]
    fn payload_keys_follow_from_the_group_too() {
        let key = |job: u8, members: &[(u64, u32)]| {
            GroupKey::new(&JobKey::new([job; JOB_KEY_LEN]), 5, 6, members).payloads()
        };
        let right = key(7, &[(1, 2), (3, 4)]);
        assert_eq!(key(7, &[(1, 2), (3, 4)]), right);
        assert!(key(8, &[(1, 2), (3, 4)]) != right && key(7, &[(1, 2)]) != right);
        // Computed by another program.
        assert_eq!(
            HeadKey::of(right.bytes()).tag(b"head"),
            0x2378_473b_ff9e_e857
        );
    }

    /// The derivation is part of the protocol: members that derive differently have no group.
    #[test]
    fn keys_follow_from_job_identity_and_members() {
        let members = [(1, 2), (3, 4)];
        let right = tag(7, 5, 6, &members);
        // Computed by another program.
        assert_eq!(right, 0xe04b_cac6_7ca0_321b);
        let others = [
            tag(8, 5, 6, &members),
            tag(7, 6, 6, &members),
            tag(7, 5, 7, &members),
            tag(7, 5, 6, &members[..1]),
            tag(7, 5, 6, &[(3, 4), (1, 2)]),
            tag(7, 5, 6, &[(1, 2), (3, 5)]),
            tag(7, 5, 6, &[(1, 2), (3, 4), (5, 6)]),
        ];
        assert!(!others.contains(&right));
    }
}
