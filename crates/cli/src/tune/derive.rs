//! Derives an engine's profile from measurements.

use super::cost::{eager_threshold, Network, Pipeline, Work};
use super::curves::Curves;
use marline_checksum::tuner::{Place, Point, Way, BLOCKS};
use marline_checksum::{Algorithm, Plan};
use marline_engine::checksum_choice::ChecksumChoice;
use marline_engine::profile::{self, AlgorithmFigures, Machine, Profile, RailFigures};

/// Two to each of these powers.
pub const fn powers_of_two<const N: usize>(powers: [usize; N]) -> [usize; N] {
    let mut sizes = powers;
    let mut n = 0;
    while n < N {
        sizes[n] = 1 << powers[n];
        n += 1;
    }
    sizes
}

/// Fragment sizes that an engine copies, 1 to 64 KiB, at which algorithms and methods are compared.
pub const FRAGMENTS: [usize; 7] = powers_of_two([10, 11, 12, 13, 14, 15, 16]);
/// Sizes at which non-temporal stores may begin.
pub const STREAMS: [usize; 6] = powers_of_two([18, 20, 21, 22, 24, 26]);
/// A curve that ends below this size, in bytes, does not show whether non-temporal stores pay.
const STREAMS_KNOWN: usize = 4 << 20;
/// Blocks or streams must take less than this fraction of the single loop's time.
const WORTH: f64 = 0.97;
/// Chunk size at which super-pipeline rates are judged, in bytes.
pub const CHUNK: usize = 256 << 10;
/// Size at which short messages are judged: the papers' block, in bytes.
pub const SHORT: usize = 32 << 10;
/// Network assumed without rail measurements: UDP over 10 Gbit/s Ethernet, as in the papers.
const NO_RAIL: Network = Network {
    latency: 10e-6,
    rate: 1.25e9,
    gap: 1e-6,
};

/// The profile from a machine's measurements.
pub fn profile(points: &[Point], rail: Option<RailFigures>, date: &str) -> Profile {
    let mut profile = Profile {
        format: profile::FORMAT,
        date: date.to_owned(),
        eager_max_bytes: 65_536,
        machine: Machine::here(),
        pipeline: profile::Pipeline {
            first_chunk_bytes: 65_536,
            growth: 1.0,
            last_block_bytes: 4096,
        },
        rail,
        algorithms: Algorithm::all()
            .filter_map(|a| figures(points, a))
            .collect(),
    };
    let algorithm = ChecksumChoice::Strong.resolve(Some(&profile));
    if let Some(rate) = chunk_rate(points, algorithm) {
        let network = network(profile.rail.as_ref());
        let work = Work::Fused(rate * 1e9);
        let fit = Pipeline::fit(&network, &work);
        profile.pipeline = profile::Pipeline {
            first_chunk_bytes: whole(fit.first.min(FIRST_MAX)),
            growth: fit.growth.min(GROWTH_MAX),
            last_block_bytes: whole(fit.last_block),
        };
        // Eager messages are short and mostly in cache (paper 0, section 4.2).
        let short = points.rate(algorithm, Way::Fused, Place::Cache, SHORT);
        let short = Work::Fused(short.unwrap_or(rate) * 1e9);
        let threshold = eager_threshold(&network, &short, &work, EAGER_MOST);
        profile.eager_max_bytes = threshold / 64 * 64;
    }
    profile
}

/// Largest first chunk, in bytes: the whole chunk is staged.
const FIRST_MAX: f64 = 16e6;
/// The longest eager message, in bytes.
const EAGER_MOST: usize = 65_536;
/// More growth would make the last chunk too large to overlap with any other work.
const GROWTH_MAX: f64 = 16.0;

/// Rounds to whole cache lines within a profile's limits.
fn whole(bytes: f64) -> u64 {
    (bytes / 64.0).round().clamp(1.0, 1e7) as u64 * 64
}

/// A rail's constants for the model.
pub fn network(rail: Option<&RailFigures>) -> Network {
    rail.map_or(NO_RAIL, |rail| Network {
        latency: rail.latency_us * 1e-6,
        rate: rail.gb_per_s * 1e9,
        gap: rail.gap_ns * 1e-9,
    })
}

