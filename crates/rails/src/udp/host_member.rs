//! A process's share in a group socket and its ring.

use super::host_ring::{self as ring, Frame};
use crate::addr::UdpAddr;
use crate::sys::{Errno, SharedRing, Waker};
use std::net::IpAddr;

/// Attempts in a row to take the lock, which is held during a copy.
const TRIES: u32 = 200;
/// The share of this process, used by both halves of its rail.
pub(super) struct HostMember {
    pub(super) ring: SharedRing,
    /// The name under which the processes that share the socket wake each other.
    pub(super) name: u64,
    pub(super) waker: Waker,
    /// The tag of this process's own datagrams in the ring, which it skips.
    pub(super) own: u64,
    /// The kernel joins datagrams (GRO).
    pub(super) joined: bool,
}

impl HostMember {
    pub(super) fn new(
        ring: SharedRing,
        name: u64,
        own: u64,
        joined: bool,
    ) -> Result<HostMember, Errno> {
        let waker = Waker::open(name, ring.slot)?;
        Ok(HostMember {
            ring,
            name,
            waker,
            own,
            joined,
        })
    }

    /// Returns whether this process has neither read nor sent a datagram.
    pub(super) fn wants(&self, frame: &Frame) -> bool {
        frame.source != self.own && frame.reader != self.ring.slot
    }

    /// Takes the ring's lock, which is held during a copy.
    pub(super) fn lock(&self) -> bool {
        let ring = &self.ring;
        (0..TRIES).any(|_| {
            let ours = ring::try_lock(ring, ring.slot).is_ok();
            if !ours {
                std::hint::spin_loop();
            }
            ours
        })
    }
}

/// Identifies a source by its port and the last four bytes of its address, which differ between
/// members of the group.
pub(super) fn tag(source: &UdpAddr) -> u64 {
    let end = match source.ip {
        IpAddr::V4(ip) => u32::from(ip),
        IpAddr::V6(ip) => u128::from(ip) as u32,
    };
    u64::from(source.port) << 32 | u64::from(end)
}
