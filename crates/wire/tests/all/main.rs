//! Tests of packet and frame layouts, in one binary.

mod group;
mod properties;
