//! Received packets: from the rails to the nodes of their endpoints.

use crate::core::unpack::EngineMemory;
use crate::core::Core;
use crate::memory::tags::{direction_of, sum_key_from, tag_of};
use crate::platform::system::{System, Watch};
use marline_auth::HeadKeys;
use marline_checksum::crc32c;
use marline_proto::{DropReason, Mutation};
use marline_rails::{RailTx, Received};
use marline_wire::{
    DirectHead, GroupPacket, Header, Packet, ParseError, Question, TaggedHead, DIRECT_HEAD_LEN,
    HEADER_LEN,
};

/// Length up to which a buffer holds one packet: two headers are the shortest batch.
const GRO_MIN: usize = 2 * HEADER_LEN - 1;
/// Least bytes of a direct write's first datagram before its data.
const HEAD_LINE: usize = 64;
/// Time within which late fragments of a direct write follow its beginning.
const LATE_FRAGMENTS_NS: u64 = 10_000_000;

impl<S: System> Core<S> {
    /// Processes received bytes: one datagram or a batch of equal ones.
    #[inline]
    pub fn ingest(&mut self, now: u64, rail: usize, received: &Received<'_>) {
        match self.admission.encrypts() {
            true => self.ingest_encrypted(now, rail, received),
            false => self.ingest_clear(now, rail, received, received.bytes),
        }
    }

    /// Processes bytes of which the payloads are decrypted; `raw`: the bytes as received.
    pub(super) fn ingest_clear(
        &mut self,
        now: u64,
        rail: usize,
        received: &Received<'_>,
        raw: &[u8],
    ) {
        if received.missing > 0 || received.beside > 0 {
            self.count_written(now, rail, received);
        }
        let mut proven = None;
        let (segment, mut first) = self.segment_of(rail, received, &mut proven);
        let mut rest = received.bytes;
        while !rest.is_empty() {
            let (datagram, after) = rest.split_at(segment.clamp(1, rest.len()));
            let raw = &raw[raw.len() - rest.len()..];
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
            let parsed = parsed.or_else(|| self.parse(now, rail, (datagram, after), &mut proven));
            let Some(packet) = parsed else {
                continue;
            };
            let Some(ep) = proven.take().or_else(|| self.admit(now, rail, &packet)) else {
                continue;
            };
            let Some(endpoint) = self.dir.eps[ep as usize].as_mut() else {
                continue;
            };
            let mut memory = EngineMemory {
                recvs: &self.ops.recvs,
                buffers: &mut self.buffers,
                rails: &mut self.rails,
                ep,
                key: sum_key_from(&endpoint.keys, &packet.header),
            };
            let node = &mut endpoint.node;
            let result = node.handle_packet(now, &packet, datagram.len(), &mut memory);
            self.watch.ingested(node, &raw[..datagram.len()], result);
            match result {
                // Only the last packet of a batch is short.
                Ok(peer) if !after.is_empty() && packet.wire_len() == datagram.len() => {
                    let sealed = seal_check(&endpoint.keys, &packet.header);
                    let more = node.handle_run(now, peer, &packet, after, sealed, &mut memory);
                    let run = more * datagram.len();
                    rest = &after[run..];
                    for datagram in raw[datagram.len()..][..run].chunks(datagram.len()) {
                        self.watch.ingested(node, datagram, result);
                    }
                    let counters = &mut self.rails[rail].counters;
                    counters.wire_packets_received += more as u64;
                    counters.wire_bytes_received += run as u64;
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
            DropReason::Version => counters.wrong_version += 1,
            _ => {}
        }
    }

    /// Length of the packets in received bytes; and the first packet, if finding the length has
    /// parsed it (`proven`: as of `read_packet`). If the first packet is damaged, the length of the
    /// last batch is assumed (a wrong guess only costs retransmissions).
    #[inline]
    pub(super) fn segment_of<'a>(
        &mut self,
        rail: usize,
        received: &Received<'a>,
        proven: &mut Option<u32>,
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
        let first = self.read_packet(bytes, proven).ok().map(Packet::alone);
        let segment = &mut self.rails[rail].segment;
        if let Some(packet) = &first {
            *segment = packet.wire_len();
        }
        ((*segment).min(bytes.len()), first)
    }

    /// Parses a packet. With a key the tag is checked first: where it is right, the CRC need not be
    /// looked at, and `proven` is the endpoint that the packet is for; where not, the CRC tells
    /// damage from forgery.
    #[inline]
    pub(super) fn read_packet<'a>(
        &mut self,
        bytes: &'a [u8],
        proven: &mut Option<u32>,
    ) -> Result<Packet<'a>, ParseError> {
        let keyed = self.admission.has_key();
        let claimed = bytes.first_chunk().map_or(0, |c| u32::from_le_bytes(*c));
        let crc = |head: &[u8]| if keyed { claimed } else { crc32c(head) };
        let read = Packet::parse(bytes, crc);
        if !keyed {
            return read;
        }
        if let Ok(packet) = &read {
            *proven = self.proves_key(packet);
        }
        match proven {
            Some(_) => read,
            None => Packet::parse(bytes, crc32c),
        }
    }

    /// Parses a datagram, if its head is good, and counts it. `after` are the bytes after it in its
    /// batch.
    fn parse<'a>(
        &mut self,
        now: u64,
        rail: usize,
        (datagram, after): (&'a [u8], &[u8]),
        proven: &mut Option<u32>,
    ) -> Option<Packet<'a>> {
        let read = self.read_packet(datagram, proven);
        let row = &mut self.rails[rail];
        let (left, until) = &mut row.late_fragments;
        let late_fragment = *left > 0 && now <= *until;
        let counters = &mut row.counters;
        match read {
            Ok(packet) => return Some(packet),
            Err(_) if late_fragment => {
                *left = left.saturating_sub(datagram.len());
                counters.torn += 1;
            }
            Err(ParseError::Truncated) => counters.truncated += 1,
            Err(ParseError::Version) => self.note_version(now, rail, datagram),
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
        // With a key rails take off right heads of direct writes, which have a tag and no check.
        if self.admission.has_key() && DirectHead::parse(datagram).is_some() {
            self.rails[rail].counters.forged += 1;
            return;
        }
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

/// Checks the tags, or without a key the CRC, of heads that continue a packet with `header`.
fn seal_check<'a>(
    keys: &'a Option<HeadKeys>,
    header: &Header,
) -> impl Fn(&[u8], &[u8]) -> bool + 'a {
    let key = keys
        .as_ref()
        .map(|keys| keys.from(header.dst_slot, &direction_of(header)));
    move |head, tag| match key {
        Some(key) => tag_of(key, &TaggedHead::of(head)).to_le_bytes() == *tag,
        None => crc32c(&head[4..]).to_le_bytes() == head[..4],
    }
}
