//! Rails whose address changes during a connection (docs/design/moving-addresses.md).

use crate::face;

use face::{node_of, rail_addr, specs, Pair};
use marline_proto::{LinkAsk, Node, PathState, PeerId};
use marline_wire::{Packet, RailAddr};

const MS: u64 = 1_000_000;

/// The address of rail 1 of a host after it moved; the third byte makes addresses differ.
fn elsewhere(host: u8, times: u8) -> RailAddr {
    let mut addr = rail_addr(1, host, 100 + times, 1_472);
    addr.index = 1;
    addr
}

/// Opens the links that a node asks for; returns their remote addresses.
fn opened(node: &mut Node, now: u64) -> Vec<RailAddr> {
    let mut opened = Vec::new();
    while let Some(ask) = node.poll_link() {
        if let LinkAsk::Open { peer, path, to, .. } = ask {
            opened.push(to);
            node.on_linked(now, peer, path, to.index.into(), true);
        }
    }
    opened
}

/// State and packets sent of each path of a node to its only peer.
fn paths(node: &Node) -> Vec<(PathState, u64)> {
    let mut all = Vec::new();
    node.for_each_peer(|_, _, _, paths| {
        all = paths
            .map(|(_, _, state, stats)| (state, stats.packets_sent))
            .collect();
    });
    all
}

/// A step of both nodes. Packets (by sender and rail) arrive if `passes` accepts them; the
/// addresses of opened links are added to `led`, by node.
fn step(
    pair: &mut Pair,
    led: &mut [Vec<RailAddr>; 2],
    passes: &mut dyn FnMut(usize, usize) -> bool,
) {
    let deadlines = [&pair.a, &pair.b].map(|node| node.next_deadline().unwrap_or(u64::MAX));
    let next = deadlines.into_iter().min().unwrap_or(0);
    pair.now = (pair.now + 20_000).max(next.min(pair.now + MS));
    for from in [0, 1] {
        let (sender, taker) = match from {
            0 => (&mut pair.a, &mut pair.b),
            _ => (&mut pair.b, &mut pair.a),
        };
        sender.on_poll(pair.now, false);
        sender.handle_timeouts(pair.now);
        led[from].extend(opened(sender, pair.now));
        let mut packets = face::output(sender, pair.now, false);
        packets.retain(|(rail, _)| passes(from, *rail));
        face::take(taker, pair.now, &packets);
    }
}

/// Runs both for so long; packets on rail 1 arrive only if `carries`. Returns the addresses of the
/// links opened by `a` and by `b`.
fn run(pair: &mut Pair, for_ns: u64, carries: bool) -> [Vec<RailAddr>; 2] {
    let (end, mut led) = (pair.now + for_ns, [Vec::new(), Vec::new()]);
    while pair.now < end {
        step(pair, &mut led, &mut |_, rail| carries || rail != 1);
    }
    led
}

/// Moves rail 1 of `a`, which has no address for a while before.
fn moves(pair: &mut Pair, times: u8) {
    pair.a.on_rail(pair.now, 1, true);
    run(pair, 5 * MS, false);
    pair.a.on_rail_address(pair.now, 1, elsewhere(1, times));
    pair.a.on_rail(pair.now, 1, false);
}

fn all_up(pair: &Pair) -> bool {
    let up = |node: &Node| paths(node).iter().all(|(state, _)| *state == PathState::Up);
    up(&pair.a) && up(&pair.b)
}

#[test]
fn a_peer_follows_a_rail_that_moves_several_times() {
    let mut pair = Pair::new(2, false);
    assert!(all_up(&pair));
    for times in 1..=3 {
        moves(&mut pair, times);
        pair.message(10 + u32::from(times), 50_000);
        let [from_a, from_b] = run(&mut pair, 2_000 * MS, true);
        assert_eq!(from_b, [elsewhere(1, times)], "one link more, to there");
        assert_eq!(from_a, []);
        assert!(all_up(&pair), "{:?} {:?}", paths(&pair.a), paths(&pair.b));
        pair.settle();
    }
}

#[test]
fn both_ends_may_move_at_once() {
    let mut pair = Pair::new(2, false);
    let now = pair.now;
    pair.a.on_rail_address(now, 1, elsewhere(1, 1));
    pair.b.on_rail_address(now, 1, elsewhere(2, 1));
    let [from_a, from_b] = run(&mut pair, 2_000 * MS, true);
    assert_eq!(
        (from_a, from_b),
        (vec![elsewhere(2, 1)], vec![elsewhere(1, 1)])
    );
    assert!(all_up(&pair));
    pair.settle();
}

#[test]
fn a_lost_address_is_announced_again_without_other_traffic() {
    let mut pair = Pair::new(2, false);
    pair.a.on_rail_address(pair.now, 1, elsewhere(1, 1));
    let (end, mut said, mut led) = (pair.now + 100 * MS, 0, Default::default());
    while pair.now < end {
        step(&mut pair, &mut led, &mut |from, _| {
            said += usize::from(from == 0);
            false
        });
    }
    assert!((2..200).contains(&said), "said {said} times");
    let [_, from_b] = run(&mut pair, 2_000 * MS, true);
    assert_eq!(from_b, [elsewhere(1, 1)]);
    pair.settle();
}

