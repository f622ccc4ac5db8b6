//! Work deferred until a packet was sent: its bookkeeping, and an ack that can wait.

use crate::base::types::PeerId;
use crate::state::sent_packets::FrameRef;
use alloc::vec::Vec;
use marline_wire::{Ack, LoneMask};

/// Packets up to this length are recorded after they were sent. Longer packets are recorded before:
/// beside the time that the kernel takes for them, recording does not matter.
pub(crate) const UNRECORDED_MAX: usize = 1_024;
/// A packet that was built and is recorded once it was sent. Its frames are in
/// [`Pending::scratch`].
#[derive(Clone, Copy, Debug)]
pub(crate) struct Unrecorded {
    pub(crate) peer: PeerId,
    pub(crate) path: usize,
    pub(crate) len: usize,
}

/// A deferred ack.
#[derive(Clone, Copy, Debug)]
pub(crate) struct DeferredAck {
    pub(crate) peer: PeerId,
    /// Time of arrival.
    pub(crate) at_ns: u64,
    pub(crate) ack: Ack<LoneMask>,
}

/// All deferred work.
#[derive(Debug, Default)]
pub(crate) struct Pending {
    /// Frames of the packet under construction, or of the one built last.
    pub(crate) scratch: Vec<FrameRef>,
    /// The packet built last, until it was sent.
    pub(crate) unrecorded: Option<Unrecorded>,
    /// An ack whose processing is deferred until there is no other work.
    pub(crate) deferred_ack: Option<DeferredAck>,
}
