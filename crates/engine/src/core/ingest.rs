//! Received packets: from the rails to the nodes of their endpoints.

use crate::core::unpack::EngineMemory;
use crate::core::Core;
use crate::memory::tags::direction_of;
use crate::platform::system::{System, Watch};
use marline_auth::HeadKeys;
use marline_checksum::crc32c;
use marline_proto::{DropReason, Mutation};
use marline_rails::{RailTx, Received};
use marline_wire::{
    GroupPacket, Header, Packet, ParseError, Question, DIRECT_HEAD_LEN, HEADER_LEN,
};

/// Length up to which a buffer holds one packet: two headers are the shortest batch.
const GRO_MIN: usize = 2 * HEADER_LEN - 1;
/// Least bytes of a direct write's first datagram before its data.
const HEAD_LINE: usize = 64;
/// Time within which late fragments of a direct write follow its beginning.
const LATE_FRAGMENTS_NS: u64 = 10_000_000;

impl<S: System> Core<S> {
    /// Processes received bytes: one datagram or a batch of equal ones.
    pub fn ingest(&mut self, now: u64, rail: usize, received: &Received<'_>) {
        if received.missing > 0 || received.beside > 0 {
            self.count_written(now, rail, received);
        }
        let (segment, mut first) = self.segment_of(rail, received);
        let mut rest = received.bytes;
        while !rest.is_empty() {
            let (datagram, after) = rest.split_at(segment.clamp(1, rest.len()));
            rest = after;
            let counters = &mut self.rails[rail].counters;
            counters.wire_packets_received += 1;
            counters.wire_bytes_received += datagram.len() as u64;
            let parsed = first.take();
            if parsed.is_none() && GroupPacket::claimed(datagram) {
                let more = self.ingest_group(now, rail, datagram, after);
                rest = &after[more * datagram.len()..];
                continue;
            }
            if parsed.is_none() && Question::claimed(datagram) && self.say_who(now, rail, datagram)
            {
                continue;
            }
            let Some(packet) = parsed.or_else(|| self.parse(now, rail, datagram, after)) else {
                continue;
            };
            let dst = packet.header.dst_id;
            let Some(&(_, ep)) = self.dir.by_id.iter().find(|(id, _)| *id == dst) else {
                self.rails[rail].counters.wrong_token += 1;
                continue;
            };
            if !self.is_admitted(now, rail, ep, &packet) {
                continue;
            }
            let Some(endpoint) = self.dir.eps[ep as usize].as_mut() else {
                continue;
            };
            let mut memory = EngineMemory {
                recvs: &self.ops.recvs,
                buffers: &mut self.buffers,
                rails: &mut self.rails,
                ep,
            };
            let node = &mut endpoint.node;
            let result = node.handle_packet(now, &packet, datagram.len(), &mut memory);
            self.watch.ingested(node, datagram, result);
            match result {
                // Only the last packet of a batch is short.
                Ok(peer) if !after.is_empty() && packet.wire_len() == datagram.len() => {
                    let sealed = seal_check(&endpoint.keys, &packet.header);
                    let more = node.handle_run(now, peer, &packet, after, sealed, &mut memory);
                    let (run, next) = after.split_at(more * datagram.len());
                    rest = next;
                    for datagram in run.chunks(datagram.len()) {
                        self.watch.ingested(node, datagram, result);
                    }
                    let counters = &mut self.rails[rail].counters;
                    counters.wire_packets_received += more as u64;
                    counters.wire_bytes_received += run.len() as u64;
                }
                Ok(_) => {}
                Err(reason) => self.count_dropped(rail, (ep, &packet.header), reason),
            }
        }
    }

    /// Counts the datagrams of a direct write, and notes those that are missing and may still come.
    #[inline(never)]
    fn count_written(&mut self, now: u64, rail: usize, received: &Received<'_>) {
        let rail = &mut self.rails[rail];
        if received.missing > 0 {
            rail.late_fragments = (received.missing, now + LATE_FRAGMENTS_NS);
        }
        if received.beside > 0 {
            // The first datagram has the packet, which is counted below, or at least a line of
            // head.
            let longest = rail.tx.caps().datagram_max.max(1);
            let datagrams = (received.beside + HEAD_LINE).div_ceil(longest);
            let below = usize::from(!received.bytes.is_empty());
            rail.counters.wire_packets_received += (datagrams - below) as u64;
            rail.counters.wire_bytes_received += received.beside as u64;
        }
    }