#[test]
fn late_and_foreign_hellos_change_nothing() {
    let mut pair = Pair::new(2, false);
    pair.a.on_rail_address(pair.now, 1, elsewhere(1, 1));
    let first = pair.alone();
    pair.a.on_rail_address(pair.now, 1, elsewhere(1, 2));
    let second = pair.alone();
    assert!(!first.is_empty() && !second.is_empty());
    face::take(&mut pair.b, pair.now, &second);
    assert_eq!(opened(&mut pair.b, pair.now), [elsewhere(1, 2)]);
    face::take(&mut pair.b, pair.now, &first);
    assert_eq!(opened(&mut pair.b, pair.now), []);
    // Another node with the id of `a` in another life, which does not know its token.
    let specs = face::specs(1, 2, 1_472);
    let life = (101, 8, 1);
    let mut other = Node::new(Default::default(), life, specs, &face::InOneNetwork);
    let to: PeerId = other.peer(&pair.b.address());
    other.on_rail_address(pair.now, 1, elsewhere(1, 3));
    other.post_send(&marline_proto::SendSpec {
        handle: 1,
        peer: to,
        tag: None,
        data: None,
        len: 10,
        urgent_ack: true,
    });
    for (_, bytes) in face::output(&mut other, pair.now, false) {
        let packet = Packet::parse(&bytes, |_| 0).unwrap();
        let taken = pair
            .b
            .handle_packet(pair.now, &packet, bytes.len(), &mut face::Anywhere);
        let _ = taken; // accepted or not
    }
    assert_eq!(opened(&mut pair.b, pair.now), []);
    pair.settle();
}

#[test]
fn first_contact_after_a_move_finds_the_new_address() {
    let nodes = [1, 2].map(|host| face::node(host, 2));
    let mut pair = Pair::of(nodes, false); // knows the old address
    pair.b.on_rail_address(pair.now, 1, elsewhere(2, 1));
    pair.message(1, 2_000);
    let [from_a, _] = run(&mut pair, 2_000 * MS, true);
    assert!(from_a.contains(&elsewhere(2, 1)), "{from_a:?}");
    assert!(all_up(&pair));
    pair.settle();
}

/// Two nodes whose rails 1 wait for their interfaces.
fn awaiting() -> Pair {
    let nodes = [1, 2].map(|host| {
        let mut rails = specs(host, 2, 1_472);
        rails[1].addr = RailAddr::NONE;
        rails[1].addr.index = 1;
        node_of(Default::default(), host, rails)
    });
    let mut pair = Pair::of(nodes, false);
    for node in [&mut pair.a, &mut pair.b] {
        node.on_rail(1_000, 1, true);
    }
    pair
}

/// The interface of rail 1 appears.
fn comes(node: &mut Node, now: u64, host: u8) {
    let mut addr = rail_addr(1, host, 1, 1_472);
    addr.index = 1;
    node.on_rail_address(now, 1, addr);
    node.on_rail(now, 1, false);
}

/// Checks that both have a second path, which carries.
fn by_two(pair: &mut Pair) {
    for handle in 20..40 {
        pair.message(handle, 100_000);
        run(pair, 20 * MS, true);
    }
    for node in [&pair.a, &pair.b] {
        let paths = paths(node);
        assert_eq!(paths.len(), 2, "{paths:?}");
        assert!(
            paths.iter().all(|p| p.0 == PathState::Up && p.1 > 2),
            "{paths:?}"
        );
    }
    pair.settle();
}

#[test]
fn rails_that_appear_later_are_used_in_any_order() {
    for before in [true, false] {
        for (first, second) in [(0, 1), (1, 0)] {
            let mut pair = awaiting();
            let meet = |pair: &mut Pair| {
                pair.message(1, 2_000);
                run(pair, 100 * MS, true);
                assert_eq!(paths(&pair.a).len(), 1);
            };
            if before {
                meet(&mut pair);
            }
            let now = pair.now;
            for (turn, host) in [first, second].into_iter().enumerate() {
                let node = if host == 0 { &mut pair.a } else { &mut pair.b };
                comes(node, now, host + 1);
                if turn == 0 && !before {
                    meet(&mut pair);
                }
                run(&mut pair, 100 * MS, true);
            }
            by_two(&mut pair);
        }
    }
}

#[test]
fn a_waiting_rail_is_not_announced() {
    let mut pair = awaiting();
    assert_eq!(pair.b.address().rails().iter().count(), 1);
    pair.message(1, 2_000);
    pair.settle();
    assert_eq!((paths(&pair.a).len(), paths(&pair.b).len()), (1, 1));
}
