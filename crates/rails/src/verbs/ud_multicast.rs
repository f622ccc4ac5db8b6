//! Multicast groups of datagrams over RoCE version 2. A rail that joins a group attaches its
//! datagram queue pair to the group's GID, which represents an IP address, and joins that IP
//! address on the host: switches and software devices (Soft-RoCE) forward by it.
//!
//! Adapters loop group datagrams back to the sender, which drops them.

use super::addr::Node;
use super::shared::{Shared, ROUTE_LEN};
use crate::multicast::group_ip;
use crate::sys::verbs::{AddressHandle, Completion, Path};
use crate::sys::{Errno, Socket};
use marline_wire::{RailAddr, RailKind};
use std::net::IpAddr;
use std::sync::Arc;

/// The destination queue pair number of multicast datagrams.
const ALL_MEMBERS: u32 = 0xff_ffff;
/// Members share a subnet: no router forwards the packets.
const HOPS: u8 = 1;
/// Offsets of source and destination in the 40-byte GRH: for IPv4 its last 20 bytes are the IP
/// header, for IPv6 all of it.
const SOURCE_V4: usize = 32;
const TARGET_V4: usize = 36;
const SOURCE_V6: usize = 8;
const TARGET_V6: usize = 24;

/// The address of a group for verbs rails: a random number derived from `id`, from which each
/// network derives the GID.
pub(crate) fn group_addr(kind: RailKind, id: u64) -> Option<RailAddr> {
    let verbs = matches!(kind, RailKind::Rc | RailKind::Uc | RailKind::Ud);
    let drawn = (id ^ (id >> 32)) as u32;
    verbs.then(|| RailAddr::new(kind, &drawn.to_le_bytes()))
}

/// The IP address of a group in a port's network; `None` on InfiniBand.
pub(super) fn ip_of(node: &Node, drawn: u32) -> Option<IpAddr> {
    match node {
        Node::V4 { .. } => Some(group_ip(false, drawn)),
        Node::Gid(_) => Some(group_ip(true, drawn)),
        Node::Lid { .. } => None,
    }
}

/// The GID that represents an IP address.
fn gid_of(ip: IpAddr) -> [u8; 16] {
    match ip {
        IpAddr::V4(ip) => ip.to_ipv6_mapped().octets(),
        IpAddr::V6(ip) => ip.octets(),
    }
}

/// Returns whether this queue pair itself sent a received group datagram. `bytes` begin with the
/// GRH.
#[inline]
pub(super) fn is_own(shared: &Shared, completion: &Completion, bytes: &[u8]) -> bool {
    completion.src_qp == shared.datagrams.number()
        && completion.has_route()
        && bytes
            .first_chunk()
            .is_some_and(|route| is_from(&shared.port.node, route))
}

/// Returns whether a GRH is from `node` to a multicast address.
fn is_from(node: &Node, route: &[u8; ROUTE_LEN]) -> bool {
    match node {
        Node::V4 { ip, .. } => {
            route[TARGET_V4] & 0xf0 == 0xe0 && route[SOURCE_V4..TARGET_V4] == ip.octets()
        }
        Node::Gid(gid) => route[TARGET_V6] == 0xff && route[SOURCE_V6..TARGET_V6] == *gid,
        Node::Lid { .. } => false,
    }
}

/// A queue pair's membership in the group of a GID.
struct Member {
    gid: [u8; 16],
    shared: Arc<Shared>,
    /// Keeps the host a member of the IP address.
    _host: Socket,
}

impl Member {
    fn new(shared: &Arc<Shared>, interface: &str, ip: IpAddr) -> Result<Member, Errno> {
        let host = Socket::member(ip, interface)?;
        let gid = gid_of(ip);
        shared.datagrams.attach(&gid)?;
        Ok(Member {
            gid,
            shared: shared.clone(),
            _host: host,
        })
    }
}

impl Drop for Member {
    fn drop(&mut self) {
        // An error means that the device is gone; no later datagram belongs to our groups.
        let _ = self.shared.datagrams.detach(&self.gid);
    }
}

