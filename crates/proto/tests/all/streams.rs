//! Reliable rails, which lose nothing until their connection breaks: no retransmission by time, no
//! congestion window, no size probes. Each test compares with datagrams.

use crate::face;

use face::{done, node_of, output, specs, take, Flying, Pair};
use marline_proto::{
    Config, Delivery, DropReason, Event, Landing, LinkEnd, Memory, PathState, PathStats, Payload,
};
use marline_wire::{Packet, RailWrites};

const MS: u64 = 1_000_000;
const KINDS: [Delivery; 2] = [Delivery::STREAM, Delivery::DATAGRAMS];

fn pair(deliveries: &[Delivery]) -> Pair {
    Pair::of_rails(Config::default(), deliveries)
}

/// Sum of a counter over all paths of the sender.
fn sum(pair: &Pair, of: impl Fn(&PathStats) -> u64) -> u64 {
    let mut sum = 0;
    pair.a
        .for_each_peer(|_, _, _, paths| sum += paths.map(|p| of(&p.3)).sum::<u64>());
    sum
}

/// A counter of each path.
fn of_paths(pair: &Pair, of: impl Fn(&PathStats) -> u64) -> Vec<u64> {
    let mut each = Vec::new();
    pair.a
        .for_each_peer(|_, _, _, paths| each.extend(paths.map(|p| of(&p.3))));
    each
}

fn resent(pair: &Pair) -> u64 {
    sum(pair, |s| s.resent_loss + s.resent_pto + s.resent_failover)
}

fn states(pair: &Pair) -> Vec<PathState> {
    let mut states = Vec::new();
    pair.a
        .for_each_peer(|_, _, _, paths| states.extend(paths.map(|p| p.2)));
    states
}

/// Polls only the sender for so long; returns its packets, which do not arrive yet.
fn held(pair: &mut Pair, ns: u64) -> Vec<Flying> {
    let until = pair.now + ns;
    let mut sent = Vec::new();
    while pair.now < until {
        sent.extend(pair.alone());
    }
    sent
}

/// Delivers these packets, then runs both until nothing is left to do.
fn arrive(pair: &mut Pair, packets: &[Flying]) {
    take(&mut pair.b, pair.now, packets);
    let back = output(&mut pair.b, pair.now, false);
    take(&mut pair.a, pair.now, &back);
    pair.settle();
}

#[test]
fn packets_held_by_the_rail_are_not_retransmitted() {
    for delivery in KINDS {
        let mut pair = pair(&[delivery]);
        pair.message(2, 40_000);
        let packets = held(&mut pair, 300 * MS);
        let again = resent(&pair);
        assert_eq!(again == 0, delivery.lossless, "{again} of {delivery:?}");
        arrive(&mut pair, &packets);
        assert!(done(&mut pair.a, 2));
        assert_eq!(resent(&pair) == 0, delivery.lossless);
    }
}

#[test]
fn no_window_bounds_a_stream() {
    for delivery in KINDS {
        let mut pair = pair(&[delivery]);
        let messages = 12;
        for handle in 2..2 + messages {
            pair.message(handle, 50_000);
        }
        let packets = pair.alone();
        let window = sum(&pair, |s| s.window_bytes);
        assert_eq!(window == 0, delivery.lossless, "of {delivery:?}");
        let bytes: usize = packets.iter().map(|p| p.1.len()).sum();
        assert!(!delivery.lossless || bytes > messages as usize * 50_000);
        arrive(&mut pair, &packets);
    }
}

#[test]
fn packets_have_the_size_of_the_rail_from_the_first_on() {
    for delivery in KINDS {
        let [mut specs, mut theirs] = [1, 2].map(|host| face::specs(host, 1, 9_000));
        specs[0].delivery = delivery;
        theirs[0].delivery = delivery;
        let node = |host, specs| face::node_of(Config::default(), host, specs);
        let mut pair = Pair::of([node(1, specs), node(2, theirs)], false);
        pair.message(2, 8_000);
        let first = pair.alone();
        let longest = first.iter().map(|p| p.1.len()).max().unwrap();
        assert_eq!(longest > 8_000, delivery.fixed_mtu, "{longest} bytes");
        arrive(&mut pair, &first);
        assert!(done(&mut pair.a, 2));
    }
}

/// Memory that finds every payload corrupted.
struct Damaged;

impl Memory for Damaged {
    fn land(&mut self, _: &Landing, _: &Payload<'_>) -> bool {
        false
    }
}

