//! Groups of UDP rails by IP multicast: over the loopback interface, between hosts, over a bridge.

mod common;

use common::{ip, join, open_default, port_of, receive, wait_readable, Namespace};
use marline_rails::{
    group_addr, Armed, GroupError, Groups, RailRx, RailTx, SendOutcome, UdpRx, UdpTx,
};
use marline_wire::RailAddr;

/// The group of a number, for rails like this one.
fn group(of: &UdpTx, id: u64) -> RailAddr {
    group_addr(of.local_addr().kind, id).unwrap()
}

/// Nothing waits at a rail.
fn is_quiet(rx: &mut UdpRx) -> bool {
    rx.recv(&mut |_| ()) + rx.recv_rest(&mut |_| ()) == 0
}

fn packets(count: usize, len: usize) -> Vec<Vec<u8>> {
    (0..count).map(|n| vec![n as u8 + 1; len]).collect()
}

#[test]
fn what_is_sent_to_a_group_reaches_all_other_members_once() {
    let host = Namespace::enter_new();
    host.enter();
    let mut rails: Vec<_> = (0..4).map(|_| open_default("127.0.0.0/8")).collect();
    let (tx, _) = &rails[0];
    let (ours, others) = (group(tx, 7), group(tx, 8));
    let links: Vec<_> = rails
        .iter_mut()
        .map(|(tx, _)| tx.join(&ours).unwrap())
        .collect();
    let (last, _) = &mut rails[3];
    last.leave(links[3]);
    last.join(&others).unwrap();
    let sent = packets(5, 900);
    let all = sent.concat();
    let outcome = rails[0].0.send_group(links[0], &all, 900);
    assert_eq!(outcome, SendOutcome::Sent);
    for (_, rx) in &mut rails[1..3] {
        let mut got = receive(rx, 5);
        got.sort();
        assert!(got == sent);
    }
    // What it sends reaches it as little as those who have left, or never were there.
    for (n, (_, rx)) in rails.iter_mut().enumerate() {
        assert!(is_quiet(rx), "rail {n}");
    }
    // Its number is of no group any more, or of another.
    rails[2].0.leave(links[2]);
    assert_eq!(rails[2].0.send_group(links[2], &[1], 1), SendOutcome::Sent);
    assert!(is_quiet(&mut rails[1].1));
}

#[test]
fn what_is_no_group_of_the_rail_is_refused_and_there_is_an_end_to_joining() {
    let host = Namespace::enter_new();
    host.enter();
    let (mut v4, _) = open_default("127.0.0.0/8");
    let (v6, _) = open_default("::1/128");
    let of_v6 = group(&v6, 1);
    assert_eq!(v4.join(&of_v6), Err(GroupError::NoGroup));
    assert_eq!(v4.join(&v6.local_addr()), Err(GroupError::NoGroup));
    let own = v4.local_addr();
    assert_eq!(v4.join(&own), Err(GroupError::NoGroup));
    let joined: Vec<_> = (0..200).map(|id| v4.join(&group(&v4, id))).collect();
    let full = joined.iter().position(|j| *j == Err(GroupError::Full));
    assert_eq!(full, Some(64));
    v4.leave(joined[5].unwrap());
    assert!(v4.join(&group(&v4, 1_000)).is_ok(), "there is room again");
}

#[test]
fn a_sleep_ends_when_a_group_has_something() {
    let host = Namespace::enter_new();
    host.enter();
    let ((mut a, _), (mut b, mut rx)) = (open_default("127.0.0.0/8"), open_default("127.0.0.0/8"));
    let id = port_of(&a.local_addr()) as u64;
    let link = a.join(&group(&a, id)).unwrap();
    b.join(&group(&b, id)).unwrap();
    assert_eq!(rx.arm(), Armed::Sleep);
    a.send_group(link, b"wake up", 7);
    wait_readable(rx.fd().unwrap());
    assert_eq!(receive(&mut rx, 1), [b"wake up"]);
}

/// Hosts, each with an interface `rail0`, and a switch between them: a bridge, as in the lab.
fn switched(count: u8) -> (Vec<Namespace>, Namespace) {
    let switch = Namespace::enter_new();
    ip("link add br0 type bridge mcast_snooping 1");
    ip("link set br0 up");
    let hosts = (1..=count).map(|n| {
        let host = Namespace::enter_new();
        join_switch(&host, &switch, n);
        host
    });
    (hosts.collect(), switch)
}

fn join_switch(host: &Namespace, switch: &Namespace, n: u8) {
    host.ip(&format!(
        "link add rail0 type veth peer name port{n} netns {}",
        switch.path()
    ));
    host.ip("link set rail0 addrgenmode none");
    host.ip(&format!("addr add 10.1.0.{n}/24 dev rail0"));
    host.ip(&format!("addr add fd00:1::{n}/64 dev rail0 nodad"));
    host.ip("link set rail0 up");
    switch.ip(&format!("link set port{n} master br0"));
    switch.ip(&format!("link set port{n} up"));
    host.enter();
    common::wait_for_carrier("rail0");
}

#[test]
fn a_batch_crosses_a_switch_to_all_hosts_though_it_leaves_once() {
    let (hosts, _switch) = switched(4);
    for address in ["10.1.0.0/24", "fd00:1::/64"] {
        let open = |host: &Namespace| {
            host.enter();
            let (mut tx, rx) = open_default(address);
            let link = tx.join(&group(&tx, 3)).unwrap();
            (tx, rx, link)
        };
        let mut rails: Vec<_> = hosts.iter().map(open).collect();
        let len = rails[0].0.caps().datagram_max;
        let sent = packets(30, len);
        let (tx, _, link) = &mut rails[0];
        assert_eq!(tx.send_group(*link, &sent.concat(), len), SendOutcome::Sent);
        for (_, rx, _) in &mut rails[1..] {
            let got = receive(rx, 30);
            assert!(got == sent, "{address}");
        }
        assert!(is_quiet(&mut rails[0].1), "{address}");
    }
}

#[test]
fn rails_of_one_host_hear_each_what_comes_by_its_own_network() {
    let (a, b) = (Namespace::enter_new(), Namespace::enter_new());
    join(&a, &b, "rail0", 1);
    join(&a, &b, "rail1", 2);
    let both = ["10.1.0.0/24", "10.2.0.0/24"];
    a.enter();
    let mut senders = both.map(open_default);
    b.enter();
    let mut hearers = both.map(open_default);
    for (tx, _) in &mut hearers {
        tx.join(&group(tx, 9)).unwrap();
    }
    for (n, (tx, _)) in senders.iter_mut().enumerate() {
        let link = tx.join(&group(tx, 9)).unwrap();
        tx.send_group(link, &[n as u8 + 1], 1);
    }
    for (n, (_, rx)) in hearers.iter_mut().enumerate() {
        assert_eq!(receive(rx, 1), [vec![n as u8 + 1]]);
        assert!(is_quiet(rx), "rail {n}");
    }
}
