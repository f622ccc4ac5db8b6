//! First pieces: the first bytes of a long message leave behind its request, while the grant for
//! the rest comes back. Receives must have been posted of late: a piece that no receive awaits is
//! copied twice.

use marline_wire::{BLOCK_BYTES, FIRST_PIECE_MAX, PACKET_MAX};

/// Longest message without a grant. Longer messages only have first pieces, as fragments of others
/// may come before their request.
pub(crate) const EAGER_LIMIT: u64 = 65_536;
/// Smoothed round trips within which a grant shows that its receive was posted.
const SOON_ROUND_TRIPS: u64 = 2;

/// How soon a peer granted the last requests.
#[derive(Debug, Default)]
pub struct Promptness {
    soon: u8,
}

impl Promptness {
    /// Notes the first grant of a request, after `waited_ns` on a path of this round trip (0:
    /// unknown).
    pub(crate) fn note(&mut self, waited_ns: u64, srtt_ns: u64) {
        self.soon = match waited_ns <= SOON_ROUND_TRIPS * srtt_ns {
            true => self.soon.saturating_add(1),
            false => 0,
        };
    }

    /// Returns whether the last requests, at least `least`, were granted soon.
    pub(crate) fn is_prompt(&self, least: u8) -> bool {
        self.soon >= least
    }
}

/// Bytes of a first piece: the fragments of one super-packet of packets of at most `datagram_max`
/// bytes, each with `rest` bytes beside its payload.
pub(crate) fn piece_len(datagram_max: usize, rest: usize) -> u16 {
    let block = BLOCK_BYTES as usize;
    let payload = datagram_max.saturating_sub(rest) / block * block;
    let packets = PACKET_MAX / (rest + payload);
    (packets * payload).min(FIRST_PIECE_MAX as usize) as u16
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_late_grant_begins_the_count_anew() {
        let mut promptness = Promptness::default();
        promptness.note(1, 0);
        assert_eq!(promptness.soon, 0, "the round trip is unknown");
        (0..1_000).for_each(|_| promptness.note(20, 10));
        assert!(promptness.is_prompt(u8::MAX));
        promptness.note(21, 10);
        (1..8).for_each(|_| promptness.note(20, 10));
        assert!(!promptness.is_prompt(8));
        promptness.note(20, 10);
        assert!(promptness.is_prompt(8));
    }

    #[test]
    fn a_piece_fills_one_super_packet() {
        assert_eq!(piece_len(64_000, 88), FIRST_PIECE_MAX);
        assert_eq!(piece_len(64_000, 96), FIRST_PIECE_MAX);
        assert_eq!(piece_len(1_472, 88), 44 * 1_344);
        assert_eq!(piece_len(500, 88), 0);
    }
}
