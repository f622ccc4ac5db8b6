//! The proof that the other end of a connection has the job's key, before a descriptor is received:
//! a challenge from each end, then a tag of each under keys that follow from both
//! (docs/design/security.md).
//!
//! ```text
//! 0 u32 magic    4 u32 kind    8 16 bytes: the challenge; or a tag or a refusal, and 8 bytes of 0
//! ```

use super::addr::ShmAddr;
use super::connection::{Break, Name};
use super::handshake;
use crate::frame_word::{put_words, word_at};
use crate::rail::KeyMismatch;
use crate::sys::{self, Errno, SeqPacket};
use marline_auth::{Challenge, ConnectionKeys, PairOfKeys, CHALLENGE_LEN};

/// Bytes of a message.
pub(super) const PROOF_LEN: usize = 24;
/// Version of the messages, of proof and handshake.
pub(super) const VERSION: u8 = 1;
/// First word of a message; another one than that of a handshake. Its lowest byte is the version.
const MAGIC: u32 = 0x6d72_6b00 | VERSION as u32;
const _: () = assert!(handshake::MAGIC as u8 == VERSION);
/// Kinds of messages.
const CHALLENGE: u32 = 1;
const OF_CONNECTOR: u32 = 2;
const OF_ACCEPTOR: u32 = 3;
const REFUSAL: u32 = 4;
/// Code of a refusal to an end of another version.
const OTHER_VERSION: u64 = 5;

/// A message.
pub(super) type Words = [u8; PROOF_LEN];

/// The step that follows from a message of the other end.
pub(super) enum Step {
    /// The next message comes.
    Wait,
    /// This message has to be sent.
    Send(Words),
    /// The other end has proven itself; this message has to be sent first, if there is one.
    Proven(Option<Words>),
}

/// This end of a connection until the other end has proven itself.
pub(super) struct Prover {
    ours: Challenge,
    /// The acceptor's rail.
    to: ShmAddr,
    accepted: bool,
    keys: Option<PairOfKeys>,
}

/// An accepted connection without handshake.
pub(super) struct Handshaking {
    pub(super) name: Name,
    pub(super) socket: SeqPacket,
    /// Until the other end has proven itself.
    pub(super) prover: Option<Prover>,
}

impl Prover {
    /// This end of a connection to the rail `to`.
    pub(super) fn new(to: ShmAddr, accepted: bool) -> Result<Prover, Errno> {
        let words = [sys::random()?, sys::random()?];
        Ok(Prover {
            ours: put_words(&words),
            to,
            accepted,
            keys: None,
        })
    }

    /// The first message to the other end.
    pub(super) fn challenge(&self) -> Words {
        message(CHALLENGE, &self.ours)
    }

    /// Handles a message of the other end.
    pub(super) fn hear(&mut self, secret: &ConnectionKeys, bytes: &[u8]) -> Result<Step, Break> {
        let (kind, body) = read(bytes).ok_or_else(|| match foreign_version(bytes) {
            Some(theirs) => Break::Foreign(theirs),
            None if is_handshake(bytes) => Break::Forged(KeyMismatch::UnkeyedThere),
            None => Break::Garbled,
        })?;
        match (kind, &self.keys) {
            (REFUSAL, _) if !self.accepted => Err(Break::Refused(refused(body))),
            (CHALLENGE, None) => {
                let theirs = body.try_into().map_err(|_| Break::Garbled)?;
                let (from, to) = match self.accepted {
                    true => (theirs, &self.ours),
                    false => (&self.ours, theirs),
                };
                let keys = secret.pair(from, to, &context(&self.to));
                let proof = tagged(OF_CONNECTOR, &keys);
                self.keys = Some(keys);
                Ok(match self.accepted {
                    true => Step::Wait,
                    false => Step::Send(proof),
                })
            }
            (OF_CONNECTOR, Some(keys)) if self.accepted => match bytes == tagged(kind, keys) {
                true => Ok(Step::Proven(Some(tagged(OF_ACCEPTOR, keys)))),
                false => Err(Break::Forged(KeyMismatch::OtherKey)),
            },
            (OF_ACCEPTOR, Some(keys)) if !self.accepted => match bytes == tagged(kind, keys) {
                true => Ok(Step::Proven(None)),
                false => Err(Break::Forged(KeyMismatch::OtherKey)),
            },
            _ => Err(Break::Garbled),
        }
    }
}

