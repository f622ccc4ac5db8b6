//! Addresses of verbs rails. The kind of the address is the transport (RC, UC, UD); the bytes
//! locate the datagram queue pair in one of three forms, distinguished by their length:
//!
//! ```text
//!  8   RoCE over IPv4   queue pair u24, bits of the subnet u8, IP address
//! 19   RoCE             GID 16, queue pair u24
//! 15   InfiniBand       subnet prefix 8, LID u16, queue pair u24, P_Key u16
//! ```
//!
//! GIDs, prefixes and IP addresses are in network order, numbers little endian. Queue pairs of
//! connections are made per link and exchanged through the datagram queue pair.

use crate::addr::in_subnet;
use crate::sys::verbs::QueueType;
use marline_wire::{RailAddr, RailKind};
use std::fmt;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

/// The first bytes of a GID that represents an IPv4 address.
const V4_MAPPED: [u8; 12] = [0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff];

/// A port on its network.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Node {
    /// RoCE over IPv4.
    V4 {
        /// The port's address.
        ip: Ipv4Addr,
        /// Bits of the address's subnet; 0: unknown.
        prefix_len: u8,
    },
    /// RoCE.
    Gid([u8; 16]),
    /// InfiniBand.
    Lid {
        /// Subnet prefix.
        prefix: [u8; 8],
        /// LID within the subnet.
        lid: u16,
        /// The partition.
        pkey: u16,
    },
}

/// The address of a verbs rail.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct VerbsAddr {
    /// The port.
    pub(crate) node: Node,
    /// The queue pair of datagrams.
    pub(crate) number: u32,
}

/// The kind of rail.
pub(crate) fn rail_kind(kind: QueueType) -> RailKind {
    match kind {
        QueueType::Rc => RailKind::Rc,
        QueueType::Uc => RailKind::Uc,
        QueueType::Ud => RailKind::Ud,
    }
}

/// Returns whether the address is of a verbs rail.
fn is_verbs(addr: &RailAddr) -> bool {
    matches!(addr.kind, RailKind::Rc | RailKind::Uc | RailKind::Ud)
}

impl Node {
    /// The port with this GID.
    pub(crate) fn of_gid(gid: [u8; 16], prefix_len: u8) -> Node {
        match gid.strip_prefix(&V4_MAPPED) {
            Some(&[a, b, c, d]) => Node::V4 {
                ip: Ipv4Addr::new(a, b, c, d),
                prefix_len,
            },
            _ => Node::Gid(gid),
        }
    }

    /// The port's GID and LID.
    pub(crate) fn gid_and_lid(&self) -> (Option<[u8; 16]>, u16) {
        match self {
            Node::V4 { ip, .. } => (Some(ip.to_ipv6_mapped().octets()), 0),
            Node::Gid(gid) => (Some(*gid), 0),
            Node::Lid { lid, .. } => (None, *lid),
        }
    }

    fn same_network(&self, other: &Node) -> bool {
        match (self, other) {
            (Node::V4 { ip, prefix_len }, Node::V4 { ip: theirs, .. }) => {
                in_subnet(&IpAddr::V4(*theirs), &IpAddr::V4(*ip), *prefix_len)
            }
            (Node::Gid(a), Node::Gid(b)) => a[..8] == b[..8],
            (
                Node::Lid { prefix, pkey, .. },
                Node::Lid {
                    prefix: theirs,
                    pkey: key,
                    ..
                },
            ) => prefix == theirs && (pkey ^ key) & 0x7fff == 0,
            _ => false,
        }
    }

    fn same_host(&self, other: &Node) -> bool {
        match (self, other) {
            (Node::V4 { ip: a, .. }, Node::V4 { ip: b, .. }) => a == b,
            (a, b) => a == b,
        }
    }
}

impl fmt::Display for Node {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Node::V4 { ip, .. } => ip.fmt(f),
            Node::Gid(gid) => Ipv6Addr::from(*gid).fmt(f),
            Node::Lid { lid, .. } => write!(f, "LID {lid}"),
        }
    }
}

impl VerbsAddr {
    /// Converts to a rail's address; index, writes and largest packet are left to its owner.
    pub(crate) fn rail(&self, kind: QueueType) -> RailAddr {
        let [a, b, c, _] = self.number.to_le_bytes();
        let number = [a, b, c];
        let mut bytes = Vec::with_capacity(marline_wire::RAIL_BYTES_MAX);
        match &self.node {
            Node::V4 { ip, prefix_len } => {
                bytes.extend_from_slice(&number);
                bytes.push(*prefix_len);
                bytes.extend_from_slice(&ip.octets());
            }
            Node::Gid(gid) => {
                bytes.extend_from_slice(gid);
                bytes.extend_from_slice(&number);
            }
            Node::Lid { prefix, lid, pkey } => {
                bytes.extend_from_slice(prefix);
                bytes.extend_from_slice(&lid.to_le_bytes());
                bytes.extend_from_slice(&number);
                bytes.extend_from_slice(&pkey.to_le_bytes());
            }
        }
        RailAddr::new(rail_kind(kind), &bytes)
    }

    /// The port's IP address, or the GID in the form of one; `None` on InfiniBand.
    pub(crate) fn ip(&self) -> Option<IpAddr> {
        match self.node {
            Node::V4 { ip, .. } => Some(ip.into()),
            Node::Gid(gid) => Some(Ipv6Addr::from(gid).into()),
            Node::Lid { .. } => None,
        }
    }

