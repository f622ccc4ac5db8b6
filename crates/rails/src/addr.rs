//! Addresses of rails over IP, little endian: `port u16, bits of the subnet u8, IP address` (4 or
//! 16 bytes). Only this crate interprets them.

use marline_wire::{RailAddr, RailKind};
use std::fmt;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

/// Bytes before the IP address.
const IP_AT: usize = 3;

/// The address of a UDP rail.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct UdpAddr {
    /// IP address.
    pub ip: IpAddr,
    /// Port in host order; never 0 in an address that was read.
    pub port: u16,
    /// Prefix length of the owner's subnet; 0 if unknown.
    pub prefix_len: u8,
}

impl UdpAddr {
    /// An address without a subnet.
    pub fn new(ip: IpAddr, port: u16) -> UdpAddr {
        UdpAddr {
            ip,
            port,
            prefix_len: 0,
        }
    }

    /// Converts to a rail's address; its owner sets the index, the writes and the largest datagram.
    #[inline]
    pub fn rail(&self) -> RailAddr {
        let [low, high] = self.port.to_le_bytes();
        let head = [low, high, self.prefix_len];
        match self.ip {
            IpAddr::V4(ip) => {
                let mut bytes = [0; IP_AT + 4];
                bytes[..IP_AT].copy_from_slice(&head);
                bytes[IP_AT..].copy_from_slice(&ip.octets());
                RailAddr::new(RailKind::Udp4, &bytes)
            }
            IpAddr::V6(ip) => {
                let mut bytes = [0; IP_AT + 16];
                bytes[..IP_AT].copy_from_slice(&head);
                bytes[IP_AT..].copy_from_slice(&ip.octets());
                RailAddr::new(RailKind::Udp6, &bytes)
            }
        }
    }

    /// The placeholder address of a rail that waits for its interface and will use this port.
    pub(crate) fn none_yet(port: u16) -> RailAddr {
        RailAddr::new(RailKind::Absent, &port.to_le_bytes())
    }

    /// The present or future port of a rail over IP.
    pub fn port_of(addr: &RailAddr) -> Option<u16> {
        let (&port, _) = addr.bytes().split_first_chunk()?;
        let known = !addr.is_some() || UdpAddr::read(addr).is_some();
        known.then_some(u16::from_le_bytes(port))
    }

    /// The IP address and port of a rail over IP; the port may be 0.
    pub fn place(addr: &RailAddr) -> Option<SocketAddr> {
        UdpAddr::fields(addr).map(|at| SocketAddr::new(at.ip, at.port))
    }

    /// Reads the address of a UDP rail; `None` for another kind or an invalid address.
    #[inline]
    pub fn of(addr: &RailAddr) -> Option<UdpAddr> {
        match addr.kind {
            RailKind::Udp4 | RailKind::Udp6 => UdpAddr::read(addr),
            _ => None,
        }
    }

    /// Like `of`, for any kind over IP.
    #[inline]
    pub fn read(addr: &RailAddr) -> Option<UdpAddr> {
        UdpAddr::fields(addr).filter(|at| at.port != 0)
    }

    #[inline]
    fn fields(addr: &RailAddr) -> Option<UdpAddr> {
        let (head, ip) = addr.bytes().split_first_chunk::<IP_AT>()?;
        let [low, high, prefix_len] = *head;
        let (ip, bits) = match addr.kind {
            RailKind::Udp4 | RailKind::Tcp4 => {
                let ip: [u8; 4] = ip.try_into().ok()?;
                (IpAddr::V4(Ipv4Addr::from(ip)), 32)
            }
            RailKind::Udp6 | RailKind::Tcp6 => {
                let ip: [u8; 16] = ip.try_into().ok()?;
                (IpAddr::V6(Ipv6Addr::from(ip)), 128)
            }
            _ => return None,
        };
        let port = u16::from_le_bytes([low, high]);
        (prefix_len <= bits).then_some(UdpAddr {
            ip,
            port,
            prefix_len,
        })
    }

    /// Returns whether `ip` lies in the owner's subnet.
    pub(crate) fn same_subnet(&self, ip: &IpAddr) -> bool {
        in_subnet(ip, &self.ip, self.prefix_len)
    }
}

impl fmt::Display for UdpAddr {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        SocketAddr::new(self.ip, self.port).fmt(f)
    }
}

/// Returns whether `ip` and `subnet` have the same family and the same first `bits` bits.
pub(crate) fn in_subnet(ip: &IpAddr, subnet: &IpAddr, bits: u8) -> bool {
    let equal = |a: u128, b: u128, width: u32| {
        let shift = width.saturating_sub(bits as u32);
        shift == width || a >> shift == b >> shift
    };
    match (ip, subnet) {
        (IpAddr::V4(a), IpAddr::V4(b)) => equal(a.to_bits() as u128, b.to_bits() as u128, 32),
        (IpAddr::V6(a), IpAddr::V6(b)) => equal(a.to_bits(), b.to_bits(), 128),
        _ => false,
    }
}
