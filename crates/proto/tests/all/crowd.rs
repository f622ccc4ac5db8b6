//! Many peers: work for one of them does not grow with the others.

use crate::face;

use face::{node, rail_addr};
use marline_proto::{LinkAsk, LinkEnd, Node, PeerId};
use marline_wire::Address;

/// A node that has begun to speak to so many peers, each with a link of its own: its number is the
/// peer's.
fn crowd(peers: u32) -> Node {
    let mut node = node(1, 1);
    for n in 0..peers {
        let rail = rail_addr(0, 2, 0, 1_472);
        let peer = node.peer(&Address::new(u64::from(1_000 + n), 7, &[rail]));
        node.meet(peer);
    }
    while let Some(ask) = node.poll_link() {
        if let LinkAsk::Open { peer, path, .. } = ask {
            node.on_linked(0, peer, path, peer.0, true);
        }
    }
    node
}

/// Regression: each event of a link looked at all peers, so that the connections to N peers cost
/// N squared.
#[test]
fn events_of_a_link_look_at_its_peers_alone() {
    let mut node = crowd(2_000);
    let before = node.stats().visited;
    node.on_link_up(1, 0, 77);
    node.on_refused(2, 0, 77);
    node.on_link_down(3, 0, 77, LinkEnd::Refused, 0);
    node.on_segments(4, 0, 77, (1_400, 1_200));
    let looked = node.stats().visited - before;
    assert!((1..=8).contains(&looked), "at {looked} peers");
}

/// Peers that leave a link and take others are no longer its peers, and cost no memory for ever.
#[test]
fn the_peers_of_a_link_are_those_that_use_it_now() {
    let mut node = crowd(2);
    for link in 100..10_000 {
        node.on_linked(0, PeerId(0), 0, link, true);
    }
    let before = node.stats().visited;
    for link in 100..9_999 {
        node.on_link_up(1, 0, link);
    }
    let stale = node.stats().visited - before;
    assert!(stale <= 64, "{stale} links that no path uses");
    node.on_link_up(1, 0, 9_999);
    assert_eq!(node.stats().visited - before, stale + 1);
}
