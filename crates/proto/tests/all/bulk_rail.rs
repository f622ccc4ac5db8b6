//! Two rails of one port, of which one has its batches cut by the kernel: short messages take the
//! other, long ones take that one while it works.

use crate::face;

use face::{done, in_one_network, node_of, specs, Pair};
use marline_proto::{Config, Node};

/// Longer packets than those of acks and probes.
const DATA_LEN: usize = 1_000;
const LONG: u64 = 4 << 20;
/// Many times the round trip of a pair, and less than until a retransmission.
const SLOW_NS: u64 = 300_000;
/// Most messages until a path is used again.
const ROUNDS: usize = 100;

/// A node whose first rail leaves long messages to its second.
fn node(host: u8) -> Node {
    let mut specs = specs(host, 2, 1_472);
    in_one_network(&mut specs, host);
    specs[0].bulk_rail = Some(1);
    node_of(Config::default(), host, specs)
}

/// Two nodes with proven paths.
fn pair() -> Pair {
    let mut pair = Pair::of([1, 2].map(node), false);
    pair.message(1, 2_000);
    pair.settle();
    pair
}

/// Sends a message; returns the sender's data packets by rail. Packets of the rails in `cut` are
/// lost.
fn sent(pair: &mut Pair, len: u64, cut: &[usize]) -> [usize; 2] {
    pair.message(2, len);
    let mut packets = [0; 2];
    let end = pair.now + face::SETTLED_NS;
    while !done(&mut pair.a, 2) {
        assert!(pair.now < end, "{packets:?}");
        pair.step_through(&mut |from, rail, len| {
            packets[rail] += usize::from(from == 0 && len >= DATA_LEN);
            !cut.contains(&rail)
        });
    }
    packets
}

#[test]
fn long_messages_take_the_rail_for_them_and_short_ones_the_other() {
    let mut pair = pair();
    let [first, second] = sent(&mut pair, LONG, &[]);
    assert!(second > 2_000 && first < 10, "{first} and {second}");
    for len in [1_400, 8_000] {
        let [first, second] = sent(&mut pair, len, &[]);
        assert!(
            first > 0 && second == 0,
            "{len} bytes: {first} and {second}"
        );
    }
}

#[test]
fn a_rail_for_short_messages_carries_long_ones_while_the_other_is_silent() {
    let mut pair = pair();
    let [first, _] = sent(&mut pair, LONG, &[1]);
    assert!(first > 2_000, "{first}");
    // The path that came back is down until a probe on it is answered.
    let back = (0..ROUNDS).any(|_| {
        let [first, second] = sent(&mut pair, LONG, &[]);
        second > first
    });
    assert!(back);
}

#[test]
fn short_messages_take_their_rail_though_the_other_answers_sooner() {
    let mut pair = pair();
    for handle in 2..12 {
        pair.message(handle, 1_200);
        let packets = pair.alone();
        let data = |p: &&face::Flying| p.1.len() >= DATA_LEN;
        let rails: Vec<usize> = packets.iter().filter(data).map(|p| p.0).collect();
        assert_eq!(rails, [0]);
        pair.now += SLOW_NS;
        pair.answer(&packets, 0);
    }
}
