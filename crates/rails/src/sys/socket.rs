//! UDP sockets: opening, options, and queries of a path's MTU.

use super::{check, check_long, errno, iface, name_buffer, udp_addr, Errno, SockName};
use crate::addr::UdpAddr;
use std::net::{IpAddr, Ipv4Addr};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd, RawFd};

/// `IP_UNICAST_IF` and `IPV6_UNICAST_IF`, which the libc crate does not define on all targets.
const IP_UNICAST_IF: libc::c_int = 50;
const IPV6_UNICAST_IF: libc::c_int = 76;
/// `IPV6_FREEBIND`.
pub(super) const IPV6_FREEBIND: libc::c_int = 78;

/// Buffer sizes in bytes as reported by the kernel, which doubles the requested size.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BufferSizes {
    /// `SO_RCVBUF`.
    pub receive: usize,
    /// `SO_SNDBUF`.
    pub send: usize,
}

/// Options of a socket to open.
#[derive(Clone, Copy, Debug)]
pub struct SocketOptions<'a> {
    /// Local address.
    pub ip: IpAddr,
    /// Local port, 0 for any.
    pub port: u16,
    /// Scope of a link-local address.
    pub scope_id: u32,
    /// Interface through which unicast leaves.
    pub interface: &'a str,
    /// Requested receive buffer in bytes.
    pub receive_bytes: usize,
    /// Requested send buffer in bytes.
    pub send_bytes: usize,
    /// Differentiated services code point of all packets, 0 to 63 (RFC 2474).
    pub dscp: u8,
}

/// A bound, non-blocking UDP socket that never fragments and queues its errors.
pub struct Socket {
    fd: OwnedFd,
    v6: bool,
    dscp: u8,
}

/// The receive buffer in bytes that a UDP socket of this process gets for a request of `bytes`:
/// twice the request, or twice the system's limit. `None`: no socket can be opened.
pub fn receive_buffer(bytes: usize) -> Option<usize> {
    let options = SocketOptions {
        ip: IpAddr::V4(Ipv4Addr::LOCALHOST),
        port: 0,
        scope_id: 0,
        interface: "lo",
        receive_bytes: bytes,
        send_bytes: 0,
        dscp: 0,
    };
    let socket = Socket::unbound(&options).ok()?;
    Some(socket.buffer_sizes().receive)
}

/// The socket option of the traffic class: its level and number.
pub(super) fn class_option(v6: bool) -> (libc::c_int, libc::c_int) {
    match v6 {
        true => (libc::SOL_IPV6, libc::IPV6_TCLASS),
        false => (libc::SOL_IP, libc::IP_TOS),
    }
}

/// The traffic class with a code point: its upper six bits (RFC 2474). The kernel uses the others
/// for ECN.
pub(super) fn class_of(dscp: u8) -> libc::c_int {
    (dscp << 2).into()
}

impl Socket {
    /// Opens and binds; the error names the step that failed.
    pub fn open(options: &SocketOptions<'_>) -> Result<Socket, (&'static str, Errno)> {
        let socket = Socket::unbound(options)?;
        socket.bind(options).map_err(|e| ("bind", e))?;
        Ok(socket)
    }

    /// Opens a second socket on the address and port of `other`, which are those of `options`.
    /// Until it is connected it receives all packets to that port.
    pub fn open_beside(other: &Socket, options: &SocketOptions<'_>) -> Result<Socket, Errno> {
        let socket = Socket::unbound(options).map_err(|(_, errno)| errno)?;
        let sharing = |on| {
            let both = [other, &socket].map(|s| s.set(libc::SOL_SOCKET, libc::SO_REUSEADDR, on));
            both.into_iter().collect::<Result<(), Errno>>()
        };
        let bound = sharing(1).and_then(|()| socket.bind(options));
        // From here on no further socket may share the port.
        sharing(0).and(bound).map(|()| socket)
    }

    /// Replaces this socket by `new` under the same descriptor number; packets waiting in the old
    /// socket are lost.
    pub fn replace(&self, new: Socket) -> Result<(), Errno> {
        // SAFETY: both descriptors are open and ours; no pointers.
        check(unsafe { libc::dup3(new.fd(), self.fd(), libc::O_CLOEXEC) }).map(|_| ())
    }

