//! Watching the interfaces under the rails.
//!
//! A socket notices little of a link that is gone: with a peer's carrier lost, the kernel drops
//! what is sent and says nothing. The kernel's notices are therefore taken as a hint to look, and
//! the state that is read then is the truth; a link that went and came back between two looks
//! was never down as far as the engine is concerned, and what it lost is repaired like any loss.

use super::interfaces::{choose_best, InterfaceChoice};
use crate::sys::{self, ChangeSocket, Interface};
use crate::RailFault;
use std::collections::VecDeque;
use std::net::IpAddr;

/// Tells when a rail's interface or address goes or comes back. One per engine; poll it when its
/// descriptor is readable, or rarely.
pub struct InterfaceWatch {
    changes: ChangeSocket,
    rails: Vec<Watched>,
    found: VecDeque<(usize, InterfaceChange)>,
}

/// A change of a rail's interface.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum InterfaceChange {
    /// Its state is another.
    State(RailFault),
    /// The rail's address is gone, but there is this one: the rail may go on there, and the watch
    /// is to be told if it does.
    Address(InterfaceChoice),
}

struct Watched {
    /// `None`: the rail has no interface, and is never down.
    interface: Option<String>,
    ip: IpAddr,
    /// Its address at the start: rails that had one address go on at one, others never.
    first: IpAddr,
    state: RailFault,
    /// The address that was told of last since its own is gone.
    told: Option<IpAddr>,
}

impl InterfaceWatch {
    /// Watches these interfaces; events name them by their position here. Rails that are down
    /// already are the first events.
    pub fn open(rails: &[InterfaceChoice]) -> Result<InterfaceWatch, String> {
        let changes = ChangeSocket::open().map_err(|e| {
            format!(
                "cannot watch the network interfaces: {}",
                sys::errno_text(e)
            )
        })?;
        let watched = |choice: &InterfaceChoice| Watched {
            interface: choice.is_some().then(|| choice.name.clone()),
            ip: choice.ip,
            first: choice.ip,
            state: RailFault::Up,
            told: None,
        };
        let rails = rails.iter().map(watched).collect();
        let mut watch = InterfaceWatch {
            changes,
            rails,
            found: VecDeque::new(),
        };
        watch.look(); // after subscribing, so that no change falls between
        Ok(watch)
    }

    /// Descriptor that becomes readable when something changed.
    pub fn fd(&self) -> i32 {
        self.changes.fd()
    }

    /// Next change: position of the rail, and what it is. One system call when there is none.
    pub fn poll(&mut self) -> Option<(usize, InterfaceChange)> {
        if self.found.is_empty() && self.changes.drain() {
            self.look();
        }
        self.found.pop_front()
    }

    /// Returns whether the rail at this position was usable at the last look.
    pub fn is_up(&self, rail: usize) -> bool {
        self.rails
            .get(rail)
            .is_some_and(|r| r.state == RailFault::Up)
    }

    /// The rail at this position goes on at the address that it was told of: what becomes of that
    /// one is told from now on.
    pub fn follow(&mut self, rail: usize, ip: IpAddr) {
        if let Some(rail) = self.rails.get_mut(rail) {
            (rail.ip, rail.told) = (ip, None);
            rail.state = RailFault::Down(libc::EADDRNOTAVAIL);
        }
        self.look();
    }

    /// The rail at this position did not go on at the address that it was told of. It is told of it
    /// again when something changes.
    pub fn decline(&mut self, rail: usize) {
        if let Some(rail) = self.rails.get_mut(rail) {
            rail.told = None;
        }
    }

    fn look(&mut self) {
        // Out of memory or descriptors: the next change looks again.
        let Ok(all) = sys::interfaces() else { return };
        for at in 0..self.rails.len() {
            let rail = &self.rails[at];
            let Some(interface) = &rail.interface else {
                continue;
            };
            let state = state_of(&all, interface, &rail.ip);
            let other = match state {
                RailFault::Down(libc::EADDRNOTAVAIL) => self.other_address(&all, rail),
                _ => None,
            };
            let rail = &mut self.rails[at];
            if state != rail.state {
                rail.state = state;
                self.found.push_back((at, InterfaceChange::State(state)));
            }
            let told = std::mem::replace(&mut rail.told, other.as_ref().map(|o| o.ip));
            if let Some(other) = other.filter(|other| told != Some(other.ip)) {
                let change = InterfaceChange::Address(other);
                self.found.push_back((at, change));
            }
        }
    }

    /// Another address of the interface of `rail`, of the same kind, that is no other rail's.
    fn other_address(&self, all: &[Interface], rail: &Watched) -> Option<InterfaceChoice> {
        let name = rail.interface.as_ref()?;
        let interface = all.iter().find(|i| i.name == *name)?;
        let taken = |ip: &IpAddr| {
            let mut others = self.rails.iter().filter(|r| r.first != rail.first);
            others.any(|r| r.interface == rail.interface && r.ip == *ip)
        };
        choose_best(interface, |a| is_alike(&a.ip, &rail.ip) && !taken(&a.ip))
    }
}

/// Both are of one version of IP, and both are only for the link, or none is.
fn is_alike(a: &IpAddr, b: &IpAddr) -> bool {
    match (a, b) {
        (IpAddr::V4(a), IpAddr::V4(b)) => a.is_link_local() == b.is_link_local(),
        (IpAddr::V6(a), IpAddr::V6(b)) => a.is_unicast_link_local() == b.is_unicast_link_local(),
        _ => false,
    }
}

/// Finds out what is wrong with the address `ip` of the interface `name`, if anything.
fn state_of(all: &[Interface], name: &str, ip: &IpAddr) -> RailFault {
    let Some(interface) = all.iter().find(|i| i.name == name) else {
        return RailFault::Down(libc::ENODEV);
    };
    if !interface.up || !interface.running {
        return RailFault::Down(libc::ENETDOWN);
    }
    match interface.addrs.iter().any(|a| a.ip == *ip) {
        true => RailFault::Up,
        false => RailFault::Down(libc::EADDRNOTAVAIL),
    }
}

impl InterfaceChoice {
    /// The interface as it is now, asked of the kernel; takes some ten microseconds.
    pub fn state(&self) -> RailFault {
        match sys::interfaces() {
            Ok(all) => state_of(&all, &self.name, &self.ip),
            Err(errno) => RailFault::Down(errno),
        }
    }
}
