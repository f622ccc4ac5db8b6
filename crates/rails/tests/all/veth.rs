//! Rails over veth pairs between network namespaces: MTUs, links that fail and recover, and leaks
//! of packets onto other interfaces.

use crate::common;

use common::{
    ip, join, next_state, open, open_default, port_of, receive, tool, wait_readable, Namespace,
    Random, SendTo,
};
use marline_rails::{
    choose_interfaces, group_addr, Groups, InterfaceChange, InterfaceWatch, Links, RailEvent,
    RailFault, RailRx, RailTx, SendOutcome, UdpAddr, UdpConfig, UdpRx, UdpTx,
};
use marline_wire::{RailAddr, RailKind};
use std::process::Command;
use std::time::{Duration, Instant};

/// Two joined namespaces; the thread is in the first.
fn two_hosts() -> (Namespace, Namespace) {
    let (a, b) = (Namespace::enter_new(), Namespace::enter_new());
    join(&a, &b, "rail0", 1);
    a.enter();
    (a, b)
}

#[test]
fn batches_cross_a_veth_bit_for_bit() {
    let (a, b) = two_hosts();
    let on = UdpConfig::default();
    let no_gso = UdpConfig {
        gso: false,
        ..on.clone()
    };
    let no_gro = UdpConfig {
        gro: false,
        ..on.clone()
    };
    for (address, config) in [
        ("10.1.0.0/24", &on),
        ("10.1.0.0/24", &no_gso),
        ("10.1.0.0/24", &no_gro),
        ("fd00:1::/64", &on),
        ("fd00:1::/64", &no_gso),
    ] {
        a.enter();
        let (mut tx, _) = open(address, config);
        b.enter();
        let (peer, mut rx) = open(address, config);
        let most = tx.caps().datagram_max;
        assert_eq!(
            most,
            if address.starts_with("10.") {
                1472
            } else {
                1452
            }
        );
        let mut random = Random(most as u64);
        for _ in 0..50 {
            let segment = random.up_to(most);
            let len = random.up_to(segment * 64).min(64_000);
            let bytes = random.bytes(len);
            assert_eq!(
                tx.send_to(&peer.local_addr(), &bytes, segment, 0),
                SendOutcome::Sent
            );
            let expected: Vec<_> = bytes.chunks(segment).map(<[u8]>::to_vec).collect();
            assert!(
                receive(&mut rx, expected.len()) == expected,
                "{address} {config:?}"
            );
        }
    }
}

/// The state of the neighbour 10.1.0.2 in this thread's namespace.
fn neighbour() -> String {
    let shown = Command::new("ip")
        .args(["neigh", "show", "10.1.0.2"])
        .output()
        .unwrap();
    let text = String::from_utf8(shown.stdout).unwrap();
    text.split_whitespace()
        .last()
        .unwrap_or_default()
        .to_owned()
}

/// The kernel probes a neighbour on the neighbour's own interface. If no answer can arrive there,
/// the entry would fail and packets would be lost although they arrive and peers ack them on other
/// paths.
#[test]
fn a_link_that_works_one_way_keeps_its_neighbour() {
    let (a, b) = two_hosts();
    let (mut tx, _) = open_default("10.1.0.0/24");
    b.enter();
    let (peer, mut rx) = open_default("10.1.0.0/24");
    let to = peer.local_addr();
    let link = tx.connect(&to).link;
    a.enter();
    assert_eq!(tx.send(link, b"first", 100, 0), SendOutcome::Sent);
    receive(&mut rx, 1);
    // Simulates a stale entry: the neighbour is probed soon and cannot answer.
    b.ip("link set rail0 arp off");
    a.enter();
    ip("ntable change name arp_cache dev rail0 delay_probe 1000");
    ip("neigh change 10.1.0.2 dev rail0 nud delay");
    let begun = Instant::now();
    while begun.elapsed().as_secs() < 8 && neighbour() != "REACHABLE" {
        tx.works(link);
    }
    assert_eq!(neighbour(), "REACHABLE");
}

