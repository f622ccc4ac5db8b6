//! Ways to damage a packet, and what theory says of the sums that should notice.
//!
//! Papers 0 and 3 count flipped bits; hardware also swaps words, writes zeros, and delivers pages
//! or whole buffers that belong to another packet (stale or misdirected transfers).

use crate::base::rng::Rng;
use marline_checksum::Algorithm;

/// Bytes of the unit that a stale or misdirected transfer mixes up.
pub const PAGE_BYTES: usize = 4_096;
/// Longest run of zeros written.
const ZEROS_MAX: u64 = 256;

/// Which bytes of a packet are damaged.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Place {
    /// The fixed header.
    Header,
    /// The sums in fragments' frames.
    Sum,
    /// Frames that acknowledge.
    Ack,
    /// Frames that grant.
    Grant,
    /// Payload of full data packets.
    Payload,
    /// Any byte of any packet.
    Anywhere,
}

/// How they are damaged.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum How {
    /// The number of bits that flip, anywhere.
    Flips(usize),
    /// One to five bits flip.
    FewFlips,
    /// Two bits flip in the same place of two 32-bit words.
    SameColumn,
    /// The top bits of two 64-bit words flip.
    TopBits,
    /// The same bit flips twice, half of [`marline_checksum::Algorithm::AesLanes`]'s group apart,
    /// in its last groups, where its rounds have mixed least.
    Stride,
    /// First and last bit of so many flip, those between at random.
    Burst(usize),
    /// Two aligned words of so many bytes change places.
    Swap(usize),
    /// Up to 256 bytes become zero.
    Zeros,
    /// 64 aligned bytes come from elsewhere in the packet.
    Line,
    /// One page of the packet's buffer is what the packet before had there.
    Page,
    /// Everything behind the head is another packet's.
    Buffer,
}

/// A kind of damage: its name in tables, where, and how.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Kind {
    /// Name in tables.
    pub name: &'static str,
    /// Which bytes.
    pub place: Place,
    /// How.
    pub how: How,
}

const fn kind(name: &'static str, place: Place, how: How) -> Kind {
    Kind { name, place, how }
}

/// Damage of payload: what the payload's algorithm has to notice.
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

/// Damage elsewhere: what the head's CRC has to notice, and the protocol to bear.
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

/// A number below `n`, as an index.
fn at(rng: &mut Rng, n: usize) -> usize {
    rng.below(n as u64) as usize
}

impl How {
    /// Damages `d` (bytes of one [`Place`]); it may happen to stay what it was.
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
            // Too short for it; or it needs another packet: see `Injection`.
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

/// The same bit of two different words of `width` bits.
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

/// The share of damaged payloads that a sum misses in theory. The payload is uniform
/// noise of [`crate::inject::copies::FULL_BYTES`].
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Theory {
    /// None, by a property of the construction.
    Never,
    /// All of them, by a property of the construction.
    Always,
    /// This share, derived from the construction.
    Share(f64),
    /// At least this share.
    AtLeast(f64),
    /// 2 to the minus so many bits, as of any good hash; hoped where nothing is proved.
    Hash(u32),
    /// Nothing is known.
    Unknown,
}

/// Share of pairs of different words of `bytes` random bytes whose bytes have the same sum.
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

/// Two of `n` bits chosen at random are in one column of words of `width` bits.
fn one_column(n: f64, width: f64) -> f64 {
    (n / width - 1.0) / (n - 1.0)
}

/// The theory of an algorithm and a kind of damage to `bytes` of noise.
///
/// Derivations, beside those in `docs/checksums.md`: a plain sum misses two flips of one column in
/// opposite directions (half of them; all in the top column), and three that add up (two of a
/// column against one of the next: 3 x 8 of 32^3 choices). Where a hash only multiplies, a flip
/// of bit 31 - k of a word spreads to the k + 1 top bits at most, so a second one there undoes it
/// about 2^-k times: at least 1 + 1/2 + 1/4 of the columns' share. Adler's first sum sees the bytes
/// of a swapped word, its second their sum times the distance, which is below its prime modulus.
pub fn theory(algorithm: Algorithm, how: How, bytes: usize) -> Theory {
    use Algorithm as A;
    use Theory::{Always, AtLeast, Hash, Never, Share, Unknown};
    let bits = 8.0 * bytes as f64;
    let halves = bytes as f64 / 2.0;
    let (column, wide) = (one_column(bits, 32.0), one_column(bits, 64.0));
    let crc = matches!(algorithm, A::Crc64Nvme | A::Crc32c);
    match (algorithm, how) {
        // A stale first page is a whole packet that came before.
        (A::None, How::Page) | (A::SuperFast, _) => Unknown,
        (A::None, _) => Always,
        // Not for certain: a word may be what hides its neighbour.
        (A::Crc64Nh, _) => Hash(64),
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
    /// Misses among `n` that theory gives: the least and the most that chance allows (five
    /// standard deviations), if it says anything.
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

    /// The share, for tables.
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
