//! Long messages: grants.

pub(crate) mod grant;
