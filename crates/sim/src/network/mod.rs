//! The virtual network: the fate of a packet between two rails.

pub(crate) mod asking;
pub(crate) mod flows;
pub(crate) mod forge;
pub(crate) mod hurt;
pub(crate) mod net;
pub(crate) mod strangers;
pub(crate) mod sums;
