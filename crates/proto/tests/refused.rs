//! Hosts that say that nobody listens: who is taken for dead by that, and who is not.

mod face;

use face::{done, node_with, specs, Flying, Pair};
use marline_proto::{Config, Event, Node, PathState, RailSpec};
use marline_wire::{Packet, RailAddr};

const MS: u64 = 1_000_000;

/// Packets of a node that meet nobody on some rails: each is refused there.
fn refuse(node: &mut Node, now: u64, packets: &[Flying], to: &Node, rails: &[usize]) {
    for (rail, bytes) in packets.iter().filter(|p| rails.contains(&p.0)) {
        let packet = Packet::parse(bytes, |_| 0).unwrap();
        let remote = packet.header.path as usize & 0xf;
        node.on_refused(now, *rail, &addresses(to)[remote]);
    }
}

/// The addresses of the rails of a node, which all have the same port.
fn addresses(node: &Node) -> Vec<RailAddr> {
    let host = (node.id() - 100) as u8;
    specs(host, 4, 1_472).iter().map(|r| r.addr).collect()
}

/// Whom a node took for dead: whether for refusals.
fn deaths(node: &mut Node) -> Vec<bool> {
    let events = std::iter::from_fn(|| node.poll_event());
    let refused = |e| match e {
        Event::PeerDead { refused, .. } => Some(refused),
        _ => None,
    };
    events.filter_map(refused).collect()
}

/// The receiver is stopped, or gone: nothing is heard of it for so long. Who it was dead for.
fn silence(pair: &mut Pair, ns: u64, refusing: &[usize]) -> Vec<bool> {
    let end = pair.now + ns;
    let mut dead = Vec::new();
    while pair.now < end && dead.is_empty() {
        let sent = pair.alone();
        refuse(&mut pair.a, pair.now, &sent, &pair.b, refusing);
        dead = deaths(&mut pair.a);
    }
    dead
}

/// The receiver is back: whether the message arrives within a second.
fn arrives(pair: &mut Pair, handle: u32) -> bool {
    let end = pair.now + 1_000 * MS;
    while pair.now < end {
        pair.step();
        if done(&mut pair.a, handle) {
            return true;
        }
    }
    false
}

#[test]
fn a_peer_whose_every_path_is_refused_is_gone() {
    for rails in 1..=2 {
        let mut pair = Pair::new(rails, true);
        pair.send(2, 100);
        let before = pair.now;
        assert_eq!(silence(&mut pair, 5_500 * MS, &[0, 1]), [true]);
        let took = pair.now - before;
        assert!(took < 300 * MS, "{took} ns with {rails} rails");
    }
}

/// A firewall rejects what comes by one rail, while the process is stopped for less long than it
/// is waited for.
#[test]
fn one_rail_that_refuses_is_no_death() {
    let mut pair = Pair::new(2, true);
    pair.send(2, 100);
    assert_eq!(silence(&mut pair, 4_000 * MS, &[0]), []);
    assert!(arrives(&mut pair, 2), "it goes on on the other rail");
}

/// Refusals before the peer was heard again are forgotten.
#[test]
fn a_word_of_the_peer_outweighs_refusals() {
    let mut pair = Pair::new(2, true);
    pair.send(2, 100);
    assert_eq!(silence(&mut pair, 1_000 * MS, &[0]), []);
    assert!(arrives(&mut pair, 2));
    pair.send(3, 100);
    assert_eq!(silence(&mut pair, 1_000 * MS, &[1]), []);
    assert!(arrives(&mut pair, 3));
}

/// Without a reason the silence is waited out, as ever.
#[test]
fn a_silent_path_beside_one_that_refuses_dies_of_silence() {
    let mut pair = Pair::new(2, true);
    pair.send(2, 100);
    let before = pair.now;
    assert_eq!(silence(&mut pair, 8_000 * MS, &[0]), [false]);
    let took = pair.now - before;
    assert!(took >= 5_000 * MS, "{took} ns");
}

