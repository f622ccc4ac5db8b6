//! Watches the interfaces of the rails.
//!
//! A socket does not notice most link failures: without carrier the kernel drops packets silently.
//! Netlink notifications are only a trigger; the state read afterwards decides. A link that failed
//! and recovered between two reads counts as never down, and its lost packets are retransmitted as
//! usual.

use super::announce::Announcements;
use super::choose::{choose_best, InterfaceChoice, Wanted};
use crate::sys::{self, ChangeSocket, Interface, InterfaceAddr};
use crate::RailFault;
use std::collections::VecDeque;
use std::net::IpAddr;

/// Reports when a rail's interface or address disappears or returns. One per engine; poll it when
/// its descriptor is readable, or rarely.
pub struct InterfaceWatch {
    changes: ChangeSocket,
    rails: Vec<Watched>,
    found: VecDeque<(usize, InterfaceChange)>,
}

/// A change of a rail's interface.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum InterfaceChange {
    /// The state changed.
    State(RailFault),
    /// The rail's address disappeared and the interface has this address, or a rail that started
    /// with this one cannot be where it is, and both can be here: the rail may move to it, and must
    /// then call [`InterfaceWatch::follow`].
    Address(InterfaceChoice),
    /// The interface has a new name.
    Name(String),
}

struct Watched {
    /// `None`: the rail has no interface and is never down.
    interface: Option<String>,
    /// The kernel's index of the interface when it last existed; 0 if it never existed.
    index: u32,
    /// For a rail that waits or waited for one of several interfaces: the placeholder's name and
    /// the candidates. Rails with the same placeholder move to the same interface.
    later: Option<(String, Wanted)>,
    ip: IpAddr,
    /// The address at the start. Rails that started with the same address move together; other
    /// rails never share an address.
    first: IpAddr,
    state: RailFault,
    /// The interface and address last proposed since the rail's own address disappeared.
    proposed: Option<(String, IpAddr)>,
    /// Addresses to which the rail could not move, since the last change.
    declined: Vec<IpAddr>,
    /// The rail came back, and neighbours are being informed.
    announcements: Option<Announcements>,
}

impl InterfaceWatch {
    /// Watches these interfaces; events name them by their index in `rails`. The first events
    /// report the rails that are already down.
    pub fn open(rails: &[InterfaceChoice]) -> Result<InterfaceWatch, String> {
        let changes = ChangeSocket::open().map_err(|e| {
            format!(
                "cannot watch the network interfaces: {}",
                sys::errno_text(e)
            )
        })?;
        let watched = |choice: &InterfaceChoice| Watched {
            interface: choice.is_some().then(|| choice.name.clone()),
            index: 0,
            later: Wanted::of_name(&choice.name).map(|wanted| (choice.name.clone(), wanted)),
            ip: choice.ip,
            first: choice.ip,
            state: RailFault::Up,
            proposed: None,
            declined: Vec::new(),
            announcements: None,
        };
        let rails = rails.iter().map(watched).collect();
        let mut watch = InterfaceWatch {
            changes,
            rails,
            found: VecDeque::new(),
        };
        watch.look(); // after subscribing, so that no change is missed in between
        Ok(watch)
    }

    /// A descriptor that becomes readable on changes.
    pub fn fd(&self) -> i32 {
        self.changes.fd()
    }

    /// The next change: index of the rail, and the change. Costs one system call if there is none,
    /// and now and then announces a rail that came back to its neighbours.
    pub fn poll(&mut self) -> Option<(usize, InterfaceChange)> {
        if self.found.is_empty() && self.changes.drain() {
            self.rails.iter_mut().for_each(|r| r.declined.clear());
            self.look();
        }
        for rail in &mut self.rails {
            rail.announcements = rail
                .announcements
                .take()
                .filter(|_| rail.state == RailFault::Up);
            if let (Some(announcements), Some(interface)) =
                (&mut rail.announcements, &rail.interface)
            {
                if !announcements.announce(rail.ip, interface) {
                    rail.announcements = None;
                }
            }
        }
        self.found.pop_front()
    }

