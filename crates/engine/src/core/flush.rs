//! Sends packets: nodes build batches, the engine fills them and passes them to rails.

use crate::core::remote_read::fill_advertisement;
use crate::core::Core;
use crate::memory::pack::{fill, fill_run, head_of};
use crate::memory::tags::keys_to;
use crate::platform::system::System;
use crate::state::rails::link_of;
use marline_auth::PacketKeys;
use marline_proto::Transmit;
use marline_rails::{BufId, LinkId, RailTx, SendOutcome, TxBuffers};

/// Interval between attempts after a rail's error, unless a link event explains the error.
const RETRY_NS: u64 = 100_000_000;

/// A batch in a rail's build buffer.
struct Built {
    first: Transmit,
    buffer: BufId,
    packets: usize,
    len: usize,
    /// Keys of the packets, if the packets have tags.
    keys: Option<PacketKeys>,
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
            while let Some(built) = self.build_batch(now, index) {
                let (first, len) = (&built.first, built.len);
                let mut outcome = SendOutcome::Busy;
                // In order: a direct write's notification before packets that were built after the
                // write.
                if self.send_notification(now, first.rail) {
                    let (link, flow) = link_of(first.dest);
                    let rail = &mut self.rails[first.rail];
                    outcome = (rail.tx).send_buffer(link, built.buffer, len, first.len, flow);
                    if outcome != SendOutcome::Busy {
                        rail.buffer = rail.tx.lend();
                    }
                }
                self.batch_sent(now, index, &built, outcome);
            }
        }
        self.flush_groups(now);
        self.send_notifications(now);
        if self.cfg.proto.reliable {
            return;
        }
        self.settle();
    }

    /// Builds and fills the next batch of an endpoint; a write leaves at once. `None`: no packet is
    /// left for a rail with room.
    fn build_batch(&mut self, now: u64, index: usize) -> Option<Built> {
        loop {
            self.settle_links(now, index);
            let endpoint = self.dir.eps[index].as_mut()?;
            let node = &mut endpoint.node;
            node.set_full(self.rails.full_mask);
            let Some((at, mut buffer)) = self.rails.build_buffer() else {
                node.stall();
                return None;
            };
            let stage = self.rails.list[at].tx.buffer(buffer);
            let first = node.build(now, stage, &mut self.buffers.spans, None)?;
            let (packets, len) = (1, first.len);
            if first.rail != at {
                let Some(other) = self.rails.move_head((at, buffer), &first) else {
                    let lost = Built {
                        first,
                        buffer,
                        packets,
                        len,
                        keys: None,
                    };
                    self.batch_sent(now, index, &lost, SendOutcome::Sent);
                    continue;
                };
                buffer = other;
            }
            let stage = &self.rails.list[first.rail].tx.buffer(buffer)[..len];
            let keys = keys_to(&mut endpoint.keys, first.batch.peer, stage);
            let rails = &mut self.rails;
            fill_advertisement(node, rails, &self.ops.sends, &first, keys.as_ref());
            if first.written {
                self.send_written(now, (index, keys), &first);
                continue;
            }
            let stage = &mut self.rails.list[first.rail].tx.buffer(buffer)[..len];
            let (spans, sends) = (&self.buffers.spans, &self.ops.sends);
            fill(stage, &first, spans, sends, keys.as_ref());
            let built = Built {
                first,
                buffer,
                packets,
                len,
                keys,
            };
            return Some(match first.batch.bulk {
                true => self.extend_batch(now, index, built),
                false => built,
            });
        }
    }

    /// Adds packets of the first packet's length to a bulk batch, as many as the rail takes in one
    /// call. A shorter packet ends the batch.
    fn extend_batch(&mut self, now: u64, index: usize, mut built: Built) -> Built {
        let (first, segment) = (built.first, built.first.len);
        let keys = built.keys;
        let keys = keys.as_ref();
        let Some(endpoint) = self.dir.eps[index].as_mut() else {
            return built;
        };
        let (node, tx) = (&mut endpoint.node, &mut self.rails.list[first.rail].tx);
        let caps = tx.caps();
        let by_bytes = caps.batch_bytes_max / segment.max(1);
        let most = caps.batch_segments_max.min(by_bytes);
        let stage = tx.buffer(built.buffer);
        let mut model = head_of(stage, &first);
        while built.packets < most && built.len == built.packets * segment {
            let out = &mut stage[built.len..];
            if let Some(model) = model.take() {
                let more = most - built.packets;
                if let Some(run) = node.continue_bulk(now, &first.batch, &model, out, more) {
                    fill_run(out, &run, segment, first.algorithm, &self.ops.sends, keys);
                    built.packets += run.packets;
                    built.len += run.packets * segment;
                    continue;
                }
            }
            let (out, spans) = (&mut out[..segment], &mut self.buffers.spans);
            let Some(next) = node.poll_transmit(now, out, spans, Some(&first.batch)) else {
                break;
            };
            fill(&mut out[..next.len], &next, spans, &self.ops.sends, keys);
            model = head_of(out, &next);
            built.packets += 1;
            built.len += next.len;
        }
        built
    }

    /// Handles the rail's result for a batch.
    fn batch_sent(&mut self, now: u64, index: usize, built: &Built, outcome: SendOutcome) {
        if let Some(endpoint) = self.dir.eps[index].as_mut() {
            endpoint.node.sent(now);
        }
        let (first, len) = (&built.first, built.len);
        let rail = &mut self.rails[first.rail];
        rail.counters.send_calls += 1;
        rail.counters.wire_packets_sent += built.packets as u64;
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
