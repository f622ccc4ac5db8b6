//! IP multicast: sockets that are members of a group, and options for sending to groups.

use super::socket::{Socket, SocketOptions};
use super::{check, check_long, iface, name_buffer, udp_addr, Errno};
use crate::addr::UdpAddr;
use std::net::IpAddr;
use std::os::fd::OwnedFd;

/// `IPV6_MULTICAST_ALL`, which the libc crate does not define on all targets.
const IPV6_MULTICAST_ALL: libc::c_int = 29;
/// Members share a subnet ([`crate::pairing::same_network`]): no router forwards the packets.
const HOPS: libc::c_int = 1;
/// Base of filter offsets from the network header (`SKF_NET_OFF`).
const NETWORK_HEADER: u32 = 0xfff0_0000;
/// Offsets of the last four bytes of the source address in the headers of IPv4 and IPv6.
const SOURCE_V4: u32 = 12;
const SOURCE_V6: u32 = 20;

impl Socket {
    /// Opens a socket for packets to `group` that arrive on the interface of `options`. Drops
    /// packets sent by `own`, which the kernel loops back if another process of this host is a
    /// member.
    pub fn open_group(
        options: &SocketOptions<'_>,
        group: &UdpAddr,
        own: &UdpAddr,
    ) -> Result<Socket, Errno> {
        let socket = Socket::unbound(options).map_err(|(_, errno)| errno)?;
        // Each member on a host has its own socket on the group's port.
        socket.set(libc::SOL_SOCKET, libc::SO_REUSEADDR, 1)?;
        // Without this option, packets of groups joined by other sockets or on other interfaces
        // arrive too.
        match socket.is_v6() {
            true => {
                let _ = socket.set(libc::SOL_IPV6, IPV6_MULTICAST_ALL, 0); // Linux 4.20
            }
            false => socket.set(libc::SOL_IP, libc::IP_MULTICAST_ALL, 0)?,
        }
        socket.refuse_from(own)?;
        socket.bind(&SocketOptions {
            ip: group.ip,
            port: group.port,
            ..*options
        })?;
        socket.join(group, options.interface)?;
        Ok(socket)
    }

    /// Makes packets to groups leave through this interface, stay within its subnet, and reach the
    /// other members on this host.
    pub fn multicast_by(&self, interface: &str) -> Result<(), Errno> {
        let index = iface::interface_index(interface)?;
        if self.is_v6() {
            self.set(
                libc::SOL_IPV6,
                libc::IPV6_MULTICAST_IF,
                index as libc::c_int,
            )?;
            self.set(libc::SOL_IPV6, libc::IPV6_MULTICAST_HOPS, HOPS)?;
            return self.set(libc::SOL_IPV6, libc::IPV6_MULTICAST_LOOP, 1);
        }
        let by = membership_v4([0; 4], index);
        self.set_struct(libc::SOL_IP, libc::IP_MULTICAST_IF, &by)?;
        self.set(libc::SOL_IP, libc::IP_MULTICAST_TTL, HOPS)?;
        self.set(libc::SOL_IP, libc::IP_MULTICAST_LOOP, 1)
    }

    /// Opens a socket that receives nothing but, while open, keeps this host a member of a group on
    /// an interface. For packets that another part of the kernel receives (Soft-RoCE).
    pub(crate) fn member(group: IpAddr, interface: &str) -> Result<Socket, Errno> {
        let options = SocketOptions {
            ip: group,
            port: 0,
            scope_id: 0,
            interface,
            receive_bytes: 0,
            send_bytes: 0,
            dscp: 0,
        };
        let socket = Socket::unbound(&options).map_err(|(_, errno)| errno)?;
        socket.join(&UdpAddr::new(group, 0), interface)?;
        Ok(socket)
    }

