//! Direct writes, on rails that have them (see `marline_rails::RemoteWrites::Direct`).
//!
//! The bytes are summed either before they leave or after the kernel has read them. Machines differ
//! in which is faster, so both are timed and the faster is used (`memory/autotune.rs`,
//! docs/design/direct-writes.md). If the bytes are summed before, the write's notification goes in
//! front of its own bytes. Otherwise it goes in front of the next write's bytes or, if there is no
//! next write, follows its own.

use crate::core::Core;
use crate::platform::system::System;
use crate::state::write::{direct_datagrams, pieces_of, PendingWrite, ToWrite, WriteNotification};
use marline_proto::DIRECT_PACKET_MAX;
use marline_rails::{DirectWrite, LinkId, RailTx, SendOutcome, Write};

impl<S: System> Core<S> {
    /// Sends the pending direct write with its checksum. If the checksum comes later, holds the
    /// notification back.
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
        if (own || self.leaves_apart(rail, (link, flow))) && !self.send_notification(now, rail) {
            return SendOutcome::Busy;
        }
        let op = self.ops.sends.get(write.handle);
        let Some(op) = op.filter(|op| op.ended.is_none()) else {
            // All bytes were acknowledged by other means, or the peer is dead.
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
        let before = match (own, &state.notification) {
            (true, _) => &packet[..],
            (false, Some(notification)) => &notification.packet,
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
                let notification = WriteNotification { packet, link, flow };
                self.keep_notification(rail, own, notification);
            }
            _ => {} // the write and its notification are lost
        }
        self.end_write(write.handle);
        outcome
    }

    /// Notes that a notification left with its own bytes (`own`), or holds it back for the next
    /// write.
    fn keep_notification(&mut self, rail: usize, own: bool, notification: WriteNotification) {
        let notification = match own {
            true => Some(notification),
            false => self.rails[rail].notification.replace(notification),
        };
        if let Some(notification) = notification {
            self.rails.reuse(notification.packet);
        }
    }

    /// Returns whether to sum the write before it leaves, and whether to time this.
    fn sums_first(&mut self, to_write: &ToWrite) -> (bool, bool) {
        if to_write.summed.is_some() {
            return (true, false); // a full queue delayed it after it was summed
        }
        self.rails.sum_first.next()
    }

    /// True if the last write's notification cannot precede this write's bytes.
    fn leaves_apart(&self, rail: usize, way: (LinkId, u8)) -> bool {
        let notification = self.rails[rail].notification.as_ref();
        notification.is_some_and(|notification| {
            let same_way = (notification.link, notification.flow) == way;
            !same_way || notification.packet.len() > DIRECT_PACKET_MAX
        })
    }

    /// Sends the held-back notification of a rail's last direct write; `false`: the queue is full.
    pub(crate) fn send_notification(&mut self, now: u64, rail: usize) -> bool {
        let Some(notification) = self.rails[rail].notification.take() else {
            return true;
        };
        let state = &mut self.rails[rail];
        let len = notification.packet.len();
        let outcome = state.tx.send(
            notification.link,
            &notification.packet,
            len,
            notification.flow,
        );
        if outcome == SendOutcome::Busy {
            state.notification = Some(notification);
            return false;
        }
        state.counters.send_calls += 1;
        state.counters.wire_packets_sent += 1;
        self.after_send(now, rail, notification.link, outcome);
        self.rails.reuse(notification.packet);
        true
    }

    /// Notifies the nodes when a rail turns out to accept fewer datagrams per direct write, or
    /// none.
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

    /// Sends the remaining notifications.
    pub(crate) fn send_notifications(&mut self, now: u64) {
        for rail in 0..self.rails.len() {
            let waits = self.rails[rail].backpressure.is_some();
            if !waits && !self.send_notification(now, rail) {
                self.no_room(now, rail, None);
            }
        }
    }
}
