//! Watching the interfaces under the rails.
//!
//! A socket notices little of a link that is gone: with a peer's carrier lost, the kernel drops
//! what is sent and says nothing. The kernel's notices are therefore taken as a hint to look, and
//! the state that is read then is the truth; a link that went and came back between two looks
//! was never down as far as the engine is concerned, and what it lost is repaired like any loss.

use super::choose::{choose_best, InterfaceChoice, Wanted};
use super::told::Telling;
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
    /// It is called so from now on.
    Name(String),
}

struct Watched {
    /// `None`: the rail has no interface, and is never down.
    interface: Option<String>,
    /// The kernel's number of the interface when it was there last; 0: it was not.
    index: u32,
    /// The rail waits, or has waited, for one of several interfaces: what stood for it, and which
    /// they are. Rails for which the same stood go the same way.
    later: Option<(String, Wanted)>,
    ip: IpAddr,
    /// Its address at the start: rails that had one address go on at one, others never.
    first: IpAddr,
    state: RailFault,
    /// The interface and its address that were told of last since its own is gone.
    told: Option<(String, IpAddr)>,
    /// Addresses at which it could not go on, since the last change.
    declined: Vec<IpAddr>,
    /// It has come back, and its neighbours are to be told.
    telling: Option<Telling>,
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
            index: 0,
            later: Wanted::of_name(&choice.name).map(|wanted| (choice.name.clone(), wanted)),
            ip: choice.ip,
            first: choice.ip,
            state: RailFault::Up,
            told: None,
            declined: Vec::new(),
            telling: None,
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

    /// Next change: position of the rail, and what it is. One system call when there is none, and
    /// now and then what neighbours of a rail that came back are told.
    pub fn poll(&mut self) -> Option<(usize, InterfaceChange)> {
        if self.found.is_empty() && self.changes.drain() {
            self.rails.iter_mut().for_each(|r| r.declined.clear());
            self.look();
        }
        for rail in &mut self.rails {
            rail.telling = rail.telling.take().filter(|_| rail.state == RailFault::Up);
            if let (Some(telling), Some(interface)) = (&mut rail.telling, &rail.interface) {
                if !telling.tell(rail.ip, interface) {
                    rail.telling = None;
                }
            }
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
    pub fn follow(&mut self, rail: usize, to: &InterfaceChoice) {
        if let Some(rail) = self.rails.get_mut(rail) {
            (rail.interface, rail.index) = (Some(to.name.clone()), 0);
            (rail.ip, rail.told) = (to.ip, None);
            rail.declined.clear();
            rail.state = RailFault::Down(libc::EADDRNOTAVAIL);
        }
        self.look();
    }

    /// The rail at this position did not go on at the address that it was told of. It is told of
    /// another one, if there is any, and of that one again when something changes.
    pub fn decline(&mut self, rail: usize) {
        if let Some(rail) = self.rails.get_mut(rail) {
            let declined = rail.told.take().map(|(_, ip)| ip);
            rail.declined.extend(declined);
        }
        self.look();
    }

    fn look(&mut self) {
        // Out of memory or descriptors: the next change looks again.
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
                _ => None,
            };
            let rail = &mut self.rails[at];
            if state != rail.state {
                rail.state = state;
                rail.telling = Some(Telling::new());
                self.found.push_back((at, InterfaceChange::State(state)));
            }
            let to = other.as_ref().map(|other| (other.name.clone(), other.ip));
            let told = std::mem::replace(&mut rail.told, to);
            if let Some(other) = other.filter(|_| told != rail.told) {
                let change = InterfaceChange::Address(other);
                self.found.push_back((at, change));
            }
        }
    }

    /// Another address of the interface of `rail`, of the same kind, that is no other rail's.
    fn other_address(&self, all: &[Interface], rail: &Watched) -> Option<InterfaceChoice> {
        let interface = rail.here(all)?;
        let taken = |ip: &IpAddr| {
            let mut others = self.rails.iter().filter(|r| r.first != rail.first);
            let elsewhere = others.any(|r| r.interface == rail.interface && r.ip == *ip);
            elsewhere || rail.declined.contains(ip)
        };
        choose_best(interface, |a| is_alike(&a.ip, &rail.ip) && !taken(&a.ip))
    }

    /// An interface that `rail` waits for, and that is no other rail's. Where a rail that goes the
    /// same way has one, it is that.
    fn other_interface(&self, all: &[Interface], rail: &Watched) -> Option<InterfaceChoice> {
        let (_, wanted) = rail.later.as_ref()?;
        let has = |other: &Watched, name: &str| {
            let told = other.told.as_ref().map(|(told, _)| told.as_str());
            other.interface.as_deref() == Some(name) || told == Some(name)
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
    /// Its interface as it is now.
    fn here<'a>(&self, all: &'a [Interface]) -> Option<&'a Interface> {
        all.iter()
            .find(|i| self.interface.as_ref() == Some(&i.name))
    }

    /// Follows the interface to another name, and returns that. Where none has its number any more
    /// it is the one that has its name now.
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

/// Both are of one version of IP, and both are only for the link, or none is.
fn is_alike(a: &IpAddr, b: &IpAddr) -> bool {
    match (a, b) {
        (IpAddr::V4(a), IpAddr::V4(b)) => a.is_link_local() == b.is_link_local(),
        (IpAddr::V6(a), IpAddr::V6(b)) => a.is_unicast_link_local() == b.is_unicast_link_local(),
        _ => false,
    }
}

/// Finds out what is wrong with the address `ip` of an interface, if anything.
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
    /// The interface as it is now, asked of the kernel; takes some ten microseconds.
    pub fn state(&self) -> RailFault {
        match sys::interfaces() {
            Ok(all) => state_of(all.iter().find(|i| i.name == self.name), &self.ip),
            Err(errno) => RailFault::Down(errno),
        }
    }
}
