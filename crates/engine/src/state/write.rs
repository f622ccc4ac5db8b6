//! State of writes into peers' memory: pending, outstanding, and completed without a sent
//! notification.

use crate::memory::copy::sum_of;
use crate::memory::op_table::Pieces;
use crate::memory::sums::{Owner, Part, Sums};
use crate::memory::tags;
use marline_auth::PacketKeys;
use marline_checksum::Algorithm;
use marline_proto::{Transmit, WriteOut};
use marline_rails::{Caps, LinkId, Piece, RemoteWrites};

/// The values that complete a write notification.
#[derive(Clone, Copy, Debug)]
pub struct ToWrite {
    pub(crate) algorithm: Option<Algorithm>,
    pub(crate) seed: u64,
    pub(crate) sum_at: usize,
    pub(crate) head_len: usize,
    /// Longest datagram of the path in bytes.
    pub(crate) segment: usize,
    /// The checksum, if it was computed before the bytes left (or when they could not leave).
    pub(crate) summed: Option<u64>,
    /// Keys of the packet and its sum, if the packet has a tag.
    pub(crate) keys: Option<PacketKeys>,
}

impl ToWrite {
    /// State for a packet that was just built, and its write.
    pub(crate) fn new(first: &Transmit, write: &WriteOut, keys: Option<PacketKeys>) -> ToWrite {
        ToWrite {
            algorithm: Algorithm::from_u8(first.algorithm).filter(|_| write.summed),
            seed: write.seed,
            sum_at: write.sum_at,
            head_len: first.head_len,
            segment: write.segment,
            summed: None,
            keys,
        }
    }

    /// Checksum of the written bytes. `far`: the bytes are in no near cache.
    pub(crate) fn sum(&self, pieces: &Pieces, range: (u64, usize), far: bool) -> u64 {
        let seed = tags::seed_under(self.keys.as_ref(), self.seed);
        let sum = |algorithm| sum_of(pieces, range, algorithm, seed, far);
        self.algorithm.map_or(0, sum)
    }

    /// Checksum, computed here unless it is known already; the bytes are in no near cache.
    pub(crate) fn sum_early(
        &mut self,
        sums: &mut Sums,
        pieces: &Pieces,
        range: (u64, usize),
    ) -> u64 {
        let own = || sums.own(range.1, || self.sum(pieces, range, true));
        let sum = self.summed.unwrap_or_else(own);
        self.summed = Some(sum);
        sum
    }

    /// The checksum, if workers have computed it. Also gives workers the next parts, assuming that
    /// the rest of the message leaves in writes of the same length.
    pub(crate) fn sum_by_workers(
        &self,
        sums: &mut Sums,
        pieces: &Pieces,
        write: &WriteOut,
    ) -> Option<u64> {
        let part = Part {
            of: Owner::Send(write.handle),
            offset: write.offset,
            len: write.len as usize,
            algorithm: self.algorithm?,
            seed: self.seed,
        };
        let ahead = (write.span, write.message_end);
        let seed_of = |offset, len| write.seed_of(offset, len);
        sums.take_ahead(&part, ahead, pieces, seed_of)
    }

    /// Writes the checksum, the head's CRC and the tag into the packet.
    pub(crate) fn seal(&self, packet: &mut [u8], sum: u64) {
        packet[self.sum_at..self.sum_at + 8].copy_from_slice(&sum.to_le_bytes());
        tags::seal(packet, self.head_len, self.keys.as_ref());
    }
}

/// Write notification of a direct write.
#[derive(Debug)]
pub struct WriteNotification {
    pub(crate) packet: Vec<u8>,
    pub(crate) link: LinkId,
    pub(crate) flow: u8,
}

/// A write that was given to a rail.
#[derive(Clone, Copy, Debug)]
pub struct OutstandingWrite {
    pub(crate) token: u64,
    pub(crate) handle: u32,
    /// Start of the write's timeout: its posting, or the end of an earlier request after that.
    pub(crate) since_ns: u64,
    /// Number of requests given to the rail's device before the write.
    pub(crate) ahead: u64,
}

/// A range of a send to write under a key.
#[derive(Clone, Copy, Debug)]
pub struct PendingWrite {
    pub(crate) handle: u32,
    pub(crate) key: u64,
    pub(crate) offset: u64,
    pub(crate) len: usize,
    /// Set for a rail with direct writes.
    pub(crate) direct: Option<ToWrite>,
}

/// Collects the memory that a write reads in `found`.
pub(crate) fn pieces_of(pieces: &Pieces, write: &PendingWrite, found: &mut Vec<Piece>) {
    found.clear();
    pieces.for_range(write.offset, write.len, |base, len| {
        found.push(Piece { base, len });
    });
}

/// Most datagrams of a direct write; 0: the rail has no direct writes.
pub(crate) fn direct_datagrams(caps: &Caps) -> usize {
    match caps.remote_write {
        RemoteWrites::Direct => caps.batch_segments_max,
        _ => 0,
    }
}
