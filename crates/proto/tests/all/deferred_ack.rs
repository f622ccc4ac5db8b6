//! Deferred acks: an ack that comes with an answer is handled after the answer.

use crate::face;

use face::{output, take, Flying, Pair};
use marline_proto::{Event, Node, PeerId, RecvSpec, SendSpec, Source};
use marline_wire::{Frame, Packet};

/// A pair in which both nodes have sent; nothing is in flight.
fn talking(rails: u8) -> (Pair, PeerId) {
    let mut pair = Pair::new(rails, false);
    let to_a = pair.b.peer(&pair.a.address());
    say(&mut pair.b, to_a, 1);
    listen(&mut pair.a, 1, pair.now);
    pair.settle();
    while pair.a.poll_event().is_some() {}
    while pair.b.poll_event().is_some() {}
    (pair, to_a)
}

fn say(node: &mut Node, peer: PeerId, handle: u32) {
    node.post_send(&SendSpec {
        handle,
        peer,
        tag: None,
        data: None,
        len: 8,
        urgent_ack: false,
    });
}

fn listen(node: &mut Node, handle: u32, now: u64) {
    let receive = RecvSpec {
        handle,
        source: Source::Any,
        tag: None,
        capacity: 8,
        multi_min: None,
    };
    node.post_recv(&receive, now);
}

/// A message and its answer, within a microsecond.
fn exchange(pair: &mut Pair, to_a: PeerId, handle: u32) {
    listen(&mut pair.a, handle, pair.now);
    listen(&mut pair.b, handle, pair.now);
    say(&mut pair.a, pair.to_b, handle);
    let there = output(&mut pair.a, pair.now, false);
    take(&mut pair.b, pair.now, &there);
    say(&mut pair.b, to_a, handle);
    let back = output(&mut pair.b, pair.now, false);
    assert!(Packet::parse(&back[0].1, |_| 0).unwrap().answer().is_some());
    pair.now += 1_000;
    take(&mut pair.a, pair.now, &back);
}

/// The ends of sends ('s') and receives ('r'), in order.
fn ended(node: &mut Node) -> String {
    let name = |event| match event {
        Event::SendDone { ok: true, .. } => 's',
        Event::RecvDone { .. } => 'r',
        _ => '?',
    };
    std::iter::from_fn(|| node.poll_event()).map(name).collect()
}

fn messages(packets: &[Flying]) -> usize {
    let count = |p: &Flying| {
        let packet = Packet::parse(&p.1, |_| 0).unwrap();
        let eager = |(frame, _): &(_, _)| matches!(frame, Frame::Eager(_));
        packet.frames().filter(eager).count()
    };
    packets.iter().map(count).sum()
}

#[test]
fn a_deferred_ack_is_handled_with_the_timers() {
    let (mut pair, to_a) = talking(1);
    exchange(&mut pair, to_a, 5);
    assert_eq!(ended(&mut pair.a), "r");
    assert!(pair.a.next_deadline().is_some_and(|at| at <= pair.now));
    assert!(!pair.a.is_idle());
    pair.a.handle_timeouts(pair.now);
    assert_eq!(ended(&mut pair.a), "s");
    assert!(pair.a.drained());
}

#[test]
fn a_deferred_ack_is_handled_before_the_next_packet() {
    let (mut pair, to_a) = talking(1);
    for handle in 5..50 {
        exchange(&mut pair, to_a, handle);
        let order = if handle == 5 { "r" } else { "sr" };
        assert_eq!(ended(&mut pair.a), order);
    }
    pair.settle();
    assert!(pair.a.drained() && pair.b.drained());
    assert_eq!(pair.lost(), 0);
}

/// The application computes for 10 ms between the answer and its next message, which has just left
/// when the deferred ack is handled.
#[test]
fn the_retransmission_timer_starts_with_the_later_packet() {
    let (mut pair, to_a) = talking(1);
    exchange(&mut pair, to_a, 5);
    pair.now += 10_000_000;
    say(&mut pair.a, pair.to_b, 6);
    assert_eq!(messages(&output(&mut pair.a, pair.now, false)), 1);
    pair.now += 1_000;
    pair.a.handle_timeouts(pair.now);
    assert_eq!(messages(&output(&mut pair.a, pair.now, false)), 0);
    // The packet was lost: the retransmission comes when due.
    pair.now += 10_000_000;
    pair.a.handle_timeouts(pair.now);
    assert_eq!(messages(&output(&mut pair.a, pair.now, false)), 1);
}

#[test]
fn acknowledged_packets_are_not_requeued_from_a_failed_rail() {
    let (mut pair, to_a) = talking(2);
    exchange(&mut pair, to_a, 5);
    pair.a.on_rail(pair.now, 0, true);
    assert_eq!(messages(&output(&mut pair.a, pair.now, false)), 0);
    assert_eq!(ended(&mut pair.a).replace('?', ""), "rs");
}

/// With many bytes in flight, acks make room for queued data: they are not deferred.
#[test]
fn acks_of_a_full_window_are_not_deferred() {
    let (mut pair, to_a) = talking(1);
    for handle in 10..20 {
        listen(&mut pair.b, handle, pair.now);
        say(&mut pair.a, pair.to_b, handle);
        let packets = output(&mut pair.a, pair.now, false);
        take(&mut pair.b, pair.now, &packets);
    }
    listen(&mut pair.a, 20, pair.now);
    say(&mut pair.b, to_a, 20);
    let back = output(&mut pair.b, pair.now, false);
    assert!(back
        .iter()
        .any(|p| Packet::parse(&p.1, |_| 0).unwrap().answer().is_some()));
    take(&mut pair.a, pair.now, &back);
    assert_eq!(ended(&mut pair.a), "ssssssssssr");
}
