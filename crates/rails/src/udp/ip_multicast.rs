//! IP multicast groups. A rail that joins a group opens a socket for it; its sends to the group use
//! the rail's own socket. The receiving half takes over new sockets at its next poll.

use super::group_sockets::Joining;
use super::host_feed::HostFeed;
use super::host_share::{OwnGroup, SetupStep, ShareSetup};
use super::read::{Feed, Input, Reader};
use super::shared::{options, Shared, UdpConfig};
use super::tx::UdpTx;
use crate::addr::UdpAddr;
use crate::multicast::group_ip;
use crate::sys::{interface_index, Errno, SockName, Socket};
use crate::{GroupError, GroupLink, Groups, LinkId, Received, SendOutcome};
use marline_wire::{RailAddr, RailKind};
use std::os::fd::RawFd;
use std::sync::atomic::Ordering;
use std::sync::{Arc, PoisonError};

/// Maximum of groups per rail: each is a socket and another descriptor to poll.
const JOINED_MAX: usize = 64;
/// First port of groups, above the kernel's default range of ephemeral ports.
const PORT_MIN: u16 = 61_000;
const PORTS: u64 = (u16::MAX - PORT_MIN) as u64;

/// The address of a group for UDP rails, derived from `id`.
pub(crate) fn group_addr(kind: RailKind, id: u64) -> Option<RailAddr> {
    let v6 = match kind {
        RailKind::Udp4 => false,
        RailKind::Udp6 => true,
        _ => return None,
    };
    let port = PORT_MIN + (id % PORTS) as u16;
    Some(UdpAddr::new(group_ip(v6, (id / PORTS) as u32), port).rail())
}

impl UdpTx {
    fn join_at(&mut self, at: usize, group: &UdpAddr) -> Result<(), Errno> {
        let own = self.shared.socket.local_addr()?;
        self.shared.socket.multicast_by(&self.interface.name)?;
        let config = UdpConfig {
            rcvbuf_bytes: self.group_rcvbuf,
            ..UdpConfig::default()
        };
        let socket = Socket::open_group(&options(&self.interface, &config), group, &own)?;
        if self.gro {
            let _ = socket.enable_gro(); // without it datagrams arrive one by one
        }
        // No drop count: the kernel also counts own packets dropped by the filter.
        let joining = Joining {
            socket: Arc::new(socket),
            member: None,
            before: None,
        };
        self.shared.joined.change(|all| all.push(joining.clone()));
        let name = SockName::new(&group.ip, group.port, self.interface.scope_id);
        let index = interface_index(&self.interface.name)?;
        let share_setup = self.share_groups.then(|| ShareSetup::open(group, index));
        let share_setup = share_setup.flatten();
        self.share_setups += u32::from(share_setup.is_some());
        self.groups[at] = Some(OwnGroup {
            name,
            joining,
            share_setup,
        });
        Ok(())
    }

    /// Checks whether other processes of the host came to share sockets.
    #[cold]
    pub(super) fn poll_share_setups(&mut self) {
        for own in self.groups.iter_mut().flatten() {
            let Some(share_setup) = &mut own.share_setup else {
                continue;
            };
            let over = match share_setup.look(&self.shared, &own.joining.socket, self.gro) {
                SetupStep::Waits => false,
                SetupStep::Joining(new) => {
                    let kept = Joining {
                        before: None,
                        ..new.clone()
                    };
                    let old = std::mem::replace(&mut own.joining, kept);
                    self.shared.joined.change(|all| {
                        all.retain(|one| !one.is(&old));
                        all.push(new);
                    });
                    share_setup.is_over()
                }
                SetupStep::Over => true,
            };
            if over {
                own.share_setup = None;
                self.share_setups -= 1;
            }
        }
    }
}

impl Groups for UdpTx {
    fn join(&mut self, group: &RailAddr) -> Result<GroupLink, GroupError> {
        let v6 = self.shared.socket.is_v6();
        let group = UdpAddr::of(group).filter(|to| to.ip.is_multicast() && to.ip.is_ipv6() == v6);
        let mut group = group.ok_or(GroupError::NoGroup)?;
        group.port = self.ports.of_group(group.port);
        let free = self.groups.iter().position(Option::is_none);
        let at = free.unwrap_or_else(|| {
            self.groups.push(None);
            self.groups.len() - 1
        });
        if at >= JOINED_MAX {
            self.groups.truncate(JOINED_MAX);
            return Err(GroupError::Full);
        }
        match self.join_at(at, &group) {
            Ok(()) => Ok(GroupLink(at as u32)),
            Err(libc::ENOBUFS) => Err(GroupError::Full),
            Err(errno) => Err(GroupError::System(errno)),
        }
    }

    fn leave(&mut self, group: GroupLink) {
        let left = self.groups.get_mut(group.0 as usize).and_then(Option::take);
        if let Some(left) = left {
            self.share_setups -= u32::from(left.share_setup.is_some());
            let others = |one: &Joining| !one.is(&left.joining);
            self.shared.joined.change(|all| all.retain(others));
        }
    }

