//! Work put off until a packet was sent: its books, and an ack that can wait.

use crate::base::types::PeerId;
use marline_wire::{Ack, LoneMask};

/// Packets up to this length are noted after they were sent. It takes the kernel longer to send
/// longer ones.
pub const UNKEPT_MAX: usize = 1_024;
/// A packet that was built, and is noted when it was sent. Its frames are in `Node::scratch`.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Unkept {
    pub(crate) peer: PeerId,
    pub(crate) path: usize,
    pub(crate) len: usize,
}

/// One ack that waits.
#[derive(Clone, Copy, Debug)]
pub(crate) struct DeferredAck {
    pub(crate) peer: PeerId,
    /// When it arrived.
    pub(crate) at_ns: u64,
    pub(crate) ack: Ack<LoneMask>,
}
