//! Data types and operations of atomics, from fi_atomic(3).

use Kind::*;

/// Kinds of operations.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Kind {
    Plain,
    Fetch,
    Compare,
}

/// Name of each type, significant bytes of an element, and size of an element.
pub const TYPES: [(&str, usize, usize); 16] = [
    ("int8", 1, 1),
    ("uint8", 1, 1),
    ("int16", 2, 2),
    ("uint16", 2, 2),
    ("int32", 4, 4),
    ("uint32", 4, 4),
    ("int64", 8, 8),
    ("uint64", 8, 8),
    ("float", 4, 4),
    ("double", 8, 8),
    ("float complex", 8, 8),
    ("double complex", 16, 16),
    ("long double", 10, 16),
    ("long double complex", 26, 32),
    ("int128", 16, 16),
    ("uint128", 16, 16),
];

/// Name of each operation, its result for the value 5 and the operand 3 (compared with 5), and the
/// kinds of calls that support it.
pub const OPS: [(&str, u8, &[Kind]); 20] = [
    ("min", 3, &[Plain, Fetch]),
    ("max", 5, &[Plain, Fetch]),
    ("sum", 8, &[Plain, Fetch]),
    ("prod", 15, &[Plain, Fetch]),
    ("lor", 1, &[Plain, Fetch]),
    ("land", 1, &[Plain, Fetch]),
    ("bor", 7, &[Plain, Fetch]),
    ("band", 1, &[Plain, Fetch]),
    ("lxor", 0, &[Plain, Fetch]),
    ("bxor", 6, &[Plain, Fetch]),
    ("read", 5, &[Fetch]),
    ("write", 3, &[Plain, Fetch]),
    ("cswap", 3, &[Compare]),
    ("cswap_ne", 5, &[Compare]),
    ("cswap_le", 3, &[Compare]),
    ("cswap_lt", 5, &[Compare]),
    ("cswap_ge", 3, &[Compare]),
    ("cswap_gt", 5, &[Compare]),
    ("mswap", 1, &[Compare]),
    ("diff", 2, &[Plain, Fetch]),
];

/// Returns whether fi_atomic(3) defines an operation for a type.
pub fn is_defined(datatype: usize, op: &str) -> bool {
    let name = TYPES[datatype].0;
    let bitwise = ["bor", "band", "bxor", "mswap"].contains(&op);
    let ordering = ["min", "max", "cswap_le", "cswap_lt", "cswap_ge", "cswap_gt"].contains(&op);
    match name.ends_with("complex") {
        true => !bitwise && !ordering,
        false => !bitwise || name.contains("int"),
    }
}

/// A small number as an element of a type.
pub fn element(datatype: usize, number: u8) -> Vec<u8> {
    let (name, _, size) = TYPES[datatype];
    let mut bytes = match name {
        "float" | "float complex" => f32::from(number).to_le_bytes().to_vec(),
        "double" | "double complex" => f64::from(number).to_le_bytes().to_vec(),
        "long double" | "long double complex" => extended(number),
        _ => vec![number],
    };
    bytes.resize(size, 0);
    bytes
}

/// A long double of x86: 64 bits of a number with its first bit set, and the exponent.
fn extended(number: u8) -> Vec<u8> {
    let (mut bits, mut exponent) = (u64::from(number), 0);
    if number > 0 {
        exponent = 16_383 + bits.ilog2() as u16;
        bits <<= bits.leading_zeros();
    }
    [&bits.to_le_bytes()[..], &exponent.to_le_bytes()].concat()
}

/// The significant bytes of an element: long doubles contain padding.
pub fn value(datatype: usize, bytes: &[u8]) -> Vec<u8> {
    let (_, meant, _) = TYPES[datatype];
    let counts = |at: &usize| !(10..16).contains(at) || meant == 16;
    (0..meant).filter(counts).map(|at| bytes[at]).collect()
}
