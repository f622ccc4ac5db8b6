//! The links that are left of a cluster are asked often enough before a silent peer is called dead.

mod face;

use face::Pair;
use marline_proto::{Config, Event, RecvSpec, Source};

const TIMEOUT_NS: u64 = 1_000_000_000;

fn pair() -> Pair {
    let config = Config {
        peer_timeout_ns: TIMEOUT_NS,
        ..Config::default()
    };
    let mut pair = Pair::with(config, 2, false);
    while pair.a.poll_event().is_some() {}
    let waits_for = RecvSpec {
        handle: 9,
        source: Source::Peer(pair.to_b),
        tag: Some((7, 0)),
        capacity: 100,
        multi_min: None,
    };
    pair.a.post_recv(&waits_for, pair.now);
    pair
}

/// Nothing arrives: how many packets are sent before the peer is dead, by one who polls so often.
fn sent_until_death(pair: &mut Pair, every_ns: u64) -> usize {
    let (mut sent, end) = (0, pair.now + 4 * TIMEOUT_NS);
    loop {
        assert!(pair.now < end, "nobody died; {sent} packets");
        sent += pair.alone().len();
        pair.now += every_ns - 20_000;
        let died = |e: Event| matches!(e, Event::PeerDead { .. });
        if std::iter::from_fn(|| pair.a.poll_event()).any(died) {
            return sent;
        }
    }
}

/// One rail went away and came back, and while it was away the other did: the path in use is one
/// that is only probed, and that was ten times in a timeout of one second (seed 10263394 of the
/// simulator).
#[test]
fn a_path_that_came_back_alone_is_asked_often() {
    let mut pair = pair();
    for (rail, down) in [(0, true), (1, true), (0, false)] {
        pair.a.on_rail(pair.now, rail, down);
    }
    let sent = sent_until_death(&mut pair, 200_000);
    assert!((30..100).contains(&sent), "{sent} packets");
}

/// A node that hardly polls hardly asks, and its questions or their answers may be lost: each path
/// is asked eight times before a peer is dead of whom nothing is heard.
#[test]
fn who_was_hardly_asked_is_not_dead() {
    let mut pair = pair();
    let sent = sent_until_death(&mut pair, 120_000_000);
    assert!((16..40).contains(&sent), "{sent} packets");
}

/// Four rails a side in one network are 16 paths. A question on one of them said all acks again on
/// all others, as what was to be sent again made old acks count as news: 17 packets for each
/// question, to a peer that had gone (seed 71006027 of the simulator).
#[test]
fn a_question_does_not_say_all_acks_again_on_every_path() {
    let config = Config {
        peer_timeout_ns: TIMEOUT_NS,
        ..Config::default()
    };
    let nodes = [1, 2].map(|host| face::node_in_one(config, host, 4));
    let mut pair = Pair::of(nodes, false);
    for handle in 10..40 {
        pair.message(handle, 20_000);
        pair.settle();
    }
    while pair.a.poll_event().is_some() {}
    pair.send(40, 50);
    let sent = sent_until_death(&mut pair, 100_000);
    assert!((16 * 8..4_000).contains(&sent), "{sent} packets");
}
