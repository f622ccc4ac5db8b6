//! Bugs that the simulator found, reproduced with two nodes. Each test fails without the fix that
//! its comment names.

use crate::face;

use face::{done, node_with, output, specs, take, Flying, Pair};
use marline_proto::{
    Config, DropReason, Event, Held, Landing, Memory, Node, Payload, RecvSpec, SendSpec, Source,
};
use marline_wire::Packet;

const MS: u64 = 1_000_000;
const TIMEOUT: u64 = 100 * MS;

fn config() -> Config {
    Config {
        peer_timeout_ns: TIMEOUT,
        ..Config::default()
    }
}

fn events(node: &mut Node) -> Vec<Event> {
    std::iter::from_fn(|| node.poll_event()).collect()
}

fn receive(handle: u32, capacity: u64) -> RecvSpec {
    RecvSpec {
        handle,
        source: Source::Any,
        tag: None,
        capacity,
        multi_min: None,
    }
}

/// Runs one node for longer than the silence timeout; no packet of it arrives.
fn alone_for_long(node: &mut Node, now: &mut u64) -> Vec<Event> {
    for _ in 0..TIMEOUT / MS * 3 {
        *now += MS;
        node.on_poll(*now, false);
        node.caught_up();
        node.handle_timeouts(*now);
        output(node, *now, false);
    }
    events(node)
}

fn holds_nothing(node: &Node) {
    let held = Held {
        receives: 0,
        ..node.held()
    };
    assert_eq!(held, Held::default());
}

/// HELLO promised less credit than CREDIT assumed: senders starved.
#[test]
fn credit_comes_back_however_much_is_sent() {
    let config = Config {
        credit_bytes: 48 << 10,
        ..config()
    };
    let mut pair = Pair::with(config, 1, false);
    for round in 0..40 {
        let handles = 2 + 4 * round..6 + 4 * round;
        handles
            .clone()
            .for_each(|handle| pair.message(handle, 9_000));
        pair.settle();
        let over = events(&mut pair.a);
        let over = over.iter().filter(
            |e| matches!(e, Event::SendDone { handle, ok: true } if handles.contains(handle)),
        );
        assert_eq!(over.count(), 4, "round {round}");
    }
    // All of it by credit: without credit a sender sends rendezvous requests.
    assert_eq!(pair.a.stats().rendezvous_sent, 0);
}

/// Unexpected messages are sent eagerly as long as the receiver has memory for them, far beyond the
/// credit of first contact: each rendezvous request costs a round trip when the message is
/// received.
#[test]
fn credit_grows_with_unexpected_messages() {
    for (unexpected_bytes, asked) in [(64 << 20, false), (1 << 20, true)] {
        let config = Config {
            unexpected_bytes,
            ..config()
        };
        let mut pair = Pair::with(config, 1, false);
        pair.b.peer(&pair.a.address()); // strangers have half of the memory
        for burst in 0..400 {
            (0..50).for_each(|at| pair.send(2 + 50 * burst + at, 100));
            pair.settle();
        }
        assert_eq!(pair.a.stats().rendezvous_sent > 0, asked);
    }
}

/// A message too long for the path of short messages, but not for the path of bulk, never left.
#[test]
fn messages_of_lengths_between_two_datagram_sizes_leave() {
    let node = |host: u8| {
        let mut specs = specs(host, 2, 1_472);
        specs[1] = self::specs(host, 2, 8_972)[1];
        face::node_of(config(), host, specs)
    };
    let mut pair = Pair::of([node(1), node(2)], false);
    for (handle, len) in (1_000..10_000).step_by(300).enumerate() {
        pair.message(handle as u32 + 2, len);
        pair.settle();
        assert!(done(&mut pair.a, handle as u32 + 2), "{len} bytes");
    }
}

/// A read of zero bytes has no fragment that could end it.
#[test]
fn a_read_of_nothing_ends() {
    let mut pair = Pair::with(config(), 1, false);
    assert!(pair.a.post_read(9, pair.to_b, (1, 0, 0), 0));
    pair.settle();
    let over = events(&mut pair.a);
    assert!(over.contains(&Event::ReadDone {
        handle: 9,
        ok: true
    }));
}

/// Delivers the first packets of a message, of which nothing else arrives.
fn begin(pair: &mut Pair, handle: u32, len: u64, packets: usize) -> Vec<Flying> {
    pair.send(handle, len);
    let sent = pair.alone();
    take(&mut pair.b, pair.now, &sent[..packets]);
    sent
}

