//! Measures what the algorithms detect: an exhaustive search for the CRCs, sampled misses for all.
//!
//! `cargo run --release -p marline-checksum --example detect [long] [packets]` prints two tables as
//! CSV. The first contains, for each CRC and payload length, the number of bit errors up to which
//! every error is detected (2 to 5 are tried; more only where that takes seconds). With `long` it
//! is instead one line: the length up to which CRC-64/NVME detects all patterns of 4 errors (a
//! minute). The second counts, over `packets` corrupted packets (default 20000) for each kind of
//! error, those that each algorithm accepts.

mod random;
mod zech;

use marline_checksum::{sum, Algorithm};
use random::Random;

/// Payload of a packet in an Ethernet frame of 1500 bytes.
const PAYLOAD_BYTES: usize = 1344;

/// CRC-64/NVME's polynomial, reflected.
const NVME: u64 = 0x9a6c_9329_ac4b_c9b5;

/// Parts of the search for five errors, so that the pairs of only one part are in memory at a time.
const SLICES: u64 = 16;

/// x^i modulo the reflected polynomial, for i below `bits`.
fn powers(poly: u64, top: u64, bits: usize) -> Vec<u64> {
    let mut v = top;
    let mut out = Vec::with_capacity(bits);
    for _ in 0..bits {
        out.push(v);
        v = (v >> 1) ^ (poly & (v & 1).wrapping_neg());
    }
    out
}

/// The set of the powers: a bitmap in cache answers most queries negatively.
struct Set {
    bitmap: Vec<u64>,
    sorted: Vec<u64>,
}

impl Set {
    const BITS: u32 = 22;

    fn slot(v: u64) -> (usize, u64) {
        let h = v.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> (64 - Set::BITS);
        (h as usize / 64, 1 << (h % 64))
    }

    fn new(mut values: Vec<u64>) -> Set {
        let mut bitmap = vec![0; (1 << Set::BITS) / 64];
        for &v in &values {
            let (word, bit) = Set::slot(v);
            bitmap[word] |= bit;
        }
        values.sort_unstable();
        Set {
            bitmap,
            sorted: values,
        }
    }

    fn has(&self, v: u64) -> bool {
        let (word, bit) = Set::slot(v);
        self.bitmap[word] & bit != 0 && self.sorted.binary_search(&v).is_ok()
    }
}

/// Returns whether three powers and x^0 cancel. Any undetected pattern can be shifted to start at
/// x^0.
fn four(p: &[u64], set: &Set) -> bool {
    let pairs = |i: usize| p[i + 1..].iter().any(|b| set.has(p[0] ^ p[i] ^ b));
    (1..p.len()).any(pairs)
}

/// Returns whether four powers and x^0 cancel: compares pairs with pairs, a slice of their values
/// at a time.
fn five(p: &[u64]) -> bool {
    (0..SLICES).any(|slice| {
        let mut seen = Vec::new();
        for (i, a) in p.iter().enumerate().skip(1) {
            let values = p[i + 1..].iter().map(|b| a ^ b);
            seen.extend(values.filter(|v| v % SLICES == slice));
        }
        let set = Set::new(seen);
        set.sorted.windows(2).any(|w| w[0] == w[1])
            || set
                .sorted
                .iter()
                .any(|v| set.sorted.binary_search(&(v ^ p[0])).is_ok())
            || {
                let other = (p[0] ^ slice) % SLICES;
                other != slice && cross(p, &set, slice)
            }
    })
}

/// Returns whether pairs outside the slice match one in it after adding x^0.
fn cross(p: &[u64], set: &Set, slice: u64) -> bool {
    p.iter().enumerate().skip(1).any(|(i, a)| {
        let values = p[i + 1..].iter().map(|b| a ^ b ^ p[0]);
        values.filter(|v| v % SLICES == slice).any(|v| set.has(v))
    })
}

/// Payload lengths and the numbers of errors tried: fragments of one packet of an Ethernet of 1500
/// bytes, the largest UDP payload there, that of 9000 bytes, of a super-packet, and far beyond.
const SEARCHES: [(usize, u32); 5] = [
    (PAYLOAD_BYTES, 5),
    (1472, 5),
    (8896, 4),
    (64 << 10, 3),
    (4 << 20, 3),
];

fn search(searches: &[(usize, u32)]) {
    println!("crc,payload_bytes,all_errors_of_up_to_bits_detected");
    let crcs = [
        ("crc64-nvme", NVME, 1u64 << 63, 64),
        ("crc32c", 0x82f6_3b78, 1 << 31, 32),
    ];
    for (name, poly, top, width) in crcs {
        for &(bytes, most) in searches {
            let p = powers(poly, top, 8 * bytes + width);
            let set = Set::new(p.clone());
            let mut found = 1;
            if set.sorted.windows(2).all(|w| w[0] != w[1]) {
                found = 2;
            }
            if found == 2 && !p[1..].iter().any(|a| set.has(p[0] ^ a)) {
                found = 3;
            }
            if found == 3 && most >= 4 && !four(&p, &set) {
                found = 4;
            }
            if found == 4 && most >= 5 && !five(&p) {
                found = 5;
            }
            println!("{name},{bytes},{found}");
        }
    }
}