    /// Reads a rail's address; `None` for other kinds or an invalid address.
    pub(crate) fn of(addr: &RailAddr) -> Option<VerbsAddr> {
        if !is_verbs(addr) {
            return None;
        }
        let number = |b: &[u8]| u32::from_le_bytes([b[0], b[1], b[2], 0]);
        let b = addr.bytes();
        let (node, number) = match b.len() {
            8 if b[3] <= 32 => {
                let ip = Ipv4Addr::new(b[4], b[5], b[6], b[7]);
                let prefix_len = b[3];
                (Node::V4 { ip, prefix_len }, number(b))
            }
            19 => (Node::Gid(b[..16].try_into().ok()?), number(&b[16..])),
            15 => {
                let (lid, pkey) = ([b[8], b[9]], [b[13], b[14]]);
                let node = Node::Lid {
                    prefix: b[..8].try_into().ok()?,
                    lid: u16::from_le_bytes(lid),
                    pkey: u16::from_le_bytes(pkey),
                };
                (node, number(&b[10..]))
            }
            _ => return None,
        };
        // Queue pairs 0 and 1 are reserved for management.
        (number > 1).then_some(VerbsAddr { node, number })
    }
}

/// Returns whether two verbs addresses lie in one network; `None` unless both are of verbs.
pub(crate) fn same_network(a: &RailAddr, b: &RailAddr) -> Option<bool> {
    let (x, y) = (VerbsAddr::of(a)?, VerbsAddr::of(b)?);
    Some(a.kind == b.kind && x.node.same_network(&y.node))
}

/// Returns whether two verbs addresses are of one port; `None` unless both are of verbs.
pub(crate) fn same_host(a: &RailAddr, b: &RailAddr) -> Option<bool> {
    let (x, y) = (VerbsAddr::of(a)?, VerbsAddr::of(b)?);
    Some(a.kind == b.kind && x.node.same_host(&y.node))
}

/// Calls `f` with bytes that are equal in all addresses of a verbs address's port; `None` for other
/// kinds.
pub(crate) fn with_port<T>(addr: &RailAddr, f: impl FnOnce(&[u8]) -> T) -> Option<T> {
    Some(match VerbsAddr::of(addr)?.node {
        Node::V4 { ip, .. } => f(&ip.octets()),
        Node::Gid(gid) => f(&gid),
        Node::Lid { lid, .. } => f(&lid.to_le_bytes()),
    })
}

/// Formats an address for people; `None` for other kinds.
pub(crate) fn show(addr: &RailAddr) -> Option<String> {
    let VerbsAddr { node, number } = VerbsAddr::of(addr)?;
    Some(format!("{node} queue pair {number}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    const V4: Node = Node::V4 {
        ip: Ipv4Addr::new(10, 1, 2, 3),
        prefix_len: 24,
    };
    const GID: Node = Node::Gid([0xfd, 0, 0, 0, 0, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0, 9]);
    const LID: Node = Node::Lid {
        prefix: [0xfe, 0x80, 0, 0, 0, 0, 0, 0],
        lid: 17,
        pkey: 0xffff,
    };

    #[test]
    fn addresses_round_trip() {
        for node in [V4, GID, LID] {
            for kind in [QueueType::Rc, QueueType::Uc, QueueType::Ud] {
                let number = 0x12_3456;
                let addr = VerbsAddr { node, number };
                let rail = addr.rail(kind);
                assert_eq!(
                    (rail.kind, VerbsAddr::of(&rail)),
                    (rail_kind(kind), Some(addr))
                );
                assert!(rail.bytes().len() <= 19, "two fit into a blob");
                let number = 1; // reserved for management
                assert_eq!(VerbsAddr::of(&VerbsAddr { node, number }.rail(kind)), None);
            }
        }
        for len in 0..=24 {
            let other = RailAddr::new(RailKind::Ud, &[0x21; 24][..len]);
            let known = [15, 19].contains(&len);
            assert_eq!(VerbsAddr::of(&other).is_some(), known, "{len}");
        }
    }

    #[test]
    fn networks_are_those_of_their_kind() {
        let mut gid = [0; 16];
        gid[10..].copy_from_slice(&[0xff, 0xff, 10, 1, 2, 3]);
        assert_eq!(Node::of_gid(gid, 24), V4);
        assert_eq!(V4.gid_and_lid(), (Some(gid), 0));
        gid[14] = 9;
        assert!(!V4.same_network(&Node::of_gid(gid, 24)));
        gid[14..].copy_from_slice(&[2, 9]);
        assert!(V4.same_network(&Node::of_gid(gid, 24)));
        assert!(!V4.same_host(&Node::of_gid(gid, 24)));
        assert!(GID.same_network(&GID) && !GID.same_network(&LID));
        let member = Node::Lid {
            prefix: [0xfe, 0x80, 0, 0, 0, 0, 0, 0],
            lid: 3,
            pkey: 0x7fff,
        };
        assert!(LID.same_network(&member) && !LID.same_host(&member));
        let rail = |node, kind| VerbsAddr { node, number: 7 }.rail(kind);
        let (rc, ud) = (rail(V4, QueueType::Rc), rail(V4, QueueType::Ud));
        assert_eq!(same_network(&rc, &ud), Some(false), "kinds do not meet");
        assert_eq!(same_host(&ud, &ud), Some(true));
        assert_eq!(show(&ud).unwrap(), "10.1.2.3 queue pair 7");
    }
}
