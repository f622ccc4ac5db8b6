//! Decides which rails reach which from their addresses.

use crate::addr::UdpAddr;
use crate::{shm, verbs};
use core::net::IpAddr;
use marline_wire::{RailAddr, RailKind, RailWrites};

/// Returns whether two rails are of one kind, so that packets can pass between them if a route
/// exists. Rails with hardware writes use another wire format than rails of the same kind without.
pub fn reaches(local: &RailAddr, remote: &RailAddr) -> bool {
    let keyed = |addr: &RailAddr| addr.writes == RailWrites::Keyed;
    local.is_some() && local.kind == remote.kind && keyed(local) == keyed(remote)
}

/// Returns whether two rails lie in one network, in which every interface reaches every other: the
/// subnet of `a` for any kind over IP, the process for loopback.
pub fn same_network(a: &RailAddr, b: &RailAddr) -> bool {
    match (UdpAddr::read(a), UdpAddr::read(b)) {
        (Some(a), Some(b)) => a.same_subnet(&b.ip),
        (None, None) => verbs::same_network(a, b)
            .unwrap_or_else(|| a.kind == b.kind && network(a) == network(b)),
        _ => false,
    }
}

/// Returns whether two addresses of one kind belong to one host. Hosts that have the same IP
/// address count as one.
pub fn same_host(a: &RailAddr, b: &RailAddr) -> bool {
    match (UdpAddr::read(a), UdpAddr::read(b)) {
        (Some(x), Some(y)) => a.kind == b.kind && x.ip == y.ip,
        (None, None) => verbs::same_host(a, b)
            .unwrap_or_else(|| a.is_some() && a.kind == b.kind && network(a) == network(b)),
        _ => false,
    }
}

/// Returns a number that is equal for all addresses of one host (FNV-1a of the kind and the bytes
/// that [`same_host`] compares).
pub fn host_hash(addr: &RailAddr) -> u64 {
    let fnv = |hash: u64, &byte: &u8| (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3);
    let kind = fnv(0xcbf2_9ce4_8422_2325, &(addr.kind as u8));
    let hash = |bytes: &[u8]| bytes.iter().fold(kind, fnv);
    match UdpAddr::read(addr).map(|udp| udp.ip) {
        Some(IpAddr::V4(ip)) => hash(&ip.octets()),
        Some(IpAddr::V6(ip)) => hash(&ip.octets()),
        None => verbs::with_port(addr, hash).unwrap_or_else(|| hash(network(addr))),
    }
}

/// Returns whether two addresses lead to the same socket, queue or ring.
pub fn same_end(a: &RailAddr, b: &RailAddr) -> bool {
    let port = |addr| UdpAddr::read(addr).map(|ip| ip.port);
    match (port(a), port(b)) {
        (None, None) => a.is_some() && a.kind == b.kind && a.bytes() == b.bytes(),
        (a_port, b_port) => a_port == b_port && same_host(a, b),
    }
}

/// The first bytes of an address that is not over IP: the identity of the host or process.
fn network(addr: &RailAddr) -> &[u8] {
    let len = match addr.kind {
        // The host's identity.
        RailKind::Shm => 16,
        _ => 0,
    };
    addr.bytes().get(..len).unwrap_or_default()
}

/// The pairs of a local and a remote rail between which a path is worth trying, as indices into the
/// two lists.
///
/// Every rail is paired with every rail of the same network; but several rails on one port are
/// paired in order with several on the other port, since each pair is a separate route already. A
/// remote rail over IP without such a partner is paired with the local rail of the same index,
/// since networks may be routed.
///
/// An address that both sides have is skipped if each side also has addresses that the other lacks:
/// container software gives its bridge the same address on every host. Otherwise both processes run
/// on one host and use these addresses.
pub fn pairs(locals: &[RailAddr], remotes: &[RailAddr]) -> Vec<(usize, usize)> {
    // Any kind over IP counts, since owners do not advertise their standby rails.
    let ip = |addr: &RailAddr| UdpAddr::read(addr).map(|addr| addr.ip);
    let same = |a: &RailAddr, b: &RailAddr| ip(a).is_some() && ip(a) == ip(b);
    let ours = |remote: &RailAddr| locals.iter().any(|l| same(l, remote));
    let theirs = |local: &RailAddr| remotes.iter().any(|r| same(local, r));
    let stranger = |r: &RailAddr| is_ip(r) && !ours(r);
    // Rails that wait for their interface do not count.
    let there: Vec<usize> = (0..locals.len()).filter(|&l| locals[l].is_some()).collect();
    let apart = remotes.iter().any(stranger) && locals.iter().any(|l| is_ip(l) && !theirs(l));
    let in_order = |from: usize, to: usize| {
        let (ours, theirs) = (among(locals, from), among(remotes, to));
        let least = ours.1.min(theirs.1).max(1);
        ours.0 % least == theirs.0 % least
    };
    let mut pairs = Vec::new();
    for (to, remote) in remotes.iter().enumerate() {
        if apart && ours(remote) {
            continue;
        }
        let near = |local: &RailAddr| reaches(local, remote) && same_network(local, remote);
        let paired = locals.iter().any(near);
        for (from, local) in locals.iter().enumerate() {
            let routed = (is_ip(local) && is_ip(remote))
                && reaches(local, remote)
                && from == there[remote.index as usize % there.len()];
            if near(local) && in_order(from, to) || !paired && routed {
                pairs.push((from, to));
            }
        }
    }
    pairs
}

/// The position of a rail among the rails on its port, and their count.
fn among(rails: &[RailAddr], at: usize) -> (usize, usize) {
    let same = |rail: &&RailAddr| same_host(rail, &rails[at]);
    let before = rails[..at].iter().filter(same).count();
    (before, before + rails[at..].iter().filter(same).count())
}

/// Formats an address for people.
pub fn show_addr(addr: &RailAddr) -> String {
    match UdpAddr::read(addr) {
        Some(ip) => ip.to_string(),
        None if !addr.is_some() => "no address yet".to_owned(),
        None => {
            let known = verbs::show(addr).or_else(|| shm::show(addr));
            known.unwrap_or_else(|| format!("{:?} {:02x?}", addr.kind, addr.bytes()))
        }
    }
}

/// Returns whether the address is a valid address over IP.
fn is_ip(addr: &RailAddr) -> bool {
    UdpAddr::read(addr).is_some()
}
