//! A peer: handshake, negotiation, keepalive, closing, teardown.

pub(crate) mod close;
pub(crate) mod death;
pub(crate) mod departed;
pub(crate) mod first_rails;
pub(crate) mod handshake;
pub(crate) mod keepalive;
pub(crate) mod negotiate;
pub(crate) mod reclaim;
pub(crate) mod validation;
pub(crate) mod versions;
pub(crate) mod waiting;
