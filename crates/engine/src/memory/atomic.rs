//! Atomic operations on memory, per element. Datatypes and operations have libfabric's numbers. All
//! run under the engine's lock, one after another.

use crate::api::AtomicKind;
use crate::memory::long_double::{Long, IS_LONG};

/// Bytes of an element of a datatype (`fi_datatype`); `None` for unsupported datatypes.
pub fn size_of_type(datatype: u8) -> Option<usize> {
    const LONG: u8 = if IS_LONG { 16 } else { 0 };
    const SIZES: [u8; 16] = [1, 1, 2, 2, 4, 4, 8, 8, 4, 8, 8, 16, LONG, 2 * LONG, 16, 16];
    let size = *SIZES.get(datatype as usize)? as usize;
    (size > 0).then_some(size)
}

/// True if an operation of this kind exists for this datatype.
pub fn is_valid(kind: AtomicKind, datatype: u8, op: u8) -> bool {
    let Some(class) = class_of(datatype) else {
        return false;
    };
    match (kind, op) {
        (AtomicKind::Compare, op::CSWAP | op::CSWAP_NE) => true,
        (AtomicKind::Compare, op::CSWAP_LE..=op::CSWAP_GT) => class != Class::Complex,
        (AtomicKind::Compare, op::MSWAP) => class == Class::Integer,
        (AtomicKind::Compare, _) => false,
        (AtomicKind::Fetch, op::READ) => true,
        (_, op::MIN | op::MAX) => class != Class::Complex,
        (_, op::SUM | op::PROD | op::DIFF | op::LOR | op::LAND | op::LXOR | op::WRITE) => true,
        (_, op::BOR | op::BAND | op::BXOR) => class == Class::Integer,
        _ => false,
    }
}

