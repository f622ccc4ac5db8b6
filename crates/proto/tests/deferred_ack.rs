//! Acks that come with an answer: their receiver gets the answer first.

mod face;

use face::{output, take, Flying, Pair};
use marline_proto::{Event, Node, PeerId, RecvSpec, SendSpec, Source};
use marline_wire::{Frame, Packet};

/// A pair whose second node speaks, too; nothing is under way.
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

/// A message there, and its answer back; all of it within a microsecond.
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

/// Returns whether sends and receives ended, in their order: 's' and 'r'.
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
fn the_answer_comes_first_and_its_ack_when_time_is_asked_for() {
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
fn the_next_packet_takes_it_along() {
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

/// The application computes for 10 ms between the answer and its next message: that one has just
/// left when the books are kept.
#[test]
fn a_repair_counts_from_what_was_sent_since() {
    let (mut pair, to_a) = talking(1);
    exchange(&mut pair, to_a, 5);
    pair.now += 10_000_000;
    say(&mut pair.a, pair.to_b, 6);
    assert_eq!(messages(&output(&mut pair.a, pair.now, false)), 1);
    pair.now += 1_000;
    pair.a.handle_timeouts(pair.now);
    assert_eq!(messages(&output(&mut pair.a, pair.now, false)), 0);
    // It was lost: the repair comes when it is due.
    pair.now += 10_000_000;
    pair.a.handle_timeouts(pair.now);
    assert_eq!(messages(&output(&mut pair.a, pair.now, false)), 1);
}

#[test]
fn what_was_acknowledged_does_not_leave_a_rail_that_falls() {
    let (mut pair, to_a) = talking(2);
    exchange(&mut pair, to_a, 5);
    pair.a.on_rail(pair.now, 0, true);
    assert_eq!(messages(&output(&mut pair.a, pair.now, false)), 0);
    assert_eq!(ended(&mut pair.a).replace('?', ""), "rs");
}

/// With much under way, acks make room for what waits: they are taken at once.
#[test]
fn a_window_of_messages_does_not_wait() {
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