    #[cold]
    fn count_dropped(&mut self, rail: usize, (ep, header): (u32, &Header), reason: DropReason) {
        let counters = &mut self.rails[rail].counters;
        match reason {
            DropReason::Token => counters.wrong_token += 1,
            DropReason::Epoch => counters.wrong_epoch += 1,
            DropReason::Stranger | DropReason::Invalid => counters.unknown += 1,
            DropReason::Unadmitted => {
                counters.unadmitted += 1;
                // When the packet is sent again, its sender will be named.
                self.dir.name_inserted(ep, header.src_id);
            }
            DropReason::Algorithm => counters.wrong_algorithm += 1,
            _ => {}
        }
    }

    /// Length of the packets in received bytes; and the first packet, if finding the length has
    /// parsed it. If the first packet is damaged, the length of the last batch is assumed (a wrong
    /// guess only costs retransmissions).
    #[inline]
    fn segment_of<'a>(
        &mut self,
        rail: usize,
        received: &Received<'a>,
    ) -> (usize, Option<Packet<'a>>) {
        let bytes = received.bytes;
        // Usually one small datagram, since no batch is that short.
        if received.segment > 0 || bytes.len() <= GRO_MIN {
            let alone = received.segment == 0;
            return (if alone { bytes.len() } else { received.segment }, None);
        }
        if GroupPacket::claimed(bytes) {
            if let Ok(packet) = GroupPacket::parse(bytes, crc32c) {
                return (self.groups.segment_of(&packet, bytes.len()), None);
            }
        }
        if Question::claimed(bytes) {
            return (bytes.len(), None);
        }
        let first = Packet::parse(bytes, crc32c).ok().map(Packet::alone);
        let segment = &mut self.rails[rail].segment;
        if let Some(packet) = &first {
            *segment = packet.wire_len();
        }
        ((*segment).min(bytes.len()), first)
    }

    /// Parses a datagram, if its head is good, and counts it. `after` are the bytes after it in its
    /// batch.
    fn parse<'a>(
        &mut self,
        now: u64,
        rail: usize,
        datagram: &'a [u8],
        after: &[u8],
    ) -> Option<Packet<'a>> {
        let row = &mut self.rails[rail];
        let (left, until) = &mut row.late_fragments;
        let late_fragment = *left > 0 && now <= *until;
        let counters = &mut row.counters;
        match Packet::parse(datagram, crc32c) {
            Ok(packet) => return Some(packet),
            Err(_) if late_fragment => {
                *left = left.saturating_sub(datagram.len());
                counters.torn += 1;
            }
            Err(ParseError::Truncated) => counters.truncated += 1,
            Err(ParseError::Version) => counters.wrong_version += 1,
            Err(ParseError::HeadCrc) if self.cfg.proto.errs(Mutation::TrustHeads) => {
                let claimed = datagram.first_chunk().map_or(0, |c| u32::from_le_bytes(*c));
                return Packet::parse(datagram, |_| claimed).ok();
            }
            Err(ParseError::HeadCrc) => self.on_bad_head(now, rail, datagram, after),
            Err(ParseError::Malformed) => counters.unknown += 1,
        }
        None
    }

    /// Counts a damaged packet if the datagram's head has an id of ours. Or counts a direct write
    /// with a damaged head, if a head of ours follows that head: the bytes `after` the datagram are
    /// then its data. Ignores other datagrams as foreign, since they say nothing about the rail.
    fn on_bad_head(&mut self, now: u64, rail: usize, datagram: &[u8], after: &[u8]) {
        let mut is_ours = |head: &[u8]| {
            let mut ours = false;
            for node in self.dir.nodes() {
                ours |= node.on_bad_head(head);
            }
            ours
        };
        let packet = is_ours(datagram);
        // If the first datagram was cut at a wrong length, it may end before that head.
        let mut second = [0; HEADER_LEN];
        let behind = datagram.iter().chain(after).skip(DIRECT_HEAD_LEN);
        second
            .iter_mut()
            .zip(behind)
            .for_each(|(to, from)| *to = *from);
        let written = !packet && is_ours(&second);
        let rail = &mut self.rails[rail];
        match packet || written {
            true => rail.counters.corrupt_heads += 1,
            false => rail.counters.unknown += 1,
        }
        if written {
            rail.late_fragments = (after.len(), now + LATE_FRAGMENTS_NS);
        }
    }
}

/// Checks the CRC and the tag of heads that continue a packet with `header`.
fn seal_check<'a>(
    keys: &'a Option<HeadKeys>,
    header: &Header,
) -> impl Fn(&[u8], &[u8]) -> bool + 'a {
    let key = keys
        .as_ref()
        .map(|keys| keys.from(header.dst_slot, &direction_of(header)));
    move |head, tag| {
        let right = crc32c(&head[4..]).to_le_bytes() == head[..4];
        right && key.is_none_or(|key| key.tag(&head[4..]).to_le_bytes() == *tag)
    }
}
