//! Immediates of unreliable connections: by them the receiver knows which writes are whole.
//!
//! A device gives a write's immediate to the receiver after all of the write has landed, and not at
//! all if any part of it was lost. So each write has one, and the packet that tells of the writes
//! has one that says how many there are to be. A packet whose writes are not all there is dropped:
//! it counts as lost, and what it tells of is sent again.
//!
//! ```text
//!   bits 8-31  number of the call, of the rail that writes
//!   bits 0-7   of a write: which of them; of the packet that tells of them: how many
//! ```

use std::collections::HashMap;

/// Bits that tell writes of a call apart.
const WRITE_BITS: u32 = 8;
/// Most writes of a call.
pub const WRITES_MAX: usize = 127;

/// The immediate of one write of a call.
pub fn of_write(call: u32, which: usize) -> u32 {
    debug_assert!(which < WRITES_MAX);
    call << WRITE_BITS | which as u32
}

/// The immediate of the packet that tells of `writes` writes.
pub fn of_packet(call: u32, writes: usize) -> u32 {
    debug_assert!(writes <= WRITES_MAX);
    call << WRITE_BITS | writes as u32
}

fn parts(immediate: u32) -> (u32, u32) {
    let low = (1 << WRITE_BITS) - 1;
    (immediate >> WRITE_BITS, immediate & low)
}

/// Writes that have landed and were not told of: of each queue pair the call, and a bit for each
/// (a network may say a packet twice).
#[derive(Debug, Default)]
pub struct Landed(HashMap<u32, (u32, u128)>);

impl Landed {
    /// A write has landed on a queue pair.
    pub fn write(&mut self, pair: u32, immediate: u32) {
        let (call, which) = parts(immediate);
        let bit = 1u128.checked_shl(which).unwrap_or(0);
        let landed = self.0.entry(pair).or_default();
        match landed.0 == call {
            true => landed.1 |= bit,
            false => *landed = (call, bit),
        }
    }

    /// A packet that tells of writes has come on a queue pair: returns whether they all landed.
    pub fn packet(&mut self, pair: u32, immediate: u32) -> bool {
        let (call, writes) = parts(immediate);
        let all = 1u128.checked_shl(writes).map_or(0, |bit| bit - 1);
        // What is left of an earlier connection under this number must not count for the next.
        writes > 0 && self.0.remove(&pair) == Some((call, all))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_packet_is_believed_when_all_its_writes_landed() {
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
