//! The papers' algorithms (weak or serial), for comparisons: neither `strong` nor `fast` chooses
//! one of them.

pub(crate) mod classic;
pub(crate) mod sums;
