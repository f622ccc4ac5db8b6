//! Keys of single connections, and the numbered tags of the frames on them.

use crate::job::JobKey;
use crate::key::HeadKey;
use hkdf::Hkdf;
use sha2::Sha256;
use zeroize::Zeroizing;

/// Bytes of a challenge: random, of one end, for one connection.
pub const CHALLENGE_LEN: usize = 16;
/// Bytes of a frame that a tag covers, at most, beside number and head.
pub const BODY_MAX: usize = 48;

/// Purpose of the Q_Key.
const QUEUE_KEY: &[u8] = b"queue key";
/// Q_Keys with the highest bit are for privileged users.
const QUEUE_KEY_BITS: u32 = u32::MAX >> 1;

/// A challenge of one end of a connection.
pub type Challenge = [u8; CHALLENGE_LEN];

/// The secret from which the keys of all connections of a job follow.
pub struct ConnectionKeys(Hkdf<Sha256>);

impl core::fmt::Debug for ConnectionKeys {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.write_str("ConnectionKeys(secret)")
    }
}

/// The keys of one connection.
#[derive(Debug)]
pub struct PairOfKeys {
    /// Key of frames from the end that connected.
    pub of_connector: FrameKey,
    /// Key of frames from the end that accepted.
    pub of_acceptor: FrameKey,
}

impl ConnectionKeys {
    /// The secret of connections in the job with this key.
    pub fn new(job: &JobKey) -> ConnectionKeys {
        ConnectionKeys(job.connections())
    }

    /// The keys of a connection: `context` is its kind, versions and the acceptor's address.
    pub fn pair(&self, connector: &Challenge, acceptor: &Challenge, context: &[u8]) -> PairOfKeys {
        let mut bytes = Zeroizing::new([0; 32]);
        // (HKDF refuses only more than 255 blocks.)
        let derived = self
            .0
            .expand_multi_info(&[connector, acceptor, context], bytes.as_mut());
        debug_assert!(derived.is_ok());
        let half = |at: usize| {
            let mut half = [0; 16];
            half.copy_from_slice(&bytes[at..at + 16]);
            FrameKey {
                key: HeadKey::of(half),
                number: 0,
            }
        };
        PairOfKeys {
            of_connector: half(0),
            of_acceptor: half(16),
        }
    }

    /// The key of messages from one end to the other, where neither is the connector: `context` is
    /// the kind, versions, and the addresses of both.
    pub fn messages(&self, from: &Challenge, to: &Challenge, context: &[u8]) -> MessageKey {
        let mut bytes = Zeroizing::new([0; 16]);
        let derived = self
            .0
            .expand_multi_info(&[from, to, context], bytes.as_mut());
        debug_assert!(derived.is_ok());
        MessageKey(HeadKey::of(*bytes))
    }

    /// The Q_Key of the job's datagrams: adapters drop datagrams with another one. Each datagram
    /// shows it, so it proves nothing.
    pub fn queue_key(&self) -> u32 {
        let mut bytes = [0; 4];
        let derived = self.0.expand(QUEUE_KEY, &mut bytes);
        debug_assert!(derived.is_ok());
        u32::from_le_bytes(bytes) & QUEUE_KEY_BITS
    }
}

/// The key of the messages from one end of a connection to the other, by datagrams, which may be
/// lost and repeated. Wiped when dropped.
#[derive(Debug)]
pub struct MessageKey(HeadKey);

impl MessageKey {
    /// The tag of a message.
    pub fn tag(&self, message: &[u8]) -> u64 {
        self.0.tag(message)
    }
}

impl Drop for MessageKey {
    fn drop(&mut self) {
        self.0.wipe();
    }
}

/// The key of one direction of a connection, and the number of its next frame. The number is not
/// sent: a frame that is repeated, left out or moved has the wrong one.
#[derive(Debug)]
pub struct FrameKey {
    key: HeadKey,
    number: u64,
}

impl Drop for FrameKey {
    fn drop(&mut self) {
        self.key.wipe();
    }
}

impl FrameKey {
    /// The tag of the next frame: over its number, its head and `body`, of at most [`BODY_MAX`]
    /// bytes. The number stays until [`FrameKey::advance`].
    #[inline]
    pub fn tag(&self, head: u64, body: &[u8]) -> u64 {
        let mut covered = [0; 16 + BODY_MAX];
        covered[..8].copy_from_slice(&self.number.to_le_bytes());
        covered[8..16].copy_from_slice(&head.to_le_bytes());
        covered[16..16 + body.len()].copy_from_slice(body);
        self.key.tag(&covered[..16 + body.len()])
    }

