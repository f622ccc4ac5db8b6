//! More rail pairs in one subnet than paths: every rail gets its share.

use crate::face;

use face::{done, in_one_network, node_of, output, specs, take, Flying, Pair};
use marline_proto::{Config, Event, Node, PathState, PathStats};
use marline_wire::Packet;

/// A node with this many rails, all in one subnet.
fn node(config: Config, host: u8, rails: u8) -> Node {
    let mut specs = specs(host, rails, 1_472);
    in_one_network(&mut specs, host);
    node_of(config, host, specs)
}

fn pair(rails: (u8, u8)) -> Pair {
    pair_with(Config::default(), rails)
}

fn pair_with(config: Config, rails: (u8, u8)) -> Pair {
    let nodes = [node(config, 1, rails.0), node(config, 2, rails.1)];
    let mut pair = Pair::of(nodes, false);
    pair.message(1, 2_000);
    pair.settle();
    assert!(done(&mut pair.a, 1));
    pair
}

/// Proven paths: local and remote rail.
fn paths(node: &Node) -> Vec<(u8, u8)> {
    let mut up = Vec::new();
    node.for_each_peer(|_, _, _, paths| {
        up.extend(paths.filter(|p| p.2 == PathState::Up).map(|p| (p.0, p.1)));
    });
    up
}

const COUNTS: [(u8, u8); 9] = [
    (1, 1),
    (2, 2),
    (4, 4),
    (5, 5),
    (6, 6),
    (7, 7),
    (8, 8),
    (3, 8),
    (8, 2),
];

#[test]
fn every_rail_has_its_share() {
    for rails in COUNTS {
        let pair = pair(rails);
        for (node, local, remote) in [(&pair.a, rails.0, rails.1), (&pair.b, rails.1, rails.0)] {
            let paths = paths(node);
            let least = (local as usize * remote as usize).min(16);
            assert!(paths.len() >= least && paths.len() <= 32, "{paths:?}");
            let from = |rail| paths.iter().filter(|p| p.0 == rail).count();
            let to = |rail| paths.iter().filter(|p| p.1 == rail).count();
            // An even share of 16 paths, less those that first contact gave to two rails.
            let share = |of: u8| (least / of as usize).div_ceil(2);
            assert!(
                (0..local).all(|r| from(r) >= share(local)),
                "{rails:?}: {paths:?}"
            );
            assert!(
                (0..remote).all(|r| to(r) >= share(remote)),
                "{rails:?}: {paths:?}"
            );
        }
    }
}

/// Sixteen rails on each side have 256 paths, if configured: each is found by its code, proven, and
/// carries packets both ways.
#[test]
fn sixteen_rails_reach_sixteen_by_all_paths() {
    let config = Config {
        paths: 256,
        ..Config::default()
    };
    let mut pair = pair_with(config, (16, 16));
    pair.message(2, 8 << 20);
    pair.settle();
    assert!(done(&mut pair.a, 2));
    for node in [&pair.a, &pair.b] {
        let mut paths = paths(node);
        paths.sort_unstable();
        let all = (0..16).flat_map(|local| (0..16).map(move |remote| (local, remote)));
        assert!(all.eq(paths), "all of them, each once");
    }
    // Which paths carry most depends on their rates.
    let mut carried = 0;
    pair.a.for_each_peer(|_, _, _, paths| {
        let both = |s: &PathStats| s.packets_sent > 0 && s.packets_received > 0;
        carried = paths.filter(|p| both(&p.3)).count();
    });
    assert_eq!(carried, 256, "paths that carry packets both ways");
}

/// With more rails, each rail has two paths, whatever the number of rails.
#[test]
fn more_rails_have_two_paths_each() {
    for rails in [11, 16, 32] {
        let pair = pair((rails, rails));
        let paths = paths(&pair.a);
        let (least, most) = (2 * rails as usize, 4 * rails as usize);
        assert!(
            (least..=most).contains(&paths.len()),
            "{} paths",
            paths.len()
        );
        for rail in 0..rails {
            assert!(paths.iter().any(|p| p.0 == rail) && paths.iter().any(|p| p.1 == rail));
        }
    }
}

/// Packets of a node that no down rail would have carried; `down` by side.
fn carried(node: &mut Node, now: u64, down: [&[usize]; 2]) -> Vec<Flying> {
    let mut packets = output(node, now, false);
    packets.retain(|(rail, bytes)| {
        let remote = Packet::parse(bytes, |_| 0).unwrap().header.dst_rail();
        !down[0].contains(rail) && !down[1].contains(&remote)
    });
    packets
}

/// True if a message arrives and no peer counts as dead.
fn gets_through(pair: &mut Pair, down: [&[usize]; 2]) -> bool {
    pair.message(2, 100_000);
    let end = pair.now + 4_000_000_000;
    while pair.now < end {
        pair.now += 100_000;
        for node in [&mut pair.a, &mut pair.b] {
            node.on_poll(pair.now, false);
            node.handle_timeouts(pair.now);
        }
        let there = carried(&mut pair.a, pair.now, down);
        take(&mut pair.b, pair.now, &there);
        let back = carried(&mut pair.b, pair.now, [down[1], down[0]]);
        take(&mut pair.a, pair.now, &back);
        while let Some(event) = pair.a.poll_event() {
            match event {
                Event::SendDone { handle: 2, ok } => return ok,
                Event::PeerDead { .. } => return false,
                _ => {}
            }
        }
    }
    false
}

/// Any two rails may fail silently, as long as each side has one more.
#[test]
fn two_rails_down_are_no_death() {
    for (a, b) in [(5, 5), (6, 6), (8, 8), (3, 8)] {
        let all = (0..a).map(|r| (0, r)).chain((0..b).map(|r| (1, r)));
        let all: Vec<(usize, usize)> = all.map(|(side, r)| (side, r as usize)).collect();
        for (n, one) in all.iter().enumerate() {
            for two in &all[n + 1..] {
                let of = |side| [one, two].into_iter().filter(move |r| r.0 == side);
                let down: [Vec<usize>; 2] = [0, 1].map(|side| of(side).map(|r| r.1).collect());
                let mut pair = pair((a, b));
                let through = gets_through(&mut pair, [&down[0], &down[1]]);
                assert!(through, "{a} and {b} rails, down are {down:?}");
            }
        }
    }
}

/// The rails of the first paths fail, until two are left on each side.
#[test]
fn the_last_two_rails_reach_each_other() {
    for rails in 5..=8 {
        let mut pair = pair((rails, rails));
        let down: Vec<usize> = (0..rails as usize - 2).collect();
        assert!(gets_through(&mut pair, [&down, &down]), "{rails} rails");
    }
}
