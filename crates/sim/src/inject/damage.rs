//! Kinds of packet damage, and the theoretical detection rates of checksums.
//!
//! Papers 0 and 3 consider flipped bits. Hardware also swaps words, writes zeros, and delivers
//! pages or whole buffers of other packets (stale or misdirected transfers).

use crate::base::rng::Rng;
use marline_checksum::Algorithm;

/// Bytes of a page, the unit of stale or misdirected transfers.
pub const PAGE_BYTES: usize = 4_096;
/// Longest run of zeros.
const ZEROS_MAX: u64 = 256;

/// The damaged part of a packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Place {
    /// The fixed header.
    Header,
    /// The sums in fragments' frames.
    Sum,
    /// Ack frames.
    Ack,
    /// Grant frames.
    Grant,
    /// Payload of full data packets.
    Payload,
    /// Any byte of any packet.
    Anywhere,
}

/// The way of damage.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum How {
    /// This number of bit flips, anywhere.
    Flips(usize),
    /// One to five bits flip.
    FewFlips,
    /// Two flips in the same bit of two 32-bit words.
    SameColumn,
    /// The top bits of two 64-bit words flip.
    TopBits,
    /// Two flips of the same bit, half of [`marline_checksum::Algorithm::AesLanes`]'s group apart,
    /// in its last groups, whose bits are mixed by the fewest rounds.
    Stride,
    /// A burst of this many bits: the first and the last bit flip, and those between at random.
    Burst(usize),
    /// Two aligned words of this many bytes swap places.
    Swap(usize),
    /// Up to 256 bytes become zero.
    Zeros,
    /// 64 aligned bytes are replaced by others of the packet.
    Line,
    /// One page of the packet's buffer holds the previous packet's data.
    Page,
    /// Everything after the head belongs to another packet.
    Buffer,
}

/// A kind of damage: name, place and way.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Kind {
    /// Name in tables.
    pub name: &'static str,
    /// The damaged part.
    pub place: Place,
    /// The way of damage.
    pub how: How,
}

const fn kind(name: &'static str, place: Place, how: How) -> Kind {
    Kind { name, place, how }
}

/// Payload damage, for the payload's algorithm to detect.
pub const PAYLOAD_KINDS: [Kind; 15] = [
    kind("1 bit", Place::Payload, How::Flips(1)),
    kind("2 bits", Place::Payload, How::Flips(2)),
    kind("3 bits", Place::Payload, How::Flips(3)),
    kind("2 bits in one column", Place::Payload, How::SameColumn),
    kind("top bits of 2 64-bit words", Place::Payload, How::TopBits),
    kind("2 bits 128 bytes apart", Place::Payload, How::Stride),
    kind("burst of 32 bits", Place::Payload, How::Burst(32)),
    kind("burst of 64 bits", Place::Payload, How::Burst(64)),
    kind("burst of 256 bits", Place::Payload, How::Burst(256)),
    kind("2 16-bit words swapped", Place::Payload, How::Swap(2)),
    kind("2 32-bit words swapped", Place::Payload, How::Swap(4)),
    kind("zeroed run", Place::Payload, How::Zeros),
    kind("64 bytes from elsewhere", Place::Payload, How::Line),
    kind("stale page", Place::Payload, How::Page),
    kind("another packet's payload", Place::Payload, How::Buffer),
];

/// Damage elsewhere, for the head's CRC to detect and the protocol to survive.
pub const HEAD_KINDS: [Kind; 10] = [
    kind("header, 1 to 5 bits", Place::Header, How::FewFlips),
    kind("header, burst of 64 bits", Place::Header, How::Burst(64)),
    kind("header, 32-bit words swapped", Place::Header, How::Swap(4)),
    kind("header, zeroed run", Place::Header, How::Zeros),
    kind("checksum field, 1 to 5 bits", Place::Sum, How::FewFlips),
    kind("ack, 1 to 5 bits", Place::Ack, How::FewFlips),
    kind("ack, 16-bit words swapped", Place::Ack, How::Swap(2)),
    kind("grant, 1 to 5 bits", Place::Grant, How::FewFlips),
    kind("anywhere, 1 to 5 bits", Place::Anywhere, How::FewFlips),
    kind("anywhere, zeroed run", Place::Anywhere, How::Zeros),
];

fn flip(bytes: &mut [u8], bit: usize) {
    bytes[bit / 8] ^= 1 << (bit % 8);
}

/// A random index below `n`.
fn at(rng: &mut Rng, n: usize) -> usize {
    rng.below(n as u64) as usize
}

