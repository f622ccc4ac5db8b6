//! Things that all of a UDP rail uses: settings, the part that both halves share, limits, and
//! which errors mean what.

use super::group_sockets::Joined;
use crate::interfaces::InterfaceChoice;
use crate::ports::Ports;
use crate::registered::Registrations;
use crate::sys::{Errno, Socket, SocketOptions};
use std::sync::atomic::{AtomicBool, AtomicU64};
use std::sync::Arc;

/// Largest super-packet in bytes: 65,507, the largest that UDP could hold, was measured to be
/// split silently (design rule 8).
pub(super) const SUPER_PACKET_MAX: usize = 64_000;
/// Most segments of one super-packet; kernels before 6.9 refuse more.
pub(super) const SEGMENTS_MAX: usize = 64;

/// Receive buffer in bytes of a socket that is only sent on: room for errors.
pub(super) const FLOW_RCVBUF: usize = 64 << 10;

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
    /// Local ports, of which one is taken. Groups of several have theirs among them.
    pub ports: Ports,
    /// Send to frequent destinations by a connected socket each, whose source port is another
    /// than the rail's. Off, all of flow 0 leaves by that port, as a strict packet filter may want.
    pub connect: bool,
    /// Ask for each datagram's source, for the segment length of a GRO batch and for the count of
    /// drops. Off, most polls are done by a cheaper call that tells none of these
    /// (docs/design/udp.md): [`crate::Received::segment`] is 0.
    pub cmsg: bool,
    /// Take direct writes of peers into registered memory, and write into theirs, where the kernel
    /// passes super-packets on whole.
    pub direct: bool,
    /// Share the sockets of groups with other processes of the host, so that one reads for all.
    pub share_groups: bool,
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
            ports: Ports::ANY,
            connect: true,
            cmsg: true,
            direct: true,
            share_groups: false,
        }
    }
}

/// The part that both halves use.
pub(super) struct Shared {
    pub(super) socket: Socket,
    /// See `Hot`.
    pub(super) hot: Option<Arc<Socket>>,
    /// A call on the socket failed: the error queue deserves a look.
    pub(super) errors_wait: AtomicBool,
    /// Packets that the kernel dropped so far because the receive buffer was full.
    pub(super) drops: AtomicU64,
    /// Memory that peers may write into.
    pub(super) registrations: Registrations,
    /// Sockets of groups.
    pub(super) joined: Joined,
    /// Datagrams of groups that were read for all processes of the host.
    pub(super) for_host: AtomicU64,
    /// Datagrams of groups that another process had read.
    pub(super) from_host: AtomicU64,
    /// Super-packets come whole: direct writes are of use.
    pub(super) whole: AtomicBool,
    /// They are not, whatever it looks like.
    pub(super) doubted: AtomicBool,
}

pub(super) fn options<'a>(interface: &'a InterfaceChoice, config: &UdpConfig) -> SocketOptions<'a> {
    SocketOptions {
        ip: interface.bind_ip(),
        port: config.ports.first(),
        scope_id: interface.scope_id,
        interface: &interface.name,
        receive_bytes: config.rcvbuf_bytes,
        send_bytes: config.sndbuf_bytes,
    }
}

/// UDP payload that fits an IP packet of `mtu` bytes, at most one super-packet.
pub(super) fn datagram_max(mtu: usize, v6: bool) -> usize {
    let headers = if v6 { 40 + 8 } else { 20 + 8 };
    mtu.saturating_sub(headers).clamp(1, SUPER_PACKET_MAX)
}

/// Errors that may mean that this rail cannot send at all.
pub(super) fn is_rail_fault(errno: Errno) -> bool {
    matches!(
        errno,
        libc::ENETDOWN
            | libc::ENETUNREACH
            | libc::ENODEV
            | libc::ENXIO
            | libc::EADDRNOTAVAIL
            | libc::EHOSTUNREACH
            | libc::EINVAL
    )
}

/// No room now.
pub(super) fn is_busy(errno: Errno) -> bool {
    matches!(errno, libc::EAGAIN | libc::ENOBUFS | libc::ENOMEM)
}

/// A filter of this host dropped the packet: loss, as on the way.
pub(super) fn is_drop(errno: Errno) -> bool {
    matches!(errno, libc::EPERM | libc::EACCES)
}
