//! Incoming messages: their fragments, matching, grants, remote reads and writes, completion.

pub(crate) mod any_source;
pub(crate) mod arrive;
pub(crate) mod complete;
pub(crate) mod ends;
pub(crate) mod fragment;
pub(crate) mod grants;
pub(crate) mod loopback;
pub(crate) mod matched;
pub(crate) mod messages;
pub(crate) mod pull;
pub(crate) mod put;
pub(crate) mod put_placement;
pub(crate) mod read;
pub(crate) mod receives;
pub(crate) mod repost;
pub(crate) mod run;
pub(crate) mod written;
