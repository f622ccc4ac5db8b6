//! What a repair sends: the first time all of a packet, then no more than one packet takes.

use crate::mutation::Mutation;
use crate::node::Node;
use crate::path::DATAGRAM_BASE;
use crate::send_ring::FrameRef;
use alloc::vec::Vec;
use marline_wire::GRANULE;

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
        let mut some = false;
        frames.retain_mut(|frame| {
            let data = matches!(frame, FrameRef::Data { .. } | FrameRef::Written { .. });
            let stays = !data || (!some && self.cut(frame));
            some |= data && stays;
            stays
        });
    }

    /// Cuts a fragment to the first of its bytes that are not acknowledged; `false`: all are.
    fn cut(&self, frame: &mut FrameRef) -> bool {
        let (FrameRef::Data { xfer, offset, len }
        | FrameRef::Written {
            xfer, offset, len, ..
        }) = frame
        else {
            return true;
        };
        let Some(send) = self.sends.get(*xfer) else {
            return false;
        };
        if *len == 0 {
            return true; // a message without bytes
        }
        while *len > 0 && send.acked.contains(*offset / GRANULE) {
            let step = GRANULE.min(*len as u64);
            *offset += step;
            *len -= step as u32;
        }
        *len = (*len).min(BYTES_MAX);
        *len > 0
    }
}
