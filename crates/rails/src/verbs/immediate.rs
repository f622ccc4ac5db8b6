//! Immediates of unreliable connections: by them the receiver knows which writes are whole.
//!
//! A device gives a write's immediate to the receiver after all of the write has landed, and not at
//! all if any part of it was lost. So each write has one, and the packet that tells of the writes
//! has one that says how many there are to be. A packet whose writes are not all there is dropped:
//! it counts as lost, and what it tells of is sent again.
//!
//! ```text
//!   bits 8-31  number of the call, of the rail that writes
//!   bits 0-7   of the packet that tells of them: how many writes; of a write: 0
//! ```

use std::collections::HashMap;

/// Bits that count writes.
const COUNT_BITS: u32 = 8;

/// The immediate of each write of a call.
pub(super) fn of_write(call: u32) -> u32 {
    call << COUNT_BITS
}

/// The immediate of the packet that tells of `writes` writes.
pub(super) fn of_packet(call: u32, writes: usize) -> u32 {
    debug_assert!((1..1 << COUNT_BITS).contains(&writes));
    call << COUNT_BITS | writes as u32
}

/// What has landed and was not told of, by queue pair: the call, and how many of its writes.
#[derive(Debug, Default)]
pub(super) struct Landed(HashMap<u32, (u32, u32)>);

impl Landed {
    /// A write has landed on a queue pair.
    pub(super) fn write(&mut self, pair: u32, immediate: u32) {
        let call = immediate >> COUNT_BITS;
        let landed = self.0.entry(pair).or_default();
        match landed.0 == call {
            true => landed.1 += 1,
            false => *landed = (call, 1),
        }
    }

    /// A packet that tells of writes has come on a queue pair: returns whether they all landed.
    pub(super) fn packet(&mut self, pair: u32, immediate: u32) -> bool {
        let (call, writes) = (immediate >> COUNT_BITS, immediate & ((1 << COUNT_BITS) - 1));
        // What is left of an earlier connection under this number must not count for the next.
        self.0.remove(&pair) == Some((call, writes))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_packet_is_believed_when_all_its_writes_landed() {
        let mut landed = Landed::default();
        landed.write(7, of_write(3));
        landed.write(7, of_write(3));
        assert!(!landed.packet(8, of_packet(3, 2)), "of another pair");
        assert!(landed.packet(7, of_packet(3, 2)));
        assert!(!landed.packet(7, of_packet(3, 2)), "told of once");
        landed.write(7, of_write(4));
        assert!(!landed.packet(7, of_packet(4, 2)), "one was lost");
        landed.write(7, of_write(5));
        landed.write(7, of_write(6));
        assert!(landed.packet(7, of_packet(6, 1)), "only its own count");
    }
}
