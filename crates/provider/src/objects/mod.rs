//! Fabric, domain, address vector, endpoint and memory region. The file of an object has its state
//! and calls; its `*_open` file creates it and has the table of its functions.

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
