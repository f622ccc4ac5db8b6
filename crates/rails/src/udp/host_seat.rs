//! The share of a process in a socket of a group and in its ring.

use super::host_ring::{self as ring, Frame};
use crate::addr::UdpAddr;
use crate::sys::{Errno, SharedRing, Waker};
use std::net::IpAddr;

/// The lock, which is held for a copy, is tried so often in a row.
const TRIES: u32 = 200;
/// The share of this process, as both halves of its rail have it.
pub(super) struct Seat {
    pub(super) ring: SharedRing,
    /// By which those who share wake each other.
    pub(super) name: u64,
    pub(super) waker: Waker,
    /// The source of own packets.
    pub(super) own: u64,
    /// The kernel joins datagrams.
    pub(super) joined: bool,
}

impl Seat {
    pub(super) fn new(ring: SharedRing, name: u64, own: u64, joined: bool) -> Result<Seat, Errno> {
        let waker = Waker::open(name, ring.slot)?;
        Ok(Seat {
            ring,
            name,
            waker,
            own,
            joined,
        })
    }

    /// This process has not had a datagram, and did not send it.
    pub(super) fn wants(&self, frame: &Frame) -> bool {
        frame.source != self.own && frame.reader != self.ring.slot
    }

    /// Takes the ring's lock, which is held for a copy.
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

/// A source by its port and the last four bytes of its address, as members of a group differ.
pub(super) fn tag(source: &UdpAddr) -> u64 {
    let end = match source.ip {
        IpAddr::V4(ip) => u32::from(ip),
        IpAddr::V6(ip) => u128::from(ip) as u32,
    };
    u64::from(source.port) << 32 | u64::from(end)
}
