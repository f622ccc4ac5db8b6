//! The member descriptor of an endpoint: all that others need for making a group with it. The
//! opener of a group gathers the descriptors of all members by other means, and all members derive
//! the same group from them.

use marline_auth::HeadKey;
use marline_proto::group::{Identity, NETWORKS_MAX};
use marline_rails::group_addr;
use marline_rails::pairing::{same_host, same_network};
use marline_wire::{Address, RailAddr, RailList, ADDRESS_LEN_MAX, TAG_LEN};
use std::sync::Arc;

/// Length of a descriptor in bytes: 1 for its version, 1 for the length of its address, 4 for the
/// epoch, 4 for the receive buffer, 20 for the name of the scheme, then the address, then as many
/// rails as fit: at least 8 with IPv6 addresses. The last 8 are a tag by the job's key, or 0.
pub const MEMBER_DESCRIPTOR_LEN: usize = TAG_AT + TAG_LEN;
const TAG_AT: usize = 312;
/// Version of the descriptor. Only with equal versions do members derive the same parameters, such
/// as the length of chunks.
const VERSION: u8 = 5;
const BUFFER_AT: usize = 6;
const SCHEME_AT: usize = 10;
/// Room for the name of a scheme in bytes; all documented names fit.
const SCHEME_LEN: usize = 20;
const ADDRESS_AT: usize = SCHEME_AT + SCHEME_LEN;
const RAILS_AT: usize = ADDRESS_AT + ADDRESS_LEN_MAX;

/// The decoded descriptor.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct MemberDescriptor {
    pub(crate) address: Address,
    pub(crate) epoch: u32,
    /// Bytes that the smallest receive buffer of the member's rails holds.
    pub(crate) receive_buffer: u32,
    /// Name of the member's scheme, truncated to the room in a descriptor.
    pub(crate) scheme: String,
    /// Rails with multicast.
    pub(crate) rails: Vec<RailAddr>,
}

impl MemberDescriptor {
    /// Encodes the descriptor, with a tag by the key for descriptors; rails that do not fit are
    /// omitted.
    pub(crate) fn encode(&self, key: Option<&HeadKey>) -> [u8; MEMBER_DESCRIPTOR_LEN] {
        let mut out = [0; MEMBER_DESCRIPTOR_LEN];
        let (address, len) = self.address.encode();
        (out[0], out[1]) = (VERSION, len as u8);
        out[2..BUFFER_AT].copy_from_slice(&self.epoch.to_le_bytes());
        out[BUFFER_AT..SCHEME_AT].copy_from_slice(&self.receive_buffer.to_le_bytes());
        let name = self.scheme.bytes().take(SCHEME_LEN);
        (out[SCHEME_AT..].iter_mut().zip(name)).for_each(|(to, byte)| *to = byte);
        out[ADDRESS_AT..RAILS_AT].copy_from_slice(&address);
        RailList::write(&mut out[RAILS_AT..TAG_AT], &self.rails);
        let tag = key.map_or(0, |key| key.tag(&out[..TAG_AT]));
        out[TAG_AT..].copy_from_slice(&tag.to_le_bytes());
        out
    }

    /// Returns whether a descriptor has the right tag under `key`. Without a key here the sender
    /// must have none either: the tag is 0.
    pub(crate) fn is_believed(descriptor: &[u8], key: Option<&HeadKey>) -> bool {
        let Some((covered, tag)) = descriptor.split_last_chunk::<TAG_LEN>() else {
            return false;
        };
        let tag = u64::from_le_bytes(*tag);
        key.map_or(tag == 0, |key| key.is_tag(covered, tag))
    }

    /// Decodes a descriptor; `None`: damaged or of another version.
    pub(crate) fn decode(descriptor: &[u8]) -> Option<MemberDescriptor> {
        let descriptor: &[u8; MEMBER_DESCRIPTOR_LEN] = descriptor.try_into().ok()?;
        let address = descriptor[ADDRESS_AT..RAILS_AT].get(..descriptor[1] as usize)?;
        let [_, _, epoch @ .., _, _, _, _] = *descriptor.first_chunk::<SCHEME_AT>()?;
        let buffer = descriptor[BUFFER_AT..].first_chunk()?;
        let scheme = core::str::from_utf8(&descriptor[SCHEME_AT..ADDRESS_AT]).ok()?;
        (descriptor[0] == VERSION).then_some(MemberDescriptor {
            address: Address::decode(address).ok()?,
            epoch: u32::from_le_bytes(epoch),
            receive_buffer: u32::from_le_bytes(*buffer),
            scheme: scheme.trim_end_matches('\0').to_owned(),
            rails: RailList::of(&descriptor[RAILS_AT..TAG_AT]).iter().collect(),
        })
    }

    /// True if both processes are on one host, judging by their rails.
    pub(crate) fn is_beside(&self, other: &MemberDescriptor) -> bool {
        let mut pairs = self.rails.iter().zip(&other.rails);
        self.rails.len() == other.rails.len() && pairs.all(|(a, b)| same_host(a, b))
    }
}

