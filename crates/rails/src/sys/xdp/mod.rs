//! AF_XDP: the program at an interface, the memory and rings of a socket, the kernel's tables of
//! routes and neighbours, and what a service has to know about descriptors that it was sent.

mod bpf;
mod memory;
mod proofs;
mod queues;
mod ring;
mod routes;
mod socket;
mod soon;

pub(crate) use bpf::{program_name, Steering};
pub(crate) use proofs::{group_number, network_of, udp_name};
pub(crate) use queues::{open_queues, RxQueue, TxQueue};
pub(crate) use routes::{hardware_address, RouteSocket};
pub(crate) use socket::{open_socket, Limits};