#[test]
fn a_rejected_packet_is_retransmitted_without_a_timer() {
    let mut pair = pair(&[Delivery::STREAM]);
    pair.message(2, 100);
    let packets = pair.alone();
    let packet = Packet::parse(&packets[0].1, |_| 0).unwrap();
    let taken = pair.b.handle_packet(pair.now, &packet, 100, &mut Damaged);
    assert_eq!(taken, Err(DropReason::CorruptPayload));
    pair.settle();
    let waited = held(&mut pair, 12 * MS);
    assert!(resent(&pair) == 0 && !waited.is_empty(), "a probe, no data");
    arrive(&mut pair, &waited);
    assert!(done(&mut pair.a, 2));
    assert_eq!(resent(&pair), 1);
    assert_eq!(sum(&pair, |s| s.ptos), 0);
}

#[test]
fn packets_of_a_broken_connection_leave_on_the_next() {
    let mut pair = pair(&[Delivery::STREAM]);
    pair.message(2, 40_000);
    let lost = pair.alone();
    assert!(lost.len() > 20);
    pair.a.on_rail(pair.now, 0, true);
    assert!(held(&mut pair, 20 * MS).is_empty(), "there is no way");
    pair.a.on_rail(pair.now, 0, false);
    pair.settle();
    assert!(done(&mut pair.a, 2));
    assert_eq!(resent(&pair), lost.len() as u64);
}

#[test]
fn packets_of_a_broken_connection_leave_on_another_rail() {
    let mut pair = pair(&KINDS);
    let mut lost = Vec::new();
    for handle in 2..22 {
        pair.message(handle, 10_000);
        let mut packets = pair.alone();
        let of_stream = |p: &Flying| p.0 == 0;
        lost.extend(packets.iter().filter(|p| of_stream(p)).cloned());
        packets.retain(|p| !of_stream(p));
        take(&mut pair.b, pair.now, &packets);
    }
    assert!(!lost.is_empty());
    pair.a.on_rail(pair.now, 0, true);
    let mut through = |_: usize, rail: usize, _: usize| rail == 1;
    for _ in 0..200 {
        pair.step_through(&mut through);
    }
    assert_eq!(undone(&mut pair), 0);
    assert_eq!(states(&pair)[0], PathState::Down);
}

/// Number of sends with handles 2 to 21 that have not ended.
fn undone(pair: &mut Pair) -> usize {
    let events = std::iter::from_fn(|| pair.a.poll_event());
    let over = events.filter(|e| matches!(e, Event::SendDone { handle, ok: true } if *handle > 1));
    20 - over.count()
}

#[test]
fn a_stream_silent_beside_a_rail_that_answers_goes_down() {
    let mut pair = pair(&KINDS);
    for handle in 2..22 {
        pair.message(handle, 10_000);
    }
    let since = pair.now;
    let mut through = |_: usize, rail: usize, _: usize| rail == 1;
    while states(&pair)[0] != PathState::Down {
        pair.step_through(&mut through);
        assert!(pair.now < since + 200 * MS, "{:?}", states(&pair));
    }
    for _ in 0..200 {
        pair.step_through(&mut through);
    }
    assert_eq!(undone(&mut pair), 0);
}

#[test]
fn a_stream_whose_peer_is_silent_on_all_rails_stays_up() {
    let mut pair = pair(&KINDS);
    for handle in 2..22 {
        pair.message(handle, 10_000);
    }
    let packets = held(&mut pair, 300 * MS);
    assert_ne!(states(&pair)[0], PathState::Down);
    arrive(&mut pair, &packets);
    assert_eq!(undone(&mut pair), 0);
}

#[test]
fn only_control_frames_of_a_native_rail_are_acknowledged() {
    let config = Config {
        native_rails: 1,
        ..Config::default()
    };
    let mut pair = Pair::of_rails(config, &[Delivery::STREAM]);
    pair.message(2, 40_000);
    let packets = pair.alone();
    assert!(done(&mut pair.a, 2), "nobody has answered");
    arrive(&mut pair, &packets);
    // A long message begins with a request; request and grant are acknowledged.
    pair.message(3, 300_000);
    let request = pair.alone();
    assert!(!done(&mut pair.a, 3));
    arrive(&mut pair, &request);
    assert!(done(&mut pair.a, 3));
    let received = std::iter::from_fn(|| pair.b.poll_event());
    let received = received.filter(|e| matches!(e, Event::RecvDone { .. }));
    assert_eq!(received.count(), 3);
    assert!(pair.a.drained() && resent(&pair) == 0);
}

