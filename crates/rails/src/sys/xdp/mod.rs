//! AF_XDP: the program at an interface, the memory and rings of a socket, and the kernel's tables
//! of routes and neighbours.

mod bpf;
mod memory;
mod queues;
mod ring;
mod routes;
mod socket;
mod soon;

pub(crate) use bpf::Steering;
pub(crate) use queues::{open_queues, RxQueue, TxQueue};
pub(crate) use routes::{hardware_address, RouteSocket};
pub(crate) use socket::Limits;