#[test]
fn a_lowered_interface_mtu_is_too_big_not_fragmented() {
    for (address, mtu, fits) in [("10.1.0.0/24", 1000, 972), ("fd00:1::/64", 1300, 1252)] {
        for gso in [true, false] {
            let config = UdpConfig {
                gso,
                ..UdpConfig::default()
            };
            let (a, b) = two_hosts();
            let (mut tx, _) = open(address, &config);
            b.enter();
            let (peer, mut rx) = open(address, &config);
            a.ip(&format!("link set rail0 mtu {mtu}"));
            let (to, bytes) = (peer.local_addr(), Random(1).bytes(10_000));
            assert_eq!(tx.send_to(&to, &bytes, 1400, 0), SendOutcome::TooBig(fits));
            assert_eq!(
                tx.send_to(&to, &bytes[..1400], 1400, 0),
                SendOutcome::TooBig(fits)
            );
            assert_eq!(tx.send_to(&to, &bytes, fits, 0), SendOutcome::Sent);
            assert_eq!(receive(&mut rx, bytes.len().div_ceil(fits)).concat(), bytes);
            assert_eq!(tx.poll_event(), None);
            assert_eq!(tx.caps().batch_segments_max, if gso { 64 } else { 1 });
        }
    }
}

/// The other end of a veth pair has a smaller MTU: longer packets are lost, as at a switch. (The
/// device reports the drop; nothing is queued, so a sender that waited for room would wait
/// forever.)
#[test]
fn a_packet_dropped_by_a_veth_is_lost_without_blocking() {
    let (a, b) = two_hosts();
    let (mut tx, _) = open_default("10.1.0.0/24");
    b.enter();
    let (peer, mut rx) = open_default("10.1.0.0/24");
    b.ip("link set rail0 mtu 1200");
    a.enter();
    let (to, bytes) = (peer.local_addr(), Random(1).bytes(1_400));
    // More sends than a destination needs to get a socket.
    for _ in 0..200 {
        assert_eq!(tx.send_to(&to, &bytes, 1_400, 0), SendOutcome::Sent);
        assert_eq!(
            tx.send_to(&to, &bytes[..1_000], 1_000, 0),
            SendOutcome::Sent
        );
        assert_eq!(receive(&mut rx, 1), [&bytes[..1_000]]);
    }
}

#[test]
fn a_narrow_router_is_reported_with_its_mtu() {
    let (a, router, b) = (
        Namespace::enter_new(),
        Namespace::enter_new(),
        Namespace::enter_new(),
    );
    join(&a, &router, "near", 1);
    join(&router, &b, "far", 2);
    a.ip("route add 10.2.0.0/24 via 10.1.0.2");
    a.ip("route add fd00:2::/64 via fd00:1::2");
    b.ip("route add 10.1.0.0/24 via 10.2.0.1");
    b.ip("route add fd00:1::/64 via fd00:2::1");
    router.ip("link set far mtu 1300");
    ip("addr add fe80::1/64 dev far nodad"); // a router solicits neighbours from its own address
    for setting in ["net.ipv4.ip_forward=1", "net.ipv6.conf.all.forwarding=1"] {
        tool("sysctl", &format!("-qw {setting}"), "procps");
    }
    for (here, there, fits) in [
        ("10.1.0.0/24", "10.2.0.0/24", 1272),
        ("fd00:1::/64", "fd00:2::/64", 1252),
    ] {
        a.enter();
        let (mut tx, mut tx_back) = open_default(here);
        b.enter();
        let (peer, mut rx) = open_default(there);
        a.enter();
        let to = peer.local_addr();
        assert_eq!(tx.send_to(&to, &[1; 1400], 1400, 0), SendOutcome::Sent);
        tx_back.arm();
        wait_readable(tx_back.fd().unwrap());
        assert_eq!(tx_back.recv(&mut |_| panic!("nothing was sent here")), 0);
        let event = tx.poll_event();
        let link = tx.connect(&to).link;
        assert_eq!(event, Some(RailEvent::TooBig(link, fits)));
        assert_eq!(
            tx.send_to(&to, &[1; 5000], 1400, 0),
            SendOutcome::TooBig(fits)
        );
        assert_eq!(tx.send_to(&to, &[1; 5000], fits, 0), SendOutcome::Sent);
        assert_eq!(
            receive(&mut rx, 5000_usize.div_ceil(fits)).concat(),
            [1; 5000]
        );
    }
}

