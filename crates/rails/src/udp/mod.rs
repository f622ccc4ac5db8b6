//! The UDP rail: one address of an interface, with GSO and GRO where the kernel has them, never
//! fragmented.
//!
//! The halves share one socket. An error that the kernel attaches to the socket fails the next call
//! of either half; the sending half reads the error queue and converts its entries to events.

mod destinations;
mod direct_send;
mod errors;
mod group_sockets;
mod host_feed;
mod host_member;
pub(crate) mod host_ring;
mod host_share;
#[cfg(test)]
mod host_test;
mod ip_multicast;
mod moving;
mod probe_socket;
mod read;
mod rx;
mod second_socket;
mod shared;
mod super_packets;
mod tx;

use group_sockets::Joined;
pub(crate) use ip_multicast::group_addr;
pub use probe_socket::{probe_group, probe_socket};
pub use rx::UdpRx;
use second_socket::SecondSocket;
pub use shared::UdpConfig;
use shared::{datagram_max, options, Shared};
pub(crate) use shared::{SEGMENTS_MAX, SUPER_PACKET_MAX};
pub use tx::UdpTx;

use crate::addr::UdpAddr;
use crate::interfaces::InterfaceChoice;
use crate::registered::Registrations;
use crate::sys::{self, SleepSet, Socket, SocketOptions};
use crate::{Caps, Rail, RemoteWrites};
use std::sync::atomic::{AtomicBool, AtomicU64};
use std::sync::Arc;

/// A UDP rail on one interface.
pub struct UdpRail {
    tx: UdpTx,
    rx: UdpRx,
}

impl UdpRail {
    /// Opens a rail on `interface`; the error says what to do.
    pub fn open(interface: &InterfaceChoice, config: &UdpConfig) -> Result<UdpRail, String> {
        let opened = config.ports.first_free(|port| {
            let options = options(interface, config);
            Socket::open(&SocketOptions { port, ..options })
        });
        let socket = opened.map_err(|(step, errno)| {
            let (text, advice) = (sys::errno_text(errno), config.ports.advice(errno));
            let port = config.ports.first();
            format!("rail {interface}: {step} failed: {text} (port {port}){advice}")
        })?;
        // Without GRO, datagrams arrive one by one.
        let gro = config.gro && socket.enable_gro().is_ok();
        let _ = socket.enable_drop_count(); // without it such drops look like loss on the path
        let mut local = socket
            .local_addr()
            .map_err(|e| format!("rail {interface}: getsockname: {}", sys::errno_text(e)))?;
        let sizes = socket.buffer_sizes();
        let datagram_max = datagram_max(interface.mtu, socket.is_v6());
        local.prefix_len = interface.prefix_len;
        let gso = config.gso && socket.knows_gso();
        // Without the second socket all packets arrive on the main socket.
        let second = (config.connect && !interface.is_awaited())
            .then(|| SecondSocket::open((&socket, &local), &options(interface, config), gro))
            .and_then(Result::ok)
            .map(Box::new);
        // Without the set, only packets on the main socket end a sleep.
        let sleep = SleepSet::new().ok();
        let second = second.filter(|_| sleep.is_some());
        let shared = Arc::new(Shared {
            direct_key: config.direct_key.clone(),
            socket,
            second: second.as_ref().map(|second| second.socket.clone()),
            errors_wait: AtomicBool::new(false),
            drops: AtomicU64::new(0),
            registrations: Registrations::default(),
            joined: Joined::default(),
            for_host: AtomicU64::new(0),
            from_host: AtomicU64::new(0),
            whole: AtomicBool::new(false),
            doubted: AtomicBool::new(false),
        });
        let mut addr = match interface.is_awaited() {
            true => UdpAddr::none_yet(local.port),
            false => local.rail(),
        };
        addr.datagram_max = datagram_max as u16;
        let caps = Caps {
            batch_bytes_max: if gso { SUPER_PACKET_MAX } else { datagram_max },
            batch_segments_max: if gso { SEGMENTS_MAX } else { 1 },
            receive_buffer_bytes: sizes.receive,
            bytes_per_s: interface.bytes_per_s,
            remote_write: if config.direct && gso && gro {
                RemoteWrites::Direct
            } else {
                RemoteWrites::None
            },
            groups: !interface.is_awaited(),
            ..Caps::datagrams(datagram_max)
        };
        let rx = UdpRx::new(shared.clone(), (second, sleep), config.cmsg, gro);
        let mut tx = UdpTx::new(shared, interface, addr, caps, config, sizes.send);
        tx.gro = gro;
        Ok(UdpRail { tx, rx })
    }
}

impl Rail for UdpRail {
    type Tx = UdpTx;
    type Rx = UdpRx;
    fn split(self) -> (UdpTx, UdpRx) {
        (self.tx, self.rx)
    }
}