/// libfabric's numbers of operations (`fi_op`).
pub mod op {
    #![allow(missing_docs)] // the names say it
    pub const MIN: u8 = 0;
    pub const MAX: u8 = 1;
    pub const SUM: u8 = 2;
    pub const PROD: u8 = 3;
    pub const LOR: u8 = 4;
    pub const LAND: u8 = 5;
    pub const BOR: u8 = 6;
    pub const BAND: u8 = 7;
    pub const LXOR: u8 = 8;
    pub const BXOR: u8 = 9;
    pub const READ: u8 = 10;
    pub const WRITE: u8 = 11;
    pub const CSWAP: u8 = 12;
    pub const CSWAP_NE: u8 = 13;
    pub const CSWAP_LE: u8 = 14;
    pub const CSWAP_LT: u8 = 15;
    pub const CSWAP_GE: u8 = 16;
    pub const CSWAP_GT: u8 = 17;
    pub const MSWAP: u8 = 18;
    pub const DIFF: u8 = 19;
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Class {
    Integer,
    Real,
    Complex,
}

fn class_of(datatype: u8) -> Option<Class> {
    size_of_type(datatype)?;
    Some(match datatype {
        8 | 9 | 12 => Class::Real,
        10 | 11 | 13 => Class::Complex,
        _ => Class::Integer,
    })
}

/// Applies an operation to the elements of `target`. `operand` and, for comparing operations,
/// `compare` have the same length as `target`, or are empty if the operation ignores them. Datatype
/// and operation are valid, and lengths are whole elements.
pub fn apply(datatype: u8, op: u8, target: &mut [u8], operand: &[u8], compare: &[u8]) {
    match datatype {
        0 => each::<i8>(op, target, operand, compare),
        1 => each::<u8>(op, target, operand, compare),
        2 => each::<i16>(op, target, operand, compare),
        3 => each::<u16>(op, target, operand, compare),
        4 => each::<i32>(op, target, operand, compare),
        5 => each::<u32>(op, target, operand, compare),
        6 => each::<i64>(op, target, operand, compare),
        7 => each::<u64>(op, target, operand, compare),
        8 => each::<f32>(op, target, operand, compare),
        9 => each::<f64>(op, target, operand, compare),
        10 => each::<(f32, f32)>(op, target, operand, compare),
        11 => each::<(f64, f64)>(op, target, operand, compare),
        12 => each::<Long>(op, target, operand, compare),
        13 => each::<(Long, Long)>(op, target, operand, compare),
        14 => each::<i128>(op, target, operand, compare),
        15 => each::<u128>(op, target, operand, compare),
        _ => {}
    }
}

fn each<T: Element>(op: u8, target: &mut [u8], operand: &[u8], compare: &[u8]) {
    if op == op::READ {
        return;
    }
    let size = T::SIZE;
    for (i, slot) in target.chunks_exact_mut(size).enumerate() {
        let range = i * size..(i + 1) * size;
        let Some(operand) = operand.get(range.clone()).map(T::read) else {
            return;
        };
        let here = T::read(slot);
        let value = match compare.get(range).map(T::read) {
            Some(compare) => T::swap(op, here, operand, compare),
            None => T::combine(op, here, operand),
        };
        T::write(value, slot);
    }
}

/// An element of some datatype.
trait Element: Copy {
    const SIZE: usize;
    fn read(bytes: &[u8]) -> Self;
    fn write(self, bytes: &mut [u8]);
    /// The new value of an element with value `here`.
    fn combine(op: u8, here: Self, operand: Self) -> Self;
    /// Like [`Element::combine`], for operations with a comparison.
    fn swap(op: u8, here: Self, operand: Self, compare: Self) -> Self;
}

/// Returns `operand` if `compare OP here` holds, otherwise `here` (libfabric's order: the
/// comparison operand on the left).
fn swap_if<T: PartialOrd>(op: u8, here: T, operand: T, compare: T) -> T {
    let swaps = match op {
        op::CSWAP => compare == here,
        op::CSWAP_NE => compare != here,
        op::CSWAP_LE => compare <= here,
        op::CSWAP_LT => compare < here,
        op::CSWAP_GE => compare >= here,
        op::CSWAP_GT => compare > here,
        _ => false,
    };
    if swaps {
        operand
    } else {
        here
    }
}

fn logical(op: u8, a: bool, b: bool) -> bool {
    match op {
        op::LOR => a || b,
        op::LAND => a && b,
        _ => a != b,
    }
}

macro_rules! plain_bytes {
    ($type:ty) => {
        const SIZE: usize = size_of::<$type>();
        fn read(bytes: &[u8]) -> $type {
            let mut own = [0; size_of::<$type>()];
            own.copy_from_slice(bytes);
            <$type>::from_ne_bytes(own)
        }
        fn write(self, bytes: &mut [u8]) {
            bytes.copy_from_slice(&self.to_ne_bytes());
        }
    };
}

macro_rules! integers {
    ($($type:ty),*) => { $(
        impl Element for $type {
            plain_bytes!($type);
            fn combine(op: u8, here: $type, operand: $type) -> $type {
                match op {
                    op::MIN => here.min(operand),
                    op::MAX => here.max(operand),
                    op::SUM => here.wrapping_add(operand),
                    op::DIFF => here.wrapping_sub(operand),
                    op::PROD => here.wrapping_mul(operand),
                    op::LOR | op::LAND | op::LXOR => logical(op, here != 0, operand != 0) as $type,
                    op::BOR => here | operand,
                    op::BAND => here & operand,
                    op::BXOR => here ^ operand,
                    op::WRITE => operand,
                    _ => here,
                }
            }
            fn swap(op: u8, here: $type, operand: $type, compare: $type) -> $type {
                match op {
                    op::MSWAP => (operand & compare) | (here & !compare),
                    _ => swap_if(op, here, operand, compare),
                }
            }
        }
    )* };
}

integers!(i8, u8, i16, u16, i32, u32, i64, u64, i128, u128);

macro_rules! reals {
    ($($type:ty),*) => { $(
        impl Element for $type {
            plain_bytes!($type);
            fn combine(op: u8, here: $type, operand: $type) -> $type {
                match op {
                    op::MIN => here.min(operand),
                    op::MAX => here.max(operand),
                    op::SUM => here + operand,
                    op::DIFF => here - operand,
                    op::PROD => here * operand,
                    op::LOR | op::LAND | op::LXOR => {
                        let zero = <$type>::from(0.0f32);
                        f32::from(u8::from(logical(op, here != zero, operand != zero))).into()
                    }
                    op::WRITE => operand,
                    _ => here,
                }
            }
            fn swap(op: u8, here: $type, operand: $type, compare: $type) -> $type {
                swap_if(op, here, operand, compare)
            }
        }

        impl Element for ($type, $type) {
            const SIZE: usize = 2 * size_of::<$type>();
            fn read(bytes: &[u8]) -> ($type, $type) {
                let (re, im) = bytes.split_at(size_of::<$type>());
                (<$type>::read(re), <$type>::read(im))
            }
            fn write(self, bytes: &mut [u8]) {
                let (re, im) = bytes.split_at_mut(size_of::<$type>());
                self.0.write(re);
                self.1.write(im);
            }
            fn combine(op: u8, here: Self, operand: Self) -> Self {
                let ((a, b), (c, d)) = (here, operand);
                let zero = <$type>::from(0.0f32);
                let is = |(re, im): Self| re != zero || im != zero;
                match op {
                    op::SUM => (a + c, b + d),
                    op::DIFF => (a - c, b - d),
                    op::PROD => (a * c - b * d, a * d + b * c),
                    op::LOR | op::LAND | op::LXOR => {
                        let one = u8::from(logical(op, is(here), is(operand)));
                        (f32::from(one).into(), zero)
                    }
                    op::WRITE => operand,
                    _ => here,
                }
            }
            fn swap(op: u8, here: Self, operand: Self, compare: Self) -> Self {
                swap_if(op, here, operand, compare)
            }
        }
    )* };
}

reals!(f32, f64, Long);

#[cfg(test)]
mod tests {
    use super::*;

