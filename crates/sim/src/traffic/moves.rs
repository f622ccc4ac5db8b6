//! Rails with a changing address: an interface loses its address and gets another one later. The
//! owner learns of both, and uses the new address in its next turn. A port represents an address.

use crate::machine::out::News;
use crate::setup::choices::Setup;
use crate::world::endpoint::Endpoint;
use crate::world::state::World;
use crate::world::trace::Trace;
use marline_rails::{InterfaceChange, InterfaceChoice, RailEvent, RailFault};
use marline_wire::RailAddr;

const EADDRNOTAVAIL: i32 = 99;

impl Endpoint {
    /// Returns whether the rail's socket has this port.
    pub(crate) fn listens(&self, rail: usize, port: u16) -> bool {
        self.sites.port(rail) == Some(port)
    }

    /// Updates a process's published address when another process starts: all rails in the old
    /// address may have moved, and the new process would not reach any.
    pub(crate) fn publish_address(&mut self) {
        let name = self.engine.ep_name(self.ep);
        if let Some((blob, len)) = name.filter(|_| self.alive && !self.closed) {
            self.blob = blob[..len].to_vec();
        }
    }

    /// Marks rails of a starting process that have no address yet.
    pub(crate) fn await_rails(&mut self, setup: &Setup) {
        for &(_, rail) in setup.awaited.iter().filter(|(host, _)| *host == self.host) {
            self.sites.now[rail] = None;
            let news = RailEvent::Fault(RailFault::Down(EADDRNOTAVAIL));
            let mut wires = self.machine.wires();
            self.machine.queue_event(&mut wires, rail, News::Rail(news));
        }
    }
}

impl Setup {
    /// The initial address of a process's rail.
    pub(crate) fn first_addr(&self, host: usize, rail: usize, port: u16) -> RailAddr {
        match self.awaited.contains(&(host, rail)) {
            true => RailAddr::NONE,
            false => self.place(host, rail, port).addr(),
        }
    }
}

impl World {
    /// Makes a rail lose its address, or its interface get another one.
    pub(crate) fn send_elsewhere(&mut self, (host, rail): (usize, usize), to: u16, goes: bool) {
        let Some(e) = self.on_host[host].filter(|&e| !self.eps[e as usize].closed) else {
            return;
        };
        self.touch(e);
        let send_errors = self.setup.send_errors;
        let ep = &mut self.eps[e as usize];
        ep.sites.news.retain(|(moved, _)| *moved != rail);
        if goes {
            ep.sites.now[rail] = None;
            let mut wires = ep.machine.wires();
            wires.ports[rail].broken = send_errors;
            let news = RailEvent::Fault(RailFault::Down(EADDRNOTAVAIL));
            ep.machine.queue_event(&mut wires, rail, News::Rail(news));
        } else {
            ep.sites.news.push((rail, to));
        }
        self.wake(e, self.now);
    }

    /// Moves the rails of a process whose interfaces have new addresses.
    pub(crate) fn follow_addresses(&mut self, e: u32) {
        if self.eps[e as usize].sites.news.is_empty() {
            return;
        }
        for (rail, site) in std::mem::take(&mut self.eps[e as usize].sites.news) {
            let ep = &mut self.eps[e as usize];
            ep.sites.now[rail] = Some(site);
            let mut wires = ep.machine.wires();
            let port = &mut wires.ports[rail];
            port.broken = false;
            port.addr = self
                .setup
                .place(ep.host, rail, ep.sites.port_at(site))
                .addr();
            drop(wires);
            if self.tracing {
                ep.note(self.now, Trace::Did(format!("rail {rail} moves to {site}")));
            }
            let there = InterfaceChange::Address(interface(rail, site));
            let follows = ep.engine.interface_changed(rail, &there);
            let up = RailEvent::Fault(RailFault::Up);
            let mut wires = ep.machine.wires();
            ep.machine.queue_event(&mut wires, rail, News::Rail(up));
            drop(wires);
            if !follows {
                self.broken(e, format!("rail {rail} does not follow"));
            }
        }
        self.absorb(e);
    }

    /// Returns whether a rail's process had this port before, or will have it.
    pub(crate) fn has_left(&self, (host, rail): (usize, usize), port: u16) -> bool {
        let here = self.on_host[host].map(|e| &self.eps[e as usize]);
        here.is_some_and(|ep| ep.sites.has_left(rail, port))
    }
}

/// A rail's interface as reported by the system.
fn interface(rail: usize, site: u16) -> InterfaceChoice {
    InterfaceChoice {
        name: format!("r{rail}"),
        ip: [10, rail as u8, site as u8, 1].into(),
        prefix_len: 24,
        scope_id: 0,
        mtu: 1_500,
        bytes_per_s: 0,
        loopback: false,
    }
}
