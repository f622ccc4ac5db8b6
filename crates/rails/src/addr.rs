//! Addresses of rails over IP: `port u16, bits of the subnet u8, IP address` (4 bytes
//! or 16), by little endian. Nobody but this crate looks into them.

use marline_wire::{RailAddr, RailKind};
use std::fmt;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

/// Bytes before the IP address.
const IP_AT: usize = 3;

/// Where a UDP rail is reached.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct UdpAddr {
    /// IP address.
    pub ip: IpAddr,
    /// Port, host order; never 0 in an address that was read.
    pub port: u16,
    /// Bits of the owner's subnet; 0 where nobody knows them.
    pub prefix_len: u8,
}

impl UdpAddr {
    /// The address of a port, without a subnet.
    pub fn new(ip: IpAddr, port: u16) -> UdpAddr {
        UdpAddr {
            ip,
            port,
            prefix_len: 0,
        }
    }

    /// As a rail's address; index, writes and largest datagram are left to its owner.
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

    /// Stands for the address of a rail that waits for its interface, and will have this port.
    pub(crate) fn none_yet(port: u16) -> RailAddr {
        RailAddr::new(RailKind::Absent, &port.to_le_bytes())
    }

    /// The port of a rail over IP, or the one that it will have.
    pub fn port_of(addr: &RailAddr) -> Option<u16> {
        let (&port, _) = addr.bytes().split_first_chunk()?;
        let known = !addr.is_some() || UdpAddr::read(addr).is_some();
        known.then_some(u16::from_le_bytes(port))
    }

    /// Where a rail over IP is reached, as far as its address says so: the port may be 0.
    pub fn place(addr: &RailAddr) -> Option<SocketAddr> {
        UdpAddr::fields(addr).map(|at| SocketAddr::new(at.ip, at.port))
    }

    /// Reads a rail's address; `None` for another kind, or if it is no address of UDP.
    #[inline]
    pub fn of(addr: &RailAddr) -> Option<UdpAddr> {
        match addr.kind {
            RailKind::Udp4 | RailKind::Udp6 => UdpAddr::read(addr),
            _ => None,
        }
    }

    /// The same of any kind over IP.
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

    /// True if `ip` lies in the owner's subnet.
    pub(crate) fn same_subnet(&self, ip: &IpAddr) -> bool {
        in_subnet(ip, &self.ip, self.prefix_len)
    }
}

impl fmt::Display for UdpAddr {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        SocketAddr::new(self.ip, self.port).fmt(f)
    }
}

/// True if `ip` and `subnet` have the same family and the same first `bits` bits.
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
