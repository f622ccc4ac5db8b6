//! When memory that packets were built in, and that the kernel was lent, may be written again.

mod face;

use face::{output, take, Flying, Pair};
use marline_proto::{Batch, Fate, Mark};

/// A message of many packets leaves: its packets, and the moment after them.
fn sent(pair: &mut Pair, handle: u32) -> (Vec<Flying>, Mark) {
    pair.send(handle, 40_000);
    let packets = output(&mut pair.a, pair.now, true);
    assert!(packets.len() > 20);
    (packets, mark(pair))
}

fn mark(pair: &Pair) -> Mark {
    let batch = Batch {
        peer: pair.to_b,
        path: 0,
        segment: 1_472,
        bulk: true,
    };
    pair.a.mark(&batch).unwrap()
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