/// Until a peer has answered its address may be somebody else's.
#[test]
fn who_was_never_heard_is_not_gone_by_refusals() {
    let nodes = [1, 2].map(|host| node_with(Config::default(), host, 2));
    let mut pair = Pair::of(nodes, true);
    pair.message(2, 100);
    assert_eq!(silence(&mut pair, 4_000 * MS, &[0, 1]), []);
    assert!(arrives(&mut pair, 2));
}

/// A node that closes is not released by the refusals of one rail: the other end may still wait for
/// the acks that its BYE brings.
#[test]
fn one_rail_that_refuses_hears_no_bye() {
    let mut pair = Pair::new(2, true);
    pair.a.say_bye();
    let sent = pair.alone();
    assert!(sent.iter().any(|p| p.0 == 0) && sent.iter().any(|p| p.0 == 1));
    refuse(&mut pair.a, pair.now, &sent, &pair.b, &[0]);
    assert!(!pair.a.parted(), "a rail is left");
    refuse(&mut pair.a, pair.now, &sent, &pair.b, &[1]);
    assert!(pair.a.parted(), "nobody is there");
}

/// Rails of a host, the last of which is a bridge for containers: one address everywhere.
fn with_bridge(host: u8, rails: u8) -> Vec<RailSpec> {
    let mut specs = specs(host, rails + 1, 1_472);
    let bridge = &mut specs[rails as usize].addr;
    bridge.ip[..4].copy_from_slice(&[172, 17, 0, 1]);
    bridge.port = 4_000 + host as u16;
    specs
}

fn path_states(node: &Node) -> Vec<(u8, u8, PathState)> {
    let mut states = Vec::new();
    node.for_each_peer(|_, _, _, paths| states.extend(paths.map(|(l, r, s, _)| (l, r, s))));
    states
}

fn of_specs(id: u64, specs: Vec<RailSpec>) -> Node {
    Node::new(Config::default(), id, 7, 1, specs)
}

/// The peer's bridge has our own address: a packet for it does not leave this host.
#[test]
fn an_address_that_is_also_ours_is_no_path() {
    let nodes = [1, 2].map(|host| of_specs(100 + host as u64, with_bridge(host, 1)));
    let mut pair = Pair::of(nodes, true);
    pair.message(2, 100);
    pair.settle();
    assert!(done(&mut pair.a, 2));
    for node in [&pair.a, &pair.b] {
        assert_eq!(path_states(node), [(0, 0, PathState::Up)]);
    }
}

/// Also where the address blob names the bridge first.
#[test]
fn a_bridge_that_comes_first_is_no_path() {
    let turned = |host: u8| {
        let mut specs = with_bridge(host, 1);
        specs.reverse();
        specs
            .iter_mut()
            .zip(0..)
            .for_each(|(s, i)| s.addr.index = i);
        of_specs(100 + host as u64, specs)
    };
    let mut pair = Pair::of([1, 2].map(turned), true);
    pair.message(2, 100);
    pair.settle();
    assert!(done(&mut pair.a, 2));
    assert_eq!(path_states(&pair.a), [(1, 1, PathState::Up)]);
}

/// Two processes of one host have the same addresses, and speak by them; also where one of them
/// uses a rail more.
#[test]
fn processes_of_one_host_keep_their_paths() {
    for (more, paths) in [(0, 2), (1, 2)] {
        let mut second = with_bridge(1, 1 + more);
        second.iter_mut().for_each(|s| s.addr.port = 4_002);
        let nodes = [of_specs(101, with_bridge(1, 1)), of_specs(102, second)];
        let mut pair = Pair::of(nodes, true);
        pair.message(2, 100);
        pair.settle();
        assert!(done(&mut pair.a, 2));
        let up = path_states(&pair.a);
        let up = up.iter().filter(|s| s.2 == PathState::Up).count();
        assert!(up >= paths, "{:?}", path_states(&pair.a));
    }
}
