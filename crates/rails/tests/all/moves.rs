//! Rails whose address or link disappears while other failures occur.

use crate::common;

use common::{ip, join, open_default, receive, wait_readable, Namespace, SendTo};
use marline_rails::{
    choose_interfaces, InterfaceChange, InterfaceChoice, InterfaceWatch, Rail, RailRx, RailTx,
    SendOutcome, TcpConfig, TcpRail, UdpAddr, UdpConfig, UdpRail, UdpRx, UdpTx,
};
use std::process::Command;
use std::time::{Duration, Instant};

/// Datagrams of one source after which it has its own receiving socket.
const ENOUGH: u32 = 300;

/// The next address proposed to a rail.
fn next_address(watch: &mut InterfaceWatch) -> InterfaceChoice {
    loop {
        match watch.poll() {
            Some((_, InterfaceChange::Address(other))) => return other,
            Some(_) => {}
            None => wait_readable(watch.fd()),
        }
    }
}

/// A rail at an address, and a watch of its interface.
fn watched(address: &str) -> (InterfaceWatch, UdpTx, UdpRx) {
    let choice = choose_interfaces(&[address.to_owned()]).unwrap();
    let watch = InterfaceWatch::open(&choice).unwrap();
    let rail = UdpRail::open(&choice[0], &UdpConfig::default()).unwrap();
    let (tx, rx) = rail.split();
    (watch, tx, rx)
}

/// Undoes the connection of a socket, as `ss -K` does.
fn disconnect(fd: i32) {
    let none = libc::sockaddr {
        sa_family: libc::AF_UNSPEC as libc::sa_family_t,
        sa_data: [0; 14],
    };
    let len = size_of_val(&none) as libc::socklen_t;
    // SAFETY: the name is valid for its length.
    assert_eq!(unsafe { libc::connect(fd, &raw const none, len) }, 0);
}

/// The second receiving socket kept the old port, so that the rail could not move back.
#[test]
fn a_rail_moves_back_though_its_second_socket_had_lost_its_source() {
    let (a, b) = (Namespace::enter_new(), Namespace::enter_new());
    join(&a, &b, "rail0", 1);
    b.enter();
    let (mut peer, mut peer_back) = open_default("10.1.0.2");
    a.enter();
    let (mut watch, mut tx, mut rx) = watched("10.1.0.1");
    for _ in 0..ENOUGH {
        assert_eq!(
            peer.send_to(&tx.local_addr(), b"to you", 6, 0),
            SendOutcome::Sent
        );
        assert_eq!(receive(&mut rx, 1), [b"to you"]);
    }
    assert_eq!(rx.sockets().len(), 2, "the source has a socket");
    disconnect(rx.sockets()[1]);
    for (from, to) in [("1", "9"), ("9", "1")] {
        ip(&format!("addr del 10.1.0.{from}/24 dev rail0"));
        ip(&format!("addr add 10.1.0.{to}/24 dev rail0"));
        let other = next_address(&mut watch);
        // A child of another test has this process's old socket until it executes its program.
        let start = Instant::now();
        while tx.move_to(&other).is_none() {
            let waited = start.elapsed().as_secs();
            assert!(waited < 30, "it cannot go on at {}", other.ip);
        }
        watch.follow(0, &other);
        let (start, here) = (Instant::now(), tx.local_addr());
        let mut came = 0;
        while came == 0 {
            assert!(
                start.elapsed().as_secs() < 30,
                "nothing comes to 10.1.0.{to}"
            );
            peer.send_to(&here, b"there", 5, 0);
            came = rx.recv(&mut |_| ()) + rx.recv_rest(&mut |_| ());
        }
    }
    tx.send_to(&peer.local_addr(), b"back", 4, 0);
    assert_eq!(receive(&mut peer_back, 1), [b"back"]);
}

/// Another program occupies one address, and the other is free.
#[test]
fn another_address_is_proposed_after_a_decline() {
    let (a, b) = (Namespace::enter_new(), Namespace::enter_new());
    join(&a, &b, "rail0", 1);
    a.enter();
    let (mut watch, _tx, _rx) = watched("10.1.0.1");
    // In separate subnets: deleting the first address of a subnet deletes the others.
    ip("addr add 10.1.8.1/24 dev rail0");
    ip("addr add 10.1.9.1/24 dev rail0");
    ip("addr del 10.1.0.1/24 dev rail0");
    let first = next_address(&mut watch);
    watch.decline(0);
    let second = next_address(&mut watch);
    assert_ne!(first.ip, second.ip, "the same is told again");
    watch.decline(0);
    assert_eq!(watch.poll(), None, "there is no other");
    // A change may make an address usable.
    ip("addr add 10.1.7.1/24 dev rail0");
    next_address(&mut watch);
}