    /// The frame is sent, or was right.
    #[inline]
    pub fn advance(&mut self) {
        self.number += 1;
    }

    /// Returns whether `tag` is that of the next frame.
    #[inline]
    pub fn is_tag(&self, head: u64, body: &[u8], tag: u64) -> bool {
        self.tag(head, body) == tag
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::job::JOB_KEY_LEN;

    fn pair(job: u8, connector: u8, acceptor: u8, context: &[u8]) -> PairOfKeys {
        let job = JobKey::new([job; JOB_KEY_LEN]);
        let keys = ConnectionKeys::new(&job);
        keys.pair(&[connector; 16], &[acceptor; 16], context)
    }

    /// The derivation is part of the protocol: another value parts this version from all others.
    #[test]
    fn keys_follow_from_job_challenges_and_context() {
        let tags = |keys: PairOfKeys| {
            let both = [keys.of_connector, keys.of_acceptor];
            both.map(|key| key.tag(5, b"body"))
        };
        let right = tags(pair(1, 2, 3, b"tcp"));
        assert_eq!(right, tags(pair(1, 2, 3, b"tcp")));
        // Computed by another program.
        assert_eq!(right, [0xf1d2_c8ee_09f6_d8b6, 0x6d6e_4b4d_d5b2_1015]);
        let others = [
            pair(9, 2, 3, b"tcp"),
            pair(1, 9, 3, b"tcp"),
            pair(1, 2, 9, b"tcp"),
            pair(1, 2, 3, b"shm"),
            pair(1, 3, 2, b"tcp"),
        ];
        for other in others {
            let other = tags(other);
            assert!(right.iter().all(|tag| !other.contains(tag)));
        }
    }

    /// The derivation is part of the protocol, as above.
    #[test]
    fn messages_and_datagrams_have_keys_of_their_own() {
        let keys = |job| ConnectionKeys::new(&JobKey::new([job; JOB_KEY_LEN]));
        let tag = |job, from, to, context: &[u8]| {
            let key = keys(job).messages(&[from; 16], &[to; 16], context);
            key.tag(b"message")
        };
        let right = tag(1, 2, 3, b"rc");
        // Computed by another program.
        assert_eq!(right, 0x5736_0d59_a7b6_7b61);
        let others = [
            tag(9, 2, 3, b"rc"),
            tag(1, 3, 2, b"rc"),
            tag(1, 2, 0, b"rc"),
            tag(1, 2, 3, b"uc"),
        ];
        assert!(!others.contains(&right));
        assert_eq!(keys(1).queue_key(), 0x66a5_0a80);
        assert_ne!(keys(1).queue_key(), keys(2).queue_key());
        for job in 0..64 {
            assert_eq!(
                keys(job).queue_key() >> 31,
                0,
                "reserved for privileged users"
            );
        }
    }

    #[test]
    fn repeated_missing_and_moved_frames_are_noticed() {
        let mut from = pair(1, 2, 3, b"").of_connector;
        let mut to = pair(1, 2, 3, b"").of_connector;
        let mut sent = |head: u64, body: &[u8]| {
            let tag = from.tag(head, body);
            from.advance();
            tag
        };
        let tags = [sent(1, b""), sent(1, b""), sent(2, b"a")];
        let mut accepts = |head: u64, body: &[u8], tag: u64| {
            let right = to.is_tag(head, body, tag);
            if right {
                to.advance();
            }
            right
        };
        assert!(!accepts(1, b"", tags[1]), "the first is missing");
        assert!(accepts(1, b"", tags[0]));
        assert!(!accepts(1, b"", tags[0]), "repeated");
        assert!(!accepts(2, b"a", tags[2]), "moved");
        assert!(accepts(1, b"", tags[1]));
        assert!(!accepts(2, b"b", tags[2]) && !accepts(3, b"a", tags[2]));
        assert!(accepts(2, b"a", tags[2]));
        assert_eq!(
            format!("{to:?}"),
            "FrameKey { key: HeadKey(secret), number: 3 }"
        );
    }
}
