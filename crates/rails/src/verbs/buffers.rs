//! Buffers of registered memory, which the device reads until the completion.

use crate::plain_buffers::BufState;
use crate::sys::verbs::{Domain, Region, Request, Sends};
use crate::sys::Errno;
use crate::tx_buf::{BufId, BUFFER_LEN};
use std::sync::Arc;

/// Buffers in one registered region.
pub(super) struct SendBuffers {
    region: Region,
    states: Box<[BufState]>,
    free: Vec<u32>,
}

impl SendBuffers {
    /// `count` buffers of [`BUFFER_LEN`].
    pub(super) fn new(domain: &Arc<Domain>, count: u32) -> Result<SendBuffers, Errno> {
        Ok(SendBuffers {
            region: Region::new(domain, count as usize * BUFFER_LEN)?,
            states: vec![BufState::Free; count as usize].into_boxed_slice(),
            free: (0..count).rev().collect(),
        })
    }

    /// Lends a free buffer.
    #[inline]
    pub(super) fn lend(&mut self) -> Option<BufId> {
        let at = self.free.pop()?;
        self.states[at as usize] = BufState::Lent;
        Some(BufId(at))
    }

    /// The memory of a lent buffer.
    #[inline]
    pub(super) fn buffer(&mut self, id: BufId) -> &mut [u8] {
        debug_assert_eq!(self.states[id.0 as usize], BufState::Lent);
        self.region
            .bytes_mut(id.0 as usize * BUFFER_LEN, BUFFER_LEN)
    }

    /// A request that reads a part of a buffer.
    #[inline]
    pub(super) fn request(&self, id: BufId, from: usize, len: usize) -> Request {
        Sends::of_region(&self.region, id.0 as usize * BUFFER_LEN + from, len)
    }

    /// Marks a lent buffer as in flight.
    #[inline]
    pub(super) fn in_flight(&mut self, id: BufId) {
        debug_assert_eq!(self.states[id.0 as usize], BufState::Lent);
        self.states[id.0 as usize] = BufState::InFlight;
    }

    /// Returns whether the device reads the buffer.
    #[inline]
    pub(super) fn is_in_flight(&self, id: BufId) -> bool {
        self.states[id.0 as usize] == BufState::InFlight
    }

    /// Frees a buffer.
    #[inline]
    pub(super) fn free(&mut self, id: BufId) {
        debug_assert_ne!(self.states[id.0 as usize], BufState::Free, "freed twice");
        self.states[id.0 as usize] = BufState::Free;
        self.free.push(id.0);
    }
}
