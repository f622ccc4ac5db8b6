//! Fabric, domain, address vector, endpoint and memory region: an object's own file has its state
//! and calls, `*_open` its creation with the table of its functions.

pub(crate) mod av;
mod av_names;
mod av_open;
pub(crate) mod domain;
pub(crate) mod domain_open;
pub(crate) mod ep;
mod ep_ctl;
mod ep_open;
pub(crate) mod fabric;
pub(crate) mod fabric_open;
mod mr;
