//! The handshake, the first frame of a connection: identifies the connecting rail.
//!
//! ```text
//!  0 u64 random token of this connection
//!  8 u64 token of the connection that this one replaces, or 0
//! 16 u16 port    18 4 or 16 bytes of address: where the sender's rail listens
//! ```
//!
//! Only the two ends of a connection know its token, so no third party can claim that its
//! connection replaces this one.

use crate::UdpAddr;
use marline_wire::{RailAddr, RailKind};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

/// Bytes before the address.
const FIXED_LEN: usize = 18;
/// Bytes of the longest handshake.
pub(super) const HANDSHAKE_MAX: usize = FIXED_LEN + 16;

/// The address on which a TCP rail listens.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(super) struct TcpAddr {
    pub(super) ip: IpAddr,
    pub(super) port: u16,
}

impl TcpAddr {
    /// The rail's address for peers.
    pub(super) fn rail(&self, prefix_len: u8) -> RailAddr {
        let udp = UdpAddr {
            ip: self.ip,
            port: self.port,
            prefix_len,
        };
        let kind = match self.ip {
            IpAddr::V4(_) => RailKind::Tcp4,
            IpAddr::V6(_) => RailKind::Tcp6,
        };
        RailAddr::new(kind, udp.rail().bytes())
    }
}

/// A handshake.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Handshake {
    /// The connecting rail.
    pub(super) from: TcpAddr,
    /// The token of this connection.
    pub(super) token: u64,
    /// The token of the connection that this one replaces; 0: none.
    pub(super) replaces: u64,
}

impl Handshake {
    /// Encodes the handshake; returns also its length.
    pub(super) fn write(&self) -> ([u8; HANDSHAKE_MAX], usize) {
        let mut out = [0; HANDSHAKE_MAX];
        out[..8].copy_from_slice(&self.token.to_le_bytes());
        out[8..16].copy_from_slice(&self.replaces.to_le_bytes());
        out[16..18].copy_from_slice(&self.from.port.to_le_bytes());
        let len = match self.from.ip {
            IpAddr::V4(ip) => {
                out[FIXED_LEN..][..4].copy_from_slice(&ip.octets());
                FIXED_LEN + 4
            }
            IpAddr::V6(ip) => {
                out[FIXED_LEN..].copy_from_slice(&ip.octets());
                HANDSHAKE_MAX
            }
        };
        (out, len)
    }

    /// Reads a handshake; `None` if it is malformed.
    pub(super) fn read(bytes: &[u8]) -> Option<Handshake> {
        let (token, rest) = bytes.split_first_chunk::<8>()?;
        let (replaces, rest) = rest.split_first_chunk::<8>()?;
        let (port, ip) = rest.split_first_chunk::<2>()?;
        let ip = match ip.len() {
            4 => IpAddr::V4(Ipv4Addr::from(<[u8; 4]>::try_from(ip).ok()?)),
            16 => IpAddr::V6(Ipv6Addr::from(<[u8; 16]>::try_from(ip).ok()?)),
            _ => return None,
        };
        let port = u16::from_le_bytes(*port);
        (port != 0).then_some(Handshake {
            from: TcpAddr { ip, port },
            token: u64::from_le_bytes(*token),
            replaces: u64::from_le_bytes(*replaces),
        })
    }
}