#[test]
fn a_link_that_goes_down_and_comes_back_carries_again() {
    for (net, address) in [
        ("10.1.0.0/24", "10.1.0.1/24"),
        ("fd00:1::/64", "fd00:1::1/64 nodad"),
    ] {
        let (a, b) = two_hosts();
        let choice = choose_interfaces(&[net.to_owned()]).unwrap();
        let mut watch = InterfaceWatch::open(&choice).unwrap();
        assert!(watch.is_up(0));
        let (mut tx, mut tx_back) = open_default(net);
        b.enter();
        let (mut peer, mut rx) = open_default(net);
        let (here, there) = (tx.local_addr(), peer.local_addr());
        assert_eq!(tx.send_to(&there, b"before", 6, 0), SendOutcome::Sent);
        assert_eq!(receive(&mut rx, 1), [b"before"]);

        a.ip("link set rail0 down");
        assert_eq!(next_state(&mut watch), RailFault::Down(libc::ENETDOWN));
        let outcome = tx.send_to(&there, b"during", 6, 0);
        assert!(
            matches!(outcome, SendOutcome::Fault(RailFault::Down(_))),
            "{outcome:?}"
        );

        a.ip("link set rail0 up");
        ip(&format!("addr replace {address} dev rail0")); // IPv6 lost it
        while next_state(&mut watch) != RailFault::Up {}
        until_received(&mut tx, &there, &mut rx);
        assert_eq!(tx.poll_event(), Some(RailEvent::Fault(RailFault::Up)));
        until_received(&mut peer, &here, &mut tx_back);
        assert_eq!(
            tx.caps().batch_segments_max,
            64,
            "the fault is not blamed on GSO"
        );
    }
}

/// Sends until a packet arrives: the kernel restores routes shortly after the link.
fn until_received(tx: &mut UdpTx, to: &RailAddr, rx: &mut UdpRx) {
    let start = Instant::now();
    let mut got = 0;
    while got == 0 {
        assert!(start.elapsed().as_secs() < 30, "nothing arrives");
        tx.send_to(to, b"after", 5, 0);
        got = rx.recv(&mut |r| assert!(r.bytes.starts_with(b"after")));
    }
}

#[test]
fn a_lost_carrier_and_a_lost_address_are_seen() {
    let (a, b) = two_hosts();
    a.enter();
    let choice = choose_interfaces(&["rail0".to_owned()]).unwrap();
    let mut watch = InterfaceWatch::open(&choice).unwrap();
    assert_eq!(watch.poll(), None);
    b.ip("link set rail0 down");
    a.enter();
    assert_eq!(next_state(&mut watch), RailFault::Down(libc::ENETDOWN));
    b.ip("link set rail0 up");
    a.enter();
    assert_eq!(next_state(&mut watch), RailFault::Up);
    ip("addr del 10.1.0.1/24 dev rail0");
    assert_eq!(next_state(&mut watch), RailFault::Down(libc::EADDRNOTAVAIL));
    ip("addr add 10.1.0.1/24 dev rail0");
    assert_eq!(next_state(&mut watch), RailFault::Up);
    ip("link del rail0");
    let gone = RailFault::Down(libc::ENODEV);
    while next_state(&mut watch) != gone {}
    assert_eq!(
        InterfaceWatch::open(&choice).unwrap().poll(),
        Some((0, InterfaceChange::State(gone)))
    );
}

/// A packet sent without carrier makes the kernel send an ARP request that is lost and repeated
/// only after a second (here: a minute). The neighbour, whose link comes back, announces its
/// address.
#[test]
fn a_recovered_link_announces_its_address() {
    let (a, b) = two_hosts();
    a.enter();
    ip("ntable change name arp_cache dev rail0 retrans 60000");
    let (mut tx, _) = open_default("10.1.0.1");
    b.enter();
    let to = open_default("10.1.0.2").0.local_addr();
    let choice = choose_interfaces(&["rail0".to_owned()]).unwrap();
    let mut watch = InterfaceWatch::open(&choice).unwrap();
    ip("link set rail0 down");
    assert_eq!(next_state(&mut watch), RailFault::Down(libc::ENETDOWN));
    a.enter();
    tx.send_to(&to, b"lost", 4, 0);
    assert_eq!(neighbour(), "INCOMPLETE");
    b.ip("link set rail0 up");
    b.enter();
    assert_eq!(next_state(&mut watch), RailFault::Up);
    let end = Instant::now() + Duration::from_secs(20);
    let known = || {
        a.enter();
        let state = neighbour();
        b.enter();
        state != "INCOMPLETE"
    };
    while !known() {
        assert!(Instant::now() < end, "nobody told it");
        assert_eq!(watch.poll(), None);
    }
}