impl How {
    /// Damages `d` (the bytes of one [`Place`]); by chance the result may equal the original.
    pub fn apply(self, d: &mut [u8], rng: &mut Rng) {
        match self {
            How::Flips(n) => flips(d, rng, n),
            How::FewFlips => {
                let n = at(rng, 5) + 1;
                flips(d, rng, n);
            }
            How::SameColumn => twice(d, rng, 32, None),
            How::TopBits => twice(d, rng, 64, Some(63)),
            How::Stride if d.len() >= 384 => {
                let bit = at(rng, 8 * 256);
                flip(d, 8 * (d.len() - 384) + bit);
                flip(d, 8 * (d.len() - 256) + bit);
            }
            How::Burst(bits) => burst(d, rng, bits.min(8 * d.len())),
            How::Swap(bytes) => swap(d, rng, bytes),
            How::Zeros => {
                let (from, n) = (at(rng, d.len()), 1 + rng.below(ZEROS_MAX) as usize);
                let to = (from + n).min(d.len());
                d[from..to].fill(0);
            }
            How::Line if d.len() >= 128 => {
                let (from, to) = (at(rng, d.len() / 64), at(rng, d.len() / 64));
                d.copy_within(64 * from..64 * from + 64, 64 * to);
            }
            // The packet is too short for this damage, or another packet is needed: see
            // `Injection`.
            How::Line | How::Stride | How::Page | How::Buffer => {}
        }
    }
}

/// Flips `n` different bits.
fn flips(d: &mut [u8], rng: &mut Rng, n: usize) {
    let mut done: Vec<usize> = Vec::with_capacity(n);
    while done.len() < n.min(8 * d.len()) {
        let bit = at(rng, 8 * d.len());
        if !done.contains(&bit) {
            done.push(bit);
            flip(d, bit);
        }
    }
}

/// Flips the same bit of two different words of `width` bits.
fn twice(d: &mut [u8], rng: &mut Rng, width: usize, bit: Option<usize>) {
    let words = 8 * d.len() / width;
    if words < 2 {
        return;
    }
    let bit = bit.unwrap_or_else(|| at(rng, width));
    let first = at(rng, words);
    let second = (first + 1 + at(rng, words - 1)) % words;
    flip(d, width * first + bit);
    flip(d, width * second + bit);
}

fn burst(d: &mut [u8], rng: &mut Rng, bits: usize) {
    let start = at(rng, 8 * d.len() - bits + 1);
    flip(d, start);
    for i in 1..bits - 1 {
        if rng.one_in(2) {
            flip(d, start + i);
        }
    }
    flip(d, start + bits - 1);
}

fn swap(d: &mut [u8], rng: &mut Rng, bytes: usize) {
    let words = d.len() / bytes;
    let (a, b) = (at(rng, words), at(rng, words));
    for i in 0..bytes {
        d.swap(a * bytes + i, b * bytes + i);
    }
}

/// The theoretical share of damaged payloads that a sum misses. The payload is uniform noise of
/// [`crate::inject::copies::FULL_BYTES`].
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Theory {
    /// No errors are missed, by a property of the construction.
    Never,
    /// All errors are missed, by a property of the construction.
    Always,
    /// This share, derived from the construction.
    Share(f64),
    /// At least this share.
    AtLeast(f64),
    /// 2 to the power of minus this number, as for a good hash; assumed where nothing is proved.
    Hash(u32),
    /// Nothing is known.
    Unknown,
}

/// Share of pairs of different words of `bytes` random bytes with equal byte sums.
fn equal_sums(bytes: usize) -> f64 {
    let mut sums = vec![1.0];
    for _ in 0..bytes {
        let mut next = vec![0.0; sums.len() + 255];
        for (i, p) in sums.iter().enumerate() {
            (0..256).for_each(|b| next[i + b] += p / 256.0);
        }
        sums = next;
    }
    let equal: f64 = sums.iter().map(|p| p * p).sum();
    let same = 256f64.powi(-(bytes as i32));
    (equal - same) / (1.0 - same)
}

/// Probability that two of `n` random bits are in the same column of words of `width` bits.
fn one_column(n: f64, width: f64) -> f64 {
    (n / width - 1.0) / (n - 1.0)
}

