//! Refusals by a peer's host (no listener): which of them prove that the peer is dead.

use crate::face;

use face::{backed, done, node_of, node_with, output, specs, take, Flying, Pair};
use marline_proto::{Config, Delivery, Event, Evidence, LinkEnd, Node, RecvSpec, SendSpec, Source};
use marline_wire::{Packet, RailKind};

const MS: u64 = 1_000_000;

/// Refuses the packets of a node that leave on these rails.
fn refuse(node: &mut Node, now: u64, packets: &[Flying], rails: &[usize]) {
    for (rail, bytes) in packets.iter().filter(|p| rails.contains(&p.0)) {
        let packet = Packet::parse(bytes, |_| 0).unwrap();
        let remote = packet.header.dst_rail();
        node.on_refused(now, *rail, remote as u32);
    }
}

/// Peers that a node declared dead: by which evidence, `None`: silence.
fn deaths(node: &mut Node) -> Vec<Option<Evidence>> {
    let events = std::iter::from_fn(|| node.poll_event());
    let refused = |e| match e {
        Event::PeerDead { refused, .. } => Some(refused),
        _ => None,
    };
    events.filter_map(refused).collect()
}

/// The receiver is silent for `ns`, while packets on these rails are refused; returns the deaths.
fn silence(pair: &mut Pair, ns: u64, refusing: &[usize]) -> Vec<Option<Evidence>> {
    let end = pair.now + ns;
    let mut dead = Vec::new();
    while pair.now < end && dead.is_empty() {
        let sent = pair.alone();
        refuse(&mut pair.a, pair.now, &sent, refusing);
        dead = deaths(&mut pair.a);
    }
    dead
}

/// The receiver is back: true if the message arrives within a second.
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

/// A timeout for silence that none of these tests reaches.
fn waiting_long() -> Config {
    Config {
        peer_timeout_ns: 120_000 * MS,
        ..Config::default()
    }
}

/// Refusals of one kind prove the end of a process when they last, at most as long as the silence
/// timeout.
#[test]
fn a_peer_whose_every_path_is_refused_for_long_is_gone() {
    for (timeout_ms, least_ms) in [(120_000, 4_000), (2_000, 2_000)] {
        for rails in 1..=2 {
            let config = Config {
                peer_timeout_ns: timeout_ms * MS,
                ..Config::default()
            };
            let mut pair = Pair::with(config, rails, true);
            pair.send(2, 100);
            let before = pair.now;
            let dead = silence(&mut pair, 12_000 * MS, &[0, 1]);
            let took = (pair.now - before) / MS;
            assert_eq!(dead.len(), 1, "{timeout_ms}");
            assert!(timeout_ms < 4_000 || dead == [Some(Evidence::Packets)]);
            let bound = least_ms..least_ms + 1_000;
            assert!(bound.contains(&took), "{took} ms with {rails} rails");
        }
    }
}

/// A filter refuses all datagrams for three seconds, then passes them again.
#[test]
fn a_filter_that_refuses_packets_for_seconds_is_no_death() {
    for rails in 1..=2 {
        let mut pair = Pair::with(waiting_long(), rails, true);
        pair.send(2, 100);
        assert_eq!(silence(&mut pair, 3_000 * MS, &[0, 1]), []);
        assert!(arrives(&mut pair, 2), "it goes on");
    }
}

/// A filter resets all connections and refuses new ones for three seconds. The way in which
/// connections end tells it from the end of a process; lasting refusals count all the same.
#[test]
fn connections_that_are_reset_and_refused_count_when_that_lasts() {
    for rails in [&[Delivery::STREAM][..], &[Delivery::STREAM; 2]] {
        let streams: Vec<usize> = (0..rails.len()).collect();
        let mut pair = Pair::of_rails(waiting_long(), rails);
        pair.send(2, 100);
        let before = pair.now;
        let resets = (LinkEnd::Broken, &streams[..]);
        assert_eq!(ended(&mut pair, 3_000 * MS, resets, &streams), []);
        let dead = ended(&mut pair, 12_000 * MS, resets, &streams);
        assert_eq!(dead, [Some(Evidence::Connections)]);
        let took = (pair.now - before) / MS;
        assert!((4_000..5_500).contains(&took), "{took} ms");
    }
}

