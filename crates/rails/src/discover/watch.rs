//! Watching the interfaces under the rails.
//!
//! A socket notices little of a link that is gone: with a peer's carrier lost, the kernel drops
//! what is sent and says nothing. The kernel's notices are therefore taken as a hint to look, and
//! the state that is read then is the truth; a link that went and came back between two looks
//! was never down as far as the engine is concerned, and what it lost is repaired like any loss.

use super::InterfaceChoice;
use crate::sys::{self, ChangeSocket, Interface};
use crate::RailFault;
use std::collections::VecDeque;
use std::net::IpAddr;

/// Tells when a rail's interface or address goes or comes back. One per engine; poll it when its
/// descriptor is readable, or rarely.
pub struct InterfaceWatch {
    changes: ChangeSocket,
    rails: Vec<Watched>,
    found: VecDeque<(usize, RailFault)>,
}

struct Watched {
    /// `None`: the rail has no interface, and is never down.
    interface: Option<String>,
    ip: IpAddr,
    state: RailFault,
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
            state: RailFault::Up,
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

    /// Next change: position of the rail, and its state now. One system call when there is none.
    pub fn poll(&mut self) -> Option<(usize, RailFault)> {
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

    fn look(&mut self) {
        // Out of memory or descriptors: the next change looks again.
        let Ok(all) = sys::interfaces() else { return };
        for (at, rail) in self.rails.iter_mut().enumerate() {
            let Some(interface) = &rail.interface else {
                continue;
            };
            let state = state_of(&all, interface, &rail.ip);
            if state != rail.state {
                rail.state = state;
                self.found.push_back((at, state));
            }
        }
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
