//! All parameters of a seed, as plain data.

pub(crate) mod choices;
pub(crate) mod draw;
pub(crate) mod faults;
pub(crate) mod key;
pub(crate) mod moment;
pub mod pipeline;
pub(crate) mod profile;
pub(crate) mod sample;
pub mod script;
pub(crate) mod writes;
