//! Capabilities of a model's rails: those of an Ethernet.

use marline_rails::Caps;

pub fn caps() -> Caps {
    Caps {
        batch_bytes_max: 64_000,
        batch_segments_max: 40,
        receive_buffer_bytes: 212_992,
        ..Caps::datagrams(1_472)
    }
}