#[test]
fn a_rail_follows_its_interface_to_another_address_and_back() {
    let (a, b) = two_hosts();
    b.enter();
    let (mut peer, mut rx) = open_default("10.1.0.2");
    a.enter();
    let choice = choose_interfaces(&["10.1.0.1".to_owned()]).unwrap();
    let mut watch = InterfaceWatch::open(&choice).unwrap();
    let (mut tx, mut tx_back) = open_default("10.1.0.1");
    let first = tx.local_addr();
    until_received(&mut tx, &peer.local_addr(), &mut rx);
    for (from, to) in [("1", "9"), ("9", "1")] {
        ip(&format!("addr del 10.1.0.{from}/24 dev rail0"));
        assert_eq!(next_state(&mut watch), RailFault::Down(libc::EADDRNOTAVAIL));
        ip(&format!("addr add 10.1.0.{to}/24 dev rail0"));
        let other = loop {
            match watch.poll() {
                Some((0, InterfaceChange::Address(other))) => break other,
                Some(more) => panic!("{more:?}"),
                None => wait_readable(watch.fd()),
            }
        };
        assert_eq!(other.ip.to_string(), format!("10.1.0.{to}"));
        let now_at = tx.move_to(&other).unwrap();
        watch.follow(0, &other);
        assert_eq!(next_state(&mut watch), RailFault::Up);
        assert_eq!(now_at, tx.local_addr());
        assert_eq!(UdpAddr::of(&now_at).unwrap().ip, other.ip);
        assert_eq!(
            UdpAddr::of(&now_at).unwrap().port,
            UdpAddr::of(&first).unwrap().port
        );
        until_received(&mut tx, &peer.local_addr(), &mut rx);
        until_received(&mut peer, &now_at, &mut tx_back);
        // The receiving half sleeps on its new sockets.
        while tx_back.recv(&mut |_| ()) > 0 {}
        tx_back.arm();
        peer.send_to(&now_at, b"after", 5, 0);
        wait_readable(tx_back.fd().unwrap());
        until_received(&mut peer, &now_at, &mut tx_back);
    }
    assert_eq!(tx.local_addr(), first);
}

#[test]
fn a_rail_waits_for_an_interface_that_is_not_there() {
    let (a, b) = (Namespace::enter_new(), Namespace::enter_new());
    a.enter();
    let name = "later:rail0".to_owned();
    let choice = choose_interfaces(std::slice::from_ref(&name)).unwrap();
    let mut watch = InterfaceWatch::open(&choice).unwrap();
    assert_eq!(next_state(&mut watch), RailFault::Down(libc::ENODEV));
    let (mut tx, mut tx_back) = open_default(&name);
    assert!(choice[0].is_awaited() && !tx.local_addr().is_some());
    assert!(tx.caps().for_groups().is_none());
    join(&a, &b, "rail0", 1);
    b.enter();
    let (mut peer, mut rx) = open_default("10.1.0.2");
    a.enter();
    let other = loop {
        match watch.poll() {
            Some((0, InterfaceChange::Address(other))) => break other,
            Some(_) => {}
            None => wait_readable(watch.fd()),
        }
    };
    let now_at = tx.move_to(&other).unwrap();
    watch.follow(0, &other);
    while !watch.is_up(0) {
        let _ = next_state(&mut watch);
    }
    assert_eq!(UdpAddr::of(&now_at).unwrap().ip.to_string(), "10.1.0.1");
    until_received(&mut tx, &peer.local_addr(), &mut rx);
    until_received(&mut peer, &now_at, &mut tx_back);
    // The rail has an address now, and groups like any other.
    assert!(tx.caps().for_groups().is_some());
    let group = group_addr(RailKind::Udp4, 9).unwrap();
    let (ours, theirs) = (tx.join(&group).unwrap(), peer.join(&group).unwrap());
    peer.send_group(theirs, b"to it", 5);
    assert_eq!(receive(&mut tx_back, 1), [b"to it"]);
    tx.send_group(ours, b"by it", 5);
    assert_eq!(receive(&mut rx, 1), [b"by it"]);
    assert!(!choose_interfaces(&[name]).unwrap()[0].is_awaited());
    for wrong in ["later:10.1.0.0/99", "later:rail:0", "rail9"] {
        assert!(choose_interfaces(&[wrong.to_owned()]).is_err(), "{wrong}");
    }
}

