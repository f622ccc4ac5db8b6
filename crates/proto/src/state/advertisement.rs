//! Messages that are read from the sender's memory (RDMA READ): their segments and progress.

use crate::base::types::PeerId;
use alloc::vec::Vec;
use marline_wire::{Advertisement, BLOCK_BYTES, SEGMENTS_MAX};

/// Bit n of word m: segment 64 m + n.
pub(crate) type Mask = [u64; SEGMENTS_MAX / 64];

pub(crate) fn is_in(mask: &Mask, segment: usize) -> bool {
    mask[segment / 64] >> (segment % 64) & 1 == 1
}

fn put_in(mask: &mut Mask, segment: usize) {
    mask[segment / 64] |= 1 << (segment % 64);
}

/// Division of a message into segments, the same at both ends.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Segments {
    total: u64,
    len: u64,
}

impl Segments {
    /// Segments of a message of `total` bytes: `least` bytes each, or longer if that would be too
    /// many segments.
    pub(crate) fn of(total: u64, least: u64) -> Segments {
        let len = total.div_ceil(SEGMENTS_MAX as u64).max(least).max(1);
        Segments {
            total,
            len: len.next_multiple_of(BLOCK_BYTES),
        }
    }

    pub(crate) fn count(&self) -> usize {
        self.total.div_ceil(self.len) as usize
    }

    /// The segment of a byte offset.
    pub(crate) fn at(&self, offset: u64) -> usize {
        (offset / self.len) as usize
    }

    /// Start and length of a segment.
    pub(crate) fn range(&self, segment: usize) -> (u64, u64) {
        let start = segment as u64 * self.len;
        (start, self.len.min(self.total.saturating_sub(start)))
    }

    /// The first run of bytes, from `from` on, outside the segments of `mask`.
    pub(crate) fn first_outside(&self, mask: &Mask, from: u64) -> Option<(u64, u64)> {
        let count = self.count();
        let start = (self.at(from)..count).find(|&n| !is_in(mask, n))?;
        let end = (start..count).find(|&n| is_in(mask, n));
        let end = end.map_or(self.total, |n| self.range(n).0);
        let start = self.range(start).0.max(from);
        (start < end).then_some((start, end))
    }

    /// Number of bytes of `from..to` in the segments of `mask`.
    pub(crate) fn bytes_inside(&self, mask: &Mask, from: u64, to: u64) -> u64 {
        let (mut at, mut outside) = (from, 0);
        while let Some((start, end)) = self.first_outside(mask, at).filter(|run| run.0 < to) {
            outside += end.min(to) - start;
            at = end;
        }
        to.saturating_sub(from) - outside
    }
}

/// State of a message whose memory was advertised.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Pull {
    /// No read has begun.
    Advertised,
    /// Segments are read one after another.
    Reads,
    /// A read failed: no further read begins. The missing bytes are granted when the reads in
    /// flight have ended.
    Fails,
    /// The rest is granted.
    Over,
}

/// The checksum of a segment, and its algorithm's number.
pub(crate) type SegmentSum = (u64, u8);

/// A received rkey advertisement (ADVERTISEMENT), and the state of its reads.
#[derive(Debug)]
pub(crate) struct PeerAdvertisement {
    /// The sender's rail index, and the key for that rail.
    pub(crate) rail: u8,
    pub(crate) key: u64,
    /// Id of the sender.
    pub(crate) src_id: u64,
    pub(crate) segments: Segments,
    pub(crate) pull: Pull,
    /// Reads in flight.
    pub(crate) reading: u8,
    /// The segment to read next.
    pub(crate) next: usize,
    /// Checksum of each segment; not yet known beyond the end.
    sums: Vec<Option<SegmentSum>>,
    /// Segments that were read and are not verified yet.
    unverified: Mask,
    /// Segments read and verified.
    pub(crate) here: Mask,
}

impl PeerAdvertisement {
    pub(crate) fn new(first: &FirstAdvertisement, segments: Segments) -> PeerAdvertisement {
        let mut advertisement = PeerAdvertisement {
            rail: first.advertisement.rail,
            key: first.advertisement.key,
            src_id: first.src_id,
            segments,
            pull: Pull::Advertised,
            reading: 0,
            next: 0,
            sums: Vec::new(),
            unverified: Mask::default(),
            here: Mask::default(),
        };
        advertisement.set_sum(0, (first.advertisement.sum, first.algorithm));
        advertisement
    }

    /// Stores the checksum of a segment.
    pub(crate) fn set_sum(&mut self, segment: usize, sum: SegmentSum) {
        if segment < self.segments.count() {
            let len = self.sums.len().max(segment + 1);
            self.sums.resize(len, None);
            self.sums[segment] = Some(sum);
        }
    }