    fn on<T: Element>(datatype: u8, op: u8, values: [T; 2], compare: Option<T>) -> T {
        let bytes = |value: T| {
            let mut bytes = vec![0; T::SIZE];
            value.write(&mut bytes);
            bytes
        };
        let mut target = bytes(values[0]);
        let compare = compare.map(bytes).unwrap_or_default();
        apply(datatype, op, &mut target, &bytes(values[1]), &compare);
        T::read(&target)
    }

    #[test]
    fn integers_wrap_and_combine() {
        assert_eq!(on(0, op::SUM, [i8::MAX, 1], None), i8::MIN);
        assert_eq!(on(7, op::BXOR, [6u64, 5], None), 3);
        assert_eq!(on(4, op::MIN, [-3i32, 2], None), -3);
        assert_eq!(on(5, op::LAND, [7u32, 9], None), 1);
        assert_eq!(on(15, op::PROD, [1u128 << 100, 2], None), 1 << 101);
        assert_eq!(on(6, op::DIFF, [1i64, 2], None), -1);
        assert_eq!(on(3, op::WRITE, [1u16, 2], None), 2);
    }

    #[test]
    fn the_compare_operand_stands_left() {
        assert_eq!(on(6, op::CSWAP, [5i64, 9], Some(5)), 9);
        assert_eq!(on(6, op::CSWAP, [5i64, 9], Some(4)), 5);
        assert_eq!(on(6, op::CSWAP_LT, [5i64, 9], Some(4)), 9);
        assert_eq!(on(6, op::CSWAP_GE, [5i64, 9], Some(4)), 5);
        assert_eq!(on(7, op::MSWAP, [0xf0u64, 0xff], Some(0x0f)), 0xff);
    }

    #[test]
    fn reals_and_complex_numbers() {
        assert_eq!(on(8, op::PROD, [2.0f32, 3.5], None), 7.0);
        assert_eq!(on(9, op::LOR, [0.0f64, 0.5], None), 1.0);
        let product = on(11, op::PROD, [(1.0f64, 2.0), (3.0, 4.0)], None);
        assert_eq!(product, (-5.0, 10.0));
        assert_eq!(
            on(10, op::CSWAP, [(1.0f32, 2.0), (0.0, 0.0)], Some((1.0, 2.0))),
            (0.0, 0.0)
        );
    }

    #[test]
    fn long_doubles_and_complex_ones() {
        let [two, three, six] = [2.0, 3.0, 6.0].map(Long::from);
        assert_eq!(on(12, op::PROD, [two, three], None), six);
        assert_eq!(on(12, op::LAND, [two, three], None), Long::from(1.0));
        assert_eq!(on(12, op::CSWAP_GT, [two, six], Some(three)), six);
        let product = on(13, op::PROD, [(two, three), (three, two)], None);
        assert_eq!(product, (Long::from(0.0), Long::from(13.0)));
    }

    #[test]
    fn what_is_valid_has_a_size_and_an_effect() {
        for kind in [AtomicKind::Plain, AtomicKind::Fetch, AtomicKind::Compare] {
            for datatype in 0..=u8::MAX {
                for op in 0..=u8::MAX {
                    if is_valid(kind, datatype, op) {
                        assert!(size_of_type(datatype).is_some() && op <= op::DIFF);
                    }
                }
            }
        }
        assert!(!is_valid(AtomicKind::Plain, 6, op::READ));
        assert_eq!(is_valid(AtomicKind::Plain, 12, op::SUM), IS_LONG);
        assert!(
            !is_valid(AtomicKind::Plain, 13, op::MAX) && !is_valid(AtomicKind::Fetch, 12, op::BOR)
        );
        assert!(!is_valid(AtomicKind::Plain, 9, op::BOR));
    }
}
