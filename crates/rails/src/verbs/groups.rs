//! Groups by multicast of datagrams, over RoCE version 2. A rail that joins one attaches its pair
//! of datagrams to the group's GID, which stands for an IP address, and joins that address as well:
//! the switches, and a device that is the kernel's own, go by it.
//!
//! Datagrams come back to whoever sent them, and are thrown away there.

use super::addr::Node;
use super::shared::{Shared, ROUTE_LEN};
use crate::groups::group_ip;
use crate::sys::verbs::{AddressHandle, Completion, Path};
use crate::sys::{Errno, Socket};
use marline_wire::{RailAddr, RailKind};
use std::net::IpAddr;
use std::sync::Arc;

/// The number that stands for the pairs of all members.
const ALL_MEMBERS: u32 = 0xff_ffff;
/// Members share a subnet: no router has to pass a packet on.
const HOPS: u8 = 1;
/// Where source and destination stand in the route before a datagram: of IPv4 its last 20 bytes
/// are the packet's head, of IPv6 all.
const SOURCE_V4: usize = 32;
const TARGET_V4: usize = 36;
const SOURCE_V6: usize = 8;
const TARGET_V6: usize = 24;

/// The address of a group for verbs rails: a number drawn from `id`, of which each network makes
/// the GID that it needs.
pub(crate) fn group_addr(kind: RailKind, id: u64) -> Option<RailAddr> {
    let verbs = matches!(kind, RailKind::Rc | RailKind::Uc | RailKind::Ud);
    let drawn = (id ^ (id >> 32)) as u32;
    verbs.then(|| RailAddr::new(kind, &drawn.to_le_bytes()))
}

/// The IP address of a group in a port's network; `None`: it is not of IP.
pub(super) fn ip_of(node: &Node, drawn: u32) -> Option<IpAddr> {
    match node {
        Node::V4 { .. } => Some(group_ip(false, drawn)),
        Node::Gid(_) => Some(group_ip(true, drawn)),
        Node::Lid { .. } => None,
    }
}

/// The GID that stands for an IP address.
fn gid_of(ip: IpAddr) -> [u8; 16] {
    match ip {
        IpAddr::V4(ip) => ip.to_ipv6_mapped().octets(),
        IpAddr::V6(ip) => ip.octets(),
    }
}

/// A datagram that came is one that the pair itself has sent to a group. `bytes` begin with its
/// route.
#[inline]
pub(super) fn is_own(shared: &Shared, completion: &Completion, bytes: &[u8]) -> bool {
    completion.src_qp == shared.datagrams.number()
        && completion.has_route()
        && bytes
            .first_chunk()
            .is_some_and(|route| is_from(&shared.port.node, route))
}

/// A route leads from a port to a group.
fn is_from(node: &Node, route: &[u8; ROUTE_LEN]) -> bool {
    match node {
        Node::V4 { ip, .. } => {
            route[TARGET_V4] & 0xf0 == 0xe0 && route[SOURCE_V4..TARGET_V4] == ip.octets()
        }
        Node::Gid(gid) => route[TARGET_V6] == 0xff && route[SOURCE_V6..TARGET_V6] == *gid,
        Node::Lid { .. } => false,
    }
}

/// The membership of a pair in the group of a GID.
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
        // Of a device that is gone; what comes later names no group of ours.
        let _ = self.shared.datagrams.detach(&self.gid);
    }
}

/// A group that the rail is in.
pub(super) struct OwnGroup {
    /// Shared by those that were given one address.
    member: Arc<Member>,
    handle: AddressHandle,
}

/// The groups of a rail, by their numbers.
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

    /// Makes the way to the members anew, by the port's GID as it is now; the way so far, which
    /// requests that are posted may still name.
    #[cold]
    pub(super) fn renew(&mut self) -> Result<AddressHandle, Errno> {
        let new = handle(&self.member.shared, self.member.gid)?;
        Ok(std::mem::replace(&mut self.handle, new))
    }

    /// The way to the members, and the number of their pairs.
    #[inline]
    pub(super) fn to(&self) -> (&AddressHandle, u32) {
        (&self.handle, ALL_MEMBERS)
    }

    /// Leaves it. Requests that are posted may still name the handle.
    pub(super) fn leave(self) -> AddressHandle {
        self.handle
    }
}

/// The way to a group. The card's address follows from the group's: this asks nobody.
fn handle(shared: &Arc<Shared>, gid: [u8; 16]) -> Result<AddressHandle, Errno> {
    let path = Path {
        port: shared.port.number,
        gid_index: shared.port.gid_index(),
        gid: Some(gid),
        lid: 0,
        hops: HOPS,
        flow: 0,
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
    fn own_datagrams_are_told_by_their_route() {
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
