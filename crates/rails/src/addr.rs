//! TEMPORARY until addresses are bytes.
use marline_wire::RailAddr;
use std::net::IpAddr;

/// Where a UDP rail is reached.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct UdpAddr {
    /// IP address.
    pub ip: IpAddr,
    /// Port.
    pub port: u16,
    /// Bits.
    pub prefix_len: u8,
}

impl UdpAddr {
    /// New.
    pub fn new(ip: IpAddr, port: u16) -> UdpAddr {
        UdpAddr {
            ip,
            port,
            prefix_len: 0,
        }
    }
    /// Rail.
    pub fn rail(&self) -> RailAddr {
        let mut a = RailAddr::NONE;
        a.port = self.port;
        a.prefix_len = self.prefix_len as u16;
        match self.ip {
            IpAddr::V4(ip) => {
                a.kind = 4;
                a.ip[..4].copy_from_slice(&ip.octets());
            }
            IpAddr::V6(ip) => {
                a.kind = 6;
                a.ip = ip.octets();
            }
        }
        a
    }
    /// Of.
    pub fn of(addr: &RailAddr) -> Option<UdpAddr> {
        let ip: IpAddr = match addr.family() {
            4 => [addr.ip[0], addr.ip[1], addr.ip[2], addr.ip[3]].into(),
            6 => addr.ip.into(),
            _ => return None,
        };
        Some(UdpAddr {
            ip,
            port: addr.port,
            prefix_len: addr.prefix_len as u8,
        })
    }
}
