//! The capabilities of a model's rails: those of an Ethernet.

use marline_rails::{Caps, Writes};

pub const CAPS: Caps = Caps {
    datagram_max: 1_472,
    batch_bytes_max: 64_000,
    batch_segments_max: 40,
    receive_buffer_bytes: 212_992,
    bytes_per_s: 0,
    writes: Writes::No,
};
