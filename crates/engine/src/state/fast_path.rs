//! The packet of a lone short message leaves before the message is posted, so that its bookkeeping
//! overlaps with the transfer. The packet that the node builds afterwards has to equal the sent
//! one.

use crate::memory::op_table::Pieces;
use crate::memory::pack::fill_one;
use crate::state::rails::{link_of, RailState};
use marline_proto::{Node, SendSpec, Span, Transmit, UNKEPT_MAX};
use marline_rails::{RailTx, SendOutcome};

/// Enables the fast path; otherwise every message is posted before its packet leaves.
pub(crate) const ENABLED: bool = true;

/// A packet that was sent but not built yet.
#[derive(Debug)]
struct Sent {
    transmit: Transmit,
    span: Span,
    outcome: SendOutcome,
}

/// The last packet sent early.
pub(crate) struct FastPath {
    packet: Box<[u8; UNKEPT_MAX]>,
    sent: Option<Sent>,
}

impl FastPath {
    pub(crate) fn new() -> FastPath {
        FastPath {
            packet: Box::new([0; UNKEPT_MAX]),
            sent: None,
        }
    }

    /// Sends the only packet of a short message that is posted and flushed next. The node refuses
    /// if other packets have to leave before it.
    #[inline]
    pub(crate) fn send<T: RailTx>(
        &mut self,
        now: u64,
        node: &Node,
        rails: &mut [RailState<T>],
        spec: &SendSpec,
        pieces: &Pieces,
    ) {
        let packet = &mut *self.packet;
        let Some((transmit, span)) = node.fast_packet(now, spec, packet) else {
            return;
        };
        let bytes = &mut packet[..transmit.len];
        fill_one(bytes, &transmit, &span, pieces);
        let (link, flow) = link_of(transmit.dest);
        let tx = &mut rails[transmit.rail].tx;
        let outcome = tx.send(link, bytes, transmit.len, flow);
        self.sent = Some(Sent {
            transmit,
            span,
            outcome,
        });
    }

    /// True if a packet was sent that the node has not built yet.
    pub(crate) fn waits(&self) -> bool {
        self.sent.is_some()
    }

    /// Compares the packet just built with the one sent early, copies that into `stage` and returns
    /// its outcome. `None`: no packet was sent early.
    ///
    /// # Panics
    /// If another packet was sent: packet numbers would then differ between this side and the peer,
    /// so no continuation is safe.
    #[inline]
    pub(crate) fn settle(&mut self, built: &Transmit, stage: &mut [u8]) -> Option<SendOutcome> {
        let sent = self.sent.take()?;
        let sum = sent.span.sum_at as usize;
        let packet = &self.packet[..sent.transmit.len];
        let same = |from, to| packet.get(from..to) == stage.get(from..to);
        assert!(
            sent.transmit == *built && same(4, sum) && same(sum + 8, built.head_len),
            "what was built is not what was sent: {built:?}, {sent:?}"
        );
        stage[..packet.len()].copy_from_slice(packet);
        Some(sent.outcome)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use marline_proto::{Batch, Dest, PeerId};

    const LEN: usize = 96;

    fn early() -> (FastPath, Transmit, [u8; LEN]) {
        let transmit = Transmit {
            rail: 0,
            dest: Dest::Link { link: 0, flow: 0 },
            batch: Batch {
                peer: PeerId(0),
                path: 0,
                segment: LEN,
                bulk: false,
            },
            head_len: 88,
            len: LEN,
            algorithm: 1,
            written: false,
        };
        let span = Span {
            handle: 0,
            offset: 0,
            len: 8,
            sum_at: 80,
            payload_at: 88,
            seed: 0,
            summed: true,
        };
        let mut early = FastPath::new();
        early.packet[..LEN].fill(7);
        early.sent = Some(Sent {
            transmit,
            span,
            outcome: SendOutcome::Busy,
        });
        // State of a built packet: no CRC, no checksum, no payload yet.
        let mut stage = [7; LEN];
        stage[..4].fill(0);
        stage[80..].fill(0);
        (early, transmit, stage)
    }

    #[test]
    fn an_early_packet_is_built_once() {
        let (mut early, transmit, mut stage) = early();
        assert!(early.waits());
        let outcome = early.settle(&transmit, &mut stage);
        assert_eq!(outcome, Some(SendOutcome::Busy));
        assert_eq!(stage, [7; LEN], "whole, in case it has to be sent again");
        assert_eq!(early.settle(&transmit, &mut stage), None);
        assert!(!early.waits());
    }

    #[test]
    #[should_panic(expected = "not what was sent")]
    fn another_head_ends_it() {
        let (mut early, transmit, mut stage) = early();
        stage[40] = 8;
        early.settle(&transmit, &mut stage);
    }

    #[test]
    #[should_panic(expected = "not what was sent")]
    fn another_way_ends_it() {
        let (mut early, mut transmit, mut stage) = early();
        transmit.rail = 1;
        early.settle(&transmit, &mut stage);
    }
}
