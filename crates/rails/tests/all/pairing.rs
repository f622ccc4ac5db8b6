//! Which rails reach which, and which addresses belong to the same host, by the kinds of rails.

use marline_rails::pairing::{host_hash, pairs, same_end, same_host, same_network};
use marline_rails::UdpAddr;
use marline_wire::{RailAddr, RailKind, RailWrites};

/// A UDP rail at `ip/bits`, with its index.
fn udp(index: u8, subnet: &str, port: u16) -> RailAddr {
    let (ip, bits) = subnet.split_once('/').unwrap();
    let addr = UdpAddr {
        ip: ip.parse().unwrap(),
        port,
        prefix_len: bits.parse().unwrap(),
    };
    let mut rail = addr.rail();
    (rail.index, rail.datagram_max) = (index, 1_472);
    rail
}

/// Rails of one host, all on one port.
fn host(port: u16, subnets: &[&str]) -> Vec<RailAddr> {
    let rail = |(index, subnet): (usize, &&str)| udp(index as u8, subnet, port);
    subnets.iter().enumerate().map(rail).collect()
}

/// The same rails as another kind.
fn of_kind(kind: RailKind, rails: &[RailAddr]) -> Vec<RailAddr> {
    let turn = |rail: &RailAddr| RailAddr::new(kind, rail.bytes());
    rails.iter().map(turn).collect()
}

#[test]
fn rails_of_one_subnet_are_paired_each_with_each() {
    let a = host(1, &["10.0.0.1/16", "10.1.0.1/16", "10.1.0.2/16"]);
    let b = host(2, &["10.0.7.1/16", "10.1.7.1/16", "10.1.7.2/16"]);
    assert_eq!(pairs(&a, &b), [(0, 0), (1, 1), (2, 1), (1, 2), (2, 2)]);
    let a = host(1, &["fd00:1::1/64", "fd00:2::1/64"]);
    let b = host(2, &["fd00:2::2/64", "fd00:1::2/64"]);
    assert_eq!(pairs(&a, &b), [(1, 0), (0, 1)]);
}

/// Several rails on one port are separate routes already, so they are paired in order.
#[test]
fn rails_of_one_port_are_paired_in_their_order() {
    let port = |host: u8, pair: u8, count: u8| {
        let gid = std::array::from_fn::<u8, 16, _>(|at| if at == 15 { host } else { 1 });
        let rail = |at: u8| RailAddr::new(RailKind::Rc, &[&gid[..], &[pair + at, 1, 0]].concat());
        (0..count).map(rail).collect::<Vec<_>>()
    };
    let (a, b) = (port(1, 7, 2), port(2, 9, 2));
    assert_eq!(pairs(&a, &b), [(0, 0), (1, 1)]);
    assert_eq!(pairs(&a, &b[..1]), [(0, 0), (1, 0)]);
    assert_eq!(pairs(&a, &port(2, 9, 3)), [(0, 0), (1, 1), (0, 2)]);
    // The same within one host; and two ports on each host, each with each.
    assert_eq!(pairs(&a, &port(1, 9, 2)), [(0, 0), (1, 1)]);
    let two = |first: u8, pair| [port(first, pair, 2), port(first + 1, pair + 2, 2)].concat();
    let met = pairs(&two(1, 7), &two(5, 9));
    assert_eq!(
        met,
        [
            (0, 0),
            (2, 0),
            (1, 1),
            (3, 1),
            (0, 2),
            (2, 2),
            (1, 3),
            (3, 3)
        ]
    );
}

#[test]
fn rails_without_a_common_subnet_are_paired_by_index() {
    let a = host(1, &["10.0.0.1/24", "10.0.1.1/24"]);
    let b = host(2, &["10.0.2.1/24", "10.0.3.1/24", "10.0.4.1/24"]);
    assert_eq!(pairs(&a, &b), [(0, 0), (1, 1), (0, 2)]);
}

