//! Work put off until a packet was sent: its books, and an ack that can wait.

use crate::base::beside::{OfferOut, WriteOut};
use crate::base::slab::Key;
use crate::base::types::PeerId;
use crate::state::offer::FirstOffer;
use crate::state::sent_packets::FrameRef;
use alloc::vec::Vec;
use marline_wire::{Ack, LoneMask};

/// Packets up to this length are noted after they were sent. It takes the kernel longer to send
/// longer ones.
pub const UNKEPT_MAX: usize = 1_024;
/// A packet that was built, and is noted when it was sent. Its frames are in [`Pending::scratch`].
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

/// All that waits for something else to be done first.
#[derive(Debug, Default)]
pub(crate) struct Pending {
    /// Frames of the packet under construction, or of the one that was built last.
    pub(crate) scratch: Vec<FrameRef>,
    /// The packet that was built last, until it was sent.
    pub(crate) unkept: Option<Unkept>,
    /// An ack that waits until nothing else is to be done.
    pub(crate) deferred_ack: Option<DeferredAck>,
    /// Native mode: sends whose last packet was just built.
    pub(crate) native_done: Vec<Key>,
    /// The offers in the packet that was built last.
    pub(crate) offers_out: Vec<OfferOut>,
    /// The offer that was read last, until its request is.
    pub(crate) offer_in: Option<FirstOffer>,
    /// The write that goes with the packet that was built last.
    pub(crate) write_out: Option<WriteOut>,
}
