//! Incoming bulk: packets of one batch that continue a fragment of a long message, each with just
//! the next fragment. They differ from the packet before in number and offset only
//! ([`FragmentHead`]), so their heads are compared instead of parsed, payloads are placed one by
//! one, and the bookkeeping is done once for the run. Any other packet ends the run.

use crate::base::config::Config;
use crate::base::mutation::Mutation;
use crate::base::slab::Key;
use crate::base::types::{sum_seed, sums_of, Landing, Memory, Payload};
use crate::incoming::messages::Incoming;
use crate::incoming::put_placement::show_payload;
use crate::state::conn::Conn;
use crate::state::context::Context;
use crate::state::transfer::InboundState;
use marline_wire::{
    Data, FragmentHead, Frame, Header, Packet, BLOCK_BYTES, FLAG_READ_REPLY, FRAGMENT_HEAD_LEN,
    FRAGMENT_SUM_AT,
};

/// Required form of the next packets of a run.
pub(crate) struct Expected {
    /// Key of the inbound message, and index of the path.
    key: Key,
    pub(crate) at: usize,
    head: FragmentHead,
    header: Header,
    /// The frame of the packet before.
    data: Data,
    /// Fragments that are granted and missing, up to the end of the message.
    most: u64,
}

impl Expected {
    /// Payload bytes of each packet.
    pub(crate) fn fragment(&self) -> u64 {
        self.data.len as u64
    }

    /// True if the packets request acks.
    pub(crate) fn is_eliciting(&self) -> bool {
        !self.head.is_native()
    }
}

impl Incoming {
    /// Describes the packets that may continue the run; `None`: no run is possible.
    pub(crate) fn expect_run(
        &self,
        cfg: &Config,
        conn: &Conn,
        first: &Packet<'_>,
        after: &[u8],
    ) -> Option<Expected> {
        let head = first.fragment_head()?;
        let Some((Frame::Data(data), _)) = first.frames().next() else {
            return None;
        };
        let (header, len) = (first.header, data.len as u64);
        let number = header.number.checked_add(1)?;
        let next = data.offset.checked_add(len)?;
        let segment = cfg.fragment_head_len() + data.len as usize;
        // Only a message's last fragment ends within a block.
        let whole = len > 0 && len % BLOCK_BYTES == 0;
        if !whole || !head.leads(after, number, next) {
            return None;
        }
        let at = conn.path_by_send_code(header.path.swap_bytes())?;
        // The run starts at the highest number so far: its numbers are new and within the window.
        // (In native mode packets are counted only where a replay is possible.)
        let counted = cfg.reliable || cfg.key_mark != 0;
        if counted && conn.paths[at].acks.end() != number {
            return None;
        }
        let &key = match data.flags & FLAG_READ_REPLY {
            0 => conn.rx.inbound.get(&conn.rx.expand(data.number)),
            _ => conn.rx.pending_reads.get(&data.number),
        }?;
        let inbound = self.inbounds.get(key)?;
        let end = match inbound.rendezvous {
            true => inbound.granted.min(inbound.total),
            false => inbound.total,
        };
        let end = match inbound.is_visible() {
            true => end.min(inbound.end_at()),
            false => end,
        };
        let room = end.saturating_sub(next) / len;
        let blocks = len / BLOCK_BYTES * room.min((after.len() / segment) as u64);
        let free = inbound.set.free_from(next / BLOCK_BYTES, blocks);
        let taken = inbound.total == data.total && inbound.state != InboundState::Refused;
        taken.then_some(Expected {
            key,
            at,
            head,
            header,
            data,
            most: free / (len / BLOCK_BYTES),
        })
    }

    /// Places the payloads of a run, up to the first packet that is not part of it.
    pub(crate) fn land_run(
        &self,
        cfg: &Config,
        expected: &Expected,
        after: &[u8],
        sealed: impl Fn(&[u8], &[u8]) -> bool,
        memory: &mut impl Memory,
    ) -> u64 {
        let Expected { header, data, .. } = expected;
        let Some(inbound) = self.inbounds.get(expected.key) else {
            return 0;
        };
        let len = data.len as usize;
        let algorithm = sums_of(header.algorithm, data.flags);
        let reply = data.flags & FLAG_READ_REPLY != 0;
        let trusts = cfg.errs(Mutation::IgnoreSum) || cfg.errs(Mutation::TrustRuns);
        let datagrams = after.chunks_exact(cfg.fragment_head_len() + len);
        let (mut taken, mut offset) = (0, data.offset);
        for datagram in datagrams.take(expected.most as usize) {
            offset += len as u64;
            let (packet_head, bytes) = datagram.split_at(FRAGMENT_HEAD_LEN);
            let (bytes, tag) = bytes.split_at(len);
            let number = header.number + 1 + taken;
            let whole =
                expected.head.leads(packet_head, number, offset) && sealed(packet_head, tag);
            let mut sum = [0; 8];
            sum.copy_from_slice(&packet_head[FRAGMENT_SUM_AT..]);
            let payload = Payload {
                bytes,
                sum: u64::from_le_bytes(sum),
                seed: sum_seed(header.src_id, data.number, reply, offset, len),
                algorithm,
                // No byte of this range is stored yet, so the payload may be summed while it is
                // copied.
                verify_first: false,
            };
            let landing = inbound.landing(expected.key, offset, len as u64);
            let mut landed = || match inbound.is_visible() {
                true => show_payload(cfg, &landing, &payload, memory),
                false => memory.land(&landing, &payload),
            };
            if !(whole && (landed() || trusts)) {
                break;
            }
            taken += 1;
        }
        taken
    }

    /// Records that the payloads of the next `taken` packets are in place.
    pub(crate) fn commit_run(
        &mut self,
        ctx: &mut Context<'_>,
        now: u64,
        expected: &Expected,
        taken: u64,
    ) {
        let (key, len) = (expected.key, expected.fragment());
        let next = expected.data.offset + len;
        if let Some(inbound) = self.inbounds.get_mut(key) {
            let landing = inbound.landing(key, next, len);
            inbound.bounced |= matches!(landing, Landing::Bounce { .. });
        }
        let bytes = taken * len;
        self.commit(
            ctx,
            now,
            key,
            next / BLOCK_BYTES,
            bytes / BLOCK_BYTES,
            bytes,
        );
    }
}