/// Regression: a packet in flight on the only link that broke is to be retransmitted on a new link,
/// also if its ack is read after that. The peer was gone, no other operation waited for it, and the
/// send never ended (simulator seed 72002615).
#[test]
fn a_send_ends_though_its_link_never_comes_back() {
    let config = Config {
        peer_timeout_ns: 1_000 * MS,
        ..Config::default()
    };
    let mut pair = Pair::of_rails(config, &[Delivery::STREAM]);
    pair.send(2, 100);
    let packets = pair.alone();
    pair.a.on_link_down(pair.now, 0, 0, LinkEnd::Broken, 0);
    pair.answer(&packets, 0);
    let end = pair.now + 3_000 * MS;
    while !std::iter::from_fn(|| pair.a.poll_event()).any(|e| matches!(e, Event::PeerDead { .. })) {
        pair.now += MS;
        assert!(pair.now < end, "the send does not end");
        pair.a.on_poll(pair.now, false);
        pair.a.caught_up();
        pair.a.handle_timeouts(pair.now);
        // Links are asked for, and stay unanswered.
        while pair.a.poll_link().is_some() {}
    }
}

/// Another source port may take other NICs and routes. A reliable path tries another with growing
/// intervals, as its rail retransmits meanwhile. If several paths are silent, each tries: a
/// firewall that lost its connection table lost it for all rails.
#[test]
fn silent_paths_try_another_route_where_none_carries() {
    for (deliveries, tries) in [
        (&[Delivery::STREAM][..], 1..=3),
        (&[Delivery::DATAGRAMS], 3..=100),
        (&[Delivery::STREAM, Delivery::STREAM], 1..=3),
        (&[Delivery::DATAGRAMS, Delivery::DATAGRAMS], 3..=100),
        (&[Delivery::DATAGRAMS, Delivery::STREAM], 1..=100),
    ] {
        let mut pair = pair(deliveries);
        pair.message(2, 1_000);
        pair.settle();
        assert!(done(&mut pair.a, 2));
        pair.message(3, 1_000);
        held(&mut pair, 600 * MS);
        let tried = sum(&pair, |s| s.reroutes);
        let of_each = of_paths(&pair, |s| s.reroutes);
        let all = of_each.iter().all(|of| tries.contains(of));
        assert!(all, "{of_each:?} times: {deliveries:?}");
        let events = std::iter::from_fn(|| pair.a.poll_event());
        let told = events.filter(|e| matches!(e, Event::PathRerouted { .. }));
        assert_eq!(told.count() as u64, tried, "each is told: {deliveries:?}");
    }
}

/// A silent path needs no other route while another path carries its frames.
#[test]
fn no_other_route_is_tried_beside_a_path_that_carries() {
    for deliveries in [
        [Delivery::STREAM, Delivery::STREAM],
        [Delivery::STREAM, Delivery::DATAGRAMS],
        [Delivery::DATAGRAMS, Delivery::DATAGRAMS],
    ] {
        let mut pair = pair(&deliveries);
        for handle in 2..200 {
            pair.message(handle, 1_000);
            taken_within(&mut pair, &mut |_, rail, _| rail == 1);
        }
        assert_eq!(sum(&pair, |s| s.reroutes), 0, "{deliveries:?}");
    }
}

/// Time until the next message is received, while only some packets arrive.
fn taken_within(pair: &mut Pair, passes: &mut impl FnMut(usize, usize, usize) -> bool) -> u64 {
    let since = pair.now;
    while !std::iter::from_fn(|| pair.b.poll_event())
        .any(|event| matches!(event, Event::RecvDone { .. }))
    {
        pair.step_through(passes);
        assert!(pair.now < since + 1_000 * MS, "{:?}", states(pair));
    }
    pair.now - since
}

#[test]
fn frames_of_a_silent_stream_are_repeated_within_milliseconds() {
    let mut pair = pair(&KINDS);
    while pair.b.poll_event().is_some() {}
    pair.message(2, 1_000);
    let took = taken_within(&mut pair, &mut |_, rail, _| rail == 1);
    assert!(took < 3 * MS, "{took} ns");
    assert_eq!(states(&pair)[0], PathState::Suspect);
    // The next message takes the working path at once.
    pair.message(3, 1_000);
    let took = taken_within(&mut pair, &mut |_, rail, _| rail == 1);
    assert!(took < MS, "{took} ns");
}

