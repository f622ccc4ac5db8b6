//! The remaining links of a cluster are probed often enough before a silent peer counts as dead.

use crate::face;

use face::Pair;
use marline_proto::{Config, Delivery, Event, RecvSpec, SendSpec, Source};

const MS: u64 = 1_000_000;
const TIMEOUT_NS: u64 = 1_000 * MS;

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

/// Number of packets sent until the peer counts as dead, with a poll each `every_ns`; nothing
/// arrives.
fn sent_until_death(pair: &mut Pair, every_ns: u64) -> usize {
    let (mut sent, end) = (0, pair.now + 6_000 * MS);
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

/// Regression: one rail went away and came back, and the other went away meanwhile: the path in use
/// was one that is only probed, and only ten times in a timeout of one second (simulator seed
/// 10263394).
#[test]
fn a_path_that_came_back_alone_is_probed_often() {
    let mut pair = pair();
    for (rail, down) in [(0, true), (1, true), (0, false)] {
        pair.a.on_rail(pair.now, rail, down);
    }
    let sent = sent_until_death(&mut pair, 200_000);
    assert!((30..100).contains(&sent), "{sent} packets");
}

/// A node that rarely polls rarely probes, and probes or answers may be lost: each path is probed
/// eight times before a silent peer counts as dead.
#[test]
fn a_peer_that_was_rarely_probed_is_not_dead() {
    let mut pair = pair();
    let sent = sent_until_death(&mut pair, 120_000_000);
    assert!((16..40).contains(&sent), "{sent} packets");
}

/// Four rails per side in one network are 16 paths. Regression: a probe on one path repeated all
/// acks on all others, as requeued frames made old acks count as news: 17 packets for each probe,
/// to a peer that was gone (simulator seed 71006027).
#[test]
fn a_probe_does_not_repeat_all_acks_on_every_path() {
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

/// Two nodes with so many rails in one network, which have used all paths between them.
fn used(rails: u8) -> Pair {
    let nodes = [1, 2].map(|host| face::node_in_one(Config::default(), host, rails));
    let mut pair = Pair::of(nodes, false);
    pair.b.peer(&pair.a.address());
    for handle in 10..40 {
        pair.message(handle, 20_000);
        pair.settle();
    }
    while pair.a.poll_event().is_some() {}
    pair
}

/// A lone message waits for a peer that is gone: the number of packets sent within the timeout of 5
/// s, over 1, 4 and 16 paths. Each path is probed fifty times.
#[test]
fn a_silent_peer_is_sent_few_packets() {
    let mut counts = Vec::new();
    for rails in [1, 2, 4] {
        let mut pair = used(rails);
        pair.send(40, 50);
        let (mut sent, mut waiting, start) = (0, 0, pair.now);
        loop {
            sent += pair.alone().len();
            pair.now += 80_000;
            waiting = waiting.max(pair.a.kept().packets);
            let died = |e: Event| matches!(e, Event::PeerDead { .. });
            if std::iter::from_fn(|| pair.a.poll_event()).any(died) {
                break;
            }
            assert!(pair.now < start + 6_000 * MS, "nobody died");
        }
        counts.push((sent, waiting));
    }
    println!("{counts:?}: packets, and those that wait on one path");
    for (&(sent, waiting), (paths, most)) in counts.iter().zip([(1, 200), (4, 900), (16, 3_600)]) {
        assert!((50 * paths..most).contains(&sent), "{sent} on {paths}");
        assert!(waiting <= 300, "{waiting} wait on one of {paths} paths");
    }
}

/// Nothing passes for `outage_ms`, then everything does: a waiting message arrives before the
/// outage has lasted an eighth longer, and after a short outage with the next retransmission.
#[test]
fn an_outage_is_noticed_soon_after_its_end() {
    for rails in [1, 2, 4] {
        for outage_ms in [20, 60, 200, 800, 3_000] {
            let mut pair = used(rails);
            pair.message(40, 50);
            let end = pair.now + outage_ms * MS;
            while pair.now < end {
                pair.alone();
            }
            while !face::done(&mut pair.a, 40) {
                pair.step();
                let late_ns = pair.now - end;
                let most_ns = (outage_ms * MS / 8).clamp(10 * MS, 100 * MS) + MS;
                assert!(late_ns < most_ns, "{late_ns} of {outage_ms} ms");
            }
        }
    }
}

/// `b` is heard, but receives nothing from `a`: the time in ms until `a` declares `b` dead.
fn silent_for_ms(delivery: Delivery) -> u64 {
    // `b` has a longer timeout, and goes on sending.
    let nodes = [(1, TIMEOUT_NS), (2, 9 * TIMEOUT_NS)].map(|(host, peer_timeout_ns)| {
        let config = Config {
            peer_timeout_ns,
            ..Config::default()
        };
        let mut specs = face::specs(host, 1, 1_472);
        specs[0].delivery = delivery;
        face::node_of(config, host, specs)
    });
    let mut pair = Pair::of(nodes, false);
    pair.message(1, 2_000);
    pair.settle();
    while pair.a.poll_event().is_some() {}
    pair.message(20, 50);
    let to_a = pair.b.peer(&pair.a.address());
    pair.b.post_send(&SendSpec {
        handle: 21,
        peer: to_a,
        tag: None,
        data: None,
        len: 50,
        urgent_ack: true,
    });
    let start = pair.now;
    loop {
        assert!(pair.now < start + 5 * TIMEOUT_NS, "nobody died");
        pair.step_through(&mut |from, _, _| from == 1);
        while let Some(event) = pair.a.poll_event() {
            if let Event::PeerDead { heard, .. } = event {
                assert!(heard, "it was");
                return (pair.now - start) / MS;
            }
        }
    }
}

/// A network that carries one direction only breaks reliable connections. While a connection is up
/// it is slow, so its peer gets three timeouts (docs/design/peer-failure.md).
#[test]
fn a_peer_heard_on_a_standing_connection_gets_three_timeouts() {
    let timeout_ms = TIMEOUT_NS / MS;
    let lossy = silent_for_ms(Delivery::DATAGRAMS);
    assert!((timeout_ms..timeout_ms * 5 / 4).contains(&lossy), "{lossy}");
    let standing = silent_for_ms(Delivery::STREAM);
    let bound = 3 * timeout_ms..3 * timeout_ms + timeout_ms / 4;
    assert!(bound.contains(&standing), "{standing}");
}

/// The time in ms until this side declares the peer dead, while both rails of this side are down
/// for `down_ms`.
fn waits_ms(down_ms: u64) -> u64 {
    let mut pair = pair();
    let start = pair.now;
    for down in [true, false] {
        for rail in 0..2 {
            pair.a.on_rail(pair.now, rail, down);
        }
        let until = pair.now + if down { down_ms * MS } else { 20_000 * MS };
        while pair.now < until {
            pair.alone();
            let died = |e: Event| matches!(e, Event::PeerDead { .. });
            if std::iter::from_fn(|| pair.a.poll_event()).any(died) {
                return (pair.now - start) / MS;
            }
            pair.now += 200_000;
        }
    }
    panic!("nobody died");
}

/// Outages of this host's own rails do not count as silence of the peer. A device that fails for
/// good still ends the wait.
#[test]
fn time_without_a_rail_of_our_own_is_no_silence() {
    let timeout_ms = TIMEOUT_NS / MS;
    for down_ms in [700, 3_000, 7_000] {
        let waited = waits_ms(down_ms);
        // (A rail that has just come back is given time for ARP.)
        let bound = down_ms + timeout_ms * 8 / 10..down_ms + 4 * timeout_ms;
        assert!(bound.contains(&waited), "{waited} of {down_ms} ms");
    }
    let waited = waits_ms(60_000);
    assert!(
        (10 * timeout_ms..12 * timeout_ms).contains(&waited),
        "{waited}"
    );
}

/// The owner is told for which peers it waits, and for how long, including time in which its own
/// rails were down.
#[test]
fn silent_peers_are_reported_before_they_are_dead() {
    let config = Config {
        peer_timeout_ns: 120_000 * MS,
        ..Config::default()
    };
    let mut pair = Pair::with(config, 2, false);
    let silent = |pair: &Pair, least_ms: u64| {
        let mut found = Vec::new();
        let tell = |s: &marline_proto::Silence| found.push((s.silent_ns / MS, s.stranger, s.rails));
        pair.a.for_each_silent(pair.now, least_ms * MS, tell);
        found
    };
    assert_eq!(silent(&pair, 0), [], "nobody owes anything");
    pair.send(40, 50);
    let start = pair.now;
    let wait = |pair: &mut Pair, ms: u64| {
        while pair.now < start + ms * MS {
            pair.alone();
        }
    };
    wait(&mut pair, 1_000);
    assert_eq!(silent(&pair, 2_000), []);
    for rail in 0..2 {
        pair.a.on_rail(pair.now, rail, true);
    }
    wait(&mut pair, 3_000);
    for rail in 0..2 {
        pair.a.on_rail(pair.now, rail, false);
    }
    wait(&mut pair, 4_000);
    let found = silent(&pair, 2_000);
    assert!(
        matches!(found[..], [(3_900..=4_100, false, 3)]),
        "{found:?}"
    );
    while !face::done(&mut pair.a, 40) {
        pair.step();
    }
    assert_eq!(silent(&pair, 0), [], "it answers");
}
