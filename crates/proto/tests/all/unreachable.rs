//! Peers that no local rail reaches: reported at the first operation, if that is certain.

use crate::face;

use face::{node_of, output, rail_addr, specs, Pair};
use marline_proto::{Config, Event, Node, PeerId, RailSpec, RecvSpec, SendSpec, Source};
use marline_wire::{Address, RailAddr, RailKind};

/// Rails of a host by TCP, a kind that no other rail of these tests has.
fn by_tcp(host: u8, count: u8) -> Vec<RailSpec> {
    let mut rails = specs(host, count, 1_472);
    for rail in &mut rails {
        rail.addr.kind = RailKind::Tcp4;
    }
    rails
}

fn of(host: u8, rails: Vec<RailSpec>) -> Node {
    node_of(Config::default(), host, rails)
}

fn send(node: &mut Node, peer: PeerId) -> bool {
    node.post_send(&SendSpec {
        handle: 1,
        peer,
        tag: None,
        data: None,
        len: 10,
        urgent_ack: true,
    })
}

/// Peers that were reported unreachable, and how many died for another reason.
fn told(node: &mut Node) -> (Vec<PeerId>, usize) {
    let (mut unreachable, mut dead) = (Vec::new(), 0);
    for event in std::iter::from_fn(|| node.poll_event()) {
        match event {
            Event::PeerUnreachable { peer } => unreachable.push(peer),
            Event::PeerDead { .. } => dead += 1,
            _ => {}
        }
    }
    (unreachable, dead)
}

#[test]
fn no_common_kind_is_reported_before_any_packet() {
    let (mut a, b) = (of(1, specs(1, 2, 1_472)), of(2, by_tcp(2, 2)));
    let peer = a.peer(&b.address());
    assert!(!send(&mut a, peer), "the send is refused");
    assert_eq!(told(&mut a), (vec![peer], 0));
    assert!(output(&mut a, 1_000, false).is_empty());
    assert!(!send(&mut a, peer));
    assert_eq!(told(&mut a), (vec![], 0), "once");
}

#[test]
fn a_receive_from_a_peer_out_of_reach_ends_at_once() {
    let (mut a, b) = (of(1, specs(1, 1, 1_472)), of(2, by_tcp(2, 1)));
    let peer = a.peer(&b.address());
    let spec = RecvSpec {
        handle: 2,
        source: Source::Peer(peer),
        tag: None,
        capacity: 100,
        multi_min: None,
    };
    a.post_recv(&spec, 1_000);
    let events: Vec<Event> = std::iter::from_fn(|| a.poll_event()).collect();
    let has = |wanted: &dyn Fn(&Event) -> bool| events.iter().any(wanted);
    assert!(
        has(&|e| matches!(e, Event::PeerUnreachable { .. })),
        "{events:?}"
    );
    assert!(
        has(&|e| matches!(e, Event::RecvFailed { handle: 2 })),
        "{events:?}"
    );
}

/// Rails of one kind in networks without a connection.
#[test]
fn no_common_network_is_reported() {
    let rail = |network, host| {
        let mut rails = specs(host, 1, 1_472);
        rails[0].addr = rail_addr(network, host, 0, 1_472);
        rails
    };
    let (mut a, b) = (of(1, rail(0, 1)), of(2, rail(1, 2)));
    let peer = a.peer(&b.address());
    assert!(!send(&mut a, peer));
    assert_eq!(told(&mut a).0, [peer]);
}

/// The address of a peer with more rails than fit says so: the peer may be reached by a rail that
/// is not in it. So may a peer that waits for a rail, and a node that waits for a rail may reach
/// more.
#[test]
fn nothing_is_certain_while_rails_are_unnamed_or_awaited() {
    let many = of(2, by_tcp(2, 20));
    assert!(many.address().has_more);
    let mut waits = by_tcp(2, 2);
    waits[1].addr = RailAddr::NONE;
    let waits = of(2, waits);
    assert!(waits.address().has_more);
    for b in [many, waits] {
        let mut a = of(1, specs(1, 2, 1_472));
        let (blob, len) = b.address().encode();
        let peer = a.peer(&Address::decode(&blob[..len]).unwrap());
        assert!(send(&mut a, peer));
        assert_eq!(told(&mut a), (vec![], 0));
    }
    let mut awaiting = specs(1, 2, 1_472);
    awaiting[1].addr = RailAddr::NONE;
    let mut a = of(1, awaiting);
    let peer = a.peer(&of(2, by_tcp(2, 1)).address());
    assert!(send(&mut a, peer));
    assert_eq!(told(&mut a), (vec![], 0));
}

/// The silence of a peer that was never heard starts with the first wait for it, no sooner.
#[test]
fn a_peer_never_heard_gets_the_whole_timeout() {
    let many = of(2, by_tcp(2, 20));
    let mut a = of(1, specs(1, 2, 1_472));
    let peer = a.peer(&many.address());
    let start = 60_000_000_000;
    let spec = RecvSpec {
        handle: 2,
        source: Source::Peer(peer),
        tag: None,
        capacity: 100,
        multi_min: None,
    };
    a.post_recv(&spec, start);
    let timeout = Config::default().peer_timeout_ns;
    let mut died = None;
    for now in (start..start + 3 * timeout).step_by(10_000_000) {
        a.handle_timeouts(now);
        assert!(output(&mut a, now, false).is_empty(), "there is no path");
        if died.is_none() && told(&mut a).1 > 0 {
            died = Some(now - start);
        }
    }
    let died = died.expect("it is dead at last");
    assert!(died >= timeout, "after {died} ns");
}

/// Without a report if rails reach each other.
#[test]
fn a_reachable_peer_is_not_reported() {
    let mut pair = Pair::new(2, true);
    pair.message(2, 100);
    pair.settle();
    assert_eq!(told(&mut pair.a), (vec![], 0));
}
