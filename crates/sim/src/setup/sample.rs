//! Samples of a large cluster: a few endpoints have all others as peers.

/// Endpoints that have all others as peers, in samples.
pub(crate) const SAMPLED: u32 = 2;

/// When an endpoint of a sample first speaks, in ns after the start: when its turn to speak to the
/// sampled ones comes, if all go through their peers in order.
pub(crate) fn turn_ns(index: u32, hosts: usize, pause_ns: u64) -> u64 {
    match index < SAMPLED {
        true => 0,
        false => (hosts as u64 - u64::from(index)) * pause_ns,
    }
}