    fn join(&self, group: &UdpAddr, interface: &str) -> Result<(), Errno> {
        let index = iface::interface_index(interface)?;
        match group.ip {
            IpAddr::V4(ip) => {
                let of = membership_v4(ip.octets(), index);
                self.set_struct(libc::SOL_IP, libc::IP_ADD_MEMBERSHIP, &of)
            }
            IpAddr::V6(ip) => {
                let of = libc::ipv6_mreq {
                    ipv6mr_multiaddr: libc::in6_addr {
                        s6_addr: ip.octets(),
                    },
                    ipv6mr_interface: index,
                };
                self.set_struct(libc::SOL_IPV6, libc::IPV6_ADD_MEMBERSHIP, &of)
            }
        }
    }

    /// Takes over a group socket that another process of this host opened.
    pub(crate) fn of_host(fd: OwnedFd, v6: bool) -> Socket {
        Socket::from_fd(fd, v6)
    }

    /// Receives one datagram or GRO batch: length and source. `None` if it has no source or did not
    /// fit.
    #[inline]
    pub(crate) fn recv_from(&self, to: &mut [u8]) -> Result<Option<(usize, UdpAddr)>, Errno> {
        let mut name = name_buffer();
        let mut name_len = size_of_val(&name) as libc::socklen_t;
        // SAFETY: buffer and name are valid for their lengths. MSG_TRUNC only makes the kernel
        // return the true length.
        let n = check_long(unsafe {
            libc::syscall(
                libc::SYS_recvfrom,
                self.fd(),
                to.as_mut_ptr(),
                to.len(),
                libc::MSG_DONTWAIT | libc::MSG_TRUNC,
                &raw mut name,
                &raw mut name_len,
            )
        })?;
        let fits = n > 0 && n <= to.len();
        Ok(udp_addr(&name).filter(|_| fits).map(|from| (n, from)))
    }

    /// Also receives packets sent by the `own` of [`Socket::open_group`], for other processes that
    /// share the socket.
    pub(crate) fn hear_own(&self) -> Result<(), Errno> {
        self.set(libc::SOL_SOCKET, libc::SO_DETACH_FILTER, 0)
    }

    /// Makes the kernel drop packets from this address and port, comparing the last four bytes of
    /// the address.
    fn refuse_from(&self, source: &UdpAddr) -> Result<(), Errno> {
        let (at, end) = match source.ip {
            IpAddr::V4(ip) => (SOURCE_V4, u32::from_be_bytes(ip.octets())),
            IpAddr::V6(ip) => (SOURCE_V6, ip.to_bits() as u32),
        };
        let step = |code: u32, k: u32, jt: u8, jf: u8| libc::sock_filter {
            code: code as u16,
            jt,
            jf,
            k,
        };
        let load = libc::BPF_LD | libc::BPF_ABS;
        let equal = libc::BPF_JMP | libc::BPF_JEQ | libc::BPF_K;
        // The filter sees a packet from its UDP header on; the first field is the source port.
        let mut program = [
            step(load | libc::BPF_H, 0, 0, 0),
            step(equal, source.port.into(), 0, 3),
            step(load | libc::BPF_W, NETWORK_HEADER + at, 0, 0),
            step(equal, end, 0, 1),
            step(libc::BPF_RET | libc::BPF_K, 0, 0, 0),
            step(libc::BPF_RET | libc::BPF_K, u32::MAX, 0, 0),
        ];
        self.set_filter(&mut program)
    }

    fn set_struct<T>(&self, level: i32, option: i32, value: &T) -> Result<(), Errno> {
        let len = size_of::<T>() as libc::socklen_t;
        let value: *const T = value;
        // SAFETY: `value` is valid for its length, which is passed along; the kernel only reads it.
        check(unsafe { libc::setsockopt(self.fd(), level, option, value.cast(), len) }).map(|_| ())
    }
}

fn membership_v4(group: [u8; 4], index: u32) -> libc::ip_mreqn {
    libc::ip_mreqn {
        imr_multiaddr: libc::in_addr {
            s_addr: u32::from_ne_bytes(group),
        },
        imr_address: libc::in_addr { s_addr: 0 },
        imr_ifindex: index as libc::c_int,
    }
}