    /// Returns whether the rail at this index was usable at the last look.
    pub fn is_up(&self, rail: usize) -> bool {
        self.rails
            .get(rail)
            .is_some_and(|r| r.state == RailFault::Up)
    }

    /// Records that the rail at this index moved to the proposed address, which is watched from now
    /// on.
    pub fn follow(&mut self, rail: usize, to: &InterfaceChoice) {
        if let Some(rail) = self.rails.get_mut(rail) {
            (rail.interface, rail.index) = (Some(to.name.clone()), 0);
            (rail.ip, rail.proposed) = (to.ip, None);
            rail.declined.clear();
            rail.state = RailFault::Down(libc::EADDRNOTAVAIL);
        }
        self.look();
    }

    /// Records that the rail at this index could not move to the proposed address. Another address
    /// is proposed if there is one; the declined address is proposed again after a change.
    pub fn decline(&mut self, rail: usize) {
        if let Some(rail) = self.rails.get_mut(rail) {
            let declined = rail.proposed.take().map(|(_, ip)| ip);
            rail.declined.extend(declined);
        }
        self.look();
    }

    fn look(&mut self) {
        // An error means lack of memory or descriptors; the next change triggers another look.
        let Ok(all) = sys::interfaces() else { return };
        for at in 0..self.rails.len() {
            if self.rails[at].interface.is_none() {
                continue;
            }
            if let Some(name) = self.rails[at].find_renamed(&all) {
                self.found.push_back((at, InterfaceChange::Name(name)));
            }
            let rail = &self.rails[at];
            let state = state_of(rail.here(&all), &rail.ip);
            let other = match state {
                RailFault::Down(libc::EADDRNOTAVAIL) => self.other_address(&all, rail),
                RailFault::Down(libc::ENODEV) => self.other_interface(&all, rail),
                RailFault::Up => self.common_address(&all, rail),
                RailFault::Down(_) => None,
            };
            let rail = &mut self.rails[at];
            if state != rail.state {
                rail.state = state;
                rail.announcements = Some(Announcements::new());
                self.found.push_back((at, InterfaceChange::State(state)));
            }
            let to = other.as_ref().map(|other| (other.name.clone(), other.ip));
            let before = std::mem::replace(&mut rail.proposed, to);
            if before != rail.proposed {
                let stale = |of: usize, change: &InterfaceChange| {
                    of == at && matches!(change, InterfaceChange::Address(_))
                };
                self.found.retain(|(of, change)| !stale(*of, change));
            }
            if let Some(other) = other.filter(|_| before != rail.proposed) {
                let change = InterfaceChange::Address(other);
                self.found.push_back((at, change));
            }
        }
    }

    /// Another address of the rail's interface, of the same kind, which no other rail uses. Peers
    /// know a standby rail by the address of the rail before it, so rails that started together go
    /// to one address if there is one at which each can be.
    fn other_address(&self, all: &[Interface], rail: &Watched) -> Option<InterfaceChoice> {
        let interface = rail.here(all)?;
        let fits = |a: &InterfaceAddr| self.is_free(rail, &a.ip);
        let there = |r: &Watched, ip: &IpAddr| r.state == RailFault::Up && r.ip == *ip;
        let joins = |ip: &IpAddr| self.beside(rail).any(|r| there(r, ip));
        choose_best(interface, |a| fits(a) && joins(&a.ip))
            .or_else(|| choose_best(interface, |a| fits(a) && !self.is_declined(rail, &a.ip)))
            .or_else(|| choose_best(interface, fits))
    }

    /// For a rail at an address to which a rail that started with it could not go: an address that
    /// none of these rails has declined.
    fn common_address(&self, all: &[Interface], rail: &Watched) -> Option<InterfaceChoice> {
        if !self.is_declined(rail, &rail.ip) {
            return None;
        }
        let fits = |a: &InterfaceAddr| self.is_free(rail, &a.ip) && !self.is_declined(rail, &a.ip);
        choose_best(rail.here(all)?, fits)
    }

