//! Benchmarks sums and copy-and-sum against plain copies and other libraries, as CSV on standard
//! output, and reports on standard error whether the project's goals are met.
//!
//! `cargo run --release -p marline-checksum --example bench -- [--libraries] [--sizes A,B] [name
//! ...]`; without names, our algorithms of strength medium and above. One core: pin it
//! (`taskset -c 1`).
//!
//! All jobs take turns, in rounds. A round counts if glibc's memcpy was as fast at its start as at
//! its end, and only the calm rounds are used: those within a tenth of the fastest (a neighbour on
//! the same core slows all jobs, but not equally). Each figure and ratio is the median over rounds.

mod isal;
mod jobs;

use jobs::Job;
use marline_checksum::{tier, Algorithm, Strength};
use std::hint::black_box;
use std::time::Instant;

const SIZES: [usize; 16] = [
    48,
    128,
    300,
    448,
    1344,
    4096,
    8512,
    32 << 10,
    63616,
    128 << 10,
    512 << 10,
    1 << 20,
    4 << 20,
    16 << 20,
    64 << 20,
    256 << 20,
];
/// Offset of the destination within a cache line: aligned, and as after a packet header.
const OFFSETS: [usize; 2] = [0, 16];
/// Above this size only one offset is measured, since all kernels align their stores there.
const ONE_OFFSET_BYTES: usize = 4 << 20;
/// Calm rounds wanted, and the maximum of rounds.
const CALM_ROUNDS: usize = 9;
const MOST_ROUNDS: usize = 30;
/// Bytes per sample (or calls, if that is less): 0.1 ms and more.
const SAMPLE_BYTES: usize = 8 << 20;
const SAMPLE_CALLS: usize = 4000;
/// Huge pages, as used by `marline`'s pools and most large buffers of applications.
const HUGE_BYTES: usize = 2 << 20;

/// Filled memory, of huge pages if the kernel provides them.
struct Room(*mut u8, usize);

impl Room {
    fn new(bytes: usize) -> Room {
        let bytes = bytes.next_multiple_of(HUGE_BYTES) + HUGE_BYTES;
        let (rw, flags) = (
            libc::PROT_READ | libc::PROT_WRITE,
            libc::MAP_PRIVATE | libc::MAP_ANONYMOUS,
        );
        // SAFETY: a fresh mapping, checked; it is ours until dropped.
        unsafe {
            let at = libc::mmap(std::ptr::null_mut(), bytes, rw, flags, -1, 0);
            assert!(at != libc::MAP_FAILED, "no memory for {bytes} bytes");
            libc::madvise(at, bytes, libc::MADV_HUGEPAGE);
            let room = Room(at.cast(), bytes);
            for i in 0..bytes {
                room.0.add(i).write((i * 7 + i / 251) as u8);
            }
            room
        }
    }

    fn aligned(&self) -> *mut u8 {
        self.0.wrapping_add(self.0.align_offset(HUGE_BYTES))
    }
}

impl Drop for Room {
    fn drop(&mut self) {
        // SAFETY: mapped in `new`, and no longer in use.
        unsafe { libc::munmap(self.0.cast(), self.1) };
    }
}

/// Nanoseconds per call: per round, per job, and for memcpy again at the end of the round.
fn measure(jobs: &[Job], dst: *mut u8, src: *const u8, len: usize) -> Vec<Vec<f64>> {
    let calls = (SAMPLE_BYTES / len).clamp(1, SAMPLE_CALLS);
    let time = |job: &Job| {
        // The job before may have left the buffers in another cache, and other branch predictions.
        for _ in 0..calls.div_ceil(10) {
            black_box((job.work)(dst, src, len));
        }
        let start = Instant::now();
        for _ in 0..calls {
            black_box((job.work)(black_box(dst), black_box(src), len));
        }
        start.elapsed().as_nanos() as f64 / calls as f64
    };
    let mut rounds: Vec<Vec<f64>> = Vec::new();
    while rounds.len() < MOST_ROUNDS && calm(&rounds).len() < CALM_ROUNDS {
        rounds.push(jobs.iter().chain(&jobs[..1]).map(time).collect());
    }
    calm(&rounds)
}

/// The rounds that were steady and nearly as fast as the fastest round; all rounds if there are
/// none.
fn calm(rounds: &[Vec<f64>]) -> Vec<Vec<f64>> {
    let steady: Vec<_> = rounds
        .iter()
        .filter(|r| (r[0] / r[r.len() - 1] - 1.0).abs() < 0.05)
        .collect();
    let best = steady.iter().map(|r| r[0]).fold(f64::MAX, f64::min);
    let calm: Vec<_> = steady
        .into_iter()
        .filter(|r| r[0] < 1.1 * best)
        .cloned()
        .collect();
    match calm.len() < 3 && rounds.len() >= MOST_ROUNDS {
        true => rounds.to_vec(),
        false => calm,
    }
}

