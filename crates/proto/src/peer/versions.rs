//! Negotiation of the protocol's version (docs/design/wire.md).
//!
//! An address names the versions that its owner speaks, so a sender knows the common version before
//! its first packet. HELLO repeats the sender's versions and those of the destination as the sender
//! knows them. Under the tag of a job's key neither can be changed on the way: whoever changes an
//! address, so that both would use an older version than they can, is found out by both.

use crate::base::config::Config;
use crate::base::mutation::Mutation;
use crate::base::types::{Event, PeerId};
use crate::node::Node;
use crate::outgoing::builder::Builder;
use marline_wire::{Extension, Frame, Header, Hello, HelloFields, Versions, VERSION};

/// Kind of the frame and of the field of HELLO that a node sends which pretends to speak the next
/// version.
const PRETENDED_KIND: u8 = 255;
/// A frame of the pretended version, with payload.
const PRETENDED: Extension = Extension {
    kind: PRETENDED_KIND,
    len: 24,
    payload: 40,
};
/// The pretended field: kind, length, bytes.
const PRETENDED_FIELD: [u8; 5] = [PRETENDED_KIND, 3, 1, 2, 3];

impl Config {
    /// Returns whether the node pretends to speak a version after [`VERSION`].
    pub(crate) fn pretends(&self) -> bool {
        self.versions.newest > VERSION
    }

    /// Bytes of the pretended version's frame and payload, which every HELLO has with it.
    pub(crate) fn pretended_len(&self) -> usize {
        let len = PRETENDED.len as usize + PRETENDED.payload as usize;
        len * usize::from(self.pretends())
    }

    /// The fields behind the rails of a HELLO.
    pub(crate) fn further_fields<'a>(&self, room: &'a mut [u8; 8]) -> HelloFields<'a> {
        let (kind, bytes) = (PRETENDED_FIELD[0], &PRETENDED_FIELD[2..]);
        let field = HelloFields::write(room, kind, bytes);
        field
            .filter(|_| self.pretends())
            .unwrap_or(HelloFields::NONE)
    }

    /// Returns whether this first HELLO shows that both sides have no common version, or do not
    /// know of the newest one. `known`: the versions in the sender's address.
    fn disagrees(&self, hello: &Hello<'_>, known: Versions) -> bool {
        let agreed = self.versions.agreed(hello.versions);
        let altered = known != hello.versions
            || hello
                .of_destination
                .is_some_and(|ours| ours != self.versions);
        agreed.is_none() || (altered && !self.errs(Mutation::TalkedDown))
    }

    /// Returns whether a first packet has another version than the one on which both sides agree by
    /// its HELLO. No peer sends such a packet: it is dropped, and no peer is refused.
    pub(crate) fn has_other_version(&self, header: &Header, hello: &Hello<'_>) -> bool {
        let agreed = self.versions.agreed(hello.versions);
        let other = agreed.is_some_and(|agreed| agreed != header.version) && !hello.refused;
        other && !self.errs(Mutation::TalkedDown)
    }
}

impl Node {
    /// Refuses a known peer with which this node has no version in common, before any packet.
    pub(crate) fn refuse_without_version(&mut self, peer: PeerId) {
        let theirs = self.peer_address(peer).map(|address| address.versions());
        let Some(theirs) = theirs.filter(|v| self.cfg.versions.agreed(*v).is_none()) else {
            return;
        };
        let fresh = |session: &crate::state::session::Session| !session.is_over() && !session.own;
        if self.conn(peer).is_some_and(|conn| fresh(&conn.session)) {
            let now = self.descheduled.last_poll_ns;
            self.refuse(now, peer, None, self.versions_event(peer, theirs));
        }
    }

    /// Refuses a peer whose first packet shows that versions differ, and tells it. Returns whether
    /// it does.
    pub(crate) fn refuse_versions(&mut self, now: u64, peer: PeerId, hello: &Hello<'_>) -> bool {
        let known = self.peer_address(peer).map(|address| address.versions());
        let known = known.unwrap_or(hello.versions);
        let refused = self.cfg.disagrees(hello, known);
        if refused {
            let event = self.versions_event(peer, hello.versions);
            self.refuse(now, peer, Some(hello), event);
        }
        refused
    }

    fn versions_event(&self, peer: PeerId, theirs: Versions) -> Event {
        Event::PeerVersions {
            peer,
            ours: self.cfg.versions,
            theirs,
        }
    }

    /// Counts what a peer of a later version sent and this one skips.
    pub(crate) fn note_skipped(&mut self, kind: u8) {
        match kind == PRETENDED_KIND && self.cfg.pretends() {
            true => self.stats.pretended += 1,
            false => self.stats.skipped += 1,
        }
    }
}

impl Builder<'_, '_> {
    /// Adds the frame of the pretended version behind a HELLO.
    pub(crate) fn pretend(&mut self) {
        self.control(&Frame::Extension(PRETENDED), None);
    }
}
