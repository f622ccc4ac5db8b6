//! Messages: posting, matching, completion, credit.

pub(crate) mod arrive;
pub(crate) mod complete;
pub(crate) mod loopback;
pub(crate) mod post;
pub(crate) mod rpc;