/// Few filters refuse packets and connections at once.
#[test]
fn refusals_of_both_kinds_count_soon() {
    let rails = [Delivery::DATAGRAMS, Delivery::STREAM];
    let mut pair = Pair::of_rails(waiting_long(), &rails);
    pair.send(2, 100);
    let before = pair.now;
    let resets = (LinkEnd::Broken, &[1][..]);
    let dead = ended(&mut pair, 5_000 * MS, resets, &[0, 1]);
    assert_eq!(dead, [Some(Evidence::Both)]);
    let took = (pair.now - before) / MS;
    assert!((400..1_000).contains(&took), "{took} ms");
}

/// Short refusals by a filter with a silent network in between are no lasting refusal.
#[test]
fn refusals_far_apart_do_not_last() {
    let mut pair = Pair::with(waiting_long(), 1, true);
    pair.send(2, 100);
    for _ in 0..3 {
        assert_eq!(silence(&mut pair, 200 * MS, &[0]), []);
        assert_eq!(silence(&mut pair, 8_000 * MS, &[]), []);
    }
    assert!(arrives(&mut pair, 2), "it goes on");
}

/// A firewall rejects packets on one rail, while the process is stopped for less than the silence
/// timeout.
#[test]
fn one_rail_that_refuses_is_no_death() {
    let mut pair = Pair::new(2, true);
    pair.send(2, 100);
    assert_eq!(silence(&mut pair, 4_000 * MS, &[0]), []);
    assert!(arrives(&mut pair, 2), "it goes on on the other rail");
}

/// Refusals before the peer was heard are forgotten.
#[test]
fn hearing_the_peer_resets_refusals() {
    let mut pair = Pair::new(2, true);
    pair.send(2, 100);
    assert_eq!(silence(&mut pair, 1_000 * MS, &[0]), []);
    assert!(arrives(&mut pair, 2));
    pair.send(3, 100);
    assert_eq!(silence(&mut pair, 1_000 * MS, &[1]), []);
    assert!(arrives(&mut pair, 3));
}

/// Without refusals on all paths, the silence timeout decides.
#[test]
fn a_silent_path_beside_one_that_refuses_dies_of_silence() {
    let mut pair = Pair::new(2, true);
    pair.send(2, 100);
    let before = pair.now;
    assert_eq!(silence(&mut pair, 8_000 * MS, &[0]), [None]);
    let took = pair.now - before;
    assert!(took >= 5_000 * MS, "{took} ns");
}

/// Until a peer has answered, its address may be another host's.
#[test]
fn refusals_do_not_prove_the_end_of_a_peer_never_heard() {
    let nodes = [1, 2].map(|host| node_with(Config::default(), host, 2));
    let mut pair = Pair::of(nodes, true);
    pair.message(2, 100);
    assert_eq!(silence(&mut pair, 4_000 * MS, &[0, 1]), []);
    assert!(arrives(&mut pair, 2));
}

/// Refusals on one rail do not release a closing node: the other end may still wait for the acks in
/// its BYE.
#[test]
fn refusals_on_one_rail_do_not_end_bye() {
    let mut pair = Pair::new(2, true);
    pair.a.say_bye();
    let sent = pair.alone();
    assert!(sent.iter().any(|p| p.0 == 0) && sent.iter().any(|p| p.0 == 1));
    refuse(&mut pair.a, pair.now, &sent, &[0]);
    assert!(!pair.a.all_acked_bye(), "a rail is left");
    refuse(&mut pair.a, pair.now, &sent, &[1]);
    assert!(pair.a.all_acked_bye(), "nobody is there");
}

/// The receiver is silent for `ns` after its connections ended: new connections are refused on
/// `refusing` rails, and stay unanswered on others. Packets on `refusing` datagram rails are
/// refused. Returns the deaths.
fn unlinked(
    pair: &mut Pair,
    ns: u64,
    streams: &[usize],
    refusing: &[usize],
) -> Vec<Option<Evidence>> {
    ended(pair, ns, (LinkEnd::Closed, streams), refusing)
}

