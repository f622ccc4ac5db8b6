//! Rails: one local interface of one kind each. Every system call lives in this crate.
//!
//! A rail has two halves so that the system call of an empty poll does not hold the engine's lock:
//! [`RailTx`] lives inside the lock, [`RailRx`] outside. The only caller is
//! `marline-engine`; the simulator implements the same traits.

mod addr;
mod any;
mod caps;
mod discover;
mod fault;
mod frame_word;
mod interfaces;
mod link;
mod locate;
mod multicast;
mod outcome;
pub mod pairing;
mod plain_buffers;
mod ports;
mod rail;
mod registered;
mod remote_read;
mod remote_write;
mod shm;
mod staging;
mod sync;
mod sys;
mod tcp;
mod tx_buf;
mod udp;
mod verbs;
mod xdp;

pub use addr::UdpAddr;
pub use any::{group_addr, AnyRail, AnyRx, AnyTx};
pub use caps::{Caps, GroupBounds};
pub use discover::{
    choose_rails, open_rail, with_paths, with_tcp_standby, RailChoice, RailsConfig,
};
pub use fault::{Clock, FaultScript, Faults, Faulty, FaultyRx, FaultyTx};
pub use interfaces::{
    choose_interfaces, nic_of, unused_interfaces, InterfaceChange, InterfaceChoice, InterfaceWatch,
    NicInfo, Silence,
};
pub use link::{AddrLinks, Connected, DownReason, LinkId, LinkTable, Links};
pub use locate::{answer_to, ask, pauses, Unanswered};
pub use multicast::{GroupError, GroupLink, Groups};
pub use outcome::{RailFault, SendOutcome};
pub use pairing::show_addr;
pub use plain_buffers::{BufState, PlainBuffers};
pub use ports::Ports;
pub use rail::{Armed, KeyMismatch, Rail, RailEvent, RailRx, RailTx, RailVersions, Received};
pub use registered::Registrations;
pub use remote_read::{Read, RemoteRead};
pub use remote_write::{DirectWrite, Piece, RemoteWrite, RemoteWrites, Write};
pub use shm::{ShmConfig, ShmRail, ShmRx, ShmTx};
pub use staging::Staging;
pub use sys::{receive_buffer, Place};
pub use tcp::{TcpConfig, TcpRail, TcpRx, TcpTx};
pub use tx_buf::{BufId, TxBuffers, BUFFER_LEN};
pub use udp::{probe_group, probe_socket, UdpConfig, UdpRail, UdpRx, UdpTx};
pub use verbs::{
    immediate, verbs_ports, Marks, Partition, VerbsConfig, VerbsRail, VerbsRx, VerbsTx,
};
pub use xdp::{XdpRail, XdpRx, XdpService, XdpServiceConfig, XdpTx};
