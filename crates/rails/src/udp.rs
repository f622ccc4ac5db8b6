//! The UDP rail: one interface's address, GSO/GRO where the kernel has them, never a fragment.
//!
//! Two halves share one socket. Errors that the kernel attaches to the socket are noticed by
//! whichever half calls next and are read from the error queue by the sending half, which turns
//! them into events.

mod direct;
mod grants;
mod hot;
mod joins;
mod peers;
mod read;
mod rx;
mod tx;

pub use grants::Grants;
use hot::Hot;
pub use rx::UdpRx;
pub use tx::UdpTx;

use crate::choose::InterfaceChoice;
use crate::sys::{self, Socket, SocketOptions};
use crate::{Caps, Rail, Writes};
use std::sync::atomic::{AtomicBool, AtomicU64};
use std::sync::Arc;

/// Largest super-packet in bytes: 65,507, the largest that UDP could hold, was measured to be
/// split silently (design rule 8).
const SUPER_PACKET_MAX: usize = 64_000;
/// Most segments of one super-packet; kernels before 6.9 refuse more.
const SEGMENTS_MAX: usize = 64;

/// Receive buffer in bytes of a socket that is only sent on: room for errors.
const FLOW_RCVBUF: usize = 64 << 10;

/// Settings of a UDP rail.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UdpConfig {
    /// Let the kernel cut super-packets (UDP_SEGMENT).
    pub gso: bool,
    /// Let the kernel join what arrives (UDP_GRO).
    pub gro: bool,
    /// Receive buffer to ask for, in bytes; what was given is in [`Caps`].
    pub rcvbuf_bytes: usize,
    /// Send buffer to ask for, in bytes.
    pub sndbuf_bytes: usize,
    /// Local port, 0 for any.
    pub port: u16,
    /// Send to frequent destinations by a connected socket each, whose source port is another
    /// than the rail's. Off, all of flow 0 leaves by `port`, as a strict packet filter may want.
    pub connect: bool,
    /// Ask for each datagram's source, for the segment length of a GRO batch and for the count of
    /// drops. Off, most polls are done by a call that tells none of these and is 0.05 µs cheaper
    /// when nothing waits and 0.12 µs when something does: [`crate::Received::segment`] is 0.
    pub cmsg: bool,
    /// Take direct writes of peers into granted memory, and write into theirs, where the kernel
    /// passes super-packets on whole.
    pub direct: bool,
}

impl Default for UdpConfig {
    /// GSO and GRO on; 8 MiB to receive (design rule 4: this buffer is the window), 4 MiB to
    /// send, which is 0.4 ms at 10 GB/s.
    fn default() -> UdpConfig {
        let (rcvbuf_bytes, sndbuf_bytes) = (8 << 20, 4 << 20);
        UdpConfig {
            gso: true,
            gro: true,
            rcvbuf_bytes,
            sndbuf_bytes,
            port: 0,
            connect: true,
            cmsg: true,
            direct: true,
        }
    }
}

/// What both halves use.
struct Shared {
    socket: Socket,
    /// See `Hot`.
    hot: Option<Arc<Socket>>,
    /// A call on the socket failed: the error queue deserves a look.
    errors_wait: AtomicBool,
    /// Packets that the kernel dropped so far because the receive buffer was full.
    drops: AtomicU64,
    /// Memory that peers may write into.
    grants: Grants,
    /// Super-packets come whole: direct writes are of use.
    whole: AtomicBool,
    /// They are not, whatever it looks like.
    doubted: AtomicBool,
}

/// A UDP rail on one interface.
pub struct UdpRail {
    tx: UdpTx,
    rx: UdpRx,
}

impl UdpRail {
    /// Opens a rail on `interface`; the error says what to do.
    pub fn open(interface: &InterfaceChoice, config: &UdpConfig) -> Result<UdpRail, String> {
        let socket = Socket::open(&options(interface, config)).map_err(|(step, errno)| {
            let text = sys::errno_text(errno);
            let advice = match (config.port, errno) {
                (1.., libc::EADDRINUSE) => {
                    "; FI_MARLINE_PORT serves one process per host: unset it"
                }
                _ => "",
            };
            let port = config.port;
            format!("rail {interface}: {step} failed: {text} (port {port}){advice}")
        })?;
        // Without it datagrams arrive one by one.
        let gro = config.gro && socket.enable_gro().is_ok();
        let _ = socket.enable_drop_count(); // without it such drops look like path loss
        let mut local = socket
            .local_addr()
            .map_err(|e| format!("rail {interface}: getsockname: {}", sys::errno_text(e)))?;
        let sizes = socket.buffer_sizes();
        let datagram_max = datagram_max(interface.mtu, socket.is_v6());
        local.prefix_len = interface.prefix_len;
        let gso = config.gso && socket.knows_gso();
        // Without it everything comes by the main socket.
        let hot = config
            .connect
            .then(|| Hot::open((&socket, &local), &options(interface, config), gro))
            .and_then(Result::ok);
        let shared = Arc::new(Shared {
            socket,
            hot: hot.as_ref().map(|hot| hot.socket.clone()),
            errors_wait: AtomicBool::new(false),
            drops: AtomicU64::new(0),
            grants: Grants::default(),
            whole: AtomicBool::new(false),
            doubted: AtomicBool::new(false),
        });
        let mut addr = local.rail();
        addr.datagram_max = datagram_max as u16;
        let caps = Caps {
            datagram_max,
            batch_bytes_max: if gso { SUPER_PACKET_MAX } else { datagram_max },
            batch_segments_max: if gso { SEGMENTS_MAX } else { 1 },
            receive_buffer_bytes: sizes.receive,
            bytes_per_s: interface.bytes_per_s,
            writes: if config.direct && gso && gro {
                Writes::Direct
            } else {
                Writes::No
            },
        };
        let rx = UdpRx::new(shared.clone(), hot.map(Box::new), config.cmsg, gro);
        let tx = UdpTx::new(shared, interface, addr, caps, config, sizes.send);
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

fn options<'a>(interface: &'a InterfaceChoice, config: &UdpConfig) -> SocketOptions<'a> {
    SocketOptions {
        ip: interface.ip,
        port: config.port,
        scope_id: interface.scope_id,
        interface: &interface.name,
        receive_bytes: config.rcvbuf_bytes,
        send_bytes: config.sndbuf_bytes,
    }
}

/// UDP payload that fits an IP packet of `mtu` bytes, at most one super-packet.
fn datagram_max(mtu: usize, v6: bool) -> usize {
    let headers = if v6 { 40 + 8 } else { 20 + 8 };
    mtu.saturating_sub(headers).clamp(1, SUPER_PACKET_MAX)
}
