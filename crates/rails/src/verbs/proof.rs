//! Tags of handshake messages, which prove that their sender has the job's key
//! (docs/design/security.md). A tag is of one direction between two ends of a link, each of which
//! has a challenge: a message that was recorded is wrong for every other link.

use super::addr::{rail_kind, VerbsAddr};
use super::handshake::{mark_of, Foreign, Handshake, Say, NO_CHALLENGE};
use crate::rail::KeyMismatch;
use crate::sys::verbs::QueueType;
use marline_auth::{Challenge, ConnectionKeys};
use marline_wire::RAIL_BYTES_MAX;

/// The version of tags, counted apart from that of messages, so that libraries of other versions
/// derive the same keys and are believed when they name their version.
const TAG_VERSION: u8 = 1;
/// Bytes of an address in the context: its length and its bytes.
const PLACE_LEN: usize = 1 + RAIL_BYTES_MAX;

/// The sender and the receiver of a message.
#[derive(Clone, Copy)]
pub(super) struct Between<'a> {
    pub(super) kind: QueueType,
    pub(super) from: (&'a VerbsAddr, &'a Challenge),
    pub(super) to: (&'a VerbsAddr, &'a Challenge),
}

/// The tag of a message, which has zeros in the place of the tag.
pub(super) fn tag(keys: &ConnectionKeys, between: Between<'_>, message: &[u8]) -> u64 {
    let Between { kind, from, to } = between;
    let mut context = [0; 7 + 2 * PLACE_LEN];
    context[..5].copy_from_slice(b"verbs");
    (context[5], context[6]) = (TAG_VERSION, rail_kind(kind) as u8);
    for (at, addr) in [from.0, to.0].into_iter().enumerate() {
        let addr = addr.rail(kind);
        let place = &mut context[7 + at * PLACE_LEN..];
        place[0] = addr.bytes().len() as u8;
        place[1..][..addr.bytes().len()].copy_from_slice(addr.bytes());
    }
    keys.messages(from.1, to.1, &context).tag(message)
}

/// The proof that a message is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Proof {
    /// The sender has the key, and knows the challenge of this end.
    Fresh,
    /// The sender once had the key: it does not know the challenge of this end yet, and the message
    /// may be a copy.
    Unfresh,
    /// Nothing: the message is for another link, perhaps for an earlier one.
    OfAnother,
}

/// Checks a message to the rail `to`, whose end of the link to the sender has the challenge `ours`,
/// if there is a link. Without keys everything is believed that has no tag.
pub(super) fn check(
    keys: Option<&ConnectionKeys>,
    (to, ours): (&VerbsAddr, Option<&Challenge>),
    (said, tagged): (&Handshake, u64),
) -> Result<Proof, KeyMismatch> {
    let keyed_there = said.challenge != NO_CHALLENGE;
    let keys = match (keys, keyed_there) {
        (Some(keys), true) => keys,
        (None, false) => return Ok(Proof::Fresh),
        (Some(_), false) => return Err(KeyMismatch::UnkeyedThere),
        (None, true) => return Err(KeyMismatch::KeyedThere),
    };
    let (ours, proof) = match ours {
        Some(ours) if mark_of(ours) == said.known => (ours, Proof::Fresh),
        _ if said.known == 0 && said.say == Say::Ask => (&NO_CHALLENGE, Proof::Unfresh),
        _ => return Ok(Proof::OfAnother),
    };
    let between = Between {
        kind: said.kind,
        from: (&said.from, &said.challenge),
        to: (to, ours),
    };
    match tag(keys, between, &said.encode()) == tagged {
        true => Ok(proof),
        false => Err(KeyMismatch::OtherKey),
    }
}

/// Checks a message in another version in the same way. Versions without tags prove nothing to an
/// end with a key.
pub(super) fn check_foreign(
    keys: Option<&ConnectionKeys>,
    (to, ours): (&VerbsAddr, Option<&Challenge>),
    said: &Foreign,
) -> Result<Proof, KeyMismatch> {
    let keys = match (keys, said.challenge != NO_CHALLENGE) {
        (Some(keys), true) => keys,
        (None, false) => return Ok(Proof::Fresh),
        (Some(_), false) if said.covered.is_empty() => return Ok(Proof::OfAnother),
        (Some(_), false) => return Err(KeyMismatch::UnkeyedThere),
        (None, true) => return Err(KeyMismatch::KeyedThere),
    };
    let is_of = |ours: &Challenge| {
        let between = Between {
            kind: said.kind,
            from: (&said.from, &said.challenge),
            to: (to, ours),
        };
        tag(keys, between, &said.covered) == said.tag
    };
    match ours {
        Some(ours) if is_of(ours) => Ok(Proof::Fresh),
        _ if is_of(&NO_CHALLENGE) => Ok(Proof::Unfresh),
        _ => Err(KeyMismatch::OtherKey),
    }
}