    pub(super) fn from_fd(fd: OwnedFd, v6: bool) -> Socket {
        Socket { fd, v6, dscp: 0 }
    }

    /// Opens a socket without binding it.
    pub fn unbound(options: &SocketOptions<'_>) -> Result<Socket, (&'static str, Errno)> {
        let v6 = options.ip.is_ipv6();
        let family = if v6 { libc::AF_INET6 } else { libc::AF_INET };
        let kind = libc::SOCK_DGRAM | libc::SOCK_CLOEXEC | libc::SOCK_NONBLOCK;
        // SAFETY: socket takes no pointers.
        let fd = check(unsafe { libc::socket(family, kind, 0) }).map_err(|e| ("socket", e))?;
        // SAFETY: the descriptor is new and owned by nobody else.
        let fd = unsafe { OwnedFd::from_raw_fd(fd) };
        let dscp = options.dscp;
        let socket = Socket { fd, v6, dscp };
        socket.set_ip_options().map_err(|e| ("socket options", e))?;
        let _ = socket.leave_by(options.interface); // a hint: old kernels do without
        socket.set_class().map_err(|e| ("traffic class", e))?;
        socket.set_buffers(options);
        Ok(socket)
    }

    fn set_ip_options(&self) -> Result<(), Errno> {
        if self.v6 {
            self.set(libc::SOL_IPV6, libc::IPV6_V6ONLY, 1)?;
            self.set(
                libc::SOL_IPV6,
                libc::IPV6_MTU_DISCOVER,
                libc::IPV6_PMTUDISC_DO,
            )?;
            self.set(libc::SOL_IPV6, libc::IPV6_RECVERR, 1)
        } else {
            self.set(libc::SOL_IP, libc::IP_MTU_DISCOVER, libc::IP_PMTUDISC_DO)?;
            self.set(libc::SOL_IP, libc::IP_RECVERR, 1)
        }
    }

    /// Makes the kernel send packets of up to the interface's MTU, whatever it knows about the
    /// path, and report no errors of earlier packets.
    pub(crate) fn probe(&self) -> Result<(), Errno> {
        if self.v6 {
            let probe = libc::IPV6_PMTUDISC_PROBE;
            self.set(libc::SOL_IPV6, libc::IPV6_MTU_DISCOVER, probe)?;
            return self.set(libc::SOL_IPV6, libc::IPV6_RECVERR, 0);
        }
        self.set(libc::SOL_IP, libc::IP_MTU_DISCOVER, libc::IP_PMTUDISC_PROBE)?;
        self.set(libc::SOL_IP, libc::IP_RECVERR, 0)
    }

    /// Makes unicast packets leave through this interface only. Otherwise, when a link goes down
    /// and takes its routes along, packets would leave by the default route, through another rail's
    /// interface. Unlike SO_BINDTODEVICE this does not affect receiving, so processes of one host
    /// still reach each other at this address (their packets arrive through the loopback device).
    pub fn leave_by(&self, interface: &str) -> Result<(), Errno> {
        let index = iface::interface_index(interface)?.to_be() as libc::c_int;
        if self.v6 {
            self.set(libc::SOL_IPV6, IPV6_UNICAST_IF, index)
        } else {
            self.set(libc::SOL_IP, IP_UNICAST_IF, index)
        }
    }

    /// Requests the buffer sizes, beyond the system's limit where that is permitted.
    fn set_buffers(&self, options: &SocketOptions<'_>) {
        let wanted = [
            (libc::SO_RCVBUFFORCE, libc::SO_RCVBUF, options.receive_bytes),
            (libc::SO_SNDBUFFORCE, libc::SO_SNDBUF, options.send_bytes),
        ];
        for (force, plain, bytes) in wanted {
            // The kernel doubles the value, which must not overflow.
            let value = bytes.min(i32::MAX as usize / 2) as libc::c_int;
            if self.set(libc::SOL_SOCKET, force, value).is_err() {
                // A smaller buffer is no error: the actual size is read back.
                let _ = self.set(libc::SOL_SOCKET, plain, value);
            }
        }
    }

