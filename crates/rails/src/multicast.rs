//! Groups of endpoints that one send reaches: IP multicast on UDP rails, UD multicast on verbs.
//!
//! Rails without groups use [`no_groups!`](crate::no_groups). Group packets may be lost and have
//! packet numbers of their own (`marline_proto::group`), separate from those of links. The rail's
//! receiving half receives them along with all other packets.

use crate::outcome::SendOutcome;
use marline_wire::RailAddr;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

/// 239.192.0.0/14, the organization-local scope (RFC 2365).
const GROUPS_V4: u32 = 0xefc0_0000;
const GROUP_BITS_V4: u32 = 18;
/// `ff15::`, transient addresses of site-local scope; the last 32 bits are a random group id with
/// the highest bit set (RFC 4291, RFC 3307).
const GROUPS_V6: u128 = 0xff15 << 112;
const GROUP_DRAWN_V6: u32 = 0x8000_0000;

/// The IP address of a group with this random number.
pub(crate) fn group_ip(v6: bool, drawn: u32) -> IpAddr {
    match v6 {
        true => Ipv6Addr::from(GROUPS_V6 | u128::from(drawn | GROUP_DRAWN_V6)).into(),
        false => Ipv4Addr::from(GROUPS_V4 | drawn & ((1 << GROUP_BITS_V4) - 1)).into(),
    }
}

/// Names a group that the rail has joined. Numbers of groups that were left are reused.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct GroupLink(pub u32);

/// The reason why a group was not joined.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum GroupError {
    /// The address is of another kind of rail, or names no group.
    NoGroup,
    /// The rail or the network's switch accepts no more groups.
    Full,
    /// The system refused, with this errno.
    System(i32),
}

/// Sending half of a rail with groups.
pub trait Groups {
    /// Joins the group at `group`: packets that other members send to it arrive at this rail;
    /// packets that this rail sends do not. The address has the rail's kind, and the bytes that
    /// this kind uses for groups (UDP: a multicast IP address and a port).
    fn join(&mut self, group: &RailAddr) -> Result<GroupLink, GroupError>;

    /// Leaves a group. Packets in flight may still arrive.
    fn leave(&mut self, group: GroupLink);

    /// Sends `bytes` to all other members as packets of `segment` bytes each (the last may be
    /// shorter). After the group was left, nothing is sent and the outcome is `Sent`: the packets
    /// count as lost.
    fn send_group(&mut self, group: GroupLink, bytes: &[u8], segment: usize) -> SendOutcome;
}

/// `no_groups!(Tx)`: implements [`Groups`](crate::Groups) for a rail without multicast.
#[macro_export]
macro_rules! no_groups {
    ($tx:ty) => {
        impl $crate::Groups for $tx {
            fn join(
                &mut self,
                _group: &marline_wire::RailAddr,
            ) -> Result<$crate::GroupLink, $crate::GroupError> {
                Err($crate::GroupError::NoGroup)
            }
            fn leave(&mut self, _group: $crate::GroupLink) {}
            fn send_group(
                &mut self,
                _group: $crate::GroupLink,
                _bytes: &[u8],
                _segment: usize,
            ) -> $crate::SendOutcome {
                $crate::SendOutcome::Sent // lost
            }
        }
    };
}
