//! Speed of sums and of copy-and-sum against plain copies, as CSV on standard output.
//!
//! `cargo run --release -p marline-checksum --example bench [algorithm ...]`; without names, those
//! of strength medium and above. Rivals run interleaved, in rounds; figures are medians over the
//! rounds. One core: pin it (`taskset -c 1`) and leave the machine alone.

use marline_checksum::{
    copy_and_sum, plain_copy, sum, tier, Algorithm, CopyMode, Strength, Summer, Tier, Variant,
};
use std::hint::black_box;
use std::time::Instant;

const SIZES: [usize; 11] = [
    48,
    128,
    300,
    448,
    1344,
    4096,
    8512,
    32 << 10,
    63616,
    1 << 20,
    64 << 20,
];
/// Where the destination starts in a line: whole, and as behind a packet header.
const OFFSETS: [usize; 2] = [0, 16];
/// Rounds per figure; odd, for the median.
const ROUNDS: usize = 7;
/// Bytes moved per timed sample: about 1 ms, unless one call is longer.
const SAMPLE_BYTES: usize = 16 << 20;

/// What is timed: `len` bytes from `src` to `dst`.
type Job = Box<dyn Fn(*mut u8, *const u8, usize) -> u64>;

fn jobs(algorithm: Algorithm) -> Vec<(&'static str, Job)> {
    let with = move |mode, variant| -> Job {
        Box::new(move |dst, src, len| {
            let mut s = Summer::new(algorithm, black_box(1));
            // SAFETY: `measure` gives buffers of `len` bytes.
            unsafe { s.copy_with(dst, src, len, mode, variant) };
            s.finish()
        })
    };
    vec![
        (
            "sum",
            Box::new(move |_, src, len| {
                // SAFETY: `measure` gives buffers of `len` bytes.
                sum(algorithm, black_box(1), unsafe {
                    std::slice::from_raw_parts(src, len)
                })
            }),
        ),
        (
            "sum_sse42",
            Box::new(move |_, src, len| {
                let mut s = Summer::with_tier(algorithm, black_box(1), Tier::Sse42);
                // SAFETY: `measure` gives buffers of `len` bytes.
                s.update(unsafe { std::slice::from_raw_parts(src, len) });
                s.finish()
            }),
        ),
        (
            "copy_and_sum",
            // SAFETY: `measure` gives buffers of `len` bytes.
            Box::new(move |dst, src, len| unsafe {
                copy_and_sum(algorithm, black_box(1), dst, src, len)
            }),
        ),
        (
            "summer_copy",
            Box::new(move |dst, src, len| {
                let mut s = Summer::new(algorithm, black_box(1));
                // SAFETY: `measure` gives buffers of `len` bytes.
                unsafe { s.copy(dst, src, len) };
                s.finish()
            }),
        ),
        ("blocked", with(CopyMode::Cached, Variant::Blocked)),
        ("stream_fused", with(CopyMode::Streaming, Variant::Fused)),
        (
            "stream_blocked",
            with(CopyMode::Streaming, Variant::Blocked),
        ),
    ]
}

fn plain() -> Vec<(&'static str, Job)> {
    let own = |mode| -> Job {
        Box::new(move |dst, src, len| {
            // SAFETY: `measure` gives buffers of `len` bytes.
            unsafe { plain_copy(dst, src, len, mode) };
            0
        })
    };
    vec![
        (
            "memcpy",
            Box::new(|dst, src, len| {
                // SAFETY: `measure` gives buffers of `len` bytes.
                unsafe { std::ptr::copy_nonoverlapping(src, dst, len) };
                0
            }),
        ),
        ("plain", own(CopyMode::Cached)),
        ("plain_stream", own(CopyMode::Streaming)),
    ]
}

/// Nanoseconds per call, the median over the rounds, for each job, interleaved.
fn measure(jobs: &[(&'static str, Job)], dst: &mut [u8], src: &[u8]) -> Vec<f64> {
    let len = src.len();
    let calls = (SAMPLE_BYTES / len).clamp(1, 4096);
    let mut times = vec![Vec::new(); jobs.len()];
    for round in 0..ROUNDS + 1 {
        for (i, (_, job)) in jobs.iter().enumerate() {
            // The last job may have left the buffers in another cache.
            black_box(job(dst.as_mut_ptr(), src.as_ptr(), len));
            let start = Instant::now();
            for _ in 0..calls {
                black_box(job(
                    black_box(dst.as_mut_ptr()),
                    black_box(src.as_ptr()),
                    len,
                ));
            }
            let ns = start.elapsed().as_nanos() as f64 / calls as f64;
            // The first round warms up.
            if round > 0 {
                times[i].push(ns);
            }
        }
    }
    times
        .into_iter()
        .map(|mut t| {
            t.sort_by(f64::total_cmp);
            t[t.len() / 2]
        })
        .collect()
}

fn main() {
    let mut chosen: Vec<Algorithm> = Vec::new();
    for name in std::env::args().skip(1) {
        match name.parse() {
            Ok(a) => chosen.push(a),
            Err(e) => {
                eprintln!("{e}");
                std::process::exit(2);
            }
        }
    }
    if chosen.is_empty() {
        chosen.extend(Algorithm::all().filter(|a| a.strength() >= Strength::Medium));
    }
    eprintln!("tier {:?}", tier());
    println!("bytes,offset,algorithm,way,ns,gb_per_s,of_memcpy,of_best_plain");
    for len in SIZES {
        let from: Vec<u8> = (0..len + 64).map(|i| (i * 7 + i / 251) as u8).collect();
        let start = from.as_ptr().align_offset(64);
        let src = &from[start..start + len];
        let mut room = vec![0u8; len + 128];
        for offset in OFFSETS {
            let start = room.as_ptr().align_offset(64) + offset;
            rows(&chosen, &mut room[start..start + len], src, offset);
        }
    }
}

fn rows(chosen: &[Algorithm], dst: &mut [u8], src: &[u8], offset: usize) {
    let len = src.len();
    for &algorithm in chosen {
        let mut all = plain();
        let plains = all.len();
        all.extend(jobs(algorithm));
        let ns = measure(&all, dst, src);
        let best = ns[..plains].iter().copied().fold(f64::MAX, f64::min);
        for ((way, _), t) in all.iter().zip(&ns) {
            let (rate, of_memcpy, of_best) = (len as f64 / t, ns[0] / t, best / t);
            println!(
                "{len},{offset},{algorithm},{way},{t:.1},{rate:.2},{of_memcpy:.2},{of_best:.2}"
            );
        }
    }
}
