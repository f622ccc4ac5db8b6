//! Addresses of simulated rails.

use marline_rails::{RemoteWrites, UdpAddr};
use marline_wire::{RailAddr, RailKind, RailWrites};
use std::net::IpAddr;

/// Parts of the address of a rail.
pub(crate) struct Place {
    pub host: usize,
    /// The host shares its addresses with the host before or after it, and has ports of its own.
    pub paired: bool,
    pub rail: usize,
    pub port: u16,
    /// Bits of the subnet.
    pub prefix_len: u8,
    /// True for a kind without IP addresses, whose rails all reach each other.
    pub near: bool,
    /// True for a standby rail of the one before it.
    pub behind: bool,
    /// True if the rail has a standby rail.
    pub backed: bool,
    pub datagram_max: usize,
    pub writes: RemoteWrites,
}

impl Place {
    /// The address.
    pub(crate) fn addr(&self) -> RailAddr {
        if self.behind {
            let before = Place {
                rail: self.rail - 1,
                behind: false,
                backed: true,
                ..*self
            };
            return before.addr().behind().unwrap_or(RailAddr::NONE);
        }
        let (host, first) = match self.paired {
            true => (self.host & !1, PAIRED),
            false => (self.host, ALONE),
        };
        let [rail, high, low] = [self.rail, host >> 8, host].map(|n| n as u8);
        let mut addr = if self.near {
            let port = self.port.to_be_bytes();
            RailAddr::new(RailKind::Shm, &[rail, high, low, port[0], port[1]])
        } else {
            let (port, prefix_len) = (self.port, self.prefix_len);
            let ip = [first, rail, high, low].into();
            UdpAddr {
                ip,
                port,
                prefix_len,
            }
            .rail()
        };
        addr.index = rail;
        addr.backed = self.backed;
        addr.datagram_max = self.datagram_max as u16;
        addr.writes = match self.writes {
            RemoteWrites::None => RailWrites::None,
            RemoteWrites::Direct => RailWrites::Direct,
            RemoteWrites::Unordered | RemoteWrites::Ordered => RailWrites::Keyed,
        };
        addr
    }
}

/// Rail, host (two bytes) and port of a simulated address.
fn parts(to: &RailAddr) -> Option<([u8; 3], u16)> {
    if let (RailKind::Shm, &[rail, high, low, first, second]) = (to.kind, to.bytes()) {
        return Some(([rail, high, low], u16::from_be_bytes([first, second])));
    }
    let addr = UdpAddr::read(to)?;
    match addr.ip {
        IpAddr::V4(ip) => {
            let [first, rail, high, low] = ip.octets();
            let second = first == PAIRED && is_second(addr.port);
            let low = low | u8::from(second);
            let behind = u8::from(to.kind == RailKind::Tcp4);
            Some(([rail.saturating_add(behind), high, low], addr.port))
        }
        IpAddr::V6(_) => None,
    }
}

/// Host and rail of an address; out of range for a foreign address.
pub(crate) fn target_of(to: &RailAddr) -> (usize, usize) {
    let [rail, high, low] = parts(to).map_or([u8::MAX; 3], |parts| parts.0);
    ((high as usize) << 8 | low as usize, rail as usize)
}

/// The port of an address; 0 for a foreign address.
pub(crate) fn port_of(to: &RailAddr) -> u16 {
    parts(to).map_or(0, |parts| parts.1)
}

/// The first byte of addresses that belong to one process, and of addresses that two processes
/// share.
const ALONE: u8 = 10;
const PAIRED: u8 = 11;
/// Between the ports of two processes at one address.
const SECOND: u16 = APART / 2;

/// The first port of a process; `base`: the first port of all.
pub(crate) fn first_port(base: u16, host: usize, paired: bool) -> u16 {
    match paired && host % 2 == 1 {
        true => base + SECOND,
        false => base,
    }
}

/// True for ports of the second process at an address. (They begin at [`SECOND`].)
fn is_second(port: u16) -> bool {
    (port - SECOND.min(port)) % APART >= SECOND
}

/// Addresses that a rail may have. Each is represented by a port.
pub(crate) const SITES: u16 = 6;
/// Distance of the ports for two addresses of a rail.
const APART: u16 = 10_000;

/// The current addresses of a process's rails.
#[derive(Debug)]
pub(crate) struct Sites {
    /// The port of each rail's first address.
    port: u16,
    /// The number of each rail's current address, if any.
    pub now: Vec<Option<u16>>,
    /// Rails with a new address that the process does not know yet.
    pub news: Vec<(usize, u16)>,
}

impl Sites {
    /// The addresses of rails none of which has moved.
    pub(crate) fn of(port: u16, rails: usize) -> Sites {
        Sites {
            port,
            now: vec![Some(0); rails],
            news: Vec::new(),
        }
    }

    /// True if a rail has lost its address and has no other yet.
    pub(crate) fn is_gone(&self, rail: usize) -> bool {
        self.now[rail].is_none()
    }

    /// The port of the address with this number.
    pub(crate) fn port_at(&self, site: u16) -> u16 {
        self.port + site * APART
    }

    /// The port of a rail, if it has an address.
    pub(crate) fn port(&self, rail: usize) -> Option<u16> {
        self.now[rail].map(|site| self.port_at(site))
    }

    /// True if a rail had this port before or will have it.
    pub(crate) fn has_left(&self, rail: usize, port: u16) -> bool {
        let site = port.checked_sub(self.port);
        self.port(rail) != Some(port) && site.is_some_and(|site| site % APART == 0)
    }
}
