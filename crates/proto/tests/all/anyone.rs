//! Receives from any source that the death of a peer ends (`any_source_fails`).

use crate::face;

use face::{output, Pair};
use marline_proto::{Config, Event, RecvSpec, Source};

const TIMEOUT_NS: u64 = 200_000_000;

fn pair(any_source_fails: bool) -> Pair {
    let config = Config {
        any_source_fails,
        peer_timeout_ns: TIMEOUT_NS,
        ..Config::default()
    };
    let mut pair = Pair::with(config, 2, false);
    while pair.a.poll_event().is_some() {}
    pair
}

fn receive(handle: u32, tag: Option<(u64, u64)>, multi_min: Option<u64>) -> RecvSpec {
    RecvSpec {
        handle,
        source: Source::Any,
        tag,
        capacity: 1_000,
        multi_min,
    }
}

/// Runs only the sender for four times the timeout; returns its events and the number of its
/// packets.
fn alone(pair: &mut Pair) -> (Vec<Event>, usize) {
    let (mut events, mut packets) = (Vec::new(), 0);
    let end = pair.now + 4 * TIMEOUT_NS;
    while pair.now < end {
        packets += pair.alone().len();
        pair.now += 180_000;
        events.extend(std::iter::from_fn(|| pair.a.poll_event()));
    }
    (events, packets)
}

fn failed(events: &[Event]) -> Vec<u32> {
    let of = |e: &Event| match *e {
        Event::RecvFailed { handle } => Some(handle),
        _ => None,
    };
    events.iter().filter_map(of).collect()
}

/// A node that only waits in a receive from any source probes all known peers; one is dead, and the
/// receive ends.
#[test]
fn a_receive_from_anyone_ends_with_a_death() {
    let mut pair = pair(true);
    pair.a.post_recv(&receive(5, Some((7, 0)), None), pair.now);
    let (events, _) = alone(&mut pair);
    assert!(events.iter().any(|e| matches!(e, Event::PeerDead { .. })));
    assert_eq!(failed(&events), [5]);
    assert_eq!(pair.a.held().receives, 0);
}

/// Without `any_source_fails` the receive stays, and no peer is even probed.
#[test]
fn without_the_option_a_receive_from_anyone_stays() {
    let mut pair = pair(false);
    pair.a.post_recv(&receive(5, Some((7, 0)), None), pair.now);
    let (events, packets) = alone(&mut pair);
    assert_eq!((events.len(), packets), (0, 0), "{events:?}");
}

/// Receives without a tag and multi-receives stay: they are internal to an MPI library, or a
/// server's.
#[test]
fn untagged_and_multi_receives_stay() {
    let mut pair = pair(true);
    pair.a.post_recv(&receive(5, None, None), pair.now);
    pair.a.post_recv(&receive(6, None, Some(64)), pair.now);
    // An answer is owed, so that the death is noticed.
    pair.send(9, 100);
    let (events, _) = alone(&mut pair);
    assert!(events.iter().any(|e| matches!(e, Event::PeerDead { .. })));
    assert_eq!(failed(&events), []);
}

/// A death while no receive was posted ends the next receive, and only that.
#[test]
fn the_next_receive_reports_an_earlier_death() {
    let mut pair = pair(true);
    pair.send(9, 100);
    let (events, _) = alone(&mut pair);
    assert!(events.iter().any(|e| matches!(e, Event::PeerDead { .. })));
    for handle in [5, 6] {
        pair.a
            .post_recv(&receive(handle, Some((7, 0)), None), pair.now);
    }
    let events: Vec<_> = std::iter::from_fn(|| pair.a.poll_event()).collect();
    assert_eq!(failed(&events), [5]);
    assert_eq!(pair.a.held().receives, 1);
}

/// A peer that answers is not dead, and is probed five times per timeout, not more.
#[test]
fn a_peer_that_answers_is_not_dead() {
    let mut pair = pair(true);
    pair.a.post_recv(&receive(5, Some((7, 0)), None), pair.now);
    let (end, mut sent) = (pair.now + 4 * TIMEOUT_NS, 0);
    while pair.now < end {
        let asked = pair.alone();
        sent += asked.len();
        pair.answer(&asked, 0);
        let more = output(&mut pair.a, pair.now, false);
        pair.answer(&more, 0);
        sent += more.len();
        pair.now += 180_000;
        assert_eq!(pair.a.poll_event(), None);
    }
    assert!((15..=60).contains(&sent), "{sent} packets");
}
