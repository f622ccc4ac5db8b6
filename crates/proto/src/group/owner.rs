//! Interface to the memory of a group's operations, which belongs to its owner.

use super::types::{Chunk, GroupEvent, Load, Place, Rebuild};

/// The owner of the memory of a group's operations.
pub trait GroupOwner {
    /// The sum of the bytes by this algorithm number; `None`: unknown algorithm.
    fn sum(&self, algorithm: u8, seed: u64, bytes: &[u8]) -> Option<u64>;

    /// Returns whether a payload has the sum in its packet.
    fn is_right(&self, load: &Load<'_>) -> bool {
        self.sum(load.algorithm, load.seed, load.payload) == Some(load.sum)
    }

    /// Copies a chunk to its place. Returns whether it is correct there; `None`: not stored.
    fn land(&mut self, place: Place, chunk: &Chunk, load: &Load<'_>) -> Option<bool>;

    /// Rebuilds a chunk from a correct parity and the other chunks; `None`: no place for it.
    fn rebuild(&mut self, rebuild: &Rebuild, parity: &[u8]) -> Option<()>;

    /// Carries out an event. Memory of ended operations may still be read until the packets from
    /// [`Group::poll_transmit`] have been built.
    fn take_event(&mut self, event: GroupEvent);
}