/// A matched receive hung when its sender fell silent: only posted receives were watched.
#[test]
fn a_receive_whose_message_began_ends_with_its_sender() {
    let mut pair = Pair::with(config(), 1, false);
    pair.b.peer(&pair.a.address());
    pair.b.post_recv(&receive(2, 9_000), pair.now);
    begin(&mut pair, 2, 9_000, 1);
    let over = alone_for_long(&mut pair.b, &mut pair.now);
    assert!(over.contains(&Event::RecvFailed { handle: 2 }), "{over:?}");
    holds_nothing(&pair.b);
}

/// A send that waited for a grant of a dead peer hung.
#[test]
fn a_send_that_waits_for_a_grant_ends_with_its_receiver() {
    let mut pair = Pair::with(config(), 1, false);
    pair.send(2, 1 << 20);
    pair.settle();
    assert!(!done(&mut pair.a, 2), "nobody has granted it");
    let over = alone_for_long(&mut pair.a, &mut pair.now);
    let failed = Event::SendDone {
        handle: 2,
        ok: false,
    };
    assert!(over.contains(&failed), "{over:?}");
    holds_nothing(&pair.a);
}

/// Complete messages after a gap stayed for ever when their sender died.
#[test]
fn a_message_behind_a_gap_is_freed_with_its_sender() {
    let mut pair = Pair::with(config(), 1, false);
    pair.send(2, 1_200);
    let first = pair.alone();
    pair.send(3, 1_200);
    let second = pair.alone();
    assert!(!first.is_empty() && !second.is_empty());
    take(&mut pair.b, pair.now, &second);
    assert_eq!(pair.b.held().inbounds, 1);
    alone_for_long(&mut pair.b, &mut pair.now);
    holds_nothing(&pair.b);
}

/// A multi-receive that was cancelled while a message arrived returned its memory at once; the rest
/// of the message was rejected for ever.
#[test]
fn a_cancelled_multi_receive_takes_its_matched_message() {
    let mut pair = Pair::with(config(), 1, false);
    let multi = RecvSpec {
        multi_min: Some(64),
        ..receive(7, 100_000)
    };
    pair.b.post_recv(&multi, pair.now);
    let sent = begin(&mut pair, 2, 9_000, 1);
    assert!(pair.b.cancel_recv(7) && pair.b.still_receives(7));
    take(&mut pair.b, pair.now, &sent[1..]);
    pair.settle();
    let over = events(&mut pair.b);
    let last = |e: &Event| {
        matches!(
            e,
            Event::RecvDone {
                handle: 7,
                last: true,
                ..
            }
        )
    };
    assert!(over.iter().any(last), "{over:?}");
    assert!(done(&mut pair.a, 2) && !pair.b.still_receives(7));
}

/// Memory in which every payload is corrupted.
struct Damaged;

impl Memory for Damaged {
    fn land(&mut self, _: &Landing, _: &Payload<'_>) -> bool {
        false
    }
}

/// A corrupted payload left garbage in a receive that stayed posted, and a shorter message of
/// another peer matched it.
#[test]
fn a_receive_with_a_corrupted_payload_stays_with_its_message() {
    let mut pair = Pair::with(config(), 1, false);
    pair.b.post_recv(&receive(10, 1_000), pair.now);
    pair.b.post_recv(&receive(11, 1_000), pair.now);
    pair.send(2, 800);
    let hurt = pair.alone();
    let packet = Packet::parse(&hurt[0].1, |_| 0).unwrap();
    let taken = pair.b.handle_packet(pair.now, &packet, 900, &mut Damaged);
    assert_eq!(taken, Err(DropReason::CorruptPayload));
    let mut other = node_with(config(), 3, 1);
    let to_b = other.peer(&pair.b.address());
    other.post_send(&SendSpec {
        handle: 3,
        peer: to_b,
        tag: None,
        data: None,
        len: 100,
        urgent_ack: false,
    });
    for _ in 0..50 {
        let sent = [pair.alone(), output(&mut other, pair.now, false)].concat();
        take(&mut pair.b, pair.now, &sent);
        pair.b.handle_timeouts(pair.now);
        // The id of the packet's destination.
        let mine = |p: &Flying| p.1[8..16] == other.id().to_le_bytes();
        let back = output(&mut pair.b, pair.now, false);
        let (mine, theirs): (Vec<_>, Vec<_>) = back.into_iter().partition(mine);
        take(&mut other, pair.now, &mine);
        take(&mut pair.a, pair.now, &theirs);
    }
    let got = events(&mut pair.b).into_iter().filter_map(|e| match e {
        Event::RecvDone { handle, len, .. } => Some((handle, len)),
        _ => None,
    });
    let mut got: Vec<_> = got.filter(|(handle, _)| *handle >= 10).collect();
    got.sort_unstable();
    assert_eq!(got, [(10, 800), (11, 100)]);
}