    pub(super) fn bind(&self, options: &SocketOptions<'_>) -> Result<(), Errno> {
        let name = SockName::new(&options.ip, options.port, options.scope_id);
        // SAFETY: the name is valid for its length.
        let try_bind = || check(unsafe { libc::bind(self.fd(), name.as_ptr(), name.len()) });
        match try_bind() {
            // A new IPv6 address is unusable during duplicate address detection; the socket works
            // as soon as that is over.
            Err(libc::EADDRNOTAVAIL) if self.v6 => {
                self.set(libc::SOL_IPV6, IPV6_FREEBIND, 1)?;
                try_bind().map(|_| ())
            }
            other => other.map(|_| ()),
        }
    }

    /// Enables GRO; an error means that the kernel lacks it.
    pub fn enable_gro(&self) -> Result<(), Errno> {
        self.set(libc::SOL_UDP, libc::UDP_GRO, 1)
    }

    /// Enables the count of packets dropped for want of receive buffer.
    pub fn enable_drop_count(&self) -> Result<(), Errno> {
        self.set(libc::SOL_SOCKET, libc::SO_RXQ_OVFL, 1)
    }

    /// Makes the kernel drop all arriving packets: a send-only socket that is never read must not
    /// fill up, because its error queue shares the buffer.
    pub fn refuse_data(&self) -> Result<(), Errno> {
        let mut code = [libc::sock_filter {
            code: 0x06,
            jt: 0,
            jf: 0,
            k: 0,
        }]; // BPF_RET, 0 bytes
        self.set_filter(&mut code)
    }

    /// Attaches a packet filter that the kernel runs on each arriving packet.
    pub(super) fn set_filter(&self, code: &mut [libc::sock_filter]) -> Result<(), Errno> {
        let program = libc::sock_fprog {
            len: code.len() as libc::c_ushort,
            filter: code.as_mut_ptr(),
        };
        let len = size_of::<libc::sock_fprog>() as libc::socklen_t;
        // SAFETY: `program` points at as many valid instructions as it states; both outlive the
        // call.
        check(unsafe {
            libc::setsockopt(
                self.fd(),
                libc::SOL_SOCKET,
                libc::SO_ATTACH_FILTER,
                (&raw const program).cast(),
                len,
            )
        })
        .map(|_| ())
    }

    /// Connects to a peer, so that sends need no address.
    pub fn connect(&self, to: &UdpAddr, scope_id: u32) -> Result<(), Errno> {
        let name = SockName::new(&to.ip, to.port, scope_id);
        // SAFETY: the name is valid for its length.
        check(unsafe { libc::connect(self.fd(), name.as_ptr(), name.len()) }).map(|_| ())
    }

    /// Makes the next send of a connected socket look up its route. Kernels before 6.1 connect by a
    /// route that ignores IP_UNICAST_IF, and cache that route; the look-up of a send is correct.
    pub fn forget_route(&self) -> Result<(), Errno> {
        if self.v6 {
            return Ok(());
        }
        // Changing the type of service drops the cached route.
        self.set(libc::SOL_IP, libc::IP_TOS, libc::IPTOS_LOWDELAY.into())?;
        self.set_class()
    }

    /// Gives all packets the socket's code point.
    fn set_class(&self) -> Result<(), Errno> {
        let (level, option) = class_option(self.v6);
        self.set(level, option, class_of(self.dscp))
    }

    /// Returns whether the kernel supports UDP_SEGMENT.
    pub fn knows_gso(&self) -> bool {
        self.get(libc::SOL_UDP, libc::UDP_SEGMENT).is_ok()
    }

    /// The present buffer sizes.
    pub fn buffer_sizes(&self) -> BufferSizes {
        let read = |what| self.get(libc::SOL_SOCKET, what).unwrap_or(0).max(0) as usize;
        BufferSizes {
            receive: read(libc::SO_RCVBUF),
            send: read(libc::SO_SNDBUF),
        }
    }

    /// Bytes in the send buffer, by the kernel's accounting.
    pub fn unsent_bytes(&self) -> usize {
        let mut bytes: libc::c_int = 0;
        // SAFETY: TIOCOUTQ (= SIOCOUTQ) writes one int.
        match unsafe { libc::ioctl(self.fd(), libc::TIOCOUTQ, &mut bytes) } {
            0 => bytes.max(0) as usize,
            _ => 0,
        }
    }

