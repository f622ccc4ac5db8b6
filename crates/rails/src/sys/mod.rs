//! Every system call of this crate; the only module with `unsafe`.
//!
//! This module converts between the kernel's structures and plain Rust values and makes no
//! decisions: the rails decide how to react to an errno.

#![allow(unsafe_code)]

mod direct_io;
mod epoll;
mod error_queue;
mod host_memory;
mod iface;
mod multicast;
mod netlink;
mod seqpacket;
mod shm;
mod sleep_set;
mod socket;
mod stream;
mod udp_io;
pub(crate) mod verbs;
mod waker;
pub(crate) mod xdp;

pub use direct_io::Place;
pub(crate) use epoll::Epoll;
pub(crate) use host_memory::SharedRing;
pub use iface::{interface_index, interfaces, link_bytes_per_s, Interface, InterfaceAddr};
pub use netlink::ChangeSocket;
#[cfg(test)]
pub(crate) use seqpacket::as_other_user;
pub(crate) use seqpacket::{host, own_uid, Message, Peer, SeqPacket};
pub(crate) use shm::{
    gather, gather_into, pull, random, Canary, CanaryAt, Inbox, LinkMemory, Ring, PULL_PIECES_MAX,
};
pub use sleep_set::SleepSet;
pub use socket::{path_mtu, receive_buffer, send_on_link, Socket, SocketOptions};
pub(crate) use stream::{descriptors_max, Stream, StreamOptions, IOV_MAX};
pub use udp_io::{Datagram, RecvBuffers, RECV_BATCH};
pub(crate) use waker::Waker;

use crate::addr::UdpAddr;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

/// An error number as the kernel gave it.
pub type Errno = i32;

/// The calling thread's `errno`.
pub(crate) fn errno() -> Errno {
    std::io::Error::last_os_error()
        .raw_os_error()
        .unwrap_or(libc::EIO)
}

/// The system's text for an error number.
pub fn errno_text(errno: Errno) -> String {
    std::io::Error::from_raw_os_error(errno).to_string()
}

/// Converts a C result into a Rust one.
pub(crate) fn check(result: libc::c_int) -> Result<libc::c_int, Errno> {
    if result < 0 {
        Err(errno())
    } else {
        Ok(result)
    }
}

/// Converts the result of a direct system call, a count, into a Rust one.
#[inline]
pub(crate) fn check_long(result: libc::c_long) -> Result<usize, Errno> {
    usize::try_from(result).map_err(|_| errno())
}

/// A socket address in the kernel's form, of the family of the address.
#[derive(Clone, Copy)]
pub(crate) enum SockName {
    /// IPv4.
    V4(libc::sockaddr_in),
    /// IPv6.
    V6(libc::sockaddr_in6),
}

impl SockName {
    /// The kernel's form of `ip` and `port`; `scope_id` is used only for link-local IPv6.
    #[inline]
    pub(crate) fn new(ip: &IpAddr, port: u16, scope_id: u32) -> SockName {
        match ip {
            IpAddr::V4(ip) => SockName::v4(ip.octets(), port),
            IpAddr::V6(ip) => SockName::v6(ip.octets(), port, scope_id),
        }
    }

    #[inline]
    fn v4(ip: [u8; 4], port: u16) -> SockName {
        SockName::V4(libc::sockaddr_in {
            sin_family: libc::AF_INET as libc::sa_family_t,
            sin_port: port.to_be(),
            sin_addr: libc::in_addr {
                s_addr: u32::from_ne_bytes(ip),
            },
            sin_zero: [0; 8],
        })
    }

    #[inline]
    fn v6(ip: [u8; 16], port: u16, scope_id: u32) -> SockName {
        let link_local = ip[0] == 0xfe && ip[1] & 0xc0 == 0x80;
        SockName::V6(libc::sockaddr_in6 {
            sin6_family: libc::AF_INET6 as libc::sa_family_t,
            sin6_port: port.to_be(),
            sin6_flowinfo: 0,
            sin6_addr: libc::in6_addr { s6_addr: ip },
            sin6_scope_id: if link_local { scope_id } else { 0 },
        })
    }

    #[inline]
    pub(crate) fn as_ptr(&self) -> *const libc::sockaddr {
        match self {
            SockName::V4(a) => (a as *const libc::sockaddr_in).cast(),
            SockName::V6(a) => (a as *const libc::sockaddr_in6).cast(),
        }
    }

    #[inline]
    pub(crate) fn len(&self) -> libc::socklen_t {
        match self {
            SockName::V4(_) => size_of::<libc::sockaddr_in>() as libc::socklen_t,
            SockName::V6(_) => size_of::<libc::sockaddr_in6>() as libc::socklen_t,
        }
    }
}

/// Room for an address that the kernel writes: the larger of the two families.
pub(crate) type NameBuffer = libc::sockaddr_in6;

/// An empty name buffer.
#[inline]
pub(crate) fn name_buffer() -> NameBuffer {
    libc::sockaddr_in6 {
        sin6_family: 0,
        sin6_port: 0,
        sin6_flowinfo: 0,
        sin6_addr: libc::in6_addr { s6_addr: [0; 16] },
        sin6_scope_id: 0,
    }
}

/// The address in a buffer that the kernel filled; `None` if it holds none.
#[inline]
pub(crate) fn udp_addr(name: &NameBuffer) -> Option<UdpAddr> {
    let ip = match name.sin6_family as libc::c_int {
        // `sockaddr_in` has the address where `sockaddr_in6` has the flow label, and the port at
        // the same offset; both are in network order.
        libc::AF_INET => IpAddr::V4(Ipv4Addr::from(name.sin6_flowinfo.to_ne_bytes())),
        libc::AF_INET6 => IpAddr::V6(Ipv6Addr::from(name.sin6_addr.s6_addr)),
        _ => return None,
    };
    Some(UdpAddr::new(ip, u16::from_be(name.sin6_port)))
}