/// The theory for an algorithm and a way of damage to `bytes` of noise.
///
/// Derivations beyond `docs/checksums.md`: a plain sum misses two flips of one column in opposite
/// directions (half of them; all in the top column), and three flips that cancel (two of a column
/// against one of the next: 3 x 8 of 32^3 choices). In a purely multiplicative hash, a flip of bit
/// 31 - k of a word affects only the k + 1 top bits, so that a second flip there cancels it with
/// probability about 2^-k: at least 1 + 1/2 + 1/4 of the columns' share. Adler's first sum detects
/// the bytes of a swapped word, its second sum their sum times the distance, which is below its
/// prime modulus.
pub fn theory(algorithm: Algorithm, how: How, bytes: usize) -> Theory {
    use Algorithm as A;
    use Theory::{Always, AtLeast, Hash, Never, Share, Unknown};
    let bits = 8.0 * bytes as f64;
    let halves = bytes as f64 / 2.0;
    let (column, wide) = (one_column(bits, 32.0), one_column(bits, 64.0));
    let crc = matches!(algorithm, A::Crc64Nvme | A::Crc32c);
    match (algorithm, how) {
        // A first page left over from an earlier packet may be that whole packet.
        (A::None, How::Page) | (A::SuperFast, _) => Unknown,
        (A::None, _) => Always,
        // Not certain: a word may cancel its neighbour's change.
        (A::Crc64Nh | A::Aegis, _) => Hash(64),
        (_, How::Flips(1)) => Never,
        (_, How::Flips(2 | 3) | How::SameColumn | How::TopBits | How::Stride) if crc => Never,
        (A::Crc64Nvme, How::Burst(32 | 64)) | (A::Crc32c, How::Burst(32)) => Never,
        (
            A::Adler32 | A::Fletcher64,
            How::Flips(2) | How::SameColumn | How::TopBits | How::Stride,
        ) => Never,
        (A::Fletcher64, How::Burst(32) | How::Swap(2)) => Never,
        (A::Adler32, How::Swap(n)) => Share(equal_sums(n)),
        (A::Adler32, How::Flips(3) | How::Burst(_) | How::Zeros | How::Line) => Unknown,
        (A::Fletcher64, How::Flips(3)) => Unknown,
        (A::Xor32 | A::Sum32, How::Burst(32)) => Never,
        (A::Xor32 | A::Sum32, How::Swap(4)) => Always,
        (A::Xor32 | A::Sum32, How::Swap(2)) => Share((halves / 2.0 - 1.0) / (halves - 1.0)),
        (A::Xor32 | A::Sum32 | A::Knuth | A::Fnv1a, How::TopBits) => Always,
        (A::Xor32, How::Flips(2)) => Share(column),
        (A::Xor32, How::Flips(3)) => Never,
        (A::Xor32, How::SameColumn | How::Stride) => Always,
        (A::Sum32, How::Flips(2)) => Share(column * 16.5 / 32.0),
        (A::Sum32, How::Flips(3)) => Share(3.0 * 8.0 / 32f64.powi(3)),
        (A::Sum32, How::SameColumn | How::Stride) => Share(16.5 / 32.0),
        (A::Knuth, How::Flips(2)) => AtLeast(column * 1.75 / 32.0),
        (A::Knuth, How::SameColumn) => AtLeast(1.75 / 32.0),
        (A::Fnv1a, How::Flips(2)) => AtLeast(wide * 1.75 / 64.0),
        (A::Fnv1a, How::SameColumn) => AtLeast(1.75 / 128.0),
        (A::Knuth | A::Fnv1a, How::Flips(3) | How::Swap(2) | How::Stride) => Unknown,
        _ => Hash(algorithm.bits()),
    }
}

impl Theory {
    /// The least and the most misses among `n` copies that chance allows by theory (five standard
    /// deviations); `None` without a theory.
    pub fn bounds(self, n: u64) -> Option<(u64, u64)> {
        let n = n as f64;
        let around = |p: f64| {
            let (mean, spread) = (n * p, 5.0 * (n * p * (1.0 - p)).sqrt());
            (
                (mean - spread).floor().max(0.0) as u64,
                (mean + spread).ceil() as u64,
            )
        };
        match self {
            Theory::Never => Some((0, 0)),
            Theory::Always => Some((n as u64, n as u64)),
            Theory::Share(p) => Some(around(p)),
            Theory::AtLeast(p) => Some((around(p).0, u64::MAX)),
            Theory::Hash(bits) => Some(around(0.5f64.powi(bits as i32))),
            Theory::Unknown => None,
        }
    }

    /// The share as text for tables.
    pub fn text(self) -> String {
        match self {
            Theory::Never => "0".into(),
            Theory::Always => "1".into(),
            Theory::Share(p) => format!("{p:.6}"),
            Theory::AtLeast(p) => format!(">={p:.6}"),
            Theory::Hash(bits) => format!("2^-{bits}"),
            Theory::Unknown => "?".into(),
        }
    }
}
