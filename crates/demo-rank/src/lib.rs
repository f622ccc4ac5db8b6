//! One rank of `marline demo`: exchanges messages with all other ranks and checks each byte. The
//! rank loads the library of the installed MPI, so that no compiler is needed.

mod exchange;
mod mpi;
mod pattern;
mod report;

pub use exchange::{run, Plan};
pub use report::Report;