#[test]
fn ever_more_frames_of_a_silent_stream_are_repeated() {
    let mut pair = pair(&KINDS);
    while pair.b.poll_event().is_some() {}
    // Eager messages, all of which the stream has taken.
    for handle in 2..12 {
        pair.message(handle, 30_000);
        let packets = pair.alone();
        let others: Vec<_> = packets.into_iter().filter(|p| p.0 == 1).collect();
        pair.answer(&others, 1);
    }
    let since = pair.now;
    let mut received = 0;
    while received < 10 {
        pair.step_through(&mut |_, rail, _| rail == 1);
        let events = std::iter::from_fn(|| pair.b.poll_event());
        received += events
            .filter(|e| matches!(e, Event::RecvDone { .. }))
            .count();
        assert!(pair.now < since + 20 * MS, "{received} received");
    }
    assert_eq!(states(&pair)[0], PathState::Suspect, "it is not given up");
}

#[test]
fn nothing_is_repeated_while_the_peer_is_silent_on_all_rails() {
    let mut pair = pair(&KINDS);
    pair.message(2, 1_000);
    let packets = held(&mut pair, 300 * MS);
    let (stream, datagrams) = packets.iter().partition::<Vec<_>, _>(|p| p.0 == 0);
    assert!(
        !stream.is_empty() && !datagrams.is_empty(),
        "it is asked on both"
    );
    assert_eq!(resent(&pair), 0);
    arrive(&mut pair, &packets);
    assert!(done(&mut pair.a, 2));
    assert_eq!(resent(&pair), 0);
}

#[test]
fn nothing_is_repeated_when_only_answers_of_a_stream_are_lost() {
    let mut pair = pair(&KINDS);
    pair.message(2, 1_000);
    let since = pair.now;
    while !done(&mut pair.a, 2) {
        pair.step_through(&mut |from, rail, _| from == 0 || rail == 1);
        assert!(pair.now < since + 3 * MS);
    }
    assert_eq!(resent(&pair), 0);
}

#[test]
fn a_stream_that_is_late_once_is_not_given_up() {
    let mut pair = pair(&KINDS);
    pair.message(2, 1_000);
    // The rail retransmits the packets that the network lost.
    let (since, mut late) = (pair.now, Vec::new());
    while pair.now < since + 15 * MS {
        let now = pair.now;
        pair.step_where(&mut |from, packet| {
            let passes = packet.0 == 1;
            if !passes {
                late.push((from, packet.clone(), now));
            }
            passes
        });
    }
    for (from, packet, _) in late {
        let node = if from == 0 { &mut pair.b } else { &mut pair.a };
        take(node, pair.now, &[packet]);
    }
    pair.settle();
    assert_eq!(states(&pair), [PathState::Up; 2]);
    assert_eq!(sum(&pair, |s| s.failovers), 0);
}

/// Two nodes with a stream that supports writes past packets, and a datagram rail.
fn writing() -> Pair {
    let nodes = [1, 2].map(|host| {
        let mut specs = specs(host, 2, 1_472);
        let rails = specs.iter_mut().zip(KINDS);
        rails.for_each(|(spec, delivery)| spec.delivery = delivery);
        specs[0].addr.writes = RailWrites::Keyed;
        specs[0].ordered_writes = true;
        node_of(Config::default(), host, specs)
    });
    let mut pair = Pair::of(nodes, false);
    pair.message(1, 2_000);
    pair.settle();
    while pair.b.poll_event().is_some() {}
    pair
}

/// Written bytes are not repeated while their stream may still deliver them. So a silent stream
/// with such bytes is given up sooner, and they leave on the rail that works.
#[test]
fn a_silent_stream_with_written_bytes_goes_down_soon() {
    let mut pair = writing();
    // More than the first grant, which leaves before the keys are known.
    pair.message(2, 6_000_000);
    let (mut since, mut received) = (None, false);
    while !received {
        pair.step_through(&mut |_, rail, _| rail == 1 || since.is_none());
        while let Some(event) = pair.b.poll_event() {
            match event {
                Event::RegistrationWanted { inbound, .. } => {
                    pair.b.registered_on(inbound, 0, 0xfeed);
                }
                Event::RecvDone { .. } => received = true,
                _ => {}
            }
        }
        if pair.a.stats().written > 0 && since.is_none() {
            since = Some(pair.now);
        }
        let took = since.map_or(0, |at| pair.now - at);
        assert!(took < 20 * MS, "{:?}", states(&pair));
    }
    assert!(since.is_some(), "nothing was written");
    assert_eq!(states(&pair)[0], PathState::Down);
}