    /// Returns whether a rail may move to this address: of the same kind as its own, used by no
    /// rail that started elsewhere, and not declined by the rail.
    fn is_free(&self, rail: &Watched, ip: &IpAddr) -> bool {
        let mut others = self.rails.iter().filter(|r| r.first != rail.first);
        let taken = others.any(|r| r.interface == rail.interface && r.ip == *ip);
        is_alike(ip, &rail.ip) && !taken && !rail.declined.contains(ip)
    }

    /// Returns whether the rail, or one that started with it, could not move to this address.
    fn is_declined(&self, rail: &Watched, ip: &IpAddr) -> bool {
        self.beside(rail).any(|r| r.declined.contains(ip))
    }

    /// The rails on the rail's interface that started with the same address, itself among them.
    fn beside<'a>(&'a self, rail: &'a Watched) -> impl Iterator<Item = &'a Watched> {
        let alike = |r: &&Watched| r.first == rail.first && r.interface == rail.interface;
        self.rails.iter().filter(alike)
    }

    /// An interface for which `rail` waits and which no other rail has; if a rail with the same
    /// placeholder already has an interface, that one.
    fn other_interface(&self, all: &[Interface], rail: &Watched) -> Option<InterfaceChoice> {
        let (_, wanted) = rail.later.as_ref()?;
        let has = |other: &Watched, name: &str| {
            let proposed = other.proposed.as_ref().map(|(name, _)| name.as_str());
            other.interface.as_deref() == Some(name) || proposed == Some(name)
        };
        let there = |other: &Watched| all.iter().any(|i| has(other, &i.name));
        let alike = |other: &&Watched| other.later == rail.later && there(other);
        let with = self.rails.iter().find(alike);
        let free = |i: &&Interface| match with {
            Some(other) => has(other, &i.name),
            None => !self.rails.iter().any(|other| has(other, &i.name)),
        };
        let mut fitting = all.iter().filter(free);
        fitting.find_map(|i| {
            let choice = wanted.take(i, &rail.first)?;
            (!rail.declined.contains(&choice.ip)).then_some(choice)
        })
    }
}

impl Watched {
    /// The present state of the rail's interface.
    fn here<'a>(&self, all: &'a [Interface]) -> Option<&'a Interface> {
        all.iter()
            .find(|i| self.interface.as_ref() == Some(&i.name))
    }

    /// Follows the interface to a new name, and returns the name. If no interface has its index any
    /// more, the interface that has its name takes its place.
    fn find_renamed(&mut self, all: &[Interface]) -> Option<String> {
        let same = |i: &&Interface| i.index != 0 && i.index == self.index;
        let renamed = all.iter().find(same).map(|i| i.name.clone());
        let renamed = renamed.filter(|name| self.interface.as_ref() != Some(name));
        if renamed.is_some() {
            self.interface = renamed.clone();
        }
        self.index = self.here(all).map_or(self.index, |i| i.index);
        renamed
    }
}

/// Returns whether both addresses are of one IP version and both or neither are link-local.
fn is_alike(a: &IpAddr, b: &IpAddr) -> bool {
    match (a, b) {
        (IpAddr::V4(a), IpAddr::V4(b)) => a.is_link_local() == b.is_link_local(),
        (IpAddr::V6(a), IpAddr::V6(b)) => a.is_unicast_link_local() == b.is_unicast_link_local(),
        _ => false,
    }
}

/// The state of a rail with address `ip` on an interface.
fn state_of(interface: Option<&Interface>, ip: &IpAddr) -> RailFault {
    let Some(interface) = interface else {
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
    /// The present state of the interface; queries the kernel.
    pub fn state(&self) -> RailFault {
        match sys::interfaces() {
            Ok(all) => state_of(all.iter().find(|i| i.name == self.name), &self.ip),
            Err(errno) => RailFault::Down(errno),
        }
    }
}
