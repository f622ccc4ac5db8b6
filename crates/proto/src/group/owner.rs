//! The memory that a group works on, which somebody else has.

use super::types::{Chunk, GroupEvent, Load, Place, Rebuild};

/// The memory of a group's operations, which its owner has.
pub trait GroupOwner {
    /// The sum of bytes by the algorithm of this number; `None`: it is not known.
    fn sum(&self, algorithm: u8, seed: u64, bytes: &[u8]) -> Option<u64>;

    /// Says if a payload has the sum that it was sent with.
    fn is_right(&self, load: &Load<'_>) -> bool {
        self.sum(load.algorithm, load.seed, load.payload) == Some(load.sum)
    }

    /// Copies a chunk to its place, and says if it is right there; `None`: it is not taken.
    fn land(&mut self, place: Place, chunk: &Chunk, load: &Load<'_>) -> Option<bool>;

    /// Makes a chunk of a parity that is right, and its neighbours; `None`: it has no place.
    fn rebuild(&mut self, rebuild: &Rebuild, parity: &[u8]) -> Option<()>;

    /// Does what an event says. Operations that end belong to the group until the packets that
    /// [`Group::poll_transmit`] gives have been built.
    fn take_event(&mut self, event: GroupEvent);
}