/// The same for connections that ended in this way.
fn ended(
    pair: &mut Pair,
    ns: u64,
    (how, streams): (LinkEnd, &[usize]),
    refusing: &[usize],
) -> Vec<Option<Evidence>> {
    let datagrams: Vec<usize> = (refusing.iter().copied())
        .filter(|rail| !streams.contains(rail))
        .collect();
    let (end, mut first, mut dead) = (pair.now + ns, true, Vec::new());
    while pair.now < end && dead.is_empty() {
        for rail in streams {
            let end = match (first, refusing.contains(rail)) {
                (true, _) => how,
                (_, true) => LinkEnd::Refused,
                (_, false) => LinkEnd::Broken,
            };
            pair.a.on_link_down(pair.now, *rail, *rail as u32, end, 0);
        }
        first = false;
        let sent = pair.alone();
        refuse(&mut pair.a, pair.now, &sent, &datagrams);
        dead = deaths(&mut pair.a);
    }
    dead
}

/// Two nodes without a connection, on one rail with connections: inside a host, or not.
fn strangers(near: bool) -> Pair {
    let nodes = [1, 2].map(|host| {
        let mut rails = specs(host, 1, 1_472);
        if near {
            rails[0].addr.kind = RailKind::Shm;
        }
        (rails[0].connected, rails[0].delivery) = (true, Delivery::STREAM);
        node_of(Config::default(), host, rails)
    });
    Pair::of(nodes, false)
}

/// A process of this host is killed before it was heard, or before it acknowledged anything: the
/// refused name never belonged to another process. An address in a network may have.
#[test]
fn refusals_inside_a_host_prove_the_end_of_a_process_never_heard() {
    for heard in [false, true] {
        for near in [true, false] {
            let mut pair = strangers(near);
            if heard {
                let to_a = pair.b.peer(&pair.a.address());
                pair.b.post_send(&SendSpec {
                    handle: 1,
                    peer: to_a,
                    tag: None,
                    data: None,
                    len: 100,
                    urgent_ack: true,
                });
                let there = output(&mut pair.b, pair.now, false);
                take(&mut pair.a, pair.now, &there);
            }
            pair.send(2, 100);
            let before = pair.now;
            let dead = unlinked(&mut pair, 4_000 * MS, &[0], &[0]);
            let gone = vec![Some(Evidence::NoSuchName)];
            assert_eq!(dead, if near { gone } else { vec![] });
            let took = pair.now - before;
            assert!(!near || took < 300 * MS, "{took} ns, heard: {heard}");
        }
    }
}

/// Refused connections, where there was one before, count like refused packets, on each kind of
/// rail and on several; and every path has to be refused.
#[test]
fn a_peer_whose_connections_are_refused_is_gone() {
    let (stream, datagrams) = (Delivery::STREAM, Delivery::DATAGRAMS);
    for (rails, streams) in [
        (&[stream][..], &[0][..]),
        (&[stream, stream], &[0, 1]),
        (&[datagrams, stream], &[1]),
    ] {
        let mut pair = Pair::of_rails(Config::default(), rails);
        pair.send(2, 100);
        let before = pair.now;
        let dead = unlinked(&mut pair, 8_000 * MS, streams, &[0, 1]);
        assert_eq!(dead, [Some(Evidence::Ended)]);
        let took = pair.now - before;
        assert!(took < 1_000 * MS, "{took} ns, streams {streams:?}");
    }
    for refusing in [0, 1] {
        let mut pair = Pair::of_rails(Config::default(), &[datagrams, stream]);
        pair.send(2, 100);
        let dead = unlinked(&mut pair, 4_000 * MS, &[1], &[refusing]);
        assert_eq!(dead, [], "one path has refused nothing");
    }
}

/// A process is killed before anything was heard on one of its rails: the end of that rail's
/// connection proves nothing, as the address may be another host's, but it causes probes on other
/// rails, where nothing is in flight.
#[test]
fn the_end_of_an_unused_connection_probes_other_rails() {
    let nodes = [1, 2].map(|host| {
        let mut rails = specs(host, 2, 1_472);
        (rails[1].connected, rails[1].delivery) = (true, Delivery::STREAM);
        node_of(waiting_long(), host, rails)
    });
    let mut pair = Pair::of(nodes, false);
    pair.message(1, 2_000);
    for _ in 0..1_000 {
        pair.step_where(&mut |_, packet| packet.0 == 0);
    }
    assert!(done(&mut pair.a, 1));
    let receive = RecvSpec {
        handle: 9,
        source: Source::Peer(pair.to_b),
        tag: None,
        capacity: 100,
        multi_min: None,
    };
    pair.a.post_recv(&receive, pair.now);
    let began = pair.now;
    pair.a.on_link_down(pair.now, 1, 1, LinkEnd::Closed, 0);
    let dead = silence(&mut pair, 20_000 * MS, &[0]);
    assert_eq!(dead, [Some(Evidence::Packets)]);
    let took = pair.now - began;
    assert!(took < 13_000 * MS, "{took} ns");
}

