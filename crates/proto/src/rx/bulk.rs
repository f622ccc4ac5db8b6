//! Incoming bulk: the packets of a batch that continue a fragment of a long message, each with only
//! the next fragment. They differ from their predecessor in number and offset only
//! ([`FragmentHead`]), so heads are compared, payloads are placed one by one, and the bookkeeping
//! is done once for all. Any other packet ends the run and is handled by `handle_packet`.

use crate::base::mutation::Mutation;
use crate::base::slab::Key;
use crate::base::types::{sum_seed, Landing, Memory, Payload, PeerId};
use crate::node::Node;
use marline_wire::{
    Data, FragmentHead, Frame, Header, Packet, BLOCK_BYTES, FLAG_READ_REPLY, FRAGMENT_HEAD_LEN,
    FRAGMENT_SUM_AT,
};

/// Required form of the next packets of a run.
struct Expected {
    /// Key of the inbound message, and index of the path.
    key: Key,
    at: usize,
    head: FragmentHead,
    header: Header,
    /// The frame of the packet before.
    data: Data,
    /// Fragments that are granted, missing, and in the message.
    most: u64,
}

impl Node {
    /// Takes the packets that continue `first`, which `peer` sent and `handle_packet` has just
    /// taken; returns how many. `after`: the datagrams after it, each as long as `first` (the last
    /// may be shorter). The caller passes the rest to `handle_packet`: other packets, or corrupted
    /// ones.
    pub fn handle_run(
        &mut self,
        now_ns: u64,
        peer: PeerId,
        first: &Packet<'_>,
        after: &[u8],
        crc32c: impl Fn(&[u8]) -> u32,
        memory: &mut impl Memory,
    ) -> usize {
        let Some(expected) = self.expect_run(peer, first, after) else {
            return 0;
        };
        let taken = self.land_run(&expected, after, crc32c, memory);
        if taken > 0 {
            self.commit_run(now_ns, peer, &expected, taken);
        }
        taken as usize
    }

    /// Describes the packets that must follow; `None`: no run is possible.
    fn expect_run(&self, peer: PeerId, first: &Packet<'_>, after: &[u8]) -> Option<Expected> {
        let head = first.fragment_head()?;
        let Some((Frame::Data(data), _)) = first.frames().next() else {
            return None;
        };
        let (header, len) = (first.header, data.len as u64);
        let number = header.number.checked_add(1)?;
        let next = data.offset.checked_add(len)?;
        let segment = FRAGMENT_HEAD_LEN + data.len as usize;
        // Only a message's last fragment ends within a block.
        let whole = len > 0 && len % BLOCK_BYTES == 0;
        if !whole || !head.leads(after, number, next) {
            return None;
        }
        let conn = self.conn(peer)?;
        let at = conn.path_by_send_code(header.path.swap_bytes())?;
        // Then the next numbers are new and in range. (Native mode does not count.)
        if self.cfg.reliable && conn.paths[at].acks.end() != number {
            return None;
        }
        let &key = match data.flags & FLAG_READ_REPLY {
            0 => conn.rx.inbound.get(&conn.rx.expand(data.number)),
            _ => conn.rx.pending_reads.get(&data.number),
        }?;
        let inbound = self.ops.inbounds.get(key)?;
        let end = match inbound.rendezvous {
            true if inbound.is_put() => inbound.granted.min(inbound.end_at()),
            true => inbound.granted.min(inbound.total),
            false => inbound.total,
        };
        let room = end.saturating_sub(next) / len;
        let blocks = len / BLOCK_BYTES * room.min((after.len() / segment) as u64);
        let free = inbound.set.free_from(next / BLOCK_BYTES, blocks);
        (inbound.total == data.total).then_some(Expected {
            key,
            at,
            head,
            header,
            data,
            most: free / (len / BLOCK_BYTES),
        })
    }

    /// Places the payloads of a run, up to the first packet that is not part of it.
    fn land_run(
        &self,
        expected: &Expected,
        after: &[u8],
        crc32c: impl Fn(&[u8]) -> u32,
        memory: &mut impl Memory,
    ) -> u64 {
        let Expected { header, data, .. } = expected;
        let Some(inbound) = self.ops.inbounds.get(expected.key) else {
            return 0;
        };
        let len = data.len as usize;
        let algorithm = crate::base::types::sums_of(header.algorithm, data.flags);
        let reply = data.flags & FLAG_READ_REPLY != 0;
        let trusts = self.cfg.errs(Mutation::IgnoreSum) || self.cfg.errs(Mutation::TrustRuns);
        let datagrams = after.chunks_exact(FRAGMENT_HEAD_LEN + len);
        let (mut taken, mut offset) = (0, data.offset);
        for datagram in datagrams.take(expected.most as usize) {
            offset += len as u64;
            let (packet_head, bytes) = datagram.split_at(FRAGMENT_HEAD_LEN);
            let number = header.number + 1 + taken;
            let whole = expected.head.leads(packet_head, number, offset)
                && crc32c(&packet_head[4..]).to_le_bytes() == packet_head[..4];
            let mut sum = [0; 8];
            sum.copy_from_slice(&packet_head[FRAGMENT_SUM_AT..]);
            let payload = Payload {
                bytes,
                sum: u64::from_le_bytes(sum),
                seed: sum_seed(header.src_id, data.number, reply, offset, len),
                algorithm,
                // No byte of the range is there yet.
                verify_first: false,
            };
            let landing = inbound.landing(expected.key, offset, len as u64);
            let mut landed = || match inbound.is_put() {
                true => self.show_payload(&landing, &payload, memory),
                false => memory.land(&landing, &payload),
            };
            if !(whole && (landed() || trusts)) {
                break;
            }
            taken += 1;
        }
        taken
    }

    /// Records that the next `taken` packets arrived and are in place: the work of `handle_packet`
    /// for each, where it is not done already for the first.
    fn commit_run(&mut self, now: u64, peer: PeerId, expected: &Expected, taken: u64) {
        let (key, len) = (expected.key, expected.data.len as u64);
        let next = expected.data.offset + len;
        if let Some(inbound) = self.ops.inbounds.get_mut(key) {
            let landing = inbound.landing(key, next, len);
            inbound.bounced |= matches!(landing, Landing::Bounce { .. });
        }
        let bytes = taken * len;
        self.commit(now, key, next / BLOCK_BYTES, bytes / BLOCK_BYTES, bytes);
        let (reliable, every) = (self.cfg.reliable, self.cfg.ack_every);
        let Some(conn) = self.conn_mut(peer) else {
            return;
        };
        let path = &mut conn.paths[expected.at];
        path.stats.packets_received += taken;
        path.stats.bytes_received += taken * (FRAGMENT_HEAD_LEN as u64 + len);
        if !reliable {
            return self.touch(peer, now);
        }
        let eliciting = !expected.head.is_native();
        path.acks.on_run(taken as u32, eliciting, now);
        if path.acks.fresh() >= every {
            path.acks.hurry();
            self.wake(peer);
        }
        self.touch(peer, now);
    }
}
