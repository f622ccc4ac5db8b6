//! Tests of what AES lanes detect in a fragment.

#[path = "../examples/detect/random.rs"]
mod random;

mod kinds;

use kinds::{Subject, BLOCK, GROUP};
use marline_checksum::Algorithm;
use random::Random;

/// Lanes meet only in a sum of products.
const LANES: Subject = Subject {
    algorithm: Algorithm::AesLanes,
    lane: |byte| byte / BLOCK % (GROUP / BLOCK),
};

#[test]
fn no_two_wrong_bytes_of_different_lanes_cancel() {
    LANES.no_two_wrong_bytes_of_different_lanes_cancel();
}

#[test]
fn errors_in_different_lanes_add_up() {
    LANES.errors_in_different_lanes_add_up();
}

#[test]
fn no_two_flips_of_one_lane_cancel() {
    LANES.no_two_flips_of_one_lane_cancel();
}

#[test]
fn what_hardware_does_is_seen() {
    LANES.what_hardware_does_is_seen();
}

/// Five bytes chosen for it do cancel, once in some hundred times: what rounds spread in one group,
/// the next takes back. This is why the class is no more than medium.
#[test]
fn a_chosen_pattern_of_five_bytes_cancels() {
    let mut r = Random(9);
    let misses = (0..20_000).filter(|_| {
        let good: Vec<u8> = (0..2 * GROUP).map(|_| r.next() as u8).collect();
        let mut bad = good.clone();
        // A flip in row 0, and what MixColumns makes of a difference of 1 there.
        bad[0] ^= 1;
        for (at, by) in [2, 1, 1, 3].into_iter().enumerate() {
            bad[GROUP + at] ^= by;
        }
        LANES.of(&bad) == LANES.of(&good)
    });
    let misses = misses.count();
    assert!(
        (40..320).contains(&misses),
        "{misses} of 20000, not 1 in 127"
    );
}
