//! Grants of rendezvous messages.

pub(crate) mod grant;
