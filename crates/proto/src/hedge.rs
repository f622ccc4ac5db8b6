//! What a repair sends: the first time all of a packet, then no more than one packet takes.

use crate::mutation::Mutation;
use crate::node::Node;
use crate::path::DATAGRAM_BASE;
use crate::send_ring::FrameRef;
use alloc::vec::Vec;
use marline_wire::{DATA_LEN, GRANULE};

/// Bytes that fit one packet of any path, beside its header.
const BYTES_MAX: u32 = (DATAGRAM_BASE as u64 / GRANULE * GRANULE) as u32;

impl Node {
    /// Leaves of the frames of a packet whose repair was not answered what fits one packet. (A
    /// written fragment of 64 KB became 48 packets at every expiry, past a full window: a peer that
    /// was stopped for 1.5 s had 9,000 of them waiting. Seed 5000085.) The rest stays with the
    /// packet, which still waits, and is sent again when it is known to be lost.
    pub(crate) fn one_packet(&self, frames: &mut Vec<FrameRef>) {
        if self.cfg.errs(Mutation::RepairAll) {
            return;
        }
        let mut room = BYTES_MAX;
        frames.retain_mut(|frame| {
            let data = matches!(frame, FrameRef::Data { .. } | FrameRef::Written { .. });
            if !data {
                return true;
            }
            let Some(len) = self.cut(frame, room) else {
                return false;
            };
            room = room.saturating_sub(len + DATA_LEN as u32);
            true
        });
    }

    /// Cuts a fragment to the first of its bytes that are not acknowledged, and to `room`; how many
    /// are left. `None`: it need not be sent.
    fn cut(&self, frame: &mut FrameRef, room: u32) -> Option<u32> {
        let (FrameRef::Data { xfer, offset, len }
        | FrameRef::Written {
            xfer, offset, len, ..
        }) = frame
        else {
            return None;
        };
        let send = self.sends.get(*xfer)?;
        if *len == 0 {
            return Some(0); // a message without bytes
        }
        while *len > 0 && send.acked.contains(*offset / GRANULE) {
            let step = GRANULE.min(*len as u64);
            *offset += step;
            *len -= step as u32;
        }
        if *len > room {
            *len = room - room % GRANULE as u32;
        }
        (*len > 0).then_some(*len)
    }
}
