//! Admission of peers, and bounds on all peers together that the owner has not named.
//!
//! A peer is named when its address was inserted, or when it proved that it belongs to the job.
//! Every other source is a stranger. A stranger may open a connection, as clients of a server do,
//! but all strangers together have a bounded number of connections and a bounded share of the
//! memory for unexpected messages.

use crate::base::config::Config;

/// Most connections with strangers at a time. Each takes 3 KiB with two rails; clients of a server
/// that come at the same time should all be served.
const CONVERSATIONS_MAX: usize = 4_096;
/// Most strangers that have gone but whose ids are kept (`peer/departed.rs`), 100 bytes each:
/// enough for 267 new clients a second, as an id is kept for 245 s.
const GONE_MAX: usize = 65_536;
/// Strangers together may fill one part in this many of the memory for unexpected messages.
const MEMORY_SHARE: u64 = 2;

/// Most replies to reads, and refusals of reads, that wait for one peer.
pub(crate) const READS_MAX: usize = 65_536;
/// The same for one stranger: 300 bytes each.
pub(crate) const STRANGER_READS_MAX: usize = 128;
/// Most replies to requests on memory that wait for one stranger. No engine has more requests open.
pub(crate) const STRANGER_REPLIES_MAX: usize = 1_024;

/// The proof that a source has given.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Proof {
    /// No proof.
    None,
    /// Knowledge of the job's key.
    Job,
}

/// Standing of a peer with this node.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Standing {
    /// Not known, or named by the owner.
    Free,
    /// A stranger with a conversation.
    Stranger,
    /// A stranger that has gone.
    Gone,
}

/// Strangers of a node.
#[derive(Debug, Default)]
pub struct Admission {
    conversations: usize,
    gone: usize,
    /// Bytes of strangers' unexpected messages.
    held: u64,
}

impl Admission {
    /// Returns whether a source whose address was not inserted may become a peer.
    pub fn admits(&self, proof: Proof) -> bool {
        let room = self.conversations < CONVERSATIONS_MAX && self.gone < GONE_MAX;
        proof == Proof::Job || room
    }

    /// Notes that a peer's standing changes.
    pub fn moves(&mut self, from: Standing, to: Standing) {
        match from {
            Standing::Free => {}
            Standing::Stranger => self.conversations -= 1,
            Standing::Gone => self.gone -= 1,
        }
        match to {
            Standing::Free => {}
            Standing::Stranger => self.conversations += 1,
            Standing::Gone => self.gone += 1,
        }
    }

    /// Strangers with a conversation.
    pub fn strangers(&self) -> usize {
        self.conversations
    }

    /// Returns whether strangers may fill `bytes` more bytes.
    pub fn has_room(&self, cfg: &Config, bytes: u64) -> bool {
        self.held + bytes <= cfg.unexpected_bytes / MEMORY_SHARE
    }

    /// Charges bytes of strangers' unexpected messages.
    pub fn charge(&mut self, bytes: u64) {
        self.held += bytes;
    }

    /// Gives charged bytes back.
    pub fn release(&mut self, bytes: u64) {
        self.held -= bytes;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn strangers_are_admitted_while_there_is_room() {
        let mut admission = Admission::default();
        for _ in 0..CONVERSATIONS_MAX {
            assert!(admission.admits(Proof::None));
            admission.moves(Standing::Free, Standing::Stranger);
        }
        assert!(!admission.admits(Proof::None) && admission.admits(Proof::Job));
        admission.moves(Standing::Stranger, Standing::Free);
        assert!(admission.admits(Proof::None), "one of them was named");
        admission.moves(Standing::Free, Standing::Stranger);
        admission.moves(Standing::Stranger, Standing::Gone);
        assert!(admission.admits(Proof::None), "one of them has gone");
        assert_eq!(admission.strangers(), CONVERSATIONS_MAX - 1);
        (1..GONE_MAX).for_each(|_| admission.moves(Standing::Free, Standing::Gone));
        assert!(!admission.admits(Proof::None), "the ids are too many");
    }

    #[test]
    fn strangers_fill_half_of_the_memory() {
        let (mut admission, cfg) = (Admission::default(), Config::default());
        let half = cfg.unexpected_bytes / 2;
        assert!(admission.has_room(&cfg, half) && !admission.has_room(&cfg, half + 1));
        admission.charge(half);
        assert!(!admission.has_room(&cfg, 1));
        admission.release(1);
        assert!(admission.has_room(&cfg, 1));
    }
}
