//! Tests of packet and frame layouts, in one binary.

mod document;
mod group;
mod properties;
mod versions;