    fn send_group(&mut self, group: GroupLink, bytes: &[u8], segment: usize) -> SendOutcome {
        let own = self.groups.get(group.0 as usize).and_then(Option::as_ref);
        let Some(name) = own.map(|own| own.name) else {
            return SendOutcome::Sent;
        };
        self.send_named(&name, LinkId::NONE, bytes, segment, 0)
    }
}

/// A group, on the receiving half.
struct GroupFeed {
    joining: Joining,
    /// State of a socket that only this process reads.
    own: Feed,
    host: Option<HostFeed>,
}

impl GroupFeed {
    /// Starts to read a group; the socket that was read before, if any, is emptied first.
    fn new(joining: &mut Joining) -> GroupFeed {
        let before = joining.before.take();
        GroupFeed {
            joining: Joining {
                before,
                ..joining.clone()
            },
            own: Feed::default(),
            host: joining.member.clone().map(HostFeed::new),
        }
    }

    fn recv(
        &mut self,
        (shared, reader): (&Shared, &mut Reader),
        sink: &mut dyn FnMut(Received<'_>),
    ) -> usize {
        let before = self.joining.before.as_deref();
        let socket = &*self.joining.socket;
        if let (Some(host), None) = (&mut self.host, before) {
            return host.recv(shared, socket, sink);
        }
        let mut input = Input {
            shared,
            socket: before.unwrap_or(socket),
            feed: &mut self.own,
        };
        let count = reader.recv(&mut input, sink);
        if count == 0 {
            self.joining.before = None;
        }
        count
    }
}

/// The groups of a rail, on the receiving half.
#[derive(Default)]
pub(super) struct GroupFeeds {
    feeds: Vec<GroupFeed>,
    version: u32,
    /// Index of the group that last had packets.
    last: usize,
}

impl GroupFeeds {
    /// Returns whether the sending half has joined or left groups.
    #[inline]
    pub(super) fn is_stale(&self, shared: &Shared) -> bool {
        shared.joined.version.load(Ordering::Acquire) != self.version
    }

    /// Takes over the changes of the sending half.
    #[cold]
    pub(super) fn take_over(&mut self, shared: &Shared) {
        let joined = shared.joined.sockets.lock();
        let mut joined = joined.unwrap_or_else(PoisonError::into_inner);
        self.version = shared.joined.version.load(Ordering::Acquire);
        let mut before = std::mem::take(&mut self.feeds);
        let mut feed = |joining: &mut Joining| {
            let at = before.iter().position(|feed| feed.joining.is(joining));
            let known = at.map(|at| before.swap_remove(at));
            known.unwrap_or_else(|| GroupFeed::new(joining))
        };
        self.feeds = joined.iter_mut().map(&mut feed).collect();
        self.last = 0;
    }

    /// Reads the group that last had packets; with `all`, each in turn until one has packets.
    #[inline]
    pub(super) fn recv(
        &mut self,
        (shared, reader): (&Shared, &mut Reader),
        all: bool,
        sink: &mut dyn FnMut(Received<'_>),
    ) -> usize {
        if self.feeds.is_empty() {
            return 0;
        }
        self.recv_some((shared, reader), all, sink)
    }

    fn recv_some(
        &mut self,
        (shared, reader): (&Shared, &mut Reader),
        all: bool,
        sink: &mut dyn FnMut(Received<'_>),
    ) -> usize {
        let turns = if all { self.feeds.len() } else { 1 };
        for turn in 0..turns {
            let at = (self.last + turn) % self.feeds.len();
            let count = self.feeds[at].recv((shared, reader), sink);
            if count > 0 {
                self.last = at;
                return count;
            }
        }
        0
    }

    /// The descriptors of the group sockets, and those by which other processes wake this one.
    pub(super) fn descriptors(&self) -> impl Iterator<Item = RawFd> + '_ {
        let wakers = self.hosts().map(HostFeed::waker);
        let sockets = self.feeds.iter().map(|feed| feed.joining.socket.fd());
        sockets.chain(wakers)
    }

    fn hosts(&self) -> impl Iterator<Item = &HostFeed> {
        self.feeds.iter().filter_map(|feed| feed.host.as_ref())
    }

    /// Prepares a sleep; returns `true` if packets wait that the descriptors do not report.
    pub(super) fn arm(&mut self) -> bool {
        let mut some = false;
        for feed in &mut self.feeds {
            some |= feed.joining.before.is_some();
            some |= feed.host.as_mut().is_some_and(HostFeed::arm);
        }
        some
    }

    /// Ends a sleep.
    pub(super) fn wake(&self) {
        self.hosts().for_each(HostFeed::wake);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_are_multicast_and_differ() {
        let mut seen = std::collections::BTreeSet::new();
        for id in 0..5_000u64 {
            let id = id.wrapping_mul(0x9e37_79b9_7f4a_7c15);
            for kind in [RailKind::Udp4, RailKind::Udp6] {
                let addr = UdpAddr::of(&group_addr(kind, id).unwrap()).unwrap();
                assert!(addr.ip.is_multicast() && addr.port >= PORT_MIN, "{addr}");
                seen.insert((addr.ip, addr.port));
            }
        }
        assert!(seen.len() > 9_990, "{}", seen.len());
        assert_eq!(group_addr(RailKind::Shm, 1), None);
    }
}
