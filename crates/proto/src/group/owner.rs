//! Interface between a group's protocol and the engine, which owns the memory of the group's
//! operations.

use super::types::{Chunk, GroupEvent, Load, Place, Rebuild};

/// The engine's side: owns the memory of a group's operations.
pub trait GroupOwner {
    /// The sum of the bytes by this algorithm number; `None`: unknown algorithm.
    fn sum(&self, algorithm: u8, seed: u64, bytes: &[u8]) -> Option<u64>;

    /// Returns whether a payload has the sum in its packet.
    fn is_right(&self, load: &Load<'_>) -> bool {
        self.sum(load.algorithm, load.seed, load.payload) == Some(load.sum)
    }

    /// Copies a chunk to its place. Returns whether the stored bytes are correct; `None`: nothing
    /// was stored.
    fn land(&mut self, place: Place, chunk: &Chunk, load: &Load<'_>) -> Option<bool>;

    /// Rebuilds a chunk from a correct parity and the other chunks; `None`: the chunk has no place.
    fn rebuild(&mut self, rebuild: &Rebuild, parity: &[u8]) -> Option<()>;

    /// Carries out an event. The memory of an ended operation may still be read until the packets
    /// from [`Group::poll_transmit`] have been built.
    fn take_event(&mut self, event: GroupEvent);
}
