//! Measures copies, sums, and both combined on this machine, for `marline tune`.
//!
//! In each round the candidates take turns with one short sample each, and the median counts, so
//! that changes of the machine's speed affect all of them equally.

use crate::summer::{copy_and_sum_fused, copy_and_sum_streaming, copy_blocks_and_sum};
use crate::{plain_copy, sum, Algorithm, CopyMode};
use std::hint::black_box;
use std::time::Instant;

/// A method of copying, summing, or both.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Way {
    /// The C library's memcpy.
    Copy,
    /// A copy with streaming stores.
    StreamingCopy,
    /// The sum without a copy.
    Sum,
    /// First copy everything, then sum everything: a library to which checksums were added later.
    Separate,
    /// Copy and sum in one loop.
    Fused,
    /// Blocks of this many bytes, each copied and then summed.
    Blocked(usize),
    /// Copy and sum with streaming stores.
    Streaming,
}

impl Way {
    /// The name, and the bytes of a block or 0.
    pub fn name(self) -> (&'static str, usize) {
        match self {
            Way::Copy => ("copy", 0),
            Way::StreamingCopy => ("streaming-copy", 0),
            Way::Sum => ("sum", 0),
            Way::Separate => ("separate", 0),
            Way::Fused => ("fused", 0),
            Way::Blocked(bytes) => ("blocked", bytes),
            Way::Streaming => ("streaming", 0),
        }
    }

    /// The method with this name.
    pub fn from_name(name: &str, block: usize) -> Option<Way> {
        let all = [
            Way::Copy,
            Way::StreamingCopy,
            Way::Sum,
            Way::Separate,
            Way::Fused,
            Way::Blocked(block),
            Way::Streaming,
        ];
        let found = all.into_iter().find(|way| way.name().0 == name)?;
        (found != Way::Blocked(0)).then_some(found)
    }

    /// Returns whether `bytes` are enough for the method to differ from the others.
    fn suits(self, bytes: usize) -> bool {
        match self {
            Way::Blocked(block) => bytes > block,
            // Streaming never pays for data that fits into L1.
            Way::Streaming | Way::StreamingCopy => bytes >= 16 << 10,
            _ => true,
        }
    }
}

/// The location of the bytes before the call.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Place {
    /// Source and destination were used by the previous call, so they are in cache as far as they
    /// fit.
    Cache,
    /// Source and destination were last used so long ago that no cache holds them, if the buffers
    /// are large enough.
    Memory,
    /// The source as in `Memory`, the destination as in `Cache`: application memory and a reused
    /// buffer.
    Staging,
}

impl Place {
    /// All locations.
    pub const ALL: [Place; 3] = [Place::Cache, Place::Memory, Place::Staging];

    /// The name.
    pub fn name(self) -> &'static str {
        match self {
            Place::Cache => "cache",
            Place::Memory => "memory",
            Place::Staging => "staging",
        }
    }

    /// The location with this name.
    pub fn from_name(name: &str) -> Option<Place> {
        Place::ALL.into_iter().find(|p| p.name() == name)
    }
}

/// A measured point.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Point {
    /// [`Algorithm::None`] for copies.
    pub algorithm: Algorithm,
    /// The measured method.
    pub way: Way,
    /// The location of the bytes.
    pub place: Place,
    /// Bytes per call.
    pub bytes: usize,
    /// Median nanoseconds per call.
    pub ns: f64,
}

impl Point {
    /// Bytes per nanosecond.
    pub fn gb_per_s(&self) -> f64 {
        self.bytes as f64 / self.ns
    }
}

/// The extent of a measurement.
#[derive(Clone, Copy, Debug)]
pub struct Effort {
    /// Samples per method.
    pub rounds: usize,
    /// Nanoseconds per sample (or one call, if that takes longer).
    pub sample_ns: f64,
    /// Sizes with longer calls are skipped: the rate no longer changes there.
    pub call_ns_max: f64,
}

/// The buffers of a measurement.
pub struct Bench {
    src: Vec<u8>,
    dst: Vec<u8>,
    effort: Effort,
    /// Offset of the next call from memory.
    at: usize,
}

/// Block sizes that are tried. Beyond 16 KiB source and destination do not both fit into L1.
pub const BLOCKS: [usize; 3] = [1 << 10, 4 << 10, 16 << 10];