/// A group that the rail has joined.
pub(super) struct OwnGroup {
    /// Shared by groups with the same address.
    member: Arc<Member>,
    handle: AddressHandle,
}

/// The groups of a rail by number.
pub(super) type OwnGroups = Vec<Option<OwnGroup>>;

impl OwnGroup {
    /// Joins the group of an IP address on an interface, or shares the membership of one of `all`.
    pub(super) fn join(
        shared: &Arc<Shared>,
        all: &OwnGroups,
        (ip, interface): (IpAddr, &str),
    ) -> Result<OwnGroup, Errno> {
        let gid = gid_of(ip);
        let mut known = all.iter().flatten().map(|own| &own.member);
        let member = match known.find(|member| member.gid == gid) {
            Some(member) => member.clone(),
            None => Arc::new(Member::new(shared, interface, ip)?),
        };
        let handle = handle(shared, gid)?;
        Ok(OwnGroup { member, handle })
    }

    /// Replaces the address handle after the port's GID index changed; returns the old handle,
    /// which outstanding requests may still use.
    #[cold]
    pub(super) fn renew(&mut self) -> Result<AddressHandle, Errno> {
        let new = handle(&self.member.shared, self.member.gid)?;
        Ok(std::mem::replace(&mut self.handle, new))
    }

    /// The address handle of the group and the destination queue pair number.
    #[inline]
    pub(super) fn to(&self) -> (&AddressHandle, u32) {
        (&self.handle, ALL_MEMBERS)
    }

    /// Leaves the group; returns the handle, which outstanding requests may still use.
    pub(super) fn leave(self) -> AddressHandle {
        self.handle
    }
}

/// The address handle of a group. The multicast MAC address follows from the GID, so no resolution
/// is needed.
fn handle(shared: &Arc<Shared>, gid: [u8; 16]) -> Result<AddressHandle, Errno> {
    let path = Path {
        hops: HOPS,
        ..shared.port.path(Some(gid), 0)
    };
    AddressHandle::new(&shared.domain, &path)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::Ipv4Addr;

    const V4: Node = Node::V4 {
        ip: Ipv4Addr::new(10, 1, 2, 3),
        prefix_len: 24,
    };
    const GID: Node = Node::Gid([0xfd, 0, 0, 0, 0, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0, 9]);

    #[test]
    fn groups_have_addresses_of_their_network() {
        let mut seen = std::collections::BTreeSet::new();
        for id in 0..1_000u64 {
            let id = id.wrapping_mul(0x9e37_79b9_7f4a_7c15);
            let addr = group_addr(RailKind::Rc, id).unwrap();
            let drawn = u32::from_le_bytes(addr.bytes().try_into().unwrap());
            for node in [V4, GID] {
                let ip = ip_of(&node, drawn).unwrap();
                assert!(ip.is_multicast() && ip.is_ipv6() == (node == GID), "{ip}");
                seen.insert(gid_of(ip));
            }
        }
        assert!(seen.len() > 1_980, "{}", seen.len());
        assert_eq!(group_addr(RailKind::Udp4, 1), None);
        let (prefix, lid, pkey) = ([0xfe; 8], 17, 0xffff);
        assert_eq!(ip_of(&Node::Lid { prefix, lid, pkey }, 1), None);
    }

    #[test]
    fn own_datagrams_are_identified_by_their_grh() {
        let mut v4 = [0; ROUTE_LEN];
        v4[SOURCE_V4..].copy_from_slice(&[10, 1, 2, 3, 239, 192, 0, 1]);
        assert!(is_from(&V4, &v4) && !is_from(&GID, &v4));
        v4[TARGET_V4] = 10;
        assert!(!is_from(&V4, &v4), "not to a group");
        v4[TARGET_V4 - 1..][..2].copy_from_slice(&[4, 239]);
        assert!(!is_from(&V4, &v4), "another's");
        let mut v6 = [0; ROUTE_LEN];
        v6[SOURCE_V6..TARGET_V6].copy_from_slice(&GID.gid_and_lid().0.unwrap());
        v6[TARGET_V6] = 0xff;
        assert!(is_from(&GID, &v6) && !is_from(&V4, &v6));
    }
}