/// Copy-and-sum rate of chunks from user memory to a staging buffer, in GB/s, by the faster method.
pub fn chunk_rate(points: &[Point], algorithm: Algorithm) -> Option<f64> {
    let blocked = BLOCKS.map(Way::Blocked);
    let rates = [Way::Fused]
        .into_iter()
        .chain(blocked)
        .filter_map(|way| points.rate(algorithm, way, Place::Staging, CHUNK));
    rates.reduce(f64::max)
}

/// The figures of one algorithm; `None` without measurements.
fn figures(points: &[Point], algorithm: Algorithm) -> Option<AlgorithmFigures> {
    if algorithm == Algorithm::None {
        return None;
    }
    let plan = plan(points, algorithm);
    let of = |bytes: usize| {
        let way = match plan.blocked_from {
            Some(from) if bytes >= from && bytes > plan.block_bytes => {
                Way::Blocked(plan.block_bytes)
            }
            _ => Way::Fused,
        };
        points.ns(algorithm, way, Place::Cache, bytes)
    };
    let measured: Vec<(usize, f64)> = FRAGMENTS
        .iter()
        .filter_map(|b| Some((*b, of(*b)?)))
        .collect();
    if measured.is_empty() {
        return None;
    }
    // The mean of times per byte, which weights slow sizes by their cost.
    let per_byte: f64 = measured.iter().map(|(bytes, ns)| ns / *bytes as f64).sum();
    Some(AlgorithmFigures {
        name: algorithm.name().to_owned(),
        gb_per_s: round(measured.len() as f64 / per_byte),
        blocked_from_bytes: plan.blocked_from,
        block_bytes: plan.blocked_from.map(|_| plan.block_bytes),
        stream_from_bytes: stream_from(points, algorithm, &plan),
    })
}

/// Rounds to three decimals; further digits are noise.
fn round(rate: f64) -> f64 {
    ((rate * 1e3).round() / 1e3).max(1e-3)
}

/// The sum of the times in cache and from memory, in nanoseconds.
fn both(points: &[Point], algorithm: Algorithm, way: Way, bytes: usize) -> Option<f64> {
    let at = |place| points.ns(algorithm, way, place, bytes);
    Some(at(Place::Cache)? + at(Place::Memory)?)
}

/// The length from which non-temporal stores beat `plan` at every larger size; 0 if there is none.
/// `None` if that length is the default, or unknown.
fn stream_from(points: &[Point], algorithm: Algorithm, plan: &Plan) -> Option<usize> {
    let otherwise = match plan.blocked_from {
        Some(_) => Way::Blocked(plan.block_bytes),
        None => Way::Fused,
    };
    let mut from = None;
    let mut known = false;
    for bytes in STREAMS.into_iter().rev() {
        let time = |way| both(points, algorithm, way, bytes);
        let Some((stream, other)) = time(Way::Streaming).zip(time(otherwise)) else {
            continue;
        };
        known |= bytes >= STREAMS_KNOWN;
        if stream > WORTH * other {
            break;
        }
        from = Some(bytes);
    }
    let usual = Plan::usual(algorithm).stream_from;
    (known && from != usual).then_some(from.unwrap_or(0))
}

