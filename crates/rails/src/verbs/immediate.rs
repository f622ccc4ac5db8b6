//! Immediates of unreliable connections, by which the receiver knows which writes are complete.
//!
//! A device delivers a write's immediate after the whole write has landed, and never if a part was
//! lost. So each write has an immediate, and the write notification has one with the number of
//! writes. A notification with a missing write is dropped: it counts as lost and is retransmitted.
//!
//! ```text
//!   bits 8-31  number of the call, by the writing rail
//!   bits 0-7   of a write: its index in the call; of the notification: the number of writes
//! ```

use std::collections::HashMap;

/// Bits that distinguish the writes of one call.
const WRITE_BITS: u32 = 8;
/// Maximum of writes per call.
pub const WRITES_MAX: usize = 127;

/// The immediate of one write of a call.
pub fn of_write(call: u32, which: usize) -> u32 {
    debug_assert!(which < WRITES_MAX);
    call << WRITE_BITS | which as u32
}

/// The immediate of a notification of `writes` writes.
pub fn of_packet(call: u32, writes: usize) -> u32 {
    debug_assert!(writes <= WRITES_MAX);
    call << WRITE_BITS | writes as u32
}

fn parts(immediate: u32) -> (u32, u32) {
    let low = (1 << WRITE_BITS) - 1;
    (immediate >> WRITE_BITS, immediate & low)
}

/// Writes that landed and await their notification: for each queue pair the number of the call and
/// a bit per write (not a count, since the network may duplicate packets).
#[derive(Debug, Default)]
pub struct Landed(HashMap<u32, (u32, u128)>);

impl Landed {
    /// Records a write that landed on a queue pair.
    pub fn write(&mut self, pair: u32, immediate: u32) {
        let (call, which) = parts(immediate);
        let bit = 1u128.checked_shl(which).unwrap_or(0);
        let landed = self.0.entry(pair).or_default();
        match landed.0 == call {
            true => landed.1 |= bit,
            false => *landed = (call, bit),
        }
    }

    /// Handles a notification on a queue pair: returns whether all of its writes landed.
    pub fn packet(&mut self, pair: u32, immediate: u32) -> bool {
        let (call, writes) = parts(immediate);
        let all = 1u128.checked_shl(writes).map_or(0, |bit| bit - 1);
        // Removal also discards the state of an earlier connection with the same queue pair number.
        writes > 0 && self.0.remove(&pair) == Some((call, all))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_notification_counts_if_all_its_writes_landed() {
        let mut landed = Landed::default();
        landed.write(7, of_write(3, 0));
        landed.write(7, of_write(3, 1));
        assert!(!landed.packet(8, of_packet(3, 2)), "of another pair");
        assert!(landed.packet(7, of_packet(3, 2)));
        assert!(!landed.packet(7, of_packet(3, 2)), "told of once");
        landed.write(7, of_write(4, 0));
        landed.write(7, of_write(4, 0));
        assert!(
            !landed.packet(7, of_packet(4, 2)),
            "one twice, the other not"
        );
        landed.write(7, of_write(5, 0));
        landed.write(7, of_write(6, 0));
        assert!(landed.packet(7, of_packet(6, 1)), "only its own count");
        assert!(!landed.packet(7, u32::MAX), "nonsense");
    }
}