/// Payload up to which four flips are searched. An undetected pattern of four is to be expected
/// from 600,000 bytes on, where there are 2^64 patterns.
const LONG_BYTES: usize = 64 << 10;

fn longest() {
    println!("crc,all_errors_of_up_to_bits_detected,up_to_payload_bytes,first_that_passes");
    match zech::shortest(NVME, 8 * LONG_BYTES + 64) {
        // The pattern's bits, sum included, do not fit into a payload of fewer bytes than this.
        Some(pattern) => {
            let last = pattern.iter().max().copied().unwrap_or(0) as usize;
            let bytes = (last - 64) / 8;
            let flips = pattern.len() - 1;
            println!("crc64-nvme,{flips},{bytes},{pattern:?}");
        }
        None => println!("crc64-nvme,4,{LONG_BYTES},"),
    }
}

type Corrupt = fn(&mut [u8], &mut Random);

fn flip(d: &mut [u8], bit: usize) {
    d[bit / 8] ^= 1 << (bit % 8);
}

fn flips(d: &mut [u8], r: &mut Random, n: usize) {
    for _ in 0..n {
        let bit = r.below(8 * d.len());
        flip(d, bit);
    }
}

fn burst(d: &mut [u8], r: &mut Random, bits: usize) {
    let start = r.below(8 * d.len() - bits);
    flip(d, start);
    for i in 1..bits - 1 {
        if r.next() >> 63 == 1 {
            flip(d, start + i);
        }
    }
    flip(d, start + bits - 1);
}

fn swap(d: &mut [u8], r: &mut Random, bytes: usize) {
    let (a, b) = (r.below(d.len() / bytes), r.below(d.len() / bytes));
    for i in 0..bytes {
        d.swap(a * bytes + i, b * bytes + i);
    }
}

const KINDS: [(&str, Corrupt); 11] = [
    ("flip 1 bit", |d, r| flips(d, r, 1)),
    ("flip 2 bits", |d, r| flips(d, r, 2)),
    ("flip 2 bits a multiple of 32 apart", |d, r| {
        let (bit, words) = (r.below(32), d.len() / 4);
        flip(d, 32 * r.below(words) + bit);
        flip(d, 32 * r.below(words) + bit);
    }),
    ("flip the top bits of 2 64-bit words", |d, r| {
        let words = d.len() / 8;
        flip(d, 64 * r.below(words) + 63);
        flip(d, 64 * r.below(words) + 63);
    }),
    ("burst of 32 bits", |d, r| burst(d, r, 32)),
    ("burst of 64 bits", |d, r| burst(d, r, 64)),
    ("burst of 256 bits", |d, r| burst(d, r, 256)),
    ("swap 2 16-bit words", |d, r| swap(d, r, 2)),
    ("swap 2 32-bit words", |d, r| swap(d, r, 4)),
    ("zeroed run", |d, r| {
        let (from, n) = (r.below(d.len()), 1 + r.below(256));
        let to = (from + n).min(d.len());
        d[from..to].fill(0);
    }),
    ("line from elsewhere", |d, r| {
        let (from, to) = (r.below(d.len() / 64), r.below(d.len() / 64));
        d.copy_within(64 * from..64 * from + 64, 64 * to);
    }),
];

fn count(packets: usize) {
    let algorithms: Vec<Algorithm> = Algorithm::all().filter(|a| *a != Algorithm::None).collect();
    print!("error,packets");
    algorithms.iter().for_each(|a| print!(",{a}"));
    println!();
    for (name, corrupt) in KINDS {
        let mut r = Random(0x1234_5678_9abc_def1);
        let mut missed = vec![0usize; algorithms.len()];
        let mut corrupted = 0;
        while corrupted < packets {
            // Alternates counters and noise: most sums are weakest on small numbers.
            let small = corrupted % 2 == 0;
            let good: Vec<u8> = (0..PAYLOAD_BYTES)
                .map(|i| {
                    if small && i % 4 > 1 {
                        0
                    } else {
                        r.next() as u8
                    }
                })
                .collect();
            let mut bad = good.clone();
            corrupt(&mut bad, &mut r);
            if bad == good {
                continue;
            }
            corrupted += 1;
            for (a, missed) in algorithms.iter().zip(&mut missed) {
                *missed += (sum(*a, 1, &good) == sum(*a, 1, &bad)) as usize;
            }
        }
        print!("{name},{packets}");
        missed.iter().for_each(|m| print!(",{m}"));
        println!();
    }
}

fn main() {
    let mut words = std::env::args().skip(1).peekable();
    let long = words.next_if(|w| w == "long").is_some();
    let packets = match words.next().map(|a| a.parse()) {
        None => 20_000,
        Some(Ok(n)) => n,
        Some(Err(e)) => {
            eprintln!("the number of packets: {e}");
            std::process::exit(2);
        }
    };
    match long {
        true => longest(),
        false => search(&SEARCHES),
    }
    count(packets);
}
