//! Descheduled peers, and what their silences teach the sender.

use crate::face;

use face::{output, take, Pair};
use marline_proto::PathState;

/// Virtual time between two polls, below the poll gap.
const STEP_NS: u64 = 500_000;

/// Polls only the sender for `ns`; returns the packets that it sent.
fn alone_for(pair: &mut Pair, ns: u64) -> Vec<face::Flying> {
    let mut sent = Vec::new();
    for _ in 0..ns / STEP_NS {
        pair.now += STEP_NS;
        pair.a.on_poll(pair.now, false);
        pair.a.handle_timeouts(pair.now);
        sent.extend(output(&mut pair.a, pair.now, false));
    }
    sent
}

/// Regression: the answers of a peer that had been stopped for 1.4 s looked like round trips of 1.4
/// s, and later losses were retransmitted only after 5 s (simulator seed 2054606).
#[test]
fn a_stopped_peer_does_not_count_as_a_slow_path() {
    let mut pair = Pair::new(1, false);
    pair.message(2, 20_000);
    // Its socket had room for the first ten packets only.
    let sent = alone_for(&mut pair, 1_400_000_000);
    pair.answer(&sent[..10], 0);
    pair.now += 50_000;
    pair.answer(&[], 0);
    pair.message(3, 20_000);
    let lost = pair.alone();
    assert!(lost.len() > 8, "{} packets", lost.len());
    let ptos = alone_for(&mut pair, 150_000_000);
    assert!(!ptos.is_empty(), "nothing was sent again in 150 ms");
    take(&mut pair.b, pair.now, &ptos);
    let end = pair.now + 1_000_000_000;
    while !pair.a.drained() && pair.now < end {
        pair.step();
    }
    assert!(pair.a.drained());
}

/// Packets in flight, each with its time of arrival.
#[derive(Default)]
struct Wire(Vec<(u64, face::Flying)>);

impl Wire {
    /// Sends packets; those of rail 1 take 3 ms.
    fn leave(&mut self, now: u64, packets: Vec<face::Flying>) {
        let due = |rail: usize| now + [20_000, 3_000_000][rail];
        self.0.extend(packets.into_iter().map(|p| (due(p.0), p)));
    }

    /// Takes the packets that have arrived by now.
    fn arrive(&mut self, now: u64) -> Vec<face::Flying> {
        let (here, left) = self.0.drain(..).partition(|p| p.0 <= now);
        self.0 = left;
        Vec::into_iter(here).map(|p| p.1).collect()
    }
}

/// Regression: a packet on an unproven path was given up after a millisecond, and its late answer
/// proved nothing: slower paths were never used (simulator seed 2056382).
#[test]
fn a_path_whose_answers_take_milliseconds_is_proven() {
    let mut pair = Pair::of([1, 2].map(|host| face::node(host, 2)), false);
    pair.message(1, 2_000);
    let (mut there, mut back) = (Wire::default(), Wire::default());
    for _ in 0..20_000 {
        pair.now += 50_000;
        take(&mut pair.b, pair.now, &there.arrive(pair.now));
        take(&mut pair.a, pair.now, &back.arrive(pair.now));
        for (node, wire) in [(&mut pair.a, &mut there), (&mut pair.b, &mut back)] {
            node.on_poll(pair.now, false);
            node.handle_timeouts(pair.now);
            wire.leave(pair.now, output(node, pair.now, false));
        }
    }
    let mut states = Vec::new();
    pair.a
        .for_each_peer(|_, _, _, paths| states.extend(paths.map(|(_, _, state, _)| state)));
    assert_eq!(states, [PathState::Up; 2]);
}
