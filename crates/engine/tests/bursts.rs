//! When the sends of a burst leave.

#[path = "stand_in/counted.rs"]
mod counted;

use counted::side;
use std::sync::atomic::Ordering::Relaxed;

/// A window of long messages for which the receiver has given no credit: only requests leave, and
/// each was sent in a packet of its own, which took a seventh of the sender's time.
#[test]
fn requests_of_a_burst_share_packets() {
    let side = side(2);
    let mut bytes = vec![7; 64 << 10];
    for _ in 0..8 {
        side.post(&mut bytes).unwrap();
    }
    assert_eq!(side.sent.load(Relaxed), 8, "the first leave at once");
    for _ in 0..64 {
        side.post(&mut bytes).unwrap();
    }
    assert_eq!(side.sent.load(Relaxed), 8 + 64 / 8);
}
