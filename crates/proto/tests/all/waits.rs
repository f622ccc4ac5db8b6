//! Waits of messages: from the first chance to leave to the last ack, without the time in which a
//! request waits for its receive.

use crate::face;

use face::{output, Pair};
use marline_proto::{RecvSpec, Source, Waits, WAIT_CLASSES};

const LATE_NS: u64 = 3_000_000;
/// Least time before a retransmission.
const PTO_NS: u64 = 150_000;

/// Waits of messages sent eagerly and after a grant, which were counted since an earlier look.
fn counted(pair: &Pair, before: (Waits, Waits)) -> (Waits, Waits) {
    let stats = pair.a.stats();
    let since =
        |now: Waits, then: Waits| Waits(std::array::from_fn(|class| now.0[class] - then.0[class]));
    (
        since(stats.eager_waits, before.0),
        since(stats.rendezvous_waits, before.1),
    )
}

fn now(pair: &Pair) -> (Waits, Waits) {
    counted(pair, Default::default())
}

/// The waits of a class, of which the histogram has no others.
fn only(wait_ns: u64, times: u64) -> Waits {
    let mut waits = Waits::default();
    (0..times).for_each(|_| waits.count(wait_ns));
    waits
}

#[test]
fn a_message_waits_until_its_ack() {
    let mut pair = Pair::new(1, false);
    let before = now(&pair);
    pair.message(2, 8);
    let packets = output(&mut pair.a, pair.now, false);
    assert_eq!(counted(&pair, before), Default::default());
    pair.now += LATE_NS;
    pair.answer(&packets, 0);
    assert_eq!(counted(&pair, before), (only(LATE_NS, 1), Waits::default()));
    assert_eq!(pair.a.stats().message_wait_max_ns, LATE_NS);
}

/// The time before a lost packet's retransmission is part of the wait.
#[test]
fn a_lost_message_waits_for_its_retransmission() {
    let mut pair = Pair::new(1, false);
    let before = now(&pair);
    pair.message(2, 8);
    let began = pair.now;
    output(&mut pair.a, pair.now, false);
    while now(&pair) == before {
        pair.step_through(&mut |_, _, _| true);
    }
    let longest = pair.a.stats().message_wait_max_ns;
    let lasted = pair.now - began;
    assert!((PTO_NS..=lasted).contains(&longest), "{longest}");
    assert_eq!(counted(&pair, before).0, only(longest, 1));
}

/// A message that finds no window waits from its first chance to leave, not from its packet.
#[test]
fn a_message_waits_for_its_turn() {
    let mut pair = Pair::new(1, false);
    let before = now(&pair);
    let (mut packets, mut count) = (Vec::new(), 0);
    while pair.a.unsent_heads(pair.to_b) == 0 {
        pair.message(2 + count, 1_000);
        packets.extend(output(&mut pair.a, pair.now, false));
        count += 1;
    }
    let began = pair.now;
    pair.now += LATE_NS;
    pair.answer(&packets, 0);
    pair.settle();
    let (eager, asked) = counted(&pair, before);
    let all: u64 = eager.0.iter().chain(&asked.0).sum();
    assert_eq!(all, u64::from(count));
    let short = Waits::bound_ns(9).expect("a class of 2 ms");
    let quick: u64 = (0..WAIT_CLASSES)
        .filter(|&class| Waits::bound_ns(class).is_some_and(|bound| bound <= short))
        .map(|class| eager.0[class] + asked.0[class])
        .sum();
    assert_eq!(quick, 0, "{eager:?} {asked:?}");
    assert!(pair.a.stats().message_wait_max_ns <= pair.now - began);
}

/// A program that receives late makes no wait of the network.
#[test]
fn the_time_without_a_receive_is_no_wait() {
    let mut pair = Pair::new(1, false);
    let before = now(&pair);
    let long = 1 << 20;
    pair.send(2, long);
    pair.settle();
    let began = pair.now;
    pair.now += 1_000 * LATE_NS;
    let receive = RecvSpec {
        handle: 2,
        source: Source::Any,
        tag: None,
        capacity: long,
        multi_min: None,
    };
    pair.b.post_recv(&receive, pair.now);
    pair.settle();
    assert!(face::done(&mut pair.a, 2));
    assert!(pair.now - began > 1_000 * LATE_NS);
    let longest = pair.a.stats().message_wait_max_ns;
    assert!(longest < 10 * LATE_NS, "{longest}");
    let (eager, asked) = counted(&pair, before);
    assert_eq!((eager, asked.0.iter().sum::<u64>()), (Waits::default(), 1));
}