/// A connection that ends, and whose successor stays unanswered, does not prove a death.
#[test]
fn connections_that_only_end_are_no_death() {
    let mut pair = Pair::of_rails(Config::default(), &[Delivery::STREAM]);
    pair.send(2, 100);
    let before = pair.now;
    assert_eq!(unlinked(&mut pair, 8_000 * MS, &[0], &[]), [None]);
    assert!(pair.now - before >= 5_000 * MS, "of silence");
}

/// Two nodes connected by a rail with a standby rail (with connections) behind it. The first has
/// begun to send.
fn backed_pair() -> Pair {
    let nodes = [1, 2].map(|host| {
        let mut rails = backed(host);
        (rails[1].connected, rails[1].delivery) = (true, Delivery::STREAM);
        node_of(Config::default(), host, rails)
    });
    let mut pair = Pair::of(nodes, false);
    pair.message(1, 2_000);
    pair.settle();
    assert!(!has_standby_path(&pair.a), "nothing has stood in");
    pair.send(2, 100);
    pair
}

fn has_standby_path(node: &Node) -> bool {
    let mut found = false;
    node.for_each_peer(|_, _, _, paths| paths.for_each(|path| found |= path.0 == 1));
    found
}

/// A firewall begins to refuse datagrams and lets connections pass, while the peer has nothing to
/// send: the standby rail is probed before the peer can count as dead.
#[test]
fn refusals_of_a_rail_wait_for_its_standby_rail() {
    let mut pair = backed_pair();
    let end = pair.now + 2_000 * MS;
    let mut arrived = false;
    while pair.now < end {
        let sent = pair.alone();
        refuse(&mut pair.a, pair.now, &sent, &[0]);
        assert_eq!(deaths(&mut pair.a), []);
        let behind: Vec<Flying> = sent.into_iter().filter(|packet| packet.0 == 1).collect();
        arrived |= !behind.is_empty();
        pair.answer(&behind, 1);
    }
    assert!(arrived, "the standby rail carries");
}

/// The process is dead, and its host refuses datagrams and connections.
#[test]
fn a_peer_is_dead_when_the_standby_rail_is_refused_as_well() {
    let mut pair = backed_pair();
    let before = pair.now;
    let dead = unlinked(&mut pair, 4_000 * MS, &[1], &[0, 1]);
    assert_eq!(dead, [Some(Evidence::Both)]);
    let took = pair.now - before;
    assert!(took < 1_000 * MS, "{took} ns");
}

/// The standby rail stays silent: a filter may be the cause, and the peer may live.
#[test]
fn with_a_silent_standby_rail_the_silence_timeout_decides() {
    let mut pair = backed_pair();
    let before = pair.now;
    assert_eq!(silence(&mut pair, 8_000 * MS, &[0]), [None]);
    let took = pair.now - before;
    assert!(took >= 5_000 * MS, "{took} ns");
    assert!(has_standby_path(&pair.a), "it was asked");
}

/// This process was stopped. Packets that its peer sent meanwhile wait beside the refusals of a
/// network that works again, and are read first.
#[test]
fn refusals_after_a_poll_gap_wait_until_all_is_read() {
    let config = Config {
        peer_timeout_ns: 2_000 * MS,
        ..Config::default()
    };
    let mut pair = Pair::with(config, 1, true);
    pair.send(2, 100);
    let sent = pair.alone();
    refuse(&mut pair.a, pair.now, &sent, &[0]);
    pair.now += 3_000 * MS;
    pair.a.on_poll(pair.now, false);
    for _ in 0..3 {
        pair.a.on_refused(pair.now, 0, 0);
        assert_eq!(deaths(&mut pair.a), []);
    }
    // No packet waited, so the next refusal is a recent one.
    pair.a.caught_up();
    pair.a.on_refused(pair.now, 0, 0);
    assert_eq!(deaths(&mut pair.a), [Some(Evidence::Packets)]);
}