fn median(values: impl Iterator<Item = f64>) -> f64 {
    let mut v: Vec<f64> = values.collect();
    v.sort_by(f64::total_cmp);
    v[v.len() / 2]
}

/// The project's goals: (bytes from, to, algorithms, minimum ratio, baseline plain copy).
const MARKS: [(usize, usize, &[Algorithm], f64, &str); 4] = [
    (32 << 10, usize::MAX, STRONG, 0.97, "best plain copy"),
    (64 << 20, usize::MAX, STRONG, 1.5, "glibc's memcpy"),
    (4096, 4096, STRONG, 0.55, "best plain copy"),
    (4096, 4096, &[Algorithm::AesLanes], 0.95, "best plain copy"),
];

/// The algorithms of which one is the default, depending on the processor.
const STRONG: &[Algorithm] = &[Algorithm::Crc64Nvme, Algorithm::Crc64Nh];

fn judge(name: &str, len: usize, offset: usize, of_best: f64, of_memcpy: f64) {
    for (from, to, who, least, of) in MARKS {
        if who.iter().any(|a| a.name() == name) && (from..=to).contains(&len) {
            let got = if of == "best plain copy" {
                of_best
            } else {
                of_memcpy
            };
            let verdict = if got >= least {
                "reached"
            } else {
                "NOT reached"
            };
            eprintln!("{name} {len} B, offset {offset}: {got:.2} of {of}; mark {least}: {verdict}");
        }
    }
}

fn rows(jobs: &[Job], plains: usize, dst: *mut u8, src: *const u8, len: usize, offset: usize) {
    let rounds = measure(jobs, dst, src, len);
    // The best plain copy at this size over all rounds; the best of each round would be biased.
    let at = |i: usize| median(rounds.iter().map(|r| r[i]));
    let best = (0..plains)
        .min_by(|a, b| at(*a).total_cmp(&at(*b)))
        .unwrap_or(0);
    for (i, job) in jobs.iter().enumerate() {
        let ns = at(i);
        let of_memcpy = median(rounds.iter().map(|r| r[0] / r[i]));
        let of_best = median(rounds.iter().map(|r| r[best] / r[i]));
        println!(
            "{len},{offset},{},{},{ns:.1},{:.2},{of_memcpy:.3},{of_best:.3},{}",
            job.name,
            job.way,
            len as f64 / ns,
            rounds.len()
        );
        if job.way == "copy_and_sum" {
            judge(&job.name, len, offset, of_best, of_memcpy);
        }
    }
}

/// The arguments of the command line.
struct Args {
    algorithms: Vec<Algorithm>,
    sizes: Vec<usize>,
    libraries: bool,
}

fn parse(mut words: impl Iterator<Item = String>) -> Result<Args, String> {
    let mut args = Args {
        algorithms: Vec::new(),
        sizes: SIZES.to_vec(),
        libraries: false,
    };
    while let Some(word) = words.next() {
        match word.as_str() {
            "--libraries" => args.libraries = true,
            "--sizes" => {
                let list = words.next().ok_or("--sizes wants sizes")?;
                let sizes = list.split(',').map(|s| s.parse().ok().filter(|n| *n > 0));
                args.sizes = sizes
                    .collect::<Option<_>>()
                    .ok_or(format!("not sizes: {list}"))?;
            }
            name => args
                .algorithms
                .push(name.parse().map_err(|e| format!("{e}"))?),
        }
    }
    if args.algorithms.is_empty() {
        let some = Algorithm::all().filter(|a| a.strength() >= Strength::Medium);
        args.algorithms.extend(some);
    }
    Ok(args)
}

fn main() {
    let args = parse(std::env::args().skip(1)).unwrap_or_else(|e| {
        eprintln!("{e}");
        std::process::exit(2);
    });
    eprintln!("tier {:?}", tier());
    println!("bytes,offset,algorithm,way,ns,gb_per_s,of_memcpy,of_best_plain,rounds");
    let mut jobs = jobs::plain();
    let plains = jobs.len();
    jobs.extend(args.algorithms.iter().flat_map(|a| jobs::ours(*a)));
    if args.libraries {
        jobs.extend(jobs::libraries());
    }
    for len in args.sizes {
        let (from, room) = (Room::new(len), Room::new(len + 4096));
        for offset in OFFSETS {
            if offset == 0 || len < ONE_OFFSET_BYTES {
                // Half a page from the source's offset, so that stores do not alias loads.
                let dst = room.aligned().wrapping_add(2048 + offset);
                rows(&jobs, plains, dst, from.aligned(), len, offset);
            }
        }
    }
}