/// Returns whether a message, which should have been a handshake, is of an end with a key.
pub(super) fn is_keyed(bytes: &[u8]) -> bool {
    read(bytes).is_some_and(|(kind, _)| kind == CHALLENGE)
}

/// The message that tells the other end how it differs.
pub(super) fn refusal(why: KeyMismatch) -> Words {
    let code: u64 = match why {
        KeyMismatch::KeyedThere => 1, // no key here
        KeyMismatch::UnkeyedThere => 2,
        KeyMismatch::OtherKey | KeyMismatch::Tag => 3,
    };
    message(REFUSAL, &put_words::<CHALLENGE_LEN>(&[code]))
}

/// The message that tells an end of another version the version of this one, by its first word.
pub(super) fn refusal_of_version() -> Words {
    message(REFUSAL, &put_words::<CHALLENGE_LEN>(&[OTHER_VERSION]))
}

/// The message to an end whose connection ends for this reason, if there is one.
pub(super) fn answer_to(broken: Break) -> Option<Words> {
    match broken {
        Break::Forged(why) => Some(refusal(why)),
        Break::Foreign(_) => Some(refusal_of_version()),
        _ => None,
    }
}

/// The version of a message in another version, of proof or handshake; `None`: it is none. In every
/// version the first word names its kind and its version.
pub(super) fn foreign_version(bytes: &[u8]) -> Option<u8> {
    let first = bytes.first_chunk::<4>().map(|b| u32::from_le_bytes(*b))?;
    let is_of = |magic: u32| (first ^ magic) >> 8 == 0;
    let foreign = (is_of(MAGIC) || is_of(handshake::MAGIC)) && first as u8 != VERSION;
    foreign.then_some(first as u8)
}

/// The difference as this end has it, if a message is a refusal.
pub(super) fn refusal_in(bytes: &[u8]) -> Option<KeyMismatch> {
    let (kind, body) = read(bytes)?;
    (kind == REFUSAL).then(|| refused(body))
}

fn refused(body: &[u8]) -> KeyMismatch {
    match word_at(body, 0) {
        1 => KeyMismatch::UnkeyedThere,
        2 => KeyMismatch::KeyedThere,
        _ => KeyMismatch::OtherKey,
    }
}

fn is_handshake(bytes: &[u8]) -> bool {
    handshake::Handshake::read(bytes).is_some()
}

/// The proof of one end: a tag of the message's first word.
fn tagged(kind: u32, keys: &PairOfKeys) -> Words {
    let key = match kind {
        OF_CONNECTOR => &keys.of_connector,
        _ => &keys.of_acceptor,
    };
    let tag = key.tag(word_at(&message(kind, &[0; CHALLENGE_LEN]), 0), &[]);
    message(kind, &put_words::<CHALLENGE_LEN>(&[tag]))
}

fn message(kind: u32, body: &[u8; CHALLENGE_LEN]) -> Words {
    let mut out = [0; PROOF_LEN];
    out[..4].copy_from_slice(&MAGIC.to_le_bytes());
    out[4..8].copy_from_slice(&kind.to_le_bytes());
    out[8..].copy_from_slice(body);
    out
}

fn read(bytes: &[u8]) -> Option<(u32, &[u8])> {
    if bytes.len() != PROOF_LEN {
        return None;
    }
    let word = word_at(bytes, 0);
    (word as u32 == MAGIC).then_some(((word >> 32) as u32, &bytes[8..]))
}

/// The version of the proof, counted apart from that of packets, so that libraries of neighbouring
/// versions derive the same keys.
const PROOF_VERSION: u8 = 4;

/// Kind, versions and the acceptor's rail.
fn context(to: &ShmAddr) -> [u8; 32] {
    let mut out = [0; 32];
    out[..3].copy_from_slice(b"shm");
    out[3] = PROOF_VERSION;
    out[4..8].copy_from_slice(&MAGIC.to_le_bytes());
    out[8..24].copy_from_slice(&to.host);
    out[24..].copy_from_slice(&to.name.to_le_bytes());
    out
}