/// The block size, and the length from which it beats a single loop, judged by the sum of the times
/// in cache and from memory. Of several block sizes, the one that saves most.
fn plan(points: &[Point], algorithm: Algorithm) -> Plan {
    let time = |way, bytes| both(points, algorithm, way, bytes);
    let mut best = (Plan::FUSED, 0.0);
    for block in BLOCKS {
        let (mut from, mut saved) = (None, 0.0);
        for bytes in FRAGMENTS.into_iter().rev() {
            let (Some(fused), Some(blocked)) =
                (time(Way::Fused, bytes), time(Way::Blocked(block), bytes))
            else {
                continue;
            };
            if blocked > WORTH * fused {
                break;
            }
            from = Some(bytes);
            saved += (fused - blocked) / fused;
        }
        if from.is_some() && saved > best.1 {
            best = (
                Plan {
                    blocked_from: from,
                    block_bytes: block,
                    ..Plan::FUSED
                },
                saved,
            );
        }
    }
    best.0
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Points of one algorithm; the rate depends on method and size.
    fn points(algorithm: Algorithm, rate: impl Fn(Way, usize) -> f64) -> Vec<Point> {
        let mut points = Vec::new();
        for place in Place::ALL {
            for bytes in FRAGMENTS.into_iter().chain(STREAMS) {
                let blocked = [1024, 4096].map(Way::Blocked);
                for way in [Way::Fused, Way::Streaming].into_iter().chain(blocked) {
                    let ns = bytes as f64 / rate(way, bytes);
                    points.push(Point {
                        algorithm,
                        way,
                        place,
                        bytes,
                        ns,
                    });
                }
            }
        }
        points
    }

    const CRC: Algorithm = Algorithm::Crc64Nvme;

    #[test]
    fn one_loop_unless_blocks_win_for_every_larger_size() {
        let fused = points(CRC, |way, _| if way == Way::Fused { 20.0 } else { 20.2 });
        assert_eq!(plan(&fused, CRC), Plan::FUSED, "not worth it");
        let from_8k = points(CRC, |way, bytes| match way {
            Way::Blocked(1024) if bytes >= 8192 => 22.0,
            Way::Blocked(4096) if bytes >= 8192 => 25.0,
            Way::Fused => 20.0,
            _ => 10.0,
        });
        let best = Plan {
            blocked_from: Some(8192),
            block_bytes: 4096,
            ..Plan::FUSED
        };
        assert_eq!(plan(&from_8k, CRC), best);
        let only_small = points(CRC, |way, bytes| match way {
            Way::Fused if bytes == 64 << 10 => 30.0,
            Way::Fused => 10.0,
            _ => 20.0,
        });
        assert_eq!(plan(&only_small, CRC), Plan::FUSED);
    }

    #[test]
    fn streams_begin_where_they_win_for_every_larger_size() {
        let from = |algorithm, least: usize, plan: &Plan| {
            let points = points(algorithm, |way, bytes| match way {
                Way::Streaming if bytes >= least => 12.0,
                Way::Streaming => 8.0,
                Way::Fused => 9.0,
                _ => 11.9,
            });
            stream_from(&points, algorithm, plan)
        };
        let fused = Plan::usual(CRC);
        assert_eq!(from(CRC, 1 << 20, &fused), Some(1 << 20));
        let usual = marline_checksum::stream_min_bytes();
        assert_eq!(from(CRC, usual, &fused), None, "as usual");
        assert_eq!(from(CRC, usize::MAX, &fused), Some(0));
        let blocked = Plan {
            blocked_from: Some(65_536),
            ..fused
        };
        assert_eq!(from(CRC, 1 << 20, &blocked), Some(0), "not worth it");
        let plain = Plan::usual(Algorithm::Xxh3);
        assert_eq!(from(Algorithm::Xxh3, 4 << 20, &plain), Some(4 << 20));
        assert_eq!(from(Algorithm::Xxh3, usize::MAX, &plain), None, "as usual");
    }

    #[test]
    fn small_sizes_say_nothing_of_streams() {
        let mut points = points(CRC, |way, _| if way == Way::Fused { 9.0 } else { 20.0 });
        points.retain(|p| p.bytes < STREAMS_KNOWN);
        assert_eq!(stream_from(&points, CRC, &Plan::usual(CRC)), None);
    }

    #[test]
    fn the_profile_of_measured_points_is_one_that_an_engine_takes() {
        let points = points(CRC, |_, _| 9.0);
        let rail = RailFigures {
            what: "lo".to_owned(),
            latency_us: 5.0,
            gb_per_s: 3.0,
            gap_ns: 600.0,
        };
        let made = profile(&points, Some(rail), "today");
        assert_eq!(Profile::parse(&made.to_text().unwrap()), Ok(made.clone()));
        // C0 = 2 · 5 µs · 9 GB/s, q = 9/3, b = 600 ns · 9 GB/s.
        assert_eq!(made.pipeline.first_chunk_bytes, 89_984);
        assert!((made.pipeline.growth - 3.0).abs() < 1e-9);
        assert_eq!(made.pipeline.last_block_bytes, 5376);
        assert_eq!(made.algorithms.len(), 1);
        assert!((made.algorithms[0].gb_per_s - 9.0).abs() < 1e-6);
        // 2L/B = 2λ + b/B + g·n: about 49 KiB.
        assert!((40_000..65_536).contains(&made.eager_max_bytes), "{made:?}");
    }

    #[test]
    fn nothing_measured_makes_the_defaults() {
        let made = profile(&[], None, "today");
        assert_eq!((made.eager_max_bytes, made.pipeline.growth), (65_536, 1.0));
        assert_eq!(Profile::parse(&made.to_text().unwrap()), Ok(made));
    }
}
