//! Searches for errors that an algorithm misses, in one binary.

#[path = "../kinds/mod.rs"]
mod kinds;
#[path = "../../examples/detect/random.rs"]
mod random;

mod lanes;
mod nh;
mod order;
