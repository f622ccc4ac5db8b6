//! Standby rails: used for peers that no preferred rail reaches, and for no others.

use crate::face;

use face::{backed, done, node_of, specs, Pair};
use marline_proto::{Config, Node, PathState, PeerStats, RailPolicy};
use marline_wire::RailAddr;

fn pair() -> Pair {
    Pair::of(
        [1, 2].map(|host| node_of(Config::default(), host, backed(host))),
        false,
    )
}

/// Local rail, state and packets sent of a node's paths.
fn paths(node: &Node) -> Vec<(u8, PathState, u64)> {
    let mut all = Vec::new();
    node.for_each_peer(|_, _, _: &PeerStats, paths| {
        all.extend(paths.map(|(rail, _, state, stats)| (rail, state, stats.packets_sent)));
    });
    all
}

/// Steps until a send is done; true if that is within the time.
fn arrives(pair: &mut Pair, handle: u32, within_ns: u64, blocked: Option<usize>) -> bool {
    let end = pair.now + within_ns;
    while pair.now < end {
        pair.step_through(&mut |_, rail, _| Some(rail) != blocked);
        if done(&mut pair.a, handle) {
            return true;
        }
    }
    false
}

const SECOND: u64 = 1_000_000_000;

#[test]
fn a_standby_rail_is_unused_and_unannounced_at_first() {
    let mut pair = pair();
    assert_eq!(pair.a.address().rails().iter().count(), 1);
    pair.message(2, 100_000);
    pair.settle();
    for node in [&pair.a, &pair.b] {
        let rails: Vec<u8> = paths(node).iter().map(|path| path.0).collect();
        assert_eq!(rails, [0]);
    }
}

#[test]
fn a_standby_rail_carries_first_contact() {
    let mut pair = pair();
    pair.message(2, 100_000);
    assert!(arrives(&mut pair, 2, SECOND, Some(0)));
    for node in [&pair.a, &pair.b] {
        let [.., (rail, state, sent)] = paths(node)[..] else {
            panic!("no path");
        };
        assert_eq!((rail, state), (1, PathState::Up));
        assert!(sent > 0);
    }
}

#[test]
fn a_standby_rail_carries_until_the_preferred_rail_is_back() {
    let mut pair = pair();
    pair.message(2, 100_000);
    assert!(arrives(&mut pair, 2, SECOND, None));
    pair.message(3, 100_000);
    assert!(arrives(&mut pair, 3, SECOND, Some(0)));
    // The preferred rail answers its probes again.
    let mut handle = 4;
    let up = |pair: &Pair| paths(&pair.a)[0].1 == PathState::Up;
    while !up(&pair) && handle < 1_000 {
        pair.message(handle, 100);
        assert!(arrives(&mut pair, handle, SECOND, None));
        handle += 1;
    }
    assert!(up(&pair), "{:?}", paths(&pair.a));
    pair.settle();
    let (first, behind) = (paths(&pair.a)[0].2, paths(&pair.a)[1].2);
    pair.message(handle, 200_000);
    assert!(arrives(&mut pair, handle, SECOND, None));
    let after = paths(&pair.a);
    assert!(after[0].2 > first + 100);
    assert!(after[1].2 < behind + 10, "it carries no data: {after:?}");
}

/// Of two kinds of rails that reach a peer the preferred kind carries, whichever is first.
#[test]
fn the_preferred_kind_carries() {
    for (kind, preferred) in [
        (marline_wire::RailKind::Loopback, 1),
        (marline_wire::RailKind::Udp4, 0),
    ] {
        let config = Config {
            policy: RailPolicy::Prefer(match kind {
                marline_wire::RailKind::Udp4 => &[marline_wire::RailKind::Udp4],
                _ => &[marline_wire::RailKind::Loopback],
            }),
            ..Config::default()
        };
        let nodes = [1, 2].map(|host| {
            let mut rails = specs(host, 2, 1_472);
            let mut udp = marline_wire::RailAddr::new(marline_wire::RailKind::Udp4, &[9, host, 9]);
            (udp.index, udp.datagram_max) = (0, 1_472);
            rails[0].addr = udp;
            node_of(config, host, rails)
        });
        let mut pair = Pair::of(nodes, false);
        pair.message(2, 10_000);
        pair.settle();
        let before = paths(&pair.a);
        pair.message(3, 400_000);
        pair.settle();
        let sent: Vec<u64> = paths(&pair.a)
            .iter()
            .zip(&before)
            .map(|(a, b)| a.2 - b.2)
            .collect();
        assert!(
            sent[preferred] > 250 && sent[1 - preferred] < 20,
            "{kind:?}: {sent:?}"
        );
    }
}

/// A second rail with a standby rail appears while the first one's standby rail carries: the second
/// standby rail carries too.
#[test]
fn the_standby_rail_of_a_later_rail_carries_as_well() {
    let later = |host: u8| {
        let mut rails = backed(host);
        rails.extend(backed(host));
        for (index, rail) in rails.iter_mut().enumerate().skip(2) {
            (rail.addr, rail.addr.index) = (RailAddr::NONE, index as u8);
        }
        rails
    };
    let mut pair = Pair::of(
        [1, 2].map(|host| node_of(Config::default(), host, later(host))),
        false,
    );
    for node in [&mut pair.a, &mut pair.b] {
        for rail in [2, 3] {
            node.on_rail(1_000, rail, true);
        }
    }
    pair.message(2, 100_000);
    assert!(arrives(&mut pair, 2, SECOND, Some(0)));
    for host in [1, 2] {
        let node = if host == 1 { &mut pair.a } else { &mut pair.b };
        let mut first = face::rail_addr(2, host, 1, 1_472);
        (first.index, first.backed) = (2, true);
        let behind = first.behind().unwrap();
        for (rail, addr) in [(2, first), (3, behind)] {
            node.on_rail_address(pair.now, rail, addr);
            node.on_rail(pair.now, rail, false);
        }
    }
    for handle in 3..40 {
        pair.message(handle, 100_000);
        let end = pair.now + SECOND;
        while !done(&mut pair.a, handle) {
            assert!(pair.now < end);
            pair.step_through(&mut |_, rail, _| rail % 2 == 1);
        }
    }
    for node in [&pair.a, &pair.b] {
        let carries = |path: &(u8, PathState, u64)| path.1 == PathState::Up && path.2 > 0;
        assert!(
            paths(node).iter().any(|p| p.0 == 3 && carries(p)),
            "{:?}",
            paths(node)
        );
    }
}