#[test]
fn a_removed_address_is_a_fault_and_heals() {
    let (a, b) = two_hosts();
    b.enter();
    let (peer, mut rx) = open_default("10.1.0.2");
    a.enter();
    let (mut tx, _) = open_default("10.1.0.1");
    ip("addr add 10.1.0.9/24 dev rail0");
    ip("addr del 10.1.0.1/24 dev rail0");
    ip("addr replace 10.1.0.9/24 dev rail0");
    let batch = [1; 3000];
    for _ in 0..2 {
        let outcome = tx.send_to(&peer.local_addr(), &batch, 1000, 0);
        assert!(
            matches!(outcome, SendOutcome::Fault(RailFault::Down(_))),
            "{outcome:?}"
        );
    }
    ip("addr add 10.1.0.1/24 dev rail0");
    assert_eq!(
        tx.send_to(&peer.local_addr(), &batch, 1000, 0),
        SendOutcome::Sent
    );
    assert_eq!(receive(&mut rx, 3).concat(), batch);
    assert_eq!(tx.caps().batch_segments_max, 64);
}

#[test]
fn an_interface_made_anew_is_followed() {
    let (a, b) = two_hosts();
    a.enter();
    let (mut tx, mut tx_back) = open_default("10.1.0.1");
    ip("link del rail0");
    ip("link add filler type bridge"); // so that the index differs
    join(&a, &b, "rail0", 1);
    b.enter();
    let (mut peer, mut rx) = open_default("10.1.0.2");
    a.enter();
    assert_eq!(
        tx.send_to(&peer.local_addr(), b"anew", 4, 0),
        SendOutcome::Sent
    );
    assert_eq!(receive(&mut rx, 1), [b"anew"]);
    assert_eq!(
        peer.send_to(&tx.local_addr(), b"back", 4, 0),
        SendOutcome::Sent
    );
    assert_eq!(receive(&mut tx_back, 1), [b"back"]);
}

/// A rail that is down on a host with another route to the peer; and the peer's halves.
fn down_beside_another() -> ((Namespace, Namespace), UdpTx, UdpTx, UdpRx) {
    let (a, b) = two_hosts();
    join(&a, &b, "rail1", 2);
    a.ip("route add default via 10.2.0.2");
    b.enter();
    let (peer, rx) = open_default("10.1.0.2");
    a.enter();
    let (tx, _) = open_default("10.1.0.1");
    ip("link set rail0 down");
    ((a, b), tx, peer, rx)
}

#[test]
fn a_rail_that_is_down_does_not_leak_onto_another() {
    let (_hosts, mut tx, peer, mut rx) = down_beside_another();
    let outcome = tx.send_to(&peer.local_addr(), b"astray", 6, 0);
    assert!(
        matches!(outcome, SendOutcome::Fault(RailFault::Down(_))),
        "{outcome:?}"
    );
    assert_eq!(rx.recv(&mut |_| panic!("it leaked")), 0);
}

#[test]
fn a_peer_without_a_route_is_no_fault_of_the_rail() {
    let (_a, _b) = two_hosts();
    let (mut tx, _) = open_default("fd00:1::/64");
    let elsewhere = "fd77:1::1".parse().unwrap();
    let elsewhere = UdpAddr::new(elsewhere, port_of(&tx.local_addr())).rail();
    assert_eq!(tx.send_to(&elsewhere, b"lost", 4, 0), SendOutcome::Sent);
    assert_eq!(tx.poll_event(), None);
}

