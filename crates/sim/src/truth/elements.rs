//! Elements of atomic operations: types, and each operation on an element in its plainest form.
//! Integers are computed in 128 bits and reals as doubles, whatever their size in memory.

use crate::base::rng::Rng;
use marline_engine::AtomicKind::{self, Compare, Fetch, Plain};
use std::cmp::Ordering::{self, Equal, Greater, Less};

/// Classes of types.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Class {
    /// Signed and unsigned integers.
    Integer,
    /// Binary floating point.
    Real,
    /// Two reals.
    Complex,
}

/// libfabric's numbers of operations.
pub(crate) mod op {
    #![allow(missing_docs)] // the names say it
    pub const MIN: u8 = 0;
    pub const MAX: u8 = 1;
    pub const SUM: u8 = 2;
    pub const PROD: u8 = 3;
    pub const BOR: u8 = 6;
    pub const BAND: u8 = 7;
    pub const BXOR: u8 = 9;
    pub const READ: u8 = 10;
    pub const WRITE: u8 = 11;
    pub const CSWAP: u8 = 12;
    pub const CSWAP_NE: u8 = 13;
    pub const CSWAP_LT: u8 = 15;
    pub const CSWAP_GE: u8 = 16;
    pub const MSWAP: u8 = 18;
    pub const DIFF: u8 = 19;
}

/// Number, class and element size of libfabric's types, without long doubles.
const TYPES: [(u8, Class, usize); 14] = [
    (0, Class::Integer, 1),
    (1, Class::Integer, 1),
    (2, Class::Integer, 2),
    (3, Class::Integer, 2),
    (4, Class::Integer, 4),
    (5, Class::Integer, 4),
    (6, Class::Integer, 8),
    (7, Class::Integer, 8),
    (8, Class::Real, 4),
    (9, Class::Real, 8),
    (10, Class::Complex, 8),
    (11, Class::Complex, 16),
    (14, Class::Integer, 16),
    (15, Class::Integer, 16),
];

/// Operations: the first few apply to all types, further ones before [`OF_REALS`] to integers and
/// reals, the rest to integers.
const OPERATIONS: [(AtomicKind, u8); 19] = [
    (Plain, op::SUM),
    (Plain, op::DIFF),
    (Plain, op::WRITE),
    (Fetch, op::SUM),
    (Fetch, op::READ),
    (Fetch, op::WRITE),
    (Compare, op::CSWAP),
    (Compare, op::CSWAP_NE),
    (Plain, op::MAX),
    (Plain, op::MIN),
    (Plain, op::PROD),
    (Fetch, op::MAX),
    (Compare, op::CSWAP_LT),
    (Compare, op::CSWAP_GE),
    (Plain, op::BXOR),
    (Plain, op::BOR),
    (Fetch, op::BXOR),
    (Fetch, op::BAND),
    (Compare, op::MSWAP),
];
const OF_ALL: usize = 8;
const OF_REALS: usize = 14;

/// Draws a type, its size, and an operation on it.
pub(crate) fn draw(rng: &mut Rng) -> (u8, usize, (AtomicKind, u8)) {
    let (datatype, class, size) = rng.pick(&TYPES);
    let operations = match class {
        Class::Integer => &OPERATIONS[..],
        Class::Real => &OPERATIONS[..OF_REALS],
        Class::Complex => &OPERATIONS[..OF_ALL],
    };
    (datatype, size, rng.pick(operations))
}

/// Draws this number of operands from few values, so that comparisons succeed. Reals are at least
/// one, which avoids results that depend on the order of evaluation (signs of zero, choice among
/// two NaNs).
pub(crate) fn operands(rng: &mut Rng, datatype: u8, count: usize) -> Vec<u8> {
    let (class, size) = of(datatype);
    let mut one = |_| -> Vec<u8> {
        let n = rng.below(3);
        let real = [1.5, -2.25, 640.0][n as usize];
        let at = |i: usize| (n as u8).wrapping_mul(0xc3).wrapping_mul(2 * i as u8 + 1);
        match class {
            Class::Integer => (0..size).map(at).collect(),
            Class::Real => real_bytes(size, real),
            Class::Complex => [real, -real]
                .map(|half| real_bytes(size / 2, half))
                .concat(),
        }
    };
    (0..count).flat_map(&mut one).collect()
}

/// The name of a type's class, for reports.
pub(crate) fn name(datatype: u8) -> &'static str {
    match of(datatype) {
        (Class::Integer, 16) => "atomic on wide integers",
        (Class::Integer, _) => "atomic on integers",
        (Class::Real, _) => "atomic on reals",
        (Class::Complex, _) => "atomic on complex numbers",
    }
}

