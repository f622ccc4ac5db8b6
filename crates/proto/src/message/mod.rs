//! Messages: posting of sends and receives.

pub(crate) mod loopback;
pub(crate) mod post;
pub(crate) mod rpc;