/// The first member and the first member with a different scheme, if there is one.
pub(crate) fn unlike(descriptors: &[MemberDescriptor]) -> Option<[usize; 2]> {
    let first = descriptors.first()?;
    let other = descriptors
        .iter()
        .position(|descriptor| descriptor.scheme != first.scheme);
    other.map(|other| [0, other])
}

/// Identity of a group with these members.
pub(crate) fn identity(id: u64, token: u32, descriptors: &[MemberDescriptor]) -> Identity {
    let members: Arc<[(u64, u32)]> = descriptors
        .iter()
        .map(|c| (c.address.id, c.epoch))
        .collect();
    Identity { id, token, members }
}

/// Networks in which all members have a rail with multicast: for each network and member, the index
/// of the rail in the member's descriptor. All members get the same result, since the search starts
/// from the first member's rails.
pub(crate) fn networks(descriptors: &[MemberDescriptor]) -> Vec<Vec<usize>> {
    let mut networks: Vec<Vec<usize>> = Vec::new();
    let Some(first) = descriptors.first() else {
        return networks;
    };
    for rail in first.rails.iter().take(NETWORKS_MAX) {
        let rail_of = |(member, descriptor): (usize, &MemberDescriptor)| {
            let near = |at: &usize| {
                let other = &descriptor.rails[*at];
                other.kind == rail.kind && same_network(rail, other)
            };
            let taken = |at: &usize| networks.iter().any(|network| network[member] == *at);
            (0..descriptor.rails.len()).find(|at| near(at) && !taken(at))
        };
        let network: Option<Vec<usize>> = descriptors.iter().enumerate().map(rail_of).collect();
        let network = network.filter(|_| group_addr(rail.kind, 0).is_some());
        networks.extend(network);
    }
    networks
}

/// Members whose multicast all other hosts must hear before a network counts as carrying multicast:
/// the first member on each host, up to a number of hosts whose probes do no harm.
pub(crate) fn leaders(descriptors: &[MemberDescriptor]) -> Vec<usize> {
    let mut leaders: Vec<usize> = Vec::new();
    for (at, descriptor) in descriptors.iter().enumerate() {
        if leaders.len() == LEADERS_MAX {
            break;
        }
        if !leaders
            .iter()
            .any(|&leader| descriptors[leader].is_beside(descriptor))
        {
            leaders.push(at);
        }
    }
    leaders
}

/// Most leaders of a group, one for each host.
const LEADERS_MAX: usize = 64;

#[cfg(test)]
mod tests {
    use super::*;
    use marline_rails::UdpAddr;
    use std::net::Ipv4Addr;

    fn rail(net: u8, host: u8, port: u16) -> RailAddr {
        let addr = UdpAddr {
            prefix_len: 24,
            ..UdpAddr::new(Ipv4Addr::new(10, net, 0, host).into(), port)
        };
        let mut rail = addr.rail();
        (rail.datagram_max, rail.index) = (1_472, net);
        rail
    }

    fn descriptor(id: u64, rails: &[RailAddr]) -> MemberDescriptor {
        MemberDescriptor {
            address: Address::new(id, 7, rails),
            epoch: id as u32 + 100,
            receive_buffer: 1 << 20,
            scheme: "nack+parity8".to_owned(),
            rails: rails.to_vec(),
        }
    }

    #[test]
    fn only_valid_descriptors_are_decoded() {
        let descriptor = descriptor(5, &[rail(0, 1, 9), rail(1, 1, 10)]);
        let bytes = descriptor.encode(None);
        assert_eq!(MemberDescriptor::decode(&bytes), Some(descriptor.clone()));
        assert_eq!(MemberDescriptor::decode(&bytes[1..]), None);
        assert_eq!(MemberDescriptor::decode(&[0; MEMBER_DESCRIPTOR_LEN]), None);
        let mut other = descriptor.clone();
        other.scheme = "basic".to_owned();
        assert_eq!(
            unlike(&[descriptor.clone(), descriptor.clone(), other]),
            Some([0, 2])
        );
        assert_eq!(unlike(&[descriptor.clone(), descriptor]), None);
        let mut damaged = bytes;
        damaged[1] = 255;
        assert_eq!(MemberDescriptor::decode(&damaged), None);
    }

    #[test]
    fn group_networks_are_those_that_all_members_share() {
        let descriptors = [
            descriptor(1, &[rail(0, 1, 9), rail(1, 1, 9), rail(2, 1, 9)]),
            descriptor(2, &[rail(2, 2, 9), rail(0, 2, 9)]),
            descriptor(3, &[rail(0, 1, 8), rail(1, 1, 8), rail(2, 1, 8)]),
        ];
        assert_eq!(networks(&descriptors), [vec![0, 1, 0], vec![2, 0, 2]]);
        assert_eq!(leaders(&descriptors), [0, 1]);
        assert!(networks(&[]).is_empty());
    }
}