#[test]
fn processes_of_one_host_reach_each_other_on_any_rail() {
    let (_a, _b) = two_hosts();
    for net in ["10.1.0.0/24", "fd00:1::/64"] {
        let (mut one, _) = open_default(net);
        let (two, mut rx) = open_default(net);
        let bytes = Random(3).bytes(20_000);
        assert_eq!(
            one.send_to(&two.local_addr(), &bytes, 1400, 0),
            SendOutcome::Sent
        );
        assert_eq!(receive(&mut rx, 15).concat(), bytes);
    }
}

#[test]
fn link_local_addresses_work_with_the_local_scope() {
    let (a, b) = two_hosts();
    a.ip("addr add fe80::1/64 dev rail0 nodad");
    b.ip("addr add fe80::2/64 dev rail0 nodad");
    let (peer, mut rx) = open_default("fe80::2");
    a.enter();
    let (mut tx, _) = open_default("fe80::1");
    // On a busy machine the first packet on a fresh link-local address may be lost.
    until_received(&mut tx, &peer.local_addr(), &mut rx);
}

#[test]
fn a_full_queue_is_busy_and_a_filter_is_loss() {
    let (a, b) = two_hosts();
    b.enter();
    let (peer, _rx) = open_default("10.1.0.2");
    a.enter();
    tool(
        "tc",
        "qdisc add dev rail0 root tbf rate 1mbit burst 2000 limit 20000",
        "iproute2",
    );
    let (mut tx, _) = open_default("10.1.0.1");
    let send = |tx: &mut UdpTx| tx.send_to(&peer.local_addr(), &[1; 1400], 1400, 0);
    while send(&mut tx) == SendOutcome::Sent {}
    assert_eq!(send(&mut tx), SendOutcome::Busy);
    tool("nft", "add table inet t", "nftables");
    tool(
        "nft",
        "add chain inet t o { type filter hook output priority 0 ; }",
        "nftables",
    );
    tool("nft", "add rule inet t o meta l4proto udp drop", "nftables");
    assert_eq!(send(&mut tx), SendOutcome::Sent);
    for gso in [true, false] {
        let (mut tx, _) = open(
            "10.1.0.1",
            &UdpConfig {
                gso,
                ..UdpConfig::default()
            },
        );
        let outcome = tx.send_to(&peer.local_addr(), &[1; 10_000], 1400, 0);
        assert_eq!(outcome, SendOutcome::Sent);
    }
}

#[test]
fn interfaces_are_chosen_by_name_pattern_address_and_subnet() {
    let (_a, _b) = two_hosts();
    ip("link add idle0 type veth peer name idle1"); // no carrier while its other end is down
    ip("addr add 172.17.0.1/16 dev idle0");
    ip("link set idle0 up");
    let names = |names: &[&str]| {
        let names: Vec<_> = names.iter().map(|n| n.to_string()).collect();
        choose_interfaces(&names).map(|c| c.iter().map(|c| c.to_string()).collect::<Vec<_>>())
    };
    assert_eq!(names(&[]).unwrap(), ["rail0 (10.1.0.1)"]);
    assert_eq!(
        names(&["rail*", "lo"]).unwrap(),
        ["rail0 (10.1.0.1)", "lo (127.0.0.1)"]
    );
    assert_eq!(names(&["fd00:1::/32", ""]).unwrap(), ["rail0 (fd00:1::1)"]);
    assert_eq!(names(&["idle0"]).unwrap(), ["idle0 (172.17.0.1)"]);
    let error = names(&["eth7"]).unwrap_err();
    assert!(
        error.contains("matches eth7") && error.contains("rail0 (10.1.0.1"),
        "{error}"
    );
    assert!(
        error.contains("idle0 without carrier (172.17.0.1)"),
        "{error}"
    );
    assert!(names(&["10.1.0.0/33"])
        .unwrap_err()
        .contains("bits up to 32"));
    ip("link set rail0 down");
    assert_eq!(names(&[]).unwrap(), ["lo (127.0.0.1)"]);
}

/// The sockets of additional source ports are opened at first use.
#[test]
fn a_renamed_rail_that_is_down_does_not_leak_onto_another() {
    let (_hosts, mut tx, peer, mut rx) = down_beside_another();
    ip("link set rail0 name eth9");
    tx.renamed("eth9");
    for flow in 1..=2 {
        tx.send_to(&peer.local_addr(), b"astray", 6, flow);
    }
    assert_eq!(rx.recv(&mut |_| panic!("it leaked")), 0);
}
