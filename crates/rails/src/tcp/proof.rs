//! The proof that the other end of a connection has the job's key: a challenge from each end, then
//! a handshake and its answer, tagged under keys that follow from both (docs/design/security.md).

use super::broken::Break;
use super::frame::{Kind, MAGIC};
use super::handshake::TcpAddr;
use crate::frame_word::word_at;
use crate::rail::KeyMismatch;
use crate::sys::{self, Errno};
use marline_auth::{Challenge, ConnectionKeys, FrameKey};
use std::net::IpAddr;

/// The frame that has to come next on a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Proof {
    /// The challenge of the other end, which has a key, too.
    Challenge,
    /// The first frame with a tag: a handshake, or the answer to ours.
    Tag,
    /// The handshake of an accepted connection. No process of this job has a key.
    Handshake,
    /// Nothing: all kinds of packets may come.
    Done,
}

impl Proof {
    /// The state of a new connection.
    pub(super) fn new(accepted: bool, keyed: bool) -> Proof {
        match (keyed, accepted) {
            (true, _) => Proof::Challenge,
            (false, true) => Proof::Handshake,
            (false, false) => Proof::Done,
        }
    }

    /// Checks that a frame of this kind may come, before anything of it acts.
    #[inline]
    pub(super) fn check(self, kind: Kind, (accepted, keyed): (bool, bool)) -> Result<(), Break> {
        let first = matches!(
            kind,
            Kind::Handshake | Kind::Challenge | Kind::Refusal | Kind::Answer
        );
        let right = match self {
            Proof::Done if !first => return Ok(()),
            Proof::Done => kind == Kind::Refusal && !accepted && !keyed,
            Proof::Handshake => kind == Kind::Handshake,
            Proof::Challenge => kind == Kind::Challenge || kind == Kind::Refusal && !accepted,
            Proof::Tag if accepted => kind == Kind::Handshake,
            Proof::Tag => matches!(kind, Kind::Answer | Kind::Refusal),
        };
        match kind {
            _ if right => Ok(()),
            Kind::Challenge if !keyed => Err(Break::Forged(KeyMismatch::KeyedThere)),
            Kind::Handshake if accepted && keyed => Err(Break::Forged(KeyMismatch::UnkeyedThere)),
            _ => Err(Break::Garbled),
        }
    }
}

/// The challenge of this end, and the address to which the connection was made.
#[derive(Debug)]
pub(super) struct Ours {
    pub(super) challenge: Challenge,
    to: TcpAddr,
    accepted: bool,
}

/// The keys of a connection, from one of its ends.
pub(super) struct Keys {
    pub(super) sending: FrameKey,
    pub(super) receiving: FrameKey,
}

impl Ours {
    pub(super) fn new(to: TcpAddr, accepted: bool) -> Result<Ours, Errno> {
        let mut challenge = [0; 16];
        challenge[..8].copy_from_slice(&sys::random()?.to_le_bytes());
        challenge[8..].copy_from_slice(&sys::random()?.to_le_bytes());
        Ok(Ours {
            challenge,
            to,
            accepted,
        })
    }

    /// The keys that follow from both challenges.
    pub(super) fn keys(&self, secret: &ConnectionKeys, theirs: &Challenge) -> Keys {
        let context = context(&self.to);
        match self.accepted {
            true => {
                let pair = secret.pair(theirs, &self.challenge, &context);
                Keys {
                    sending: pair.of_acceptor,
                    receiving: pair.of_connector,
                }
            }
            false => {
                let pair = secret.pair(&self.challenge, theirs, &context);
                Keys {
                    sending: pair.of_connector,
                    receiving: pair.of_acceptor,
                }
            }
        }
    }
}

/// The version of the handshake, counted apart from that of packets, so that libraries of
/// neighbouring versions derive the same keys.
const HANDSHAKE_VERSION: u8 = 4;

/// Kind, versions and the acceptor's address: a handshake for another rail or version is wrong.
fn context(to: &TcpAddr) -> [u8; 23] {
    let mut out = [0; 23];
    out[..3].copy_from_slice(b"tcp");
    (out[3], out[4]) = (MAGIC, HANDSHAKE_VERSION);
    out[5..7].copy_from_slice(&to.port.to_le_bytes());
    let ip = match to.ip {
        IpAddr::V4(ip) => ip.to_ipv6_mapped(),
        IpAddr::V6(ip) => ip,
    };
    out[7..].copy_from_slice(&ip.octets());
    out
}

/// The body of a refusal to an end with another version of the framing.
pub(super) const OTHER_VERSION: [u8; 8] = [5, 0, 0, 0, 0, 0, 0, 0];

/// The body of a refusal: this end's side of the difference.
pub(super) fn refusal(why: KeyMismatch) -> [u8; 8] {
    let code: u64 = match why {
        KeyMismatch::KeyedThere => 1, // no key here
        KeyMismatch::UnkeyedThere => 2,
        KeyMismatch::OtherKey => 3,
        KeyMismatch::Tag => 4,
    };
    code.to_le_bytes()
}

/// The difference as this end has it, from the other end's refusal.
pub(super) fn refused(body: &[u8]) -> KeyMismatch {
    match word_at(body, 0) {
        1 => KeyMismatch::UnkeyedThere,
        2 => KeyMismatch::KeyedThere,
        _ => KeyMismatch::OtherKey,
    }
}
