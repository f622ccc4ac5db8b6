//! A path: health, probes, packet sizes, corruption.

pub(crate) mod actions;
pub(crate) mod comparison;
pub(crate) mod isolation;
pub(crate) mod link;
mod moved;
pub(crate) mod mtu_probe;
mod outage;
pub(crate) mod rail_events;
pub(crate) mod reachability;
mod refusals;
mod siblings;
mod standby;
pub(crate) mod validation;
