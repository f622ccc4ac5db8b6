//! One rank of `marline demo`: exchanges messages with all other ranks and checks each byte. It
//! loads the library of whatever MPI there is, so that no compiler is needed.

mod exchange;
mod mpi;
mod pattern;
mod report;

pub use exchange::{run, Plan};
pub use report::Report;
