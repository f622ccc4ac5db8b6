//! Copies and sums a send's memory into a packet in one pass, at the place that the packet's head
//! names, seals the head, and encrypts the copy in a job that asks for it.

use crate::memory::op_table::{OpTable, Pieces, SendOp};
use crate::memory::tags::{encrypt, seal, seed_under, tag_of};
use marline_auth::PacketKeys;
use marline_checksum::{
    copy_and_sum, crc32c_with_word, prefetch_for_read, Algorithm, Seed, Summer,
};
use marline_proto::{Run, Span, Transmit};
use marline_wire::{FragmentHead, TaggedHead, FRAGMENT_HEAD_LEN, FRAGMENT_SUM_AT, TAG_LEN};

/// Copies and sums the payloads of a packet into place, seals its head, and encrypts the payloads
/// if they have a cipher.
#[inline]
pub(crate) fn fill(
    packet: &mut [u8],
    transmit: &Transmit,
    spans: &[Span],
    sends: &OpTable<SendOp>,
    keys: Option<&PacketKeys>,
) {
    let algorithm = Algorithm::from_u8(transmit.algorithm).unwrap_or(Algorithm::None);
    for span in spans {
        let to = &mut packet[span.payload_at as usize..][..span.len as usize];
        let algorithm = if span.summed {
            algorithm
        } else {
            Algorithm::None
        };
        let sum = match sends.get(span.handle) {
            Some(op) => {
                let seed = seed_under(keys, span.seed);
                gather(&op.pieces, span.offset, to, algorithm, seed)
            }
            None => 0,
        };
        packet[span.sum_at as usize..][..8].copy_from_slice(&sum.to_le_bytes());
    }
    seal(packet, transmit.head_len, keys);
    if let Some(cipher) = keys.and_then(|keys| keys.cipher) {
        encrypt(packet, transmit.head_len, cipher);
    }
}

/// The head of a packet just built, if fragments with similar heads may follow it.
pub(crate) fn head_of(packet: &[u8], transmit: &Transmit) -> Option<FragmentHead> {
    FragmentHead::of(packet, transmit.head_len)
}

/// Fills and seals the packets of a run.
pub(crate) fn fill_run(
    out: &mut [u8],
    run: &Run,
    segment: usize,
    algorithm: u8,
    sends: &OpTable<SendOp>,
    keys: Option<&PacketKeys>,
) {
    let algorithm = match run.summed {
        true => Algorithm::from_u8(algorithm).unwrap_or(Algorithm::None),
        false => Algorithm::None,
    };
    let op = sends.get(run.handle);
    let mut offset = run.offset;
    for packet in out.chunks_exact_mut(segment).take(run.packets) {
        let (head, rest) = packet.split_at_mut(FRAGMENT_HEAD_LEN);
        let (payload, tag) = rest.split_at_mut(run.fragment);
        let seed = seed_under(keys, run.seed(offset));
        if let Some(next) = op.and_then(|op| op.pieces.whole(offset, 2 * run.fragment)) {
            prefetch_for_read(next.wrapping_add(run.fragment), run.fragment);
        }
        let sum = op.map_or(0, |op| gather(&op.pieces, offset, payload, algorithm, seed));
        let crc = crc32c_with_word(&head[4..FRAGMENT_SUM_AT], sum);
        head[FRAGMENT_SUM_AT..].copy_from_slice(&sum.to_le_bytes());
        head[..4].copy_from_slice(&crc.to_le_bytes());
        if let Some((keys, tag)) = keys.zip(tag.first_chunk_mut::<TAG_LEN>()) {
            let head = TaggedHead::of(head);
            *tag = tag_of(keys.head, &head).to_le_bytes();
            if let Some(cipher) = keys.cipher {
                cipher.apply(head.fixed, payload);
            }
        }
        offset += run.fragment as u64;
    }
}

/// Copies bytes from `offset` of a send's memory to `to`; returns their checksum.
#[inline]
fn gather(pieces: &Pieces, offset: u64, to: &mut [u8], algorithm: Algorithm, seed: Seed) -> u64 {
    if let Some(base) = pieces.whole(offset, to.len()) {
        // SAFETY: memory of a send that is not complete (the user's or our log's, at least for this
        // call); `whole` has checked that the range is in one piece.
        return unsafe { copy_and_sum(algorithm, seed, to.as_mut_ptr(), base, to.len()) };
    }
    let mut summer = Summer::new(algorithm, seed);
    let mut at = 0;
    pieces.for_range(offset, to.len(), |base, len| {
        // SAFETY: as above; the pieces of the range add up to at most `to.len()`.
        unsafe { summer.copy(to[at..at + len].as_mut_ptr(), base, len) };
        at += len;
    });
    summer.finish()
}
