//! Checks of engines against the truth.

pub(crate) mod bounds;
pub(crate) mod outcome;
pub(crate) mod reports;
pub(crate) mod turn;
