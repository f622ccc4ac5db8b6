//! Sends packets: nodes build batches, the engine fills them and passes them to rails.

use crate::core::remote_read::fill_offer;
use crate::core::Core;
use crate::memory::pack::{fill, fill_run, head_of};
use crate::platform::system::System;
use crate::state::rails::link_of;
use marline_proto::Transmit;
use marline_rails::{LinkId, RailTx, SendOutcome, TxBuffers};

/// Interval between attempts after a rail's error that no link event explains.
const RETRY_NS: u64 = 100_000_000;

/// Most packets of the first one's length in a batch of the rail.
#[inline]
fn batch_max(tx: &impl RailTx, first: &Transmit) -> usize {
    if !first.batch.bulk {
        return 1;
    }
    let caps = tx.caps();
    caps.batch_segments_max
        .min(caps.batch_bytes_max / first.len.max(1))
}

impl<S: System> Core<S> {
    /// Sends all packets that may leave.
    pub fn flush(&mut self, now: u64) {
        if self.poisoned {
            return; // memory of pending sends may be freed
        }
        if self.rails.full_mask != 0 {
            self.send_pending(now);
        }
        self.deferred = false;
        self.coalescer.flushed();
        for index in 0..self.dir.eps.len() {
            while self.flush_batch(now, index) {}
        }
        self.flush_groups(now);
        self.send_notifications(now);
        if self.cfg.proto.reliable {
            return;
        }
        self.settle();
    }

    /// Builds and sends one batch of an endpoint; `false`: no packet is left for a rail with room.
    fn flush_batch(&mut self, now: u64, index: usize) -> bool {
        self.settle_links(now, index);
        let Some(endpoint) = self.dir.eps[index].as_mut() else {
            return false;
        };
        endpoint.node.set_full(self.rails.full_mask);
        let Some((at, mut buffer)) = self.rails.build_buffer() else {
            endpoint.node.stall();
            return false;
        };
        let (stage, spans) = (
            self.rails.list[at].tx.buffer(buffer),
            &mut self.buffers.spans,
        );
        let Some(first) = endpoint.node.build(now, stage, spans, None) else {
            return false;
        };
        if first.rail != at {
            let Some(other) = self.rails.move_head((at, buffer), &first) else {
                self.batch_sent(now, index, &first, (1, first.len), SendOutcome::Sent); // lost
                return true;
            };
            buffer = other;
        }
        fill_offer(&mut endpoint.node, &mut self.rails, &self.ops.sends, &first);
        let rail = &mut self.rails.list[first.rail];
        let stage = rail.tx.buffer(buffer);
        if first.written {
            self.send_written(now, index, &first);
            return true;
        }
        let spans = &self.buffers.spans;
        fill(&mut stage[..first.len], &first, spans, &self.ops.sends);
        let (segment, mut model) = (first.len, head_of(stage, &first));
        let most = batch_max(&rail.tx, &first);
        let stage = rail.tx.buffer(buffer);
        let (mut count, mut short, mut whole) = (1, 0, first.batch.bulk);
        while whole && count < most {
            let node = &mut endpoint.node;
            let out = &mut stage[count * segment..];
            if let Some(model) = model.take() {
                let run = node.continue_bulk(now, &first.batch, &model, out, most - count);
                if let Some(run) = run {
                    fill_run(out, &run, segment, first.algorithm, &self.ops.sends);
                    count += run.packets;
                    continue;
                }
            }
            let (out, spans) = (&mut out[..segment], &mut self.buffers.spans);
            let Some(next) = node.poll_transmit(now, out, spans, Some(&first.batch)) else {
                break;
            };
            fill(&mut out[..next.len], &next, spans, &self.ops.sends);
            model = head_of(out, &next);
            (short, count) = (segment - next.len, count + 1);
            whole = short == 0;
        }
        let len = count * segment - short;
        // In order: the notification of a direct write before packets built after it.
        let outcome = match self.send_notification(now, first.rail) {
            true => self.rails[first.rail].send_built(&first, len),
            false => SendOutcome::Busy,
        };
        self.batch_sent(now, index, &first, (count, len), outcome);
        true
    }

    /// Handles the rail's result for a batch.
    fn batch_sent(
        &mut self,
        now: u64,
        index: usize,
        first: &Transmit,
        (count, len): (usize, usize),
        outcome: SendOutcome,
    ) {
        if let Some(endpoint) = self.dir.eps[index].as_mut() {
            endpoint.node.sent(now);
        }
        let rail = &mut self.rails[first.rail];
        rail.counters.send_calls += 1;
        rail.counters.wire_packets_sent += count as u64;
        rail.counters.wire_bytes_sent += len as u64;
        if outcome == SendOutcome::Busy {
            rail.counters.busy += 1;
            let batch = rail.keep_built(first, len);
            return self.no_room(now, first.rail, batch);
        }
        if rail.buffer.is_none() {
            self.no_room(now, first.rail, None); // the device still reads all buffers
        }
        self.after_send(now, first.rail, link_of(first.dest).0, outcome);
    }

    pub(crate) fn after_send(&mut self, now: u64, rail: usize, link: LinkId, outcome: SendOutcome) {
        match outcome {
            SendOutcome::Sent | SendOutcome::Busy => {}
            SendOutcome::TooBig(max) => {
                for node in self.dir.nodes() {
                    node.on_too_big(now, rail, link.0, max);
                }
            }
            SendOutcome::Fault(_) => {
                self.rails[rail].counters.errors += 1;
                self.rails[rail].retry_at = Some(now + RETRY_NS);
                self.set_rail(now, rail, false);
            }
        }
    }
}