impl Bench {
    /// Buffers of `bytes` each (rounded up to whole pages). Measurements from memory walk through
    /// them, so they should be larger than the caches.
    pub fn new(bytes: usize, effort: Effort) -> Bench {
        let bytes = bytes.next_multiple_of(PAGE).max(PAGE);
        // Not all zeros: the kernel maps untouched memory to one zero page, which would stay in the
        // cache.
        let src = (0..bytes).map(|i| (i ^ i >> 8) as u8).collect();
        Bench {
            src,
            dst: vec![1; bytes],
            effort,
            at: 0,
        }
    }

    /// Bytes of each buffer.
    pub fn bytes(&self) -> usize {
        self.src.len()
    }

    /// Median time of each of the `ways` that suit `bytes`, which must fit into the buffers.
    pub fn measure(
        &mut self,
        algorithm: Algorithm,
        place: Place,
        bytes: usize,
        ways: &[Way],
    ) -> Vec<Point> {
        let bytes = bytes.min(self.bytes());
        let ways: Vec<Way> = ways.iter().copied().filter(|w| w.suits(bytes)).collect();
        let calls: Vec<u64> = ways
            .iter()
            .map(|way| {
                let once = self.sample(*way, algorithm, place, bytes, 1);
                // The first call warms up; the second call measures.
                let once = once
                    .min(self.sample(*way, algorithm, place, bytes, 1))
                    .max(1.0);
                (self.effort.sample_ns / once).clamp(1.0, 1e5) as u64
            })
            .collect();
        let mut samples = vec![Vec::new(); ways.len()];
        for _ in 0..self.effort.rounds.max(1) {
            for (n, way) in ways.iter().enumerate() {
                let ns = self.sample(*way, algorithm, place, bytes, calls[n]);
                samples[n].push(ns / calls[n] as f64);
            }
        }
        let point = |(way, mut ns): (Way, Vec<f64>)| {
            ns.sort_by(f64::total_cmp);
            let ns = ns[ns.len() / 2];
            Point {
                algorithm,
                way,
                place,
                bytes,
                ns,
            }
        };
        ways.into_iter().zip(samples).map(point).collect()
    }

    /// A curve: [`Bench::measure`] for each size, until a call takes too long.
    pub fn curve(
        &mut self,
        algorithm: Algorithm,
        place: Place,
        sizes: &[usize],
        ways: &[Way],
    ) -> Vec<Point> {
        let mut points: Vec<Point> = Vec::new();
        for &bytes in sizes {
            let slowest = points
                .iter()
                .rev()
                .take(ways.len())
                .map(|p| p.ns / p.bytes as f64);
            let expected = slowest.fold(0.0, f64::max) * bytes as f64;
            if expected > self.effort.call_ns_max {
                break;
            }
            points.extend(self.measure(algorithm, place, bytes, ways));
        }
        points
    }

    /// Total nanoseconds of `calls` calls.
    fn sample(
        &mut self,
        way: Way,
        algorithm: Algorithm,
        place: Place,
        bytes: usize,
        calls: u64,
    ) -> f64 {
        let start = Instant::now();
        for _ in 0..calls {
            let at = self.next_offset(place, bytes);
            let to = if place == Place::Memory { at } else { 0 };
            let (src, dst) = (&self.src[at..at + bytes], &mut self.dst[to..to + bytes]);
            black_box(call(way, algorithm, black_box(dst), black_box(src)));
        }
        start.elapsed().as_nanos() as f64
    }

    /// The offset of the next call: always 0 for the cache; otherwise so far ahead that the
    /// hardware prefetcher does not follow if slots are small.
    fn next_offset(&mut self, place: Place, bytes: usize) -> usize {
        if place == Place::Cache {
            return 0;
        }
        let slot = bytes.next_multiple_of(PAGE).max(PAGE);
        let slots = self.src.len() / slot;
        // An odd step near the golden section of the number of slots: the calls visit all slots
        // before the first one again if `slots` is a power of two, and nearly all otherwise.
        let step = (slots * 5 / 8) | 1;
        let from = self.at / slot;
        let to = if slots <= 1 { 0 } else { (from + step) % slots };
        self.at = to * slot;
        self.at
    }
}

const PAGE: usize = 4096;

