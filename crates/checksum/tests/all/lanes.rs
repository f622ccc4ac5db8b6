//! Error detection of AES lanes in a fragment.

use crate::random;

use crate::kinds;

use kinds::{Subject, BLOCK, GROUP};
use marline_checksum::Algorithm;
use random::Random;

/// The lanes meet only in a sum of products.
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

/// A chosen pattern of five bytes cancels once in some hundred attempts: the next group reverts the
/// differences that a round spread in the first. So the class is rated no higher than medium.
#[test]
fn a_chosen_pattern_of_five_bytes_cancels() {
    let mut r = Random(9);
    let misses = (0..20_000).filter(|_| {
        let good: Vec<u8> = (0..2 * GROUP).map(|_| r.next() as u8).collect();
        let mut bad = good.clone();
        // A flip in row 0, and the differences that MixColumns makes of it if the S-box output
        // differs by 1.
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
