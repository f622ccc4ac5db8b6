//! Unproven paths are probed often each time reachability is lost, not only the first time.

use crate::face;

use face::{Flying, Pair};
use marline_proto::{Config, Delivery, Event, RecvSpec, Source};
use marline_wire::Packet;

const MS: u64 = 1_000_000;
const TIMEOUT_NS: u64 = 1_000 * MS;

/// Rail 0 carries nothing. Rail 1 carries except in these times after the start: to `b`, to `a`.
struct Network {
    not_to_b_ms: std::ops::Range<u64>,
    not_to_a_ms: [std::ops::Range<u64>; 2],
}

impl Network {
    fn carries(&self, at_ms: u64, from: usize, (_, bytes): &Flying) -> bool {
        let header = Packet::parse(bytes, |_| 0).unwrap().header;
        let rail = if from == 0 {
            header.src_rail()
        } else {
            header.dst_rail()
        };
        match (rail, from) {
            (0, _) => false,
            (_, 0) => !self.not_to_b_ms.contains(&at_ms),
            _ => !self.not_to_a_ms.iter().any(|cut| cut.contains(&at_ms)),
        }
    }
}

/// Number of probes by `b` on rail 0, which never worked, in half a second after rail 1 stopped
/// carrying its packets for the second time.
fn questions(deliveries: [Delivery; 2]) -> usize {
    let config = Config {
        peer_timeout_ns: TIMEOUT_NS,
        any_source_fails: true,
        ..Config::default()
    };
    let nodes = [1, 2].map(|host| {
        let mut specs = face::specs(host, 2, 1_472);
        let rails = specs.iter_mut().zip(deliveries);
        rails.for_each(|(spec, delivery)| spec.delivery = delivery);
        face::node_of(config, host, specs)
    });
    let mut pair = Pair::of(nodes, false);
    pair.b.peer(&pair.a.address());
    let network = Network {
        not_to_b_ms: 100..800,
        not_to_a_ms: [100..800, 6_200..6_900],
    };
    let (start, mut asked) = (pair.now, 0);
    pair.message(10, 50);
    let awaited = RecvSpec {
        handle: 9,
        source: Source::Any,
        tag: Some((7, 0)),
        capacity: 100,
        multi_min: None,
    };
    pair.b.post_recv(&awaited, pair.now);
    while pair.now < start + 6_900 * MS {
        let at_ms = (pair.now - start) / MS;
        pair.step_where(&mut |from, packet| {
            let looks = (6_400..6_900).contains(&at_ms);
            asked += usize::from(looks && (from, packet.0) == (1, 0));
            network.carries(at_ms, from, packet)
        });
        let died = |e: Event| matches!(e, Event::PeerDead { .. });
        for node in [&mut pair.a, &mut pair.b] {
            let dead = std::iter::from_fn(|| node.poll_event()).any(died);
            assert!(!dead, "called dead at {at_ms} ms");
        }
    }
    asked
}

/// Regression: an earlier loss of reachability was remembered, and the path was probed once per
/// second (simulator seed 72001681). A probe is due at least every fiftieth part of the timeout.
#[test]
fn paths_are_probed_often_when_reachability_is_lost_again() {
    let asked = questions([Delivery::DATAGRAMS; 2]);
    assert!(asked >= 15, "{asked} questions");
}

/// Regression: a reliable path was never doubted while no other path had worked.
#[test]
fn paths_are_probed_often_when_a_lone_stream_falls_silent() {
    let asked = questions([Delivery::DATAGRAMS, Delivery::STREAM]);
    assert!(asked >= 15, "{asked} questions");
}

/// Regression: copies of recorded packets with flipped bits, which another host sends, isolated the
/// path of the packets.
#[test]
fn damaged_copies_of_packets_that_arrived_isolate_no_path() {
    let mut pair = Pair::of(
        [1, 2].map(|host| face::node_with(Config::default(), host, 2)),
        false,
    );
    for turn in 0..100 {
        let mut recorded = Vec::new();
        pair.message(1 + turn, 10_000);
        pair.step_where(&mut |from, (_, bytes)| {
            recorded.extend((from == 0).then(|| bytes.clone()));
            true
        });
        for bytes in &recorded {
            for _ in 0..10 {
                pair.b.on_bad_head(bytes);
            }
        }
    }
    let blamed = |e: Event| matches!(e, Event::PathCorrupts { .. });
    let events = std::iter::from_fn(|| pair.b.poll_event().or_else(|| pair.a.poll_event()));
    assert!(!events.into_iter().any(blamed));
}