/// A call; returns the sum, or 0. Both slices have the same length.
fn call(way: Way, algorithm: Algorithm, dst: &mut [u8], src: &[u8]) -> u64 {
    let (to, from, len) = (dst.as_mut_ptr(), src.as_ptr(), src.len().min(dst.len()));
    // SAFETY: `len` bytes of two slices, which cannot overlap; blocks are larger than 0, as
    // `Way::from_name` and `BLOCKS` ensure (and `max` here).
    unsafe {
        match way {
            Way::Copy => {
                std::ptr::copy_nonoverlapping(from, to, len);
                0
            }
            Way::StreamingCopy => {
                plain_copy(to, from, len, CopyMode::Streaming);
                0
            }
            Way::Sum => sum(algorithm, SEED, src),
            Way::Separate => {
                std::ptr::copy_nonoverlapping(from, to, len);
                sum(algorithm, SEED, black_box(&*dst))
            }
            Way::Fused => copy_and_sum_fused(algorithm, SEED.into(), to, from, len),
            Way::Blocked(block) => {
                copy_blocks_and_sum(algorithm, SEED.into(), to, from, len, block.max(1))
            }
            Way::Streaming => copy_and_sum_streaming(algorithm, SEED.into(), to, from, len),
        }
    }
}

/// Any seed: the time does not depend on the seed.
const SEED: u64 = 1;

#[cfg(test)]
mod tests {
    use super::*;

    const BRIEF: Effort = Effort {
        rounds: 1,
        sample_ns: 1_000.0,
        call_ns_max: 1e9,
    };

    #[test]
    fn every_way_copies_and_sums_the_same() {
        let bytes = if cfg!(miri) { 1_500 } else { 40_000u32 }; // fewer under an interpreter
        let src: Vec<u8> = (0..bytes).map(|i| (i * 11 + i / 77) as u8).collect();
        // An interpreter of Rust runs no C.
        for algorithm in Algorithm::all().filter(|a| !(cfg!(miri) && a.is_keyed())) {
            for way in [
                Way::Separate,
                Way::Fused,
                Way::Blocked(1000),
                Way::Streaming,
            ] {
                let mut dst = vec![0; src.len()];
                let got = call(way, algorithm, &mut dst, &src);
                assert_eq!(got, sum(algorithm, SEED, &src), "{algorithm} {way:?}");
                assert!(dst == src, "{algorithm} {way:?}");
            }
        }
        for way in [Way::Copy, Way::StreamingCopy] {
            let mut dst = vec![0; src.len()];
            call(way, Algorithm::None, &mut dst, &src);
            assert!(dst == src, "{way:?}");
        }
    }

    #[test]
    fn names_lead_back() {
        for way in [
            Way::Copy,
            Way::StreamingCopy,
            Way::Sum,
            Way::Separate,
            Way::Fused,
            Way::Blocked(4096),
            Way::Streaming,
        ] {
            let (name, block) = way.name();
            assert_eq!(Way::from_name(name, block), Some(way));
        }
        assert_eq!(Way::from_name("blocked", 0), None);
        assert_eq!(Way::from_name("guess", 0), None);
        for place in Place::ALL {
            assert_eq!(Place::from_name(place.name()), Some(place));
        }
    }

    #[test]
    #[cfg_attr(miri, ignore = "measures times")]
    fn a_curve_has_each_way_that_suits_each_size() {
        let mut bench = Bench::new(64 << 10, BRIEF);
        let ways = [Way::Fused, Way::Blocked(4096), Way::Streaming];
        for place in Place::ALL {
            let points = bench.curve(Algorithm::Crc64Nvme, place, &[1, 4096, 65_536], &ways);
            let have: Vec<_> = points.iter().map(|p| (p.bytes, p.way)).collect();
            assert_eq!(
                have,
                [
                    (1, Way::Fused),
                    (4096, Way::Fused),
                    (65_536, Way::Fused),
                    (65_536, Way::Blocked(4096)),
                    (65_536, Way::Streaming),
                ]
            );
            assert!(points.iter().all(|p| p.ns > 0.0 && p.place == place));
        }
    }

    #[test]
    #[cfg_attr(miri, ignore = "measures times")]
    fn a_curve_ends_where_calls_take_too_long() {
        let effort = Effort {
            call_ns_max: 0.0,
            ..BRIEF
        };
        let mut bench = Bench::new(1 << 20, effort);
        let points = bench.curve(
            Algorithm::Jenkins,
            Place::Cache,
            &[1, 1024, 4096],
            &[Way::Sum],
        );
        assert_eq!(points.len(), 1);
    }

    #[test]
    fn walks_through_all_of_the_memory() {
        let mut bench = Bench::new(16 * PAGE, BRIEF);
        let mut seen: Vec<usize> = (0..16)
            .map(|_| bench.next_offset(Place::Memory, 100) / PAGE)
            .collect();
        seen.sort_unstable();
        assert_eq!(seen, (0..16).collect::<Vec<_>>());
        // A call as large as the buffers always starts at 0.
        assert_eq!(bench.next_offset(Place::Memory, 16 * PAGE), 0);
    }
}