#[test]
fn rails_reach_their_own_kind_only() {
    let a = host(1, &["10.0.0.1/16"]);
    let b = host(2, &["10.0.0.2/16"]);
    assert_eq!(pairs(&a, &of_kind(RailKind::Tcp4, &b)), []);
    let tcp = of_kind(RailKind::Tcp4, &a);
    assert_eq!(pairs(&tcp, &of_kind(RailKind::Tcp4, &b)), [(0, 0)]);
    assert!(same_network(&a[0], &tcp[0]), "but share the network");
    let mut keyed = b.clone();
    keyed[0].writes = RailWrites::Keyed;
    assert_eq!(pairs(&a, &keyed), []);
    keyed[0].writes = RailWrites::Direct;
    assert_eq!(pairs(&a, &keyed), [(0, 0)]);
}

#[test]
fn shared_memory_reaches_its_host_and_verbs_their_fabric() {
    let of = |kind, network: u8, rest: u8| {
        let mut bytes = [network; 20];
        bytes[16..].fill(rest);
        // For verbs: a GID and a queue pair number.
        let len = if kind == RailKind::Shm { 20 } else { 19 };
        RailAddr::new(kind, &bytes[..len])
    };
    for kind in [RailKind::Shm, RailKind::Ud, RailKind::Rc] {
        let a = [of(kind, 1, 7)];
        assert_eq!(pairs(&a, &[of(kind, 1, 8), of(kind, 2, 9)]), [(0, 0)]);
        assert!(!same_end(&a[0], &of(kind, 1, 8)));
    }
}

#[test]
fn invalid_addresses_have_no_pairs() {
    let a = host(1, &["10.0.0.1/16"]);
    let bad = |bytes: &[u8]| RailAddr::new(RailKind::Udp4, bytes);
    let bad = [
        bad(&[]),
        bad(&[1, 0, 16, 10, 0, 0]),
        bad(&[0, 0, 16, 10, 0, 0, 2]), // port 0
        bad(&[1, 0, 33, 10, 0, 0, 2]), // more bits than there are
        bad(&[1, 0, 16, 10, 0, 0, 2, 0]),
        RailAddr::NONE,
    ];
    assert_eq!(pairs(&a, &bad), []);
    assert_eq!(pairs(&bad, &a), []);
    assert_eq!(pairs(&[], &a), []);
}

/// A peer's container bridge has our own address: a packet to it would not leave this host.
#[test]
fn an_address_that_is_also_ours_is_no_path() {
    let a = host(4_001, &["10.0.0.1/16", "172.17.0.1/16"]);
    let b = host(4_002, &["10.0.0.2/16", "172.17.0.1/16"]);
    assert_eq!(pairs(&a, &b), [(0, 0)]);
    // Also if the bridge comes first.
    let turned = |rails: &[RailAddr]| rails.iter().rev().copied().collect::<Vec<_>>();
    assert_eq!(pairs(&turned(&a), &turned(&b)), [(1, 1)]);
}

/// Two processes of one host have the same addresses and use them, even if one of them has an
/// additional rail.
#[test]
fn processes_of_one_host_keep_their_paths() {
    let a = host(4_001, &["10.0.0.1/16", "172.17.0.1/16"]);
    let b = host(4_002, &["10.0.0.1/16", "172.17.0.1/16"]);
    assert_eq!(pairs(&a, &b), [(0, 0), (1, 1)]);
    let more = host(4_002, &["10.0.0.1/16", "172.17.0.1/16", "10.9.0.1/16"]);
    assert_eq!(pairs(&a, &more)[..2], [(0, 0), (1, 1)]);
}

#[test]
fn hosts_and_ends_are_identified_by_address_and_port() {
    let (a, other_port) = (udp(0, "10.0.0.1/16", 1), udp(3, "10.0.0.1/8", 2));
    assert!(same_host(&a, &other_port) && !same_end(&a, &other_port));
    assert_eq!(host_hash(&a), host_hash(&other_port));
    // As the kernel reports it: without subnet, index and largest datagram.
    assert!(same_end(
        &a,
        &UdpAddr::new("10.0.0.1".parse().unwrap(), 1).rail()
    ));
    let beside = udp(0, "10.0.0.2/16", 1);
    assert!(!same_host(&a, &beside) && host_hash(&a) != host_hash(&beside));
    assert!(!same_host(&a, &RailAddr::NONE) && !same_host(&RailAddr::NONE, &RailAddr::NONE));
}