    /// The checksum of a segment, if known.
    pub(crate) fn sum(&self, segment: usize) -> Option<SegmentSum> {
        self.sums.get(segment).copied().flatten()
    }

    /// Segments that were read and are not verified yet.
    pub(crate) fn unverified(&self) -> impl Iterator<Item = usize> {
        let mask = self.unverified;
        (0..self.segments.count()).filter(move |&n| is_in(&mask, n))
    }

    /// Notes the end of a read; `came`: the bytes arrived.
    pub(crate) fn read_over(&mut self, at: u64, came: bool) {
        let segment = self.segments.at(at);
        self.reading = self.reading.saturating_sub(1);
        match came && segment < self.segments.count() {
            true => put_in(&mut self.unverified, segment),
            false => self.pull = Pull::Fails,
        }
    }

    /// Notes the verification of a segment.
    pub(crate) fn judge(&mut self, segment: usize, right: bool) {
        self.unverified[segment / 64] &= !(1 << (segment % 64));
        if right {
            put_in(&mut self.here, segment);
        }
    }

    /// True if reads are in flight or allowed.
    pub(crate) fn is_read(&self) -> bool {
        matches!(self.pull, Pull::Reads | Pull::Fails)
    }

    /// True if the next segment must be read now, with at most `most` reads at a time.
    pub(crate) fn reads_next(&self, most: u8) -> bool {
        let more = self.next < self.segments.count();
        self.pull == Pull::Reads && self.reading < most && more
    }

    /// True if all segments were read and verified.
    pub(crate) fn whole(&self) -> bool {
        self.segments.first_outside(&self.here, 0).is_none()
    }

    /// True if no further read helps: the missing bytes must be granted.
    pub(crate) fn has_failed(&self) -> bool {
        let all_read = self.next == self.segments.count() && self.unverified().next().is_none();
        let ends = match self.pull {
            Pull::Reads => all_read,
            Pull::Fails => true,
            Pull::Advertised | Pull::Over => false,
        };
        ends && self.reading == 0
    }
}

/// The ADVERTISEMENT of a message's first segment, until its RTS is handled.
#[derive(Clone, Copy, Debug)]
pub(crate) struct FirstAdvertisement {
    pub(crate) peer: PeerId,
    pub(crate) advertisement: Advertisement,
    /// Algorithm number of the checksum.
    pub(crate) algorithm: u8,
    /// Id of the sender.
    pub(crate) src_id: u64,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn segments_cover_a_message() {
        for total in [1, 447, 448, 449, 100_000, 262_144, 1 << 20, 1 << 30] {
            let segments = Segments::of(total, 5 * BLOCK_BYTES);
            let count = segments.count();
            assert!(0 < count && count <= SEGMENTS_MAX);
            let mut end = 0;
            for n in 0..count {
                let (start, len) = segments.range(n);
                assert_eq!((start, start % BLOCK_BYTES), (end, 0));
                assert!(len > 0 && segments.at(start + len - 1) == n);
                end += len;
            }
            assert_eq!(end, total);
        }
    }

    #[test]
    fn bytes_outside_segments_are_found() {
        let segments = Segments::of(10 * BLOCK_BYTES - 1, 2 * BLOCK_BYTES);
        let mut mask = Mask::default();
        let run = |mask: &Mask, from| segments.first_outside(mask, from);
        assert_eq!(run(&mask, 0), Some((0, 10 * BLOCK_BYTES - 1)));
        put_in(&mut mask, 1);
        put_in(&mut mask, 4);
        assert_eq!(run(&mask, 0), Some((0, 2 * BLOCK_BYTES)));
        assert_eq!(
            run(&mask, BLOCK_BYTES),
            Some((BLOCK_BYTES, 2 * BLOCK_BYTES))
        );
        assert_eq!(
            run(&mask, 2 * BLOCK_BYTES),
            Some((4 * BLOCK_BYTES, 8 * BLOCK_BYTES))
        );
        assert_eq!(run(&mask, 8 * BLOCK_BYTES), None);
        let inside = |from, to| segments.bytes_inside(&mask, from, to);
        assert_eq!(inside(0, 10 * BLOCK_BYTES - 1), 4 * BLOCK_BYTES - 1);
        assert_eq!(inside(3 * BLOCK_BYTES, 9 * BLOCK_BYTES), 2 * BLOCK_BYTES);
        assert_eq!(inside(4 * BLOCK_BYTES, 8 * BLOCK_BYTES), 0);
    }
}
