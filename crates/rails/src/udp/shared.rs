//! Common parts of a UDP rail: settings, state of both halves, limits, and the meaning of errors.

use super::group_sockets::Joined;
use crate::interfaces::InterfaceChoice;
use crate::ports::Ports;
use crate::registered::Registrations;
use crate::sys::{Errno, Socket, SocketOptions};
use marline_auth::DirectKey;
use marline_wire::{DirectHead, DIRECT_HEAD_LEN};
use std::sync::atomic::{AtomicBool, AtomicU64};
use std::sync::Arc;

/// Largest super-packet in bytes. The kernel silently splits one of 65,507 bytes, the UDP maximum.
pub(crate) const SUPER_PACKET_MAX: usize = 64_000;
/// Most segments of one super-packet; kernels before 6.9 refuse more.
pub(crate) const SEGMENTS_MAX: usize = 64;

/// Receive buffer in bytes of a socket that only sends: room for errors.
pub(super) const FLOW_RCVBUF: usize = 64 << 10;

/// Settings of a UDP rail.
#[derive(Clone, Debug)]
pub struct UdpConfig {
    /// Let the kernel cut super-packets (UDP_SEGMENT).
    pub gso: bool,
    /// Let the kernel join received datagrams (UDP_GRO).
    pub gro: bool,
    /// Requested receive buffer in bytes; the actual size is in [`Caps`].
    pub rcvbuf_bytes: usize,
    /// Requested send buffer in bytes.
    pub sndbuf_bytes: usize,
    /// Differentiated services code point of all packets, 0 to 63 (RFC 2474).
    pub dscp: u8,
    /// Local ports, of which one is used. With a range, group ports are in the range as well.
    pub ports: Ports,
    /// Send to frequent destinations on connected sockets, whose source ports differ from the
    /// rail's. If off, all packets of flow 0 leave from the rail's port, as a strict packet filter
    /// may require.
    pub connect: bool,
    /// Ask for each datagram's source, the segment length of a GRO batch and the drop count. If
    /// off, most polls use a cheaper call without ancillary data (docs/design/udp.md), and
    /// [`crate::Received::segment`] is 0.
    pub cmsg: bool,
    /// Accept direct writes of peers into registered memory, and write into theirs, where the
    /// kernel delivers super-packets whole.
    pub direct: bool,
    /// Share group sockets with other processes of the host, so that one process reads for all.
    pub share_groups: bool,
    /// Key of the tags of direct writes, in a job with a key: writes without the tag do not land.
    pub direct_key: Option<Arc<DirectKey>>,
}

impl Shared {
    /// The head of a direct write at the start of a datagram.
    #[inline]
    pub(super) fn direct_head(&self, datagram: &[u8]) -> Option<DirectHead> {
        match &self.direct_key {
            None => DirectHead::parse(datagram),
            Some(key) => DirectHead::parse_tagged(datagram, |fields| key.tag(fields)),
        }
    }

    /// The bytes of a direct write's head.
    pub(super) fn write_head(&self, head: &DirectHead) -> [u8; DIRECT_HEAD_LEN] {
        match &self.direct_key {
            None => head.write(),
            Some(key) => head.write_tagged(|fields| key.tag(fields)),
        }
    }
}

impl Default for UdpConfig {
    /// GSO and GRO on; 8 MiB to receive (this buffer is the window), 4 MiB to send,
    /// which is 0.4 ms at 10 GB/s.
    fn default() -> UdpConfig {
        let (rcvbuf_bytes, sndbuf_bytes) = (8 << 20, 4 << 20);
        UdpConfig {
            gso: true,
            gro: true,
            rcvbuf_bytes,
            sndbuf_bytes,
            dscp: 0,
            ports: Ports::ANY,
            connect: true,
            cmsg: true,
            direct: true,
            share_groups: false,
            direct_key: None,
        }
    }
}

/// The state that both halves share.
pub(super) struct Shared {
    pub(super) socket: Socket,
    /// The second receiving socket, see `SecondSocket`.
    pub(super) second: Option<Arc<Socket>>,
    /// A call on the socket failed, so its error queue must be read.
    pub(super) errors_wait: AtomicBool,
    /// Packets that the kernel dropped because the receive buffer was full.
    pub(super) drops: AtomicU64,
    /// Memory that peers may write.
    pub(super) registrations: Registrations,
    /// Key of the tags of direct writes.
    pub(super) direct_key: Option<Arc<DirectKey>>,
    /// Sockets of groups.
    pub(super) joined: Joined,
    /// Group datagrams that this process read for all processes of the host.
    pub(super) for_host: AtomicU64,
    /// Group datagrams that another process had read.
    pub(super) from_host: AtomicU64,
    /// Super-packets arrive whole, so direct writes are possible.
    pub(super) whole: AtomicBool,
    /// Set when direct writes arrive damaged, whatever `whole` says.
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
        dscp: config.dscp,
    }
}

/// UDP payload that fits an IP packet of `mtu` bytes, at most one super-packet.
pub(super) fn datagram_max(mtu: usize, v6: bool) -> usize {
    let headers = if v6 { 40 + 8 } else { 20 + 8 };
    mtu.saturating_sub(headers).clamp(1, SUPER_PACKET_MAX)
}

/// Returns whether an error may mean that the rail cannot send at all.
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

/// Returns whether an error means a lack of room.
pub(super) fn is_busy(errno: Errno) -> bool {
    matches!(errno, libc::EAGAIN | libc::ENOBUFS | libc::ENOMEM)
}

/// Returns whether a packet filter of this host dropped the packet, which counts as loss.
pub(super) fn is_drop(errno: Errno) -> bool {
    matches!(errno, libc::EPERM | libc::EACCES)
}
