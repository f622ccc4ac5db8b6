//! The service `marline xdpd` lends what needs privilege to processes without it: an AF_XDP
//! socket, and the redirection of a port's datagrams to that socket (docs/design/xdp.md).
//!
//! A connection to the service stands for one rail. The service takes back what it lent when the
//! connection ends, by the end of the process for example. If the service ends, the kernel receives
//! for the rail, whose UDP socket has the same port, until the next service lends to it.

mod lease;
mod lent;
mod messages;
mod rules;
mod service;

pub(super) use lease::{Lease, Loan};
pub use service::{XdpService, XdpServiceConfig};