/// The bytes of an element after an operation.
pub(crate) fn after(
    (datatype, op): (u8, u8),
    here: &[u8],
    operand: &[u8],
    compare: &[u8],
) -> Vec<u8> {
    let (class, size) = of(datatype);
    let than_here = |bytes: &[u8]| order(datatype, bytes, here);
    let takes = match op {
        op::WRITE => true,
        // NaN is neither less nor greater, and is replaced.
        op::MAX => matches!(than_here(operand), None | Some(Greater)),
        op::MIN => matches!(than_here(operand), None | Some(Less)),
        op::CSWAP => than_here(compare) == Some(Equal),
        op::CSWAP_NE => than_here(compare) != Some(Equal),
        op::CSWAP_LT => than_here(compare) == Some(Less),
        op::CSWAP_GE => matches!(than_here(compare), Some(Equal | Greater)),
        _ => {
            let half = |range: std::ops::Range<usize>| {
                let [a, b] = [here, operand].map(|bytes| real(&bytes[range.clone()]));
                real_bytes(range.len(), real_after(op, a, b))
            };
            return match (op, class) {
                (op::READ, _) => here.to_vec(),
                (_, Class::Integer) => {
                    let compare = compare.first().map_or(0, |_| number(compare));
                    let all = integer_after(op, number(here), number(operand), compare);
                    all.to_le_bytes()[..size].to_vec()
                }
                (_, Class::Real) => half(0..size),
                (_, Class::Complex) => [half(0..size / 2), half(size / 2..size)].concat(),
            };
        }
    };
    if takes { operand } else { here }.to_vec()
}

fn of(datatype: u8) -> (Class, usize) {
    let mut all = TYPES.iter().filter(|(number, ..)| *number == datatype);
    all.next()
        .map_or((Class::Integer, 1), |&(_, class, size)| (class, size))
}

/// The order of two elements, if comparable.
fn order(datatype: u8, a: &[u8], b: &[u8]) -> Option<Ordering> {
    let (class, size) = of(datatype);
    // Signed types have even numbers. Flipping the sign bit makes their order that of unsigned
    // numbers.
    let sign = (datatype % 2 == 0) as u128;
    let place = |bytes: &[u8]| number(bytes) ^ sign << (8 * size - 1);
    match class {
        Class::Integer => Some(place(a).cmp(&place(b))),
        Class::Real => real(a).partial_cmp(&real(b)),
        Class::Complex => {
            let same = |range: std::ops::Range<usize>| real(&a[range.clone()]) == real(&b[range]);
            (same(0..size / 2) && same(size / 2..size)).then_some(Equal)
        }
    }
}

fn integer_after(op: u8, here: u128, operand: u128, compare: u128) -> u128 {
    match op {
        op::SUM => here.wrapping_add(operand),
        op::DIFF => here.wrapping_sub(operand),
        op::PROD => here.wrapping_mul(operand),
        op::BXOR => here ^ operand,
        op::BOR => here | operand,
        op::BAND => here & operand,
        op::MSWAP => here & !compare | operand & compare,
        _ => here,
    }
}

/// Computed in doubles: the sum or product of two floats is then rounded only once.
fn real_after(op: u8, here: f64, operand: f64) -> f64 {
    match op {
        op::SUM => here + operand,
        op::DIFF => here - operand,
        op::PROD => here * operand,
        _ => here,
    }
}

/// An integer as an unsigned number.
fn number(bytes: &[u8]) -> u128 {
    bytes.iter().rev().fold(0, |n, byte| n << 8 | *byte as u128)
}

fn real(bytes: &[u8]) -> f64 {
    match bytes.try_into() {
        Ok(single) => f32::from_le_bytes(single) as f64,
        Err(_) => f64::from_bits(number(bytes) as u64),
    }
}

fn real_bytes(size: usize, value: f64) -> Vec<u8> {
    match size {
        4 => (value as f32).to_le_bytes().to_vec(),
        _ => value.to_le_bytes().to_vec(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn atomic_operations_have_their_defined_results() {
        let on = |datatype: u8, op: u8, here: &[u8], operand: &[u8]| {
            after((datatype, op), here, operand, &[])
        };
        assert_eq!(on(0, op::MAX, &[0xff], &[1]), [1], "-1 and 1");
        assert_eq!(on(1, op::MAX, &[0xff], &[1]), [0xff]);
        assert_eq!(on(2, op::SUM, &[0xff, 0], &[1, 0]), [0, 1]);
        let one = 1.0f32.to_le_bytes();
        assert_eq!(on(8, op::DIFF, &one, &one), 0.0f32.to_le_bytes());
        assert_eq!(on(8, op::MIN, &f32::NAN.to_le_bytes(), &one), one);
        let pair = [one, 2.0f32.to_le_bytes()].concat();
        let sum = [2.0f32.to_le_bytes(), 4.0f32.to_le_bytes()].concat();
        assert_eq!(on(10, op::SUM, &pair, &pair), sum);
        assert_eq!(after((10, op::CSWAP), &pair, &sum, &pair), sum);
        assert_eq!(after((10, op::CSWAP), &pair, &sum, &sum), pair);
        assert_eq!(
            after((14, op::CSWAP_LT), &[0; 16], &[7; 16], &[0xff; 16]),
            [7; 16]
        );
    }
}