/// A path takes packets of at most 548 bytes and was isolated for corruption; then the other path
/// dies. The long probes of an isolated path do not pass (simulator seed 80013868).
#[test]
fn an_isolated_path_with_a_small_mtu_is_found_again() {
    const PASSES: usize = 548;
    let config = Config {
        peer_timeout_ns: TIMEOUT_NS,
        any_source_fails: true,
        ..Config::default()
    };
    let mut pair = Pair::of([1, 2].map(|host| face::node_with(config, host, 2)), false);
    pair.message(1, 100);
    let (mut damaged, mut sent) = (Vec::new(), 0);
    for turn in 0..400 {
        // Packets are always in flight on both paths.
        pair.message(2 + turn, 10_000);
        pair.step_where(&mut |from, (rail, bytes)| {
            sent += 1;
            let hurt = *rail == 0 && from == 0 && turn > 100 && sent % 5 == 0;
            damaged.extend(hurt.then(|| bytes.clone()));
            !hurt && (*rail == 1 || bytes.len() <= PASSES)
        });
        for bytes in damaged.drain(..) {
            pair.b.on_bad_head(&bytes);
        }
    }
    let left = |e: Event| {
        matches!(
            e,
            Event::PathCorrupts {
                rail: 0,
                left: true,
                ..
            }
        )
    };
    let events: Vec<Event> = std::iter::from_fn(|| pair.a.poll_event()).collect();
    assert!(events.into_iter().any(left), "rail 0 is not isolated");

    pair.message(1_000, 100_000);
    let end = pair.now + 4 * TIMEOUT_NS;
    loop {
        pair.step_where(&mut |_, (rail, bytes)| *rail == 0 && bytes.len() <= PASSES);
        let ended = |e: Event| match e {
            Event::PeerDead { .. } => Some(false),
            Event::SendDone { handle: 1_000, ok } => Some(ok),
            _ => None,
        };
        if let Some(ok) = std::iter::from_fn(|| pair.a.poll_event()).find_map(ended) {
            assert!(ok, "called dead");
            break;
        }
        assert!(pair.now < end, "never found");
    }
}

/// Packets in flight, each with its time of arrival.
type Way = Vec<(u64, Flying)>;

/// Packets take 30 ms, so that a path's retransmission timer is at its bound. Then nothing passes:
/// a probe is still due at least every fiftieth part of the timeout.
#[test]
fn a_path_with_long_round_trips_is_probed_as_often() {
    const WAY_NS: u64 = 30 * MS;
    let config = Config {
        peer_timeout_ns: TIMEOUT_NS,
        ..Config::default()
    };
    let mut pair = Pair::of([1, 2].map(|host| face::node_with(config, host, 1)), false);
    let (start, mut handle) = (pair.now, 0);
    let (mut there, mut back) = (Way::new(), Way::new());
    let mut asked = 0;
    while pair.now < start + 3_900 * MS {
        let at_ms = (pair.now - start) / MS;
        if at_ms / 100 >= handle && handle < 31 {
            pair.message(handle as u32, 100);
            handle += 1;
        }
        let sent = pair.alone();
        asked += usize::from((3_400..3_900).contains(&at_ms) && !sent.is_empty());
        if at_ms < 3_000 {
            there.extend(sent.into_iter().map(|packet| (pair.now + WAY_NS, packet)));
        }
        let here = |way: &mut Way| -> Vec<Flying> {
            let arrived = way.iter().take_while(|(at, _)| *at <= pair.now).count();
            way.drain(..arrived).map(|(_, packet)| packet).collect()
        };
        let (to_b, to_a) = (here(&mut there), here(&mut back));
        pair.b.on_poll(pair.now, false);
        pair.b.caught_up();
        pair.b.handle_timeouts(pair.now);
        face::take(&mut pair.b, pair.now, &to_b);
        let answers = face::output(&mut pair.b, pair.now, false);
        back.extend(
            answers
                .into_iter()
                .map(|packet| (pair.now + WAY_NS, packet)),
        );
        face::take(&mut pair.a, pair.now, &to_a);
    }
    assert!(asked >= 20, "{asked} questions");
}
