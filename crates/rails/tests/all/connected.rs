//! Connected sockets of frequent destinations behave like the unconnected one.

use crate::common;

use common::{
    ip, join, open, open_again, open_default, port_of, receive, Namespace, Random, SendTo,
};
use marline_rails::{
    Links, Ports, RailEvent, RailFault, RailRx, RailTx, SendOutcome, UdpConfig, UdpRx, UdpTx,
};
use marline_wire::RailAddr;
use std::time::Instant;

/// More sends than a destination needs to get a socket.
const ENOUGH: usize = 12;

/// Sends one packet, waits for it, and returns its source port.
fn source_port(tx: &mut UdpTx, to: &RailAddr, rx: &mut UdpRx) -> u16 {
    assert_eq!(tx.send_to(to, b"hello", 5, 0), SendOutcome::Sent);
    let (start, mut from) = (Instant::now(), None);
    while from.is_none() {
        assert!(start.elapsed().as_secs() < 30, "nothing arrives");
        rx.recv(&mut |r| from = Some(port_of(&r.from)));
    }
    from.unwrap()
}

/// Sends until the connected socket is used.
fn connect(tx: &mut UdpTx, to: &RailAddr, rx: &mut UdpRx) {
    let ports: Vec<_> = (0..ENOUGH).map(|_| source_port(tx, to, rx)).collect();
    let own = port_of(&tx.local_addr());
    assert_eq!(ports[0], own, "the first leaves by the rail's port");
    assert_ne!(ports[ENOUGH - 1], own, "the last by a port of its own");
}

/// Two joined namespaces with connected rails; the thread is in the first.
fn two_rails(net: &str) -> (Namespace, Namespace, UdpTx, RailAddr, UdpRx) {
    let (a, b) = (Namespace::enter_new(), Namespace::enter_new());
    join(&a, &b, "rail0", 1);
    let (peer, mut rx) = open_default(net);
    a.enter();
    let (mut tx, _) = open_default(net);
    let to = peer.local_addr();
    connect(&mut tx, &to, &mut rx);
    (a, b, tx, to, rx)
}

/// Sends until a packet arrives: the kernel restores routes shortly after the link.
fn until_received(tx: &mut UdpTx, to: &RailAddr, rx: &mut UdpRx) {
    let (start, mut got) = (Instant::now(), 0);
    while got == 0 {
        assert!(start.elapsed().as_secs() < 30, "nothing arrives");
        tx.send_to(to, b"after", 5, 0);
        got = rx.recv(&mut |r| assert!(r.bytes.starts_with(b"after")));
    }
}

fn is_down(outcome: SendOutcome) -> bool {
    matches!(outcome, SendOutcome::Fault(RailFault::Down(_)))
}

#[test]
fn a_peer_that_ends_is_refused_and_found_again_on_its_port() {
    let _own = Namespace::enter_new(); // where no other process takes the released port
    for address in ["127.0.0.1", "::1"] {
        let (mut tx, _back) = open_default(address);
        let (peer, mut rx) = open_default(address);
        let to = peer.local_addr();
        connect(&mut tx, &to, &mut rx);
        drop((peer, rx));
        // A later send meets the error of an earlier packet and is sent nevertheless.
        let (start, mut event) = (Instant::now(), None);
        while event.is_none() {
            assert!(start.elapsed().as_secs() < 30, "nobody refuses");
            assert_eq!(tx.send_to(&to, b"anyone?", 7, 0), SendOutcome::Sent);
            event = tx.poll_event();
        }
        assert_eq!(event, Some(RailEvent::Refused(tx.connect(&to).link)));
        let config = UdpConfig {
            ports: Ports::one(port_of(&to)),
            ..UdpConfig::default()
        };
        let (_peer, mut rx) = open_again(address, &config);
        assert_eq!(tx.send_to(&to, b"back", 4, 0), SendOutcome::Sent);
        assert_eq!(receive(&mut rx, 1), [b"back"], "at the first attempt");
        let own = port_of(&tx.local_addr());
        assert_ne!(source_port(&mut tx, &to, &mut rx), own, "still connected");
    }
}

#[test]
fn a_refusal_is_found_without_another_send() {
    let _own = Namespace::enter_new();
    let (mut tx, _back) = open_default("127.0.0.1");
    let (peer, mut rx) = open_default("127.0.0.1");
    let (well, mut well_rx) = open_default("127.0.0.1");
    let to = peer.local_addr();
    connect(&mut tx, &to, &mut rx);
    connect(&mut tx, &well.local_addr(), &mut well_rx);
    drop((peer, rx));
    // The kernel limits the rate of refusals over all namespaces; if one is not sent, another is
    // provoked. Between two sends there are far more polls than the period of error queue checks.
    let (start, mut event) = (Instant::now(), None);
    while event.is_none() {
        assert!(start.elapsed().as_secs() < 30, "the refusal is not found");
        assert_eq!(tx.send_to(&to, b"anyone?", 7, 0), SendOutcome::Sent);
        event = (0..100_000).find_map(|_| tx.poll_event());
    }
    assert_eq!(event, Some(RailEvent::Refused(tx.connect(&to).link)));
}

