//! Multicast groups of UDP rails: over the loopback interface, between hosts, over a bridge.

use crate::common;

use common::{ip, join, open, open_default, port_of, receive, wait_readable, Namespace};
use marline_rails::{
    group_addr, Armed, GroupError, Groups, Links, RailEvent, RailRx, RailTx, SendOutcome,
    UdpConfig, UdpRx, UdpTx,
};
use marline_wire::RailAddr;

/// The group with this number for rails of this kind.
fn group(of: &UdpTx, id: u64) -> RailAddr {
    group_addr(of.local_addr().kind, id).unwrap()
}

/// Returns whether no packet waits at a rail.
fn is_quiet(rx: &mut UdpRx) -> bool {
    rx.recv(&mut |_| ()) + rx.recv_rest(&mut |_| ()) == 0
}

fn packets(count: usize, len: usize) -> Vec<Vec<u8>> {
    (0..count).map(|n| vec![n as u8 + 1; len]).collect()
}

#[test]
fn a_send_reaches_all_other_members_once() {
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
    // Its own packets do not reach it, nor former members or non-members.
    for (n, (_, rx)) in rails.iter_mut().enumerate() {
        assert!(is_quiet(rx), "rail {n}");
    }
    // Its number names no group any more, or another one.
    rails[2].0.leave(links[2]);
    assert_eq!(rails[2].0.send_group(links[2], &[1], 1), SendOutcome::Sent);
    assert!(is_quiet(&mut rails[1].1));
}

#[test]
fn recv_groups_leaves_unicast_packets() {
    let host = Namespace::enter_new();
    host.enter();
    let mut rails: Vec<_> = (0..2).map(|_| open_default("127.0.0.0/8")).collect();
    let ours = group(&rails[0].0, 7);
    let links: Vec<_> = rails
        .iter_mut()
        .map(|(tx, _)| tx.join(&ours).unwrap())
        .collect();
    let to = rails[1].0.local_addr();
    let link = rails[0].0.connect(&to).link;
    assert_eq!(rails[0].0.send(link, &[1; 9], 9, 0), SendOutcome::Sent);
    assert_eq!(
        rails[0].0.send_group(links[0], &[2; 9], 9),
        SendOutcome::Sent
    );
    let mut got = Vec::new();
    let rx = &mut rails[1].1;
    while rx.recv_groups(&mut |r| got.push(r.bytes[0])) > 0 || got.is_empty() {}
    assert_eq!(got, [2]);
    assert_eq!(receive(rx, 1), [vec![1; 9]]);
}

