//! Where simulated rails are: their addresses, and what those say.

use crate::setup::{Setup, Topology};
use marline_rails::{RemoteWrites, UdpAddr};
use marline_wire::{RailAddr, RailKind, RailWrites};
use std::net::IpAddr;

/// The address of rail `rail` of a host. One that is near has a kind without addresses of IP, whose
/// rails all reach each other.
pub(crate) fn rail_addr(setup: &Setup, host: usize, rail: usize, port: u16) -> RailAddr {
    let prefix_len = match setup.topology {
        Topology::Planes => 16,
        Topology::Mesh => 8,
        Topology::Routed => 32,
    };
    let ip = [10, rail as u8, (host >> 8) as u8, host as u8];
    let mut addr = match setup.near == Some(rail) {
        true => {
            let [_, rail, high, low] = ip;
            let port = port.to_be_bytes();
            RailAddr::new(RailKind::Shm, &[rail, high, low, port[0], port[1]])
        }
        false => {
            let ip = ip.into();
            UdpAddr {
                ip,
                port,
                prefix_len,
            }
            .rail()
        }
    };
    addr.index = rail as u8;
    addr.datagram_max = setup.datagram_max[rail] as u16;
    addr.writes = match kind_of(setup, rail) {
        RemoteWrites::Direct => RailWrites::Direct,
        _ if setup.writes[rail] => RailWrites::Keyed,
        _ => RailWrites::None,
    };
    addr
}

/// Rail, host (two bytes) and port of an address of ours.
fn parts(to: &RailAddr) -> Option<([u8; 3], u16)> {
    if let (RailKind::Shm, &[rail, high, low, first, second]) = (to.kind, to.bytes()) {
        return Some(([rail, high, low], u16::from_be_bytes([first, second])));
    }
    let addr = UdpAddr::of(to)?;
    match addr.ip {
        IpAddr::V4(ip) => {
            let [_, rail, high, low] = ip.octets();
            Some(([rail, high, low], addr.port))
        }
        IpAddr::V6(_) => None,
    }
}

/// Host and rail of an address; none of ours for one that is not.
pub(crate) fn target_of(to: &RailAddr) -> (usize, usize) {
    let [rail, high, low] = parts(to).map_or([u8::MAX; 3], |parts| parts.0);
    ((high as usize) << 8 | low as usize, rail as usize)
}

/// The port of a rail's address; 0 of one that is none of ours.
pub(crate) fn port_of(to: &RailAddr) -> u16 {
    parts(to).map_or(0, |parts| parts.1)
}

/// The kind of writes that a rail of the setup announces.
pub(crate) fn kind_of(setup: &Setup, rail: usize) -> RemoteWrites {
    match (setup.writes[rail], setup.streams[rail]) {
        (false, false) if setup.direct => RemoteWrites::Direct,
        (false, _) => RemoteWrites::None,
        (true, false) => RemoteWrites::Unordered,
        (true, true) => RemoteWrites::Ordered,
    }
}
