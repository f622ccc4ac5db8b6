//! The cost of first contact in packets: in an all-to-all, all endpoints connect at once.

use crate::face;

use face::{node, output, take, Flying, Pair};
use marline_proto::{Event, SendSpec};
use marline_wire::{Address, Frame, Packet};

/// Two nodes that know each other's addresses and have no connection.
fn strangers() -> Pair {
    let mut pair = Pair::of([node(1, 1), node(2, 1)], false);
    pair.b.peer(&pair.a.address());
    pair
}

/// A short message from the second node to the first.
fn send_back(pair: &mut Pair) {
    let peer = pair.b.peer(&pair.a.address());
    let sent = pair.b.post_send(&SendSpec {
        handle: 1,
        peer,
        tag: None,
        data: None,
        len: 64,
        urgent_ack: true,
    });
    assert!(sent);
}

fn padded(packets: &[Flying]) -> usize {
    let is_probe = |p: &&Flying| {
        let packet = Packet::parse(&p.1, |_| 0).unwrap();
        let found = packet
            .frames()
            .any(|(frame, _)| matches!(frame, Frame::Pad { .. }));
        found
    };
    packets.iter().filter(is_probe).count()
}

/// All packets from now on, by sender, until both are silent.
fn said(pair: &mut Pair) -> [Vec<Flying>; 2] {
    let (mut said, mut idle) = ([Vec::new(), Vec::new()], 0);
    let end = pair.now + face::SETTLED_NS;
    while idle < 200 {
        assert!(pair.now < end, "they never fall silent");
        pair.now += 20_000;
        for node in [&mut pair.a, &mut pair.b] {
            node.on_poll(pair.now, false);
            node.handle_timeouts(pair.now);
        }
        let there = output(&mut pair.a, pair.now, false);
        let back = output(&mut pair.b, pair.now, false);
        take(&mut pair.b, pair.now, &there);
        take(&mut pair.a, pair.now, &back);
        let silent = there.is_empty() && back.is_empty();
        idle = if silent { idle + 1 } else { 0 };
        said[0].extend(there);
        said[1].extend(back);
    }
    said
}

/// Regression: in an all-to-all of 64 endpoints each message took 6.7 packets: in addition a probe
/// of a path that was already in use, a unnecessary size probe, and acks of acks.
#[test]
fn first_messages_that_cross_take_a_packet_and_an_ack_each() {
    let mut pair = strangers();
    pair.send(1, 64);
    send_back(&mut pair);
    let [there, back] = said(&mut pair);
    assert_eq!((there.len(), back.len()), (2, 2));
    assert!(pair.a.drained() && pair.b.drained());
}

/// The receiver's HELLO goes with the ack and requests an ack itself.
#[test]
fn a_first_message_alone_takes_three_packets() {
    let mut pair = strangers();
    pair.message(1, 64);
    let [there, back] = said(&mut pair);
    assert_eq!((there.len(), back.len()), (2, 1));
    assert!(pair.a.drained());
}

/// An ack with HELLO that requests no ack is lost together with the message that carries HELLO: the
/// message is retransmitted, and both nodes are connected.
#[test]
fn crossing_hellos_survive_a_loss_in_one_direction() {
    let mut pair = strangers();
    pair.send(1, 64);
    let first = output(&mut pair.a, pair.now, false);
    send_back(&mut pair);
    output(&mut pair.b, pair.now, false); // lost
    take(&mut pair.b, pair.now, &first);
    output(&mut pair.b, pair.now, false); // lost: the ack
    said(&mut pair);
    assert!(pair.a.drained() && pair.b.drained());
}

/// Packet sizes are probed when there is data to fill large packets, and in time: the probe leaves
/// with a long message's request, its answer comes with the grant.
#[test]
fn sizes_are_probed_with_the_first_long_message() {
    let mut pair = strangers();
    for handle in 1..50 {
        pair.message(handle, 64);
        let [there, back] = said(&mut pair);
        assert_eq!((padded(&there), padded(&back)), (0, 0));
    }
    pair.message(50, 1 << 20);
    let first = output(&mut pair.a, pair.now, false);
    assert_eq!((first.len(), padded(&first)), (2, 1));
    take(&mut pair.b, pair.now, &first);
    let [there, back] = said(&mut pair);
    assert_eq!((padded(&there), padded(&back)), (0, 0));
    // 1,472 bytes hold three blocks, the size that every path takes two.
    let bound = (1 << 20) / (3 * 448) + 20;
    assert!(there.len() < bound, "{} packets", there.len());
    assert!(pair.a.drained());
}

/// Rails of unknown kinds are skipped, and reported once.
#[test]
fn a_rail_of_an_unknown_kind_is_skipped_and_reported_once() {
    let with_unknown = |host: u8| {
        let (mut blob, len) = node(host, 1).address().encode();
        blob[14] += 1;
        blob[len..len + 5].copy_from_slice(&[77, 3, 1, 2, 3]);
        Address::decode(&blob).expect("the other rail is known")
    };
    let mut a = node(1, 1);
    a.peer(&with_unknown(2));
    a.peer(&with_unknown(3));
    a.peer(&with_unknown(3));
    let events = std::iter::from_fn(|| a.poll_event());
    let told = events.filter(|e| matches!(e, Event::UnknownRailKind { kind: 77 }));
    assert_eq!((told.count(), a.stats().unknown_rails), (1, 2));
}