#[test]
fn invalid_groups_and_too_many_are_refused() {
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
fn a_group_packet_ends_a_sleep() {
    let host = Namespace::enter_new();
    host.enter();
    let ((mut a, _), (mut b, mut rx)) = (open_default("127.0.0.0/8"), open_default("127.0.0.0/8"));
    let id = port_of(&a.local_addr()) as u64;
    let link = a.join(&group(&a, id)).unwrap();
    let ours = b.join(&group(&b, id)).unwrap();
    assert_eq!(rx.arm(), Armed::Sleep);
    a.send_group(link, b"wake up", 7);
    wait_readable(rx.fd().unwrap());
    assert_eq!(receive(&mut rx, 1), [b"wake up"]);
    // Joining or leaving a group applies to the next sleep.
    b.leave(ours);
    b.join(&group(&b, id + 1)).unwrap();
    let other = a.join(&group(&a, id + 1)).unwrap();
    for (link, wakes) in [(link, false), (other, true)] {
        assert_eq!(rx.arm(), Armed::Sleep);
        a.send_group(link, b"again", 5);
        if wakes {
            wait_readable(rx.fd().unwrap());
            assert_eq!(receive(&mut rx, 1), [b"again"]);
        } else {
            assert!(is_quiet(&mut rx));
        }
    }
}

/// Gives the processes of one host time to meet, which they check for only now and then; no event
/// reports it.
fn meet(rails: &mut [(UdpTx, UdpRx)], polls: fn(&mut UdpTx, &mut UdpRx)) {
    for _ in 0..40 {
        let begun = std::time::Instant::now();
        while begun.elapsed().as_micros() < 500 {}
        for (tx, rx) in rails.iter_mut() {
            polls(tx, rx);
        }
    }
}

fn nothing_comes(tx: &mut UdpTx, rx: &mut UdpRx) {
    assert_eq!(tx.poll_event(), None);
    assert!(is_quiet(rx));
}

/// Datagrams read for the host, and taken from others, by rail.
fn host_reads(rails: &mut [(UdpTx, UdpRx)]) -> Vec<(u64, u64)> {
    let told = |tx: &mut UdpTx| {
        let (mut read, mut taken) = (0, 0);
        for _ in 0..200 {
            match tx.poll_event() {
                Some(RailEvent::HostReads { read: r, taken: t }) => {
                    (read, taken) = (read + r, taken + t)
                }
                other => assert_eq!(other, None),
            }
        }
        (read, taken)
    };
    rails.iter_mut().map(|(tx, _)| told(tx)).collect()
}

/// Shared sockets without GRO, since the lengths of joined datagrams are not known.
fn sharing() -> UdpConfig {
    UdpConfig {
        gro: false,
        share_groups: true,
        ..UdpConfig::default()
    }
}

#[test]
fn any_process_of_a_host_may_read_for_all() {
    let (hosts, _switch) = switched(1);
    hosts[0].enter();
    for address in ["10.1.0.0/24", "fd00:1::/64"] {
        let mut rails: Vec<_> = (0..4).map(|_| open(address, &sharing())).collect();
        let of = |(tx, _): &mut (UdpTx, UdpRx)| tx.join(&group(tx, 11)).unwrap();
        let links: Vec<_> = rails.iter_mut().map(of).collect();
        meet(&mut rails, nothing_comes);
        let sent = packets(20, 700);
        for reader in [0, 1, 3] {
            for part in sent.chunks(4) {
                let (tx, _) = &mut rails[2];
                tx.send_group(links[2], &part.concat(), 700);
                assert!(receive(&mut rails[reader].1, part.len()) == part);
                for (n, (_, rx)) in rails.iter_mut().enumerate() {
                    if n != reader && n != 2 {
                        assert!(receive(rx, part.len()) == part, "rail {n}");
                    }
                }
                assert!(is_quiet(&mut rails[2].1), "{address}: what it sent itself");
            }
            let told = host_reads(&mut rails);
            let others = [0, 1, 3].into_iter().filter(|n| *n != reader);
            assert_eq!(told[reader], (20, 0), "{address}: {told:?}");
            assert!(
                others.into_iter().all(|n| told[n] == (0, 20)),
                "{address}: {told:?}"
            );
        }
        // Remaining members still receive after the socket's original owner has left.
        let first = &mut rails[0].0;
        first.leave(links[0]);
        rails[3].0.send_group(links[3], &sent[0], 700);
        assert_eq!(receive(&mut rails[1].1, 1), sent[..1]);
        assert!(is_quiet(&mut rails[0].1));
    }
}

#[test]
fn a_sleeper_is_woken_by_the_reader() {
    let host = Namespace::enter_new();
    host.enter();
    let mut rails: Vec<_> = (0..3).map(|_| open("127.0.0.0/8", &sharing())).collect();
    let of = |(tx, _): &mut (UdpTx, UdpRx)| tx.join(&group(tx, 12)).unwrap();
    let links: Vec<_> = rails.iter_mut().map(of).collect();
    meet(&mut rails, nothing_comes);
    assert_eq!(rails[2].1.arm(), Armed::Sleep);
    rails[0].0.send_group(links[0], b"for two", 7);
    assert_eq!(receive(&mut rails[1].1, 1), [b"for two"]);
    wait_readable(rails[2].1.fd().unwrap());
    assert_eq!(receive(&mut rails[2].1, 1), [b"for two"]);
    // No descriptor reports datagrams that are already in the ring.
    rails[0].0.send_group(links[0], b"again", 5);
    assert_eq!(receive(&mut rails[1].1, 1), [b"again"]);
    assert_eq!(rails[2].1.arm(), Armed::LookAgain);
    assert_eq!(receive(&mut rails[2].1, 1), [b"again"]);
}

/// The early packet may be a probe that decides whether the group is used.
#[test]
fn packets_before_the_meeting_are_not_lost() {
    let host = Namespace::enter_new();
    host.enter();
    let mut rails: Vec<_> = (0..3).map(|_| open("127.0.0.0/8", &sharing())).collect();
    let of = |(tx, _): &mut (UdpTx, UdpRx)| tx.join(&group(tx, 14)).unwrap();
    let links: Vec<_> = rails.iter_mut().map(of).collect();
    rails[1].0.send_group(links[1], b"early", 5);
    meet(&mut rails, |tx, _| assert_eq!(tx.poll_event(), None));
    rails[1].0.send_group(links[1], b"later", 5);
    for reader in [2, 0] {
        assert_eq!(receive(&mut rails[reader].1, 2), [b"early", b"later"]);
    }
    let read = host_reads(&mut rails);
    assert_eq!(
        read.iter().map(|(read, _)| read).sum::<u64>(),
        2,
        "{read:?}"
    );
}

#[test]
fn a_slow_reader_loses_only_overwritten_frames() {
    let host = Namespace::enter_new();
    host.enter();
    let mut rails: Vec<_> = (0..3).map(|_| open("127.0.0.0/8", &sharing())).collect();
    let of = |(tx, _): &mut (UdpTx, UdpRx)| tx.join(&group(tx, 13)).unwrap();
    let links: Vec<_> = rails.iter_mut().map(of).collect();
    meet(&mut rails, nothing_comes);
    // 6 MB, of which the ring holds 4 MiB.
    for n in 0..6_000u32 {
        let mut packet = vec![n as u8; 1_000];
        packet[..4].copy_from_slice(&n.to_le_bytes());
        rails[0].0.send_group(links[0], &packet, 1_000);
        assert_eq!(receive(&mut rails[1].1, 1), [packet]);
    }
    let mut last = None;
    let mut count = 0;
    let (_, late) = &mut rails[2];
    while late.recv_rest(&mut |r| {
        let n = u32::from_le_bytes(*r.bytes.first_chunk().unwrap());
        assert!(last < Some(n) && r.bytes[4..].iter().all(|b| *b == n as u8));
        (last, count) = (Some(n), count + 1);
    }) > 0
    {}
    assert!(count < 4_200, "{count}");
    rails[0].0.send_group(links[0], b"on time", 7);
    assert_eq!(receive(&mut rails[2].1, 1), [b"on time"]);
    // (Its reads for others, if any, are reported as well.)
    let mut told = std::iter::from_fn(|| rails[2].0.poll_event());
    assert!(told.any(|event| event == RailEvent::ReceiverDrops(1)));
}

/// Hosts, each with an interface `rail0`, and a bridge between them as the switch, as in the lab.
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
fn each_rail_of_a_host_receives_from_its_own_network() {
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
