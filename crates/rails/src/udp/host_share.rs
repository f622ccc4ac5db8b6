//! Sharing of one group socket between the processes of a host.
//!
//! Each process opens and reads its own socket at first. The first process on the host listens
//! under a name derived from the group's address; others connect to it and receive its socket and
//! the memory of a ring. A process that does not receive them within a second keeps its own socket.

use super::group_sockets::Joining;
use super::host_member::{tag, HostMember};
use super::shared::Shared;
use crate::addr::UdpAddr;
use crate::sys::{random, Errno, SeqPacket, SharedRing, SockName, Socket};
use std::net::IpAddr;
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::Arc;
use std::time::{Duration, Instant};

/// First word of the message with the descriptors; identifies the version.
const MAGIC: u64 = 0x6d72_6c67_0000_0001;
/// Attempts to meet the other processes: the first process may have bound the name without
/// listening yet.
const TRIES: u32 = 16;
/// Interval between checks of a setup, and its maximum duration.
const PAUSE: Duration = Duration::from_micros(200);
const TIME: Duration = Duration::from_secs(1);

/// A joined group, on the sending half.
pub(super) struct OwnGroup {
    pub(super) name: SockName,
    pub(super) joining: Joining,
    /// Set while other processes of the host may come to share the socket.
    pub(super) share_setup: Option<ShareSetup>,
}

/// The setup of the processes of a host that are in one group.
pub(super) struct ShareSetup {
    local: SeqPacket,
    /// True if this process listens; `member` is its ring, once another process has connected.
    host: bool,
    member: Option<Arc<HostMember>>,
    next: Instant,
    end: Instant,
}

/// The result of a check of a setup.
pub(super) enum SetupStep {
    /// Nothing has changed.
    Waits,
    /// From now on the group is read in this way.
    Joining(Joining),
    /// The setup has ended.
    Over,
}

/// The name under which processes in a group on one interface find each other.
fn name_of(group: &UdpAddr, interface: u32) -> u64 {
    let ip = match group.ip {
        IpAddr::V4(ip) => u32::from(ip).into(),
        IpAddr::V6(ip) => u128::from(ip),
    };
    let words = [
        ip as u64,
        (ip >> 64) as u64,
        u64::from(group.port) << 32 | u64::from(interface),
    ];
    let mix = |hash: u64, word: &u64| {
        let mixed = (hash ^ word).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        mixed ^ mixed >> 29
    };
    words.iter().fold(MAGIC, mix)
}

impl ShareSetup {
    /// Listens or connects under the group's name; `None` if neither works.
    pub(super) fn open(group: &UdpAddr, interface: u32) -> Option<ShareSetup> {
        let name = name_of(group, interface);
        let (local, host) = (0..TRIES).find_map(|_| match SeqPacket::listen(name) {
            Ok(local) => Some((local, true)),
            Err(_) => SeqPacket::connect(name).ok().map(|local| (local, false)),
        })?;
        let now = Instant::now();
        let ours = host || local.is_of_own_user();
        ours.then_some(ShareSetup {
            local,
            host,
            member: None,
            next: now,
            end: now + TIME,
        })
    }

    /// Accepts guests, or checks for the host's answer.
    pub(super) fn look(
        &mut self,
        shared: &Shared,
        socket: &Arc<Socket>,
        joined: bool,
    ) -> SetupStep {
        let now = Instant::now();
        if now < self.next {
            return SetupStep::Waits;
        }
        self.next = now + PAUSE;
        let met = match self.host {
            true => self.receive_guests(shared, socket, joined),
            false => self.ask(shared, socket, joined),
        };
        match met {
            Ok(SetupStep::Waits) if now >= self.end => SetupStep::Over,
            Ok(met) => met,
            Err(_) => SetupStep::Over,
        }
    }

    /// Sends socket and ring to connecting processes.
    fn receive_guests(
        &mut self,
        shared: &Shared,
        socket: &Arc<Socket>,
        joined: bool,
    ) -> Result<SetupStep, Errno> {
        let mut met = SetupStep::Waits;
        while let Ok(guest) = self.local.accept() {
            if !guest.is_of_own_user() {
                continue;
            }
            let member = match &self.member {
                Some(member) => member.clone(),
                None => {
                    let own = tag(&shared.socket.local_addr()?);
                    let member = Arc::new(HostMember::new(
                        SharedRing::create()?,
                        random()?,
                        own,
                        joined,
                    )?);
                    socket.hear_own()?;
                    self.member = Some(member.clone());
                    met = SetupStep::Joining(Joining {
                        socket: socket.clone(),
                        member: Some(member.clone()),
                        before: None,
                    });
                    member
                }
            };
            let mut words = [0; 16];
            words[..8].copy_from_slice(&MAGIC.to_le_bytes());
            words[8..].copy_from_slice(&member.name.to_le_bytes());
            let fds: [BorrowedFd<'_>; 2] = [socket.as_fd(), member.ring.file().as_fd()];
            let _ = guest.send(&words, &fds); // a failed send means that the guest is gone
        }
        Ok(met)
    }

    /// Receives socket and ring, if the host has sent them.
    fn ask(
        &mut self,
        shared: &Shared,
        socket: &Arc<Socket>,
        joined: bool,
    ) -> Result<SetupStep, Errno> {
        let mut words = [0; 16];
        let message = match self.local.recv(&mut words) {
            Err(libc::EAGAIN | libc::EINTR) => return Ok(SetupStep::Waits),
            other => other?,
        };
        let word = |at: usize| words[at..].first_chunk().map(|b| u64::from_le_bytes(*b));
        let [others, file] = <[_; 2]>::try_from(message.fds).map_err(|_| libc::EPROTO)?;
        let name = word(8).filter(|_| message.len == words.len() && word(0) == Some(MAGIC));
        let name = name.ok_or(libc::EPROTO)?;
        let own = tag(&shared.socket.local_addr()?);
        let member = HostMember::new(SharedRing::open(file)?, name, own, joined)?;
        Ok(SetupStep::Joining(Joining {
            socket: Arc::new(Socket::of_host(others, shared.socket.is_v6())),
            member: Some(Arc::new(member)),
            before: Some(socket.clone()),
        }))
    }

    /// Returns whether the setup is complete for a guest, which then has the shared memory.
    pub(super) fn is_over(&self) -> bool {
        !self.host
    }
}
