//! Direct writes, on rails that can (see `marline_rails::RemoteWrites::Direct`).
//!
//! The bytes may be summed before they leave or after the kernel has read them. Machines differ in
//! which is faster, so both are timed and the faster is kept (`memory/autotune.rs`,
//! docs/design/direct-writes.md). The packet that announces a write goes in front of its own bytes
//! if they are summed before; else in front of the next write's, or, when there is none, after
//! them.

use crate::platform::system::System;
use crate::state::core::Core;
use crate::state::write::{direct_datagrams, pieces_of, PendingWrite, ToWrite, WriteNotice};
use marline_proto::DIRECT_PACKET_MAX;
use marline_rails::{DirectWrite, LinkId, RailTx, SendOutcome, Write};

impl<S: System> Core<S> {
    /// Writes what is pending, sums it, and keeps the packet that tells of it.
    pub(crate) fn write_direct(
        &mut self,
        now: u64,
        rail: usize,
        (link, flow): (LinkId, u8),
        packet: &mut Vec<u8>,
        write: &mut PendingWrite,
    ) -> SendOutcome {
        let Some(mut to_write) = write.direct else {
            return SendOutcome::Sent;
        };
        let (first, wanted) = self.sums_first(&to_write);
        let own = first && packet.len() <= DIRECT_PACKET_MAX;
        if (own || self.leaves_apart(rail, (link, flow))) && !self.send_notice(now, rail) {
            return SendOutcome::Busy;
        }
        let op = self.ops.sends.get(write.handle);
        let Some(op) = op.filter(|op| op.ended.is_none()) else {
            // All of it arrived otherwise, or nobody is there any more.
            self.end_write(write.handle);
            return SendOutcome::Sent;
        };
        let mut pieces = std::mem::take(&mut self.rails.pieces);
        pieces_of(&op.pieces, write, &mut pieces);
        let posted = Write {
            key: write.key,
            offset: write.offset,
            pieces: &pieces,
            token: 0,
            source: None,
        };
        let range = (write.offset, write.len);
        let begun_ns = wanted.then(S::stopwatch_ns);
        if first {
            let sum = to_write.sum_early(&mut self.rails.sums, &op.pieces, range);
            to_write.seal(packet, sum);
        }
        let state = &mut self.rails.list[rail];
        let before = match (own, &state.notice) {
            (true, _) => &packet[..],
            (false, Some(told)) => &told.packet,
            (false, None) => &[],
        };
        let segment = to_write.segment;
        let outcome = (state.tx).write_direct(link, &posted, before, segment, flow);
        pieces.clear();
        self.rails.pieces = pieces;
        match outcome {
            SendOutcome::Busy => {
                write.direct = Some(to_write);
                return outcome;
            }
            SendOutcome::Sent => {
                let mut packet = std::mem::take(packet);
                if !first {
                    to_write.seal(&mut packet, to_write.sum(&op.pieces, range, false));
                }
                if let Some(begun_ns) = begun_ns {
                    let took_ns = S::stopwatch_ns() - begun_ns;
                    let ns_per_kib = took_ns * 1024 / write.len.max(1) as u64;
                    self.rails.sum_first.cost(first, ns_per_kib);
                }
                let notice = WriteNotice { packet, link, flow };
                self.keep_notice(rail, own, notice);
            }
            _ => {} // the write is lost, and with it the packet
        }
        self.end_write(write.handle);
        outcome
    }

    /// The packet that tells of a write left with its bytes (`own`), or goes with the next write's.
    fn keep_notice(&mut self, rail: usize, own: bool, notice: WriteNotice) {
        let told = match own {
            true => Some(notice),
            false => self.rails[rail].notice.replace(notice),
        };
        if let Some(told) = told {
            self.rails.reuse(told.packet);
        }
    }

    /// Two answers: the sum of a write is made before it leaves; the time that both take is wanted.
    fn sums_first(&mut self, to_write: &ToWrite) -> (bool, bool) {
        if to_write.summed.is_some() {
            return (true, false); // it had no room when it was to leave before
        }
        self.rails.sum_first.next()
    }

    /// The packet that announces the last write cannot go in front of this one's bytes.
    fn leaves_apart(&self, rail: usize, way: (LinkId, u8)) -> bool {
        let notice = self.rails[rail].notice.as_ref();
        notice.is_some_and(|notice| {
            let same_way = (notice.link, notice.flow) == way;
            !same_way || notice.packet.len() > DIRECT_PACKET_MAX
        })
    }

    /// Sends the packet that tells of a rail's last direct write; `false`: no room now.
    pub(crate) fn send_notice(&mut self, now: u64, rail: usize) -> bool {
        let Some(told) = self.rails[rail].notice.take() else {
            return true;
        };
        let state = &mut self.rails[rail];
        let len = told.packet.len();
        let outcome = state.tx.send(told.link, &told.packet, len, told.flow);
        if outcome == SendOutcome::Busy {
            state.notice = Some(told);
            return false;
        }
        state.counters.send_calls += 1;
        state.counters.wire_packets_sent += 1;
        self.after_send(now, rail, told.link, outcome);
        self.rails.reuse(told.packet);
        true
    }

    /// Tells the nodes when a rail turns out to take less than it said, or nothing any more.
    pub(crate) fn watch_direct(&mut self, rail: usize) {
        let state = &mut self.rails[rail];
        let datagrams = direct_datagrams(&state.tx.caps());
        if datagrams != state.direct_datagrams {
            state.direct_datagrams = datagrams;
            for node in self.dir.nodes() {
                node.limit_direct(rail, datagrams);
            }
        }
    }

    /// Sends what is left of such packets.
    pub(crate) fn send_notices(&mut self, now: u64) {
        for rail in 0..self.rails.len() {
            let waits = self.rails[rail].backpressure.is_some();
            if !waits && !self.send_notice(now, rail) {
                self.no_room(now, rail, None);
            }
        }
    }
}
