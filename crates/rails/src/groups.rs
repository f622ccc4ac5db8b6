//! Groups of endpoints that one send reaches: IP multicast on UDP rails, UD multicast on verbs.
//!
//! Few kinds of rails have groups; [`no_groups!`](crate::no_groups) is for the others. Nothing that
//! is sent to one needs to arrive, and its packets have numbers of their own
//! (`marline_proto::group`), apart from those of links between two endpoints. What comes by a group
//! is received as everything else, by the rail's receiving half.

use crate::outcome::SendOutcome;
use marline_wire::RailAddr;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

/// 239.192.0.0/14, which an organisation uses as it likes (RFC 2365).
const GROUPS_V4: u32 = 0xefc0_0000;
const GROUP_BITS_V4: u32 = 18;
/// `ff15::`, an address for the time being in the scope of a site; the last 32 bits, from
/// 0x8000_0000 on, are drawn by whoever needs a group (RFC 4291, RFC 3307).
const GROUPS_V6: u128 = 0xff15 << 112;
const GROUP_DRAWN_V6: u32 = 0x8000_0000;

/// The IP address of a group, by a random number.
pub(crate) fn group_ip(v6: bool, drawn: u32) -> IpAddr {
    match v6 {
        true => Ipv6Addr::from(GROUPS_V6 | u128::from(drawn | GROUP_DRAWN_V6)).into(),
        false => Ipv4Addr::from(GROUPS_V4 | drawn & ((1 << GROUP_BITS_V4) - 1)).into(),
    }
}

/// A rail's number of a group that it has joined. Numbers of groups that were left are given again.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct GroupLink(pub u32);

/// The reason why a group was not joined.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum GroupError {
    /// The address is of another kind of rail, or names no group.
    NoGroup,
    /// The rail, or the network's switch, takes no more groups.
    Full,
    /// The system refuses, with its errno.
    System(i32),
}

/// Sending half of a rail that reaches groups.
pub trait Groups {
    /// Joins the group at `group`: from now on packets that other members send to it arrive at this
    /// rail. Own ones do not. The address has the rail's kind and the bytes that this kind gives to
    /// groups (of UDP: a multicast IP address and a port).
    fn join(&mut self, group: &RailAddr) -> Result<GroupLink, GroupError>;

    /// Leaves a group. What is under way may still arrive.
    fn leave(&mut self, group: GroupLink);

    /// Sends `bytes` to all other members, as packets of `segment` bytes each (the last may be
    /// shorter). To a group that was left nothing is sent, and `Sent` is the outcome: that is lost
    /// as on any path that leads nowhere.
    fn send_group(&mut self, group: GroupLink, bytes: &[u8], segment: usize) -> SendOutcome;
}

/// `no_groups!(Tx)`: a rail whose sends reach one peer each.
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
                $crate::SendOutcome::Sent // to nobody
            }
        }
    };
}
