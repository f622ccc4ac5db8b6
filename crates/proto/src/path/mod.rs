//! One path: health, probes, packet sizes, corruption.

pub(crate) mod contact;
pub(crate) mod duel;
pub(crate) mod link;
mod moved;
pub(crate) mod mtu_probe;
mod outage;
pub(crate) mod quarantine;
pub(crate) mod rail_events;
mod siblings;
mod stand_in;
pub(crate) mod validation;
