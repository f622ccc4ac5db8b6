//! The papers' algorithms (weak ones, and serial ones), for comparisons: neither `strong` nor
//! `fast` chooses one.

pub(crate) mod classic;
pub(crate) mod sums;