    /// Returns whether a send that failed with this errno lost its packet: an interface or its
    /// queue dropped it, and no packet of this socket is queued whose departure would make room. (A
    /// veth device reports this when its other end finds a packet too long.)
    #[cold]
    pub fn lost(&self, errno: Errno) -> bool {
        errno == libc::ENOBUFS && self.unsent_bytes() == 0
    }

    /// The local address and port.
    pub fn local_addr(&self) -> Result<UdpAddr, Errno> {
        let mut name = name_buffer();
        let mut len = size_of_val(&name) as libc::socklen_t;
        // SAFETY: `name` is valid for `len` bytes.
        check(unsafe { libc::getsockname(self.fd(), (&raw mut name).cast(), &mut len) })?;
        udp_addr(&name).ok_or(libc::EAFNOSUPPORT)
    }

    /// The peer's address and port of a connected socket.
    pub fn peer_addr(&self) -> Result<UdpAddr, Errno> {
        let mut name = name_buffer();
        let mut len = size_of_val(&name) as libc::socklen_t;
        // SAFETY: `name` is valid for `len` bytes.
        check(unsafe { libc::getpeername(self.fd(), (&raw mut name).cast(), &mut len) })?;
        udp_addr(&name).ok_or(libc::EAFNOSUPPORT)
    }

    /// Gives the descriptor away.
    pub(crate) fn into_fd(self) -> OwnedFd {
        self.fd
    }

    /// The descriptor, to pass to another process.
    pub(crate) fn as_fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }

    /// The descriptor.
    #[inline]
    pub fn fd(&self) -> RawFd {
        self.fd.as_raw_fd()
    }

    /// The code point of all packets.
    pub fn dscp(&self) -> u8 {
        self.dscp
    }

    /// Returns whether this is an IPv6 socket.
    pub fn is_v6(&self) -> bool {
        self.v6
    }

    pub(super) fn set(&self, level: i32, option: i32, value: libc::c_int) -> Result<(), Errno> {
        let len = size_of::<libc::c_int>() as libc::socklen_t;
        // SAFETY: `value` is one int, as all options set here take.
        check(unsafe { libc::setsockopt(self.fd(), level, option, (&raw const value).cast(), len) })
            .map(|_| ())
    }

    fn get(&self, level: i32, option: i32) -> Result<libc::c_int, Errno> {
        let mut value: libc::c_int = 0;
        let mut len = size_of::<libc::c_int>() as libc::socklen_t;
        // SAFETY: `value` is one int, as all options read here give.
        let rc = unsafe {
            libc::getsockopt(self.fd(), level, option, (&raw mut value).cast(), &mut len)
        };
        if rc < 0 {
            Err(errno())
        } else {
            Ok(value)
        }
    }
}

/// Sends an empty datagram directly on the interface's own link, regardless of routes.
pub fn send_on_link(options: &SocketOptions<'_>, to: &UdpAddr) -> Result<(), Errno> {
    let socket = Socket::open(options).map_err(|(_, errno)| errno)?;
    let name = SockName::new(&to.ip, to.port, options.scope_id);
    let flags = libc::MSG_DONTROUTE | libc::MSG_DONTWAIT;
    // SAFETY: the name is valid for its length, and there are no bytes.
    let sent = unsafe {
        let none = std::ptr::null();
        libc::sendto(socket.fd(), none, 0, flags, name.as_ptr(), name.len())
    };
    check_long(sent as libc::c_long).map(|_| ())
}

/// Queries the kernel for the present MTU of the path to `to`, in bytes of IP packet. Only a
/// connected socket can be queried, so this opens one.
pub fn path_mtu(options: &SocketOptions<'_>, to: &UdpAddr) -> Result<usize, Errno> {
    let ask = SocketOptions {
        port: 0,
        receive_bytes: 0,
        send_bytes: 0,
        ..*options
    };
    let socket = Socket::open(&ask).map_err(|(_, errno)| errno)?;
    socket.connect(to, options.scope_id)?;
    let mtu = if socket.v6 {
        socket.get(libc::SOL_IPV6, libc::IPV6_MTU)?
    } else {
        socket.get(libc::SOL_IP, libc::IP_MTU)?
    };
    Ok(mtu.max(0) as usize)
}
