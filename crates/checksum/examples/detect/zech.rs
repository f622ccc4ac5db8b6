//! Finds patterns of four undetected flips with discrete logarithms.
//!
//! CRC-64/NVME's polynomial P is primitive (checked below), so every sum of powers modulo P is a
//! power of x itself: 1 + x^d = x^L(d), where L is Zech's logarithm. A pattern x^0 + x^a + x^b +
//! x^c with 0 < a and 0 < b < c is undetected if 1 + x^a = x^b (1 + x^(c - b)), that is if L(a) -
//! L(c - b) = b. So the search takes one logarithm per bit of length, a sort, and a comparison of
//! neighbours, instead of all pairs of bits. Logarithms are cheap, as 2^64 - 1 has no prime factor
//! above 6,700,417 (Pohlig and Hellman).

use std::collections::HashMap;

/// The order of x, and its prime factors.
const ORDER: u64 = u64::MAX;
const PRIMES: [u64; 7] = [3, 5, 17, 257, 641, 65_537, 6_700_417];

/// The field of P; bit j of an element is the coefficient of x^j.
struct Field {
    /// Multiples of P's lower terms by all polynomials of 4 bits, reduced.
    nibbles: [u64; 16],
}

impl Field {
    fn new(lower: u64) -> Field {
        let double = |v: u64| (v << 1) ^ (lower & (v >> 63).wrapping_neg());
        let mut nibbles = [0; 16];
        for (i, nibble) in nibbles.iter_mut().enumerate() {
            let of = (0..4).filter(|bit| i >> bit & 1 == 1);
            *nibble = of.fold(0, |sum, bit| sum ^ (0..bit).fold(lower, |v, _| double(v)));
        }
        Field { nibbles }
    }

    fn times(&self, a: u64, b: u64) -> u64 {
        let shifted = |v: u64| (v << 4) ^ self.nibbles[(v >> 60) as usize];
        let double = |v: u64| (v << 1) ^ (self.nibbles[1] & (v >> 63).wrapping_neg());
        let (two, mut multiples) = (double(a), [0; 16]);
        let (four, eight) = (double(two), double(double(two)));
        for (i, multiple) in multiples.iter_mut().enumerate() {
            let pick = |bit: usize, v: u64| ((i >> bit & 1) as u64).wrapping_neg() & v;
            *multiple = pick(0, a) ^ pick(1, two) ^ pick(2, four) ^ pick(3, eight);
        }
        (0..16).rev().fold(0, |product, i| {
            shifted(product) ^ multiples[(b >> (4 * i) & 15) as usize]
        })
    }

    fn power(&self, base: u64, exponent: u64) -> u64 {
        (0..64).rev().fold(1, |v, bit| {
            let v = self.times(v, v);
            match exponent >> bit & 1 {
                1 => self.times(v, base),
                _ => v,
            }
        })
    }
}

/// Logarithms to the base x.
struct Logarithms {
    field: Field,
    /// For each prime q: the powers of x^(ORDER / q), and the weight of a remainder modulo q.
    parts: Vec<(u64, HashMap<u64, u32>, u64)>,
}

impl Logarithms {
    /// Panics unless x generates all of the field but 0, which the method requires.
    fn new(lower: u64) -> Logarithms {
        let field = Field::new(lower);
        assert_eq!(field.power(2, ORDER), 1, "x has another order");
        let mut parts = Vec::new();
        for q in PRIMES {
            let root = field.power(2, ORDER / q);
            assert_ne!(root, 1, "x has a smaller order");
            let mut powers = HashMap::with_capacity(q as usize);
            let last = (0..q).fold(1, |v, i| {
                powers.insert(v, i as u32);
                field.times(v, root)
            });
            assert!(last == 1 && powers.len() as u64 == q);
            // ORDER / q times its inverse modulo q: 1 modulo q, 0 modulo the others.
            let rest = ORDER / q;
            let inverse = (1..q)
                .find(|i| (rest % q) * i % q == 1)
                .expect("q is prime");
            parts.push((
                q,
                powers,
                (rest as u128 * inverse as u128 % ORDER as u128) as u64,
            ));
        }
        Logarithms { field, parts }
    }

    fn of(&self, v: u64) -> u64 {
        let terms = self.parts.iter().map(|(q, powers, counts)| {
            let remainder = powers[&self.field.power(v, ORDER / q)];
            u128::from(remainder) * u128::from(*counts)
        });
        (terms.sum::<u128>() % u128::from(ORDER)) as u64
    }
}

/// Two to four bits, the first of them 0 and the last below `bits`, whose flips cancel modulo the
/// polynomial (reflected, 64 bits): the pattern with the smallest last bit. `None` if there is
/// none.
pub fn shortest(reflected: u64, bits: usize) -> Option<Vec<u64>> {
    let logarithms = Logarithms::new(reflected.reverse_bits());
    let field = &logarithms.field;
    let mut zech = Vec::with_capacity(bits);
    let mut power = 1;
    for distance in 1..bits as u64 {
        power = field.times(power, 2);
        let logarithm = logarithms.of(power ^ 1);
        if distance % 1024 == 1 {
            assert_eq!(field.power(2, logarithm), power ^ 1);
        }
        zech.push((logarithm, distance));
    }
    // Three flips: 1 + x^d is one of the powers.
    let three = zech.iter().filter(|(b, _)| *b < bits as u64);
    let mut found: Vec<Vec<u64>> = three.map(|(b, d)| vec![0, *b, *d]).collect();
    zech.sort_unstable();
    for (i, (low, inner)) in zech.iter().enumerate() {
        // Differences are modulo the order: the first logarithm follows the last.
        let after = zech[i + 1..].iter().chain(&zech[..i]);
        let near = after.map(|(high, outer)| (high.wrapping_sub(*low), high < low, outer));
        // Modulo 2^64 - 1 a difference that wraps is one less than modulo 2^64.
        let near = near.map(|(by, wraps, outer)| (by - u64::from(wraps), outer));
        for (b, outer) in near.take_while(|(b, _)| *b < bits as u64) {
            if b + inner < bits as u64 {
                found.push(vec![0, *outer, b, b + inner]);
            }
        }
    }
    let zero = |p: &Vec<u64>| p.iter().fold(0, |sum, e| sum ^ field.power(2, *e)) == 0;
    assert!(found.iter().all(zero), "a pattern that does not cancel");
    found.into_iter().min_by_key(|p| p.iter().max().copied())
}
