//! Fast path: the packet of a lone short message, predicted without any change of state. The engine
//! sends it at once, and does the bookkeeping (post and build) while it is in flight.

use crate::base::config::RailPolicy;
use crate::base::mutation::Mutation;
use crate::base::types::{sum_seed, SendSpec, Span, Transmit};
use crate::node::Node;
use crate::state::conn::Conn;
use crate::state::path::Path;
use crate::state::pending::UNKEPT_MAX;
use crate::state::transfer::head_of;
use crate::tx::packet_builder::QUIET_MAX;
use marline_wire::{Eager, Frame, HeadWriter, EAGER_LEN};

impl Node {
    /// The packet that [`Node::post_send`] and then [`Node::build`] will make of this message now,
    /// with its payload; the head is written to `out`. `None`: other frames have to leave with it
    /// or before it, or may have to. No state changes. If the packet is sent, call both next.
    #[inline]
    pub fn fast_packet(
        &self,
        now_ns: u64,
        spec: &SendSpec,
        out: &mut [u8; UNKEPT_MAX],
    ) -> Option<(Transmit, Span)> {
        let conn = self.conn(spec.peer)?;
        if !self.run_queue.ready.is_empty() || !self.is_plain(conn, spec) {
            return None;
        }
        let at = conn.small_path(
            None,
            self.cfg.policy == RailPolicy::Standby,
            self.local.full,
        )?;
        if !self.may_leave(now_ns, conn, at) {
            return None;
        }
        let path = &conn.paths[at];
        let mut writer = HeadWriter::new(out, path.datagram_max().min(UNKEPT_MAX));
        if path.acks.any() && !self.cfg.errs(Mutation::Overlook) {
            let (ack, count) = path.acks.peek_head(path.recv_code(), now_ns)?;
            writer.push_ack(&ack, count, |m| path.acks.mask(&ack, m));
        }
        let len = spec.len as usize;
        if !writer.fits(EAGER_LEN, len) {
            return None;
        }
        let mut head = head_of(spec);
        head.number = conn.tx.next_number as u32;
        head.flags |= self.cfg.sum_flag(spec.len);
        let frame = Frame::Eager(Eager {
            head,
            len: len as u16,
            sum: 0,
        });
        let slot = writer.push(&frame)?;
        let header = self.header(conn, at, 0);
        let (head_len, packet_len) = writer.finish(&header);
        let span = Span {
            handle: spec.handle,
            offset: 0,
            len: len as u32,
            sum_at: slot.sum_at,
            payload_at: slot.payload_at + head_len as u32,
            seed: sum_seed(self.local.id, head.number, false, 0, len),
            summed: self.cfg.sum_flag(spec.len) == 0,
        };
        let lens = (head_len, packet_len);
        Some((conn.transmit(at, header.algorithm, lens), span))
    }

    /// True if the message is all there is to send to its peer, except acks.
    #[inline]
    fn is_plain(&self, conn: &Conn, spec: &SendSpec) -> bool {
        let spoken = conn.session.hello_acked
            && !conn.session.own
            && !conn.session.is_over()
            && conn.bye.said == 0;
        let short =
            spec.len <= self.cfg.eager_max && self.cfg.undivided(spec.len) && !spec.urgent_ack;
        let credit = conn.credit.allows(spec.len) && !self.cfg.errs(Mutation::IgnoreCredit);
        spoken && short && credit && self.cfg.reliable && !conn.has_work()
    }

    /// True if a short packet may leave on path `at`, and nothing else is due on this path or
    /// another.
    #[inline]
    fn may_leave(&self, now: u64, conn: &Conn, at: usize) -> bool {
        let path = &conn.paths[at];
        let room = path.window_has_room();
        let other = |(i, p): (usize, &Path)| i == at || p.healthy() || !p.acks.any();
        room && path.healthy()
            && !path.policy.native
            && path.probing.quiet() < QUIET_MAX
            && !conn.due_ack(now, self.cfg.ack_delay_ns)
            && conn.paths.iter().enumerate().all(other)
    }
}
