//! Memory of operations, and copies between it and packets.

pub mod atomic;
pub(crate) mod autotune;
pub(crate) mod borrowed;
pub(crate) mod copy;
pub(crate) mod long_double;
pub(crate) mod op_table;
pub(crate) mod pack;
pub(crate) mod pool;
pub(crate) mod sum_slots;
pub(crate) mod sums;
pub(crate) mod tags;
pub(crate) mod visible;
