//! Large clusters of real engines: how memory, packets, time and work grow with the endpoints.
//!
//! Above what fits into memory and time, two endpoints are sampled: all others speak to these
//! alone, at the times at which they would reach them, so that the sampled ones have every peer,
//! and the traffic of a whole cluster at their own rails. Each [`Part`] says in `simplified` what
//! it leaves out.

mod cluster;
mod parts;
mod table;

pub use parts::{Part, PARTS};
pub use table::{print_parts, Sizes};

/// A measured quantity of a cluster.
#[derive(Clone, Debug, PartialEq)]
pub struct Sample {
    /// Name of the quantity.
    pub quantity: &'static str,
    /// Its unit.
    pub unit: &'static str,
    /// Its value.
    pub value: f64,
}

impl Sample {
    pub(crate) fn new(quantity: &'static str, unit: &'static str, value: f64) -> Sample {
        Sample {
            quantity,
            unit,
            value,
        }
    }
}