#[test]
fn a_link_that_comes_back_carries_again() {
    for (net, address) in [
        ("10.1.0.0/24", "10.1.0.1/24"),
        ("fd00:1::/64", "fd00:1::1/64 nodad"),
    ] {
        let (_a, _b, mut tx, to, mut rx) = two_rails(net);
        ip("link set rail0 down");
        assert!(is_down(tx.send_to(&to, b"during", 6, 0)));
        ip("link set rail0 up");
        ip(&format!("addr replace {address} dev rail0")); // IPv6 lost it
        until_received(&mut tx, &to, &mut rx);
        assert_eq!(tx.poll_event(), Some(RailEvent::Fault(RailFault::Up)));
        (0..ENOUGH).for_each(|_| _ = source_port(&mut tx, &to, &mut rx));
        let own = port_of(&tx.local_addr());
        assert_ne!(source_port(&mut tx, &to, &mut rx), own, "connected again");
    }
}

#[test]
fn a_link_that_went_and_came_between_two_sends_carries_on() {
    let (_a, _b, mut tx, to, mut rx) = two_rails("10.1.0.0/24");
    ip("link set rail0 down");
    ip("link set rail0 up");
    until_received(&mut tx, &to, &mut rx);
}

#[test]
fn an_address_that_was_removed_and_returned_works_again() {
    let (_a, _b, mut tx, to, mut rx) = two_rails("10.1.0.0/24");
    ip("addr add 10.1.0.9/24 dev rail0");
    ip("addr del 10.1.0.1/24 dev rail0");
    ip("addr replace 10.1.0.9/24 dev rail0");
    for _ in 0..2 {
        assert!(is_down(tx.send_to(&to, &[1; 3000], 1000, 0)));
    }
    ip("addr add 10.1.0.1/24 dev rail0");
    assert_eq!(tx.send_to(&to, &[1; 3000], 1000, 0), SendOutcome::Sent);
    assert_eq!(receive(&mut rx, 3).concat(), [1; 3000]);
    assert_eq!(tx.caps().batch_segments_max, 64);
}

#[test]
fn nothing_leaks_onto_another_rail() {
    let (a, b, mut tx, to, mut rx) = two_rails("10.1.0.0/24");
    join(&a, &b, "rail1", 2);
    a.ip("route add default via 10.2.0.2");
    source_port(&mut tx, &to, &mut rx);
    ip("link set rail0 down");
    assert!(is_down(tx.send_to(&to, b"astray", 6, 0)));
    assert_eq!(rx.recv(&mut |_| panic!("it leaked")), 0);
}

#[test]
fn an_interface_made_anew_is_followed() {
    let (a, b, mut tx, to, rx) = two_rails("10.1.0.0/24");
    ip("link del rail0");
    ip("link add filler type bridge"); // so that the index differs
    join(&a, &b, "rail0", 1);
    drop(rx);
    b.enter();
    let config = UdpConfig {
        ports: Ports::one(port_of(&to)),
        ..UdpConfig::default()
    };
    let (_peer, mut rx) = open_again("10.1.0.2", &config);
    a.enter();
    (0..ENOUGH).for_each(|_| _ = source_port(&mut tx, &to, &mut rx));
    let own = port_of(&tx.local_addr());
    assert_ne!(source_port(&mut tx, &to, &mut rx), own, "connected again");
}

#[test]
fn a_lowered_mtu_is_too_big() {
    for (net, mtu, fits) in [("10.1.0.0/24", 1000, 972), ("fd00:1::/64", 1300, 1252)] {
        let (_a, _b, mut tx, to, mut rx) = two_rails(net);
        ip(&format!("link set rail0 mtu {mtu}"));
        for len in [1400, 10_000] {
            let outcome = tx.send_to(&to, &vec![1; len], 1400, 0);
            assert_eq!(outcome, SendOutcome::TooBig(fits));
        }
        assert_eq!(tx.send_to(&to, &[1; 5000], fits, 0), SendOutcome::Sent);
        let count = 5000_usize.div_ceil(fits);
        assert_eq!(receive(&mut rx, count).concat(), [1; 5000]);
        assert_eq!(tx.poll_event(), None);
    }
}

#[test]
fn more_destinations_than_sockets_are_all_served() {
    let _own = Namespace::enter_new();
    let (mut tx, _back) = open_default("127.0.0.1");
    let small = UdpConfig {
        rcvbuf_bytes: 64 << 10,
        ..UdpConfig::default()
    };
    let mut peers: Vec<_> = (0..100).map(|_| open("127.0.0.1", &small)).collect();
    let mut random = Random(5);
    let mut own_port = 0;
    for round in 0..40 {
        for (peer, rx) in &mut peers {
            let len = random.up_to(5000);
            let bytes = random.bytes(len);
            assert_eq!(
                tx.send_to(&peer.local_addr(), &bytes, 700, 0),
                SendOutcome::Sent
            );
            assert_eq!(receive(rx, bytes.len().div_ceil(700)).concat(), bytes);
            if round == 39 {
                let port = source_port(&mut tx, &peer.local_addr(), rx);
                own_port += usize::from(port == port_of(&tx.local_addr()));
            }
        }
    }
    assert!((36..100).contains(&own_port), "{own_port} without a socket");
}

#[test]
fn without_connecting_all_leaves_by_the_rails_port() {
    let _own = Namespace::enter_new();
    let config = UdpConfig {
        connect: false,
        ..UdpConfig::default()
    };
    let (mut tx, _back) = open("127.0.0.1", &config);
    let (peer, mut rx) = open_default("127.0.0.1");
    for _ in 0..ENOUGH {
        let port = source_port(&mut tx, &peer.local_addr(), &mut rx);
        assert_eq!(port, port_of(&tx.local_addr()));
    }
}