/// Lets two rails that began at one address follow the watch, which `taken` keeps each from some
/// addresses; returns where they are, once nothing is proposed any more.
fn follow_both(watch: &mut InterfaceWatch, taken: impl Fn(usize, &str) -> bool) -> [String; 2] {
    let mut at = [String::new(), String::new()];
    let mut proposed = 0;
    while let Some((rail, change)) = watch.poll() {
        let InterfaceChange::Address(other) = change else {
            continue;
        };
        proposed += 1;
        assert!(proposed < 20, "the same is proposed again and again");
        let ip = other.ip.to_string();
        if taken(rail, &ip) {
            watch.decline(rail);
            continue;
        }
        watch.follow(rail, &other);
        at[rail] = ip;
    }
    at
}

/// Peers know a standby rail by the address of the rail before it. So where another program has the
/// port of one of the two, both go on at the next address.
#[test]
fn rails_of_one_address_go_on_together_where_one_cannot() {
    let (a, b) = (Namespace::enter_new(), Namespace::enter_new());
    join(&a, &b, "rail0", 1);
    a.enter();
    let choice = choose_interfaces(&["10.1.0.1".to_owned()]).unwrap();
    let mut watch = InterfaceWatch::open(&[choice[0].clone(), choice[0].clone()]).unwrap();
    // In separate subnets: deleting the first address of a subnet deletes the others.
    ip("addr add 10.1.8.1/24 dev rail0");
    ip("addr add 10.1.9.1/24 dev rail0");
    ip("addr del 10.1.0.1/24 dev rail0");
    for declines in [0, 1] {
        wait_readable(watch.fd());
        let at = follow_both(&mut watch, |rail, ip| rail == declines && ip == "10.1.8.1");
        assert_eq!(at, ["10.1.9.1", "10.1.9.1"], "rail {declines} declines");
        ip("addr del 10.1.9.1/24 dev rail0");
        wait_readable(watch.fd());
        let at = follow_both(&mut watch, |_, _| false);
        assert_eq!(at, ["10.1.8.1", "10.1.8.1"]);
        ip("addr add 10.1.0.1/24 dev rail0");
        ip("addr del 10.1.8.1/24 dev rail0");
        wait_readable(watch.fd());
        let at = follow_both(&mut watch, |_, _| false);
        assert_eq!(at, ["10.1.0.1", "10.1.0.1"]);
        ip("addr add 10.1.8.1/24 dev rail0");
        ip("addr add 10.1.9.1/24 dev rail0");
        ip("addr del 10.1.0.1/24 dev rail0");
    }
    // A rail that can go nowhere else goes on alone.
    ip("addr del 10.1.9.1/24 dev rail0");
    wait_readable(watch.fd());
    let at = follow_both(&mut watch, |rail, _| rail == 1);
    assert_eq!(at, ["10.1.8.1", ""]);
}

/// The state of this namespace's neighbour entry on `rail0`.
fn neighbour() -> String {
    let shown = Command::new("ip")
        .args(["neigh", "show", "dev", "rail0"])
        .output();
    let shown = String::from_utf8(shown.unwrap().stdout).unwrap();
    let of = shown.lines().find(|line| line.starts_with("10.1.0.2"));
    let state = of.and_then(|line| line.split_whitespace().last());
    state.unwrap_or("NONE").to_owned()
}

/// A kernel whose link is back has lost an ARP request and repeats it only after a second (here: a
/// minute). The neighbour's rails, whose peer is silent, announce their address.
fn is_told_by<T: RailTx>(open: impl Fn(&str) -> T) {
    let (a, b) = (Namespace::enter_new(), Namespace::enter_new());
    join(&a, &b, "rail0", 1);
    b.enter();
    let mut there = open("10.1.0.2");
    a.enter();
    ip("ntable change name arp_cache dev rail0 retrans 60000");
    let (mut tx, _rx) = open_default("10.1.0.1");
    let to = UdpAddr::new([10, 1, 0, 2].into(), 9).rail();
    b.ip("link set rail0 down");
    a.enter();
    tx.send_to(&to, b"lost", 4, 0);
    assert_eq!(neighbour(), "INCOMPLETE");
    b.ip("link set rail0 up");
    let silent = there.connect(&tx.local_addr()).link;
    let end = Instant::now() + Duration::from_secs(20);
    loop {
        a.enter();
        if neighbour() != "INCOMPLETE" {
            return;
        }
        b.enter();
        assert!(Instant::now() < end, "nobody tells it");
        there.silent(silent);
    }
}

#[test]
fn silent_peers_get_address_announcements() {
    is_told_by(|name| open_default(name).0);
    is_told_by(|name| {
        let choice = choose_interfaces(&[name.to_owned()]).unwrap();
        TcpRail::open(&choice[0], &TcpConfig::default())
            .unwrap()
            .split()
            .0
    });
}
