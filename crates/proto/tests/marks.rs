//! When memory that packets were built in, and that the kernel was lent, may be written again.

mod face;

use face::{output, take, Flying, Pair};
use marline_proto::{Batch, Fate, Mark, SendSpec};

/// A message of many packets leaves: its packets, and the moment after them.
fn sent(pair: &mut Pair, handle: u32) -> (Vec<Flying>, Mark) {
    pair.send(handle, 40_000);
    let packets = output(&mut pair.a, pair.now, true);
    assert!(packets.len() > 20);
    let mark = pair.a.mark(&batch(pair), packets.len()).unwrap();
    (packets, mark)
}

fn batch(pair: &Pair) -> Batch {
    Batch {
        peer: pair.to_b,
        path: 0,
        segment: 1_472,
        bulk: true,
    }
}

/// The peer's acks of what it got arrive.
fn acks_come(pair: &mut Pair) {
    pair.now += 100_000;
    pair.b.on_poll(pair.now, false);
    let acks = output(&mut pair.b, pair.now, true);
    take(&mut pair.a, pair.now, &acks);
}

#[test]
fn packets_are_received_when_the_last_of_them_is_acknowledged() {
    let mut pair = Pair::new(1, true);
    let (packets, mark) = sent(&mut pair, 2);
    assert_eq!(pair.a.fate(&mark), Fate::UnderWay);
    take(&mut pair.b, pair.now, &packets[..packets.len() - 1]);
    acks_come(&mut pair);
    assert_eq!(pair.a.fate(&mark), Fate::UnderWay);
    take(&mut pair.b, pair.now, &packets[packets.len() - 1..]);
    acks_come(&mut pair);
    assert_eq!(pair.a.fate(&mark), Fate::Received);
    // What leaves later is another matter.
    let (_, later) = sent(&mut pair, 3);
    assert_eq!(pair.a.fate(&mark), Fate::Received);
    assert_eq!(pair.a.fate(&later), Fate::UnderWay);
}

/// What was sent again may still lie in some queue as it was sent first.
#[test]
fn a_packet_given_up_is_not_received_whatever_is_acknowledged() {
    let mut pair = Pair::new(1, true);
    let (packets, mark) = sent(&mut pair, 2);
    take(&mut pair.b, pair.now, &packets[1..]);
    pair.settle();
    assert!(pair.lost() > 0 && pair.a.drained());
    assert_eq!(pair.a.fate(&mark), Fate::GivenUp);
}

/// Nobody ever says whether a packet that wants no ack has arrived (seed 10605882 of the
/// simulator).
#[test]
fn packets_that_want_no_ack_have_no_mark() {
    let mut pair = Pair::new(1, true);
    let to_a = pair.b.peer(&pair.a.address());
    pair.b.post_send(&SendSpec {
        handle: 9,
        peer: to_a,
        tag: None,
        len: 5_000,
        data: None,
        urgent_ack: true,
    });
    let packets = output(&mut pair.b, pair.now, true);
    take(&mut pair.a, pair.now, &packets);
    pair.now += 1_000_000;
    pair.a.on_poll(pair.now, false);
    pair.a.handle_timeouts(pair.now);
    assert_eq!(output(&mut pair.a, pair.now, true).len(), 1, "an ack");
    assert_eq!(pair.a.mark(&batch(&pair), 1), None);
    pair.send(2, 40_000);
    let count = output(&mut pair.a, pair.now, true).len();
    assert!(pair.a.mark(&batch(&pair), count).is_some());
    assert_eq!(pair.a.mark(&batch(&pair), count + 1), None);
}

/// Nothing that was under way to the dead is waited for, or the memory would be lost for ever.
#[test]
fn what_was_under_way_to_the_dead_is_given_up() {
    let mut pair = Pair::new(1, true);
    let (_, mark) = sent(&mut pair, 2);
    assert_eq!(pair.a.fate(&mark), Fate::UnderWay);
    for _ in 0..1_000 {
        pair.now += 10_000_000;
        pair.a.on_poll(pair.now, false);
        pair.a.handle_timeouts(pair.now);
        output(&mut pair.a, pair.now, true);
    }
    assert!(pair.a.peer_gone(pair.to_b));
    assert_eq!(pair.a.fate(&mark), Fate::GivenUp);
}

/// The engine notes a short packet when the kernel has it.
#[test]
fn a_short_packet_is_kept_once_it_was_sent() {
    let mut pair = Pair::new(1, false);
    pair.send(2, 8);
    let (mut out, mut spans) = (vec![0; 2_000], Vec::new());
    let built = pair.a.build(pair.now, &mut out, &mut spans, None);
    assert!(built.is_some_and(|packet| packet.len < 200));
    assert_eq!(pair.a.kept().packets, 0);
    for _ in 0..2 {
        pair.a.sent(pair.now);
        assert_eq!(pair.a.kept().packets, 1);
    }
    assert!(output(&mut pair.a, pair.now, false).is_empty());
    // It was lost on the way: it is repaired.
    pair.settle();
    assert!(pair.a.drained());
}
