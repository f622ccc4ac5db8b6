//! Refusals count only from the rail's own host, not from hosts on the way.

use crate::common;

use common::{join, open_default, port_of, tool, Namespace, SendTo};
use marline_rails::{
    choose_interfaces, DownReason, Links, Rail, RailEvent, RailRx, RailTx, TcpConfig, TcpRail,
    TcpTx, UdpTx,
};
use marline_wire::RailAddr;
use std::process::Command;
use std::time::Instant;

/// Polls of a rail's events: more than the period of error queue checks.
const LOOKS: usize = 10_000;
/// The networks on both sides of the router.
const NETS: [(&str, &str); 2] = [
    ("10.1.0.0/24", "10.2.0.0/24"),
    ("fd00:1::/64", "fd00:2::/64"),
];

/// Two hosts with a router between them; the thread is in the first.
fn routed() -> [Namespace; 3] {
    let hosts = [(); 3].map(|()| Namespace::enter_new());
    let [a, router, b] = &hosts;
    for host in &hosts {
        host.enter();
        // No rate limit, so that every packet is refused.
        for setting in ["net.ipv4.icmp_ratelimit=0", "net.ipv6.icmp.ratelimit=0"] {
            tool("sysctl", &format!("-qw {setting}"), "procps");
        }
    }
    join(a, router, "near", 1);
    join(router, b, "far", 2);
    a.ip("route add 10.2.0.0/24 via 10.1.0.2");
    a.ip("route add fd00:2::/64 via fd00:1::2");
    b.ip("route add 10.1.0.0/24 via 10.2.0.1");
    b.ip("route add fd00:1::/64 via fd00:2::1");
    router.ip("addr add fe80::1/64 dev far nodad"); // it solicits neighbours from this address
    for setting in ["net.ipv4.ip_forward=1", "net.ipv6.conf.all.forwarding=1"] {
        tool("sysctl", &format!("-qw {setting}"), "procps");
    }
    a.enter();
    hosts
}

/// A firewall in the thread's namespace rejects packets to these ports at `hook`.
fn bar(hook: &str, ports: &str) {
    tool("nft", "add table inet bar", "nftables");
    let chain = format!("add chain inet bar c {{ type filter hook {hook} priority 0 ; }}");
    tool("nft", &chain, "nftables");
    let rule = format!("add rule inet bar c {ports} counter reject");
    tool("nft", &rule, "nftables");
}

/// Number of packets that the firewall rejected.
fn barred() -> u64 {
    let shown = Command::new("nft")
        .args(["list", "table", "inet", "bar"])
        .output()
        .unwrap();
    let text = String::from_utf8(shown.stdout).unwrap();
    let mut words = text.split_whitespace();
    words.find(|word| *word == "packets").expect("a counter");
    words.next().unwrap().parse().unwrap()
}

/// The rails of a living and of a dead process on the second host.
fn living_and_dead(b: &Namespace, address: &str) -> (impl RailTx, RailAddr, RailAddr) {
    b.enter();
    let (peer, _rx) = open_default(address);
    let (gone, _) = open_default(address);
    let addrs = (peer.local_addr(), gone.local_addr());
    drop(gone);
    (peer, addrs.0, addrs.1)
}

/// Sends to both processes until the dead one's host refuses; the living one's link must not be
/// refused.
fn only_the_dead_is_refused(tx: &mut UdpTx, living: &RailAddr, dead: &RailAddr) {
    let (lives, gone) = (tx.connect(living).link, tx.connect(dead).link);
    let (start, mut told, mut barred) = (Instant::now(), 0, 0);
    // First on the unconnected socket, then on the connected sockets of frequent destinations.
    while told < 20 {
        assert!(start.elapsed().as_secs() < 30, "nobody refuses");
        tx.send_to(living, b"anyone?", 7, 0);
        tx.send_to(dead, b"anyone?", 7, 0);
        for _ in 0..LOOKS {
            match tx.poll_event() {
                Some(RailEvent::Refused(link)) if link == gone => told += 1,
                Some(RailEvent::Barred(_)) => barred += 1,
                Some(RailEvent::Refused(link)) => assert_ne!(link, lives, "it was not its host"),
                _ => {}
            }
        }
    }
    assert!(barred > 0, "the one who refuses is told of");
}

/// One of the hosts rejects packets to the living process, which runs on another host.
fn a_refusal_of(host: usize, hook: &str) {
    let hosts = routed();
    for (here, there) in NETS {
        let (_peer, living, dead) = living_and_dead(&hosts[2], there);
        hosts[host].enter();
        bar(hook, &format!("udp dport {}", port_of(&living)));
        hosts[0].enter();
        let (mut tx, _back) = open_default(here);
        only_the_dead_is_refused(&mut tx, &living, &dead);
        hosts[host].enter();
        assert!(barred() >= 20, "it has refused");
        tool("nft", "delete table inet bar", "nftables");
    }
}

#[test]
fn a_routers_refusal_is_not_the_peers() {
    a_refusal_of(1, "forward");
}

#[test]
fn the_local_hosts_refusal_is_not_the_peers() {
    a_refusal_of(0, "output");
}

/// The reason for which a requested link goes down.
fn why_down(tx: &mut TcpTx, rx: &mut impl RailRx, to: &RailAddr) -> DownReason {
    let link = tx.connect(to).link;
    let start = Instant::now();
    loop {
        assert!(start.elapsed().as_secs() < 60, "it does not go down");
        rx.recv(&mut |_| panic!("nothing was sent here"));
        if let Some(RailEvent::LinkDown(of, why)) = tx.poll_event() {
            assert_eq!(of, link);
            tx.close(link);
            return why;
        }
    }
}

#[test]
fn a_connection_that_a_router_refuses_is_not_refused_by_the_peers_host() {
    let [a, router, b] = routed();
    for (here, there) in NETS {
        let open = |address: &str| {
            let choice = choose_interfaces(&[address.to_owned()]).unwrap();
            TcpRail::open(&choice[0], &TcpConfig::default()).unwrap()
        };
        b.enter();
        let gone = open(there).split().0.local_addr();
        a.enter();
        let (mut tx, mut rx) = open(here).split();
        assert_eq!(why_down(&mut tx, &mut rx, &gone), DownReason::Refused);
        router.enter();
        bar("forward", "tcp dport 1-65535");
        a.enter();
        let why = why_down(&mut tx, &mut rx, &gone);
        assert_eq!(
            why,
            DownReason::Broken(libc::EHOSTUNREACH),
            "somebody else says so"
        );
        router.enter();
        assert!(barred() > 0, "the router has refused");
        tool("nft", "delete table inet bar", "nftables");
    }
}
