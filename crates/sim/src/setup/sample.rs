//! Samples of a large cluster: a few endpoints have all others as peers.

use crate::setup::choices::Setup;

/// Endpoints that have all others as peers, in samples.
pub(crate) const SAMPLED: u32 = 2;

/// When an endpoint of a sample speaks in a round (from 0), in ns after the start: when its turn to
/// speak to the sampled ones comes, if all go through their peers in order, round by round. (If all
/// spoke as soon as they can, later rounds would be bursts that lose packets in full queues.)
pub(crate) fn turn_ns(setup: &Setup, index: u32, round: u32) -> u64 {
    let hosts = setup.hosts as u64;
    let place = match index < SAMPLED {
        true => 0,
        false => hosts - u64::from(index),
    };
    (u64::from(round) * hosts + place) * setup.pause_ns
}
