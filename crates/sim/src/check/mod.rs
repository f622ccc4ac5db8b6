//! Checks of engines against the truth.

pub(crate) mod amplification;
pub(crate) mod bounds;
pub(crate) mod given_back;
pub(crate) mod outcome;
pub(crate) mod reports;
pub(crate) mod turn;
