//! Sends the packet of a lone short message before the message is posted (`state/fast_path.rs`).

use crate::api::{EpId, SendReq};
use crate::memory::op_table::Pieces;
use crate::memory::pack::fill_one;
use crate::platform::system::System;
use crate::state::core::Core;
use crate::state::fast_path::Sent;
use marline_proto::{PeerId, SendSpec};
use marline_rails::RailTx;

impl<S: System> Core<S> {
    /// Sends the message of a request that nothing can refuse any more, and that is to be posted
    /// and flushed next, if it is short and nothing else waits to leave. The time, if it was asked
    /// for.
    #[inline]
    pub(crate) fn send_fast(
        &mut self,
        (ep, peer): (EpId, PeerId),
        req: &SendReq<'_>,
        len: usize,
        clock: impl FnOnce() -> u64,
    ) -> Option<u64> {
        let others = self.has_output() || self.rails.full_mask != 0;
        if !self.coalescer.leaves_next(self.cfg.aggregate_after) || others {
            return None;
        }
        let now = clock();
        let spec = SendSpec {
            handle: 0, // none yet, and no part of the packet
            peer,
            tag: req.tag,
            data: req.data,
            len: len as u64,
            urgent_ack: false,
        };
        let node = &self.dir.eps[ep.0 as usize].as_ref()?.node;
        let packet = &mut *self.fast_path.packet;
        if let Some((transmit, span)) = node.fast_packet(now, &spec, packet) {
            let bytes = &mut packet[..transmit.len];
            fill_one(bytes, &transmit, &span, &Pieces::new(req.iov));
            let (rail, to) = (&mut self.rails[transmit.rail], &transmit.to);
            let outcome = rail.tx.send(to, bytes, transmit.len, transmit.flow);
            self.fast_path.sent = Some(Sent {
                transmit,
                span,
                outcome,
            });
        }
        Some(now)
    }
}
