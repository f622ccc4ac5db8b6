//! A due timer sends a packet, or is due later: a packet that cannot leave must not wake the owner
//! again and again.

use crate::face;

use face::{in_one_network, node_of, output, specs, take, Pair};
use marline_proto::{Config, Node};
use marline_wire::Packet;

/// Rails per side, all in one network.
const RAILS: u8 = 2;
/// Wakes without a packet, at most, in as many nanoseconds: more count as spinning.
const TURNS_MAX: usize = 4;

/// Pseudo-random numbers, the same for the same seed.
struct Draw(u64);

impl Draw {
    fn next(&mut self) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0.wrapping_mul(0x2545_f491_4f6c_dd1d) >> 16
    }

    fn below(&mut self, end: u64) -> u64 {
        self.next() % end
    }
}

fn node(host: u8) -> Node {
    let config = Config {
        peer_timeout_ns: 1_000_000_000,
        ..Config::default()
    };
    let mut specs = specs(host, RAILS, 1_472);
    in_one_network(&mut specs, host);
    node_of(config, host, specs)
}

/// The packets that a node sends now, without those that `lost` drops (a bit per path, by its
/// rails); and true if there were any.
fn leaves(node: &mut Node, now: u64, lost: u64) -> (bool, Vec<(usize, Vec<u8>)>) {
    let mut packets = output(node, now, false);
    let any = !packets.is_empty();
    packets.retain(|(rail, bytes)| {
        let remote = Packet::parse(bytes, |_| 0).unwrap().header.dst_rail();
        lost >> (rail * RAILS as usize + remote) & 1 == 0
    });
    (any, packets)
}

/// A turn of a node; true if it sent a packet.
fn turn(pair: &mut Pair, from: usize, lost: u64) -> bool {
    let now = pair.now;
    let (sender, taker) = match from {
        0 => (&mut pair.a, &mut pair.b),
        _ => (&mut pair.b, &mut pair.a),
    };
    sender.on_poll(now, false);
    sender.caught_up();
    sender.handle_timeouts(now);
    let (any, packets) = leaves(sender, now, lost);
    take(taker, now, &packets);
    any
}

/// A history in which rails lack room for a while and paths lose everything for a while.
fn history(seed: u64) {
    let mut draw = Draw(seed + 1);
    let mut pair = Pair::of([node(1), node(2)], false);
    let paths = 1 << (RAILS * RAILS);
    let mut lost = [0, 1].map(|_| draw.below(paths));
    for handle in 1..300 {
        pair.now += [1_000, 20_000, 100_000][draw.below(3) as usize];
        if draw.below(20) == 0 {
            let rails = draw.below(1 << RAILS) as u32;
            match draw.below(2) {
                0 => pair.a.set_full(rails),
                _ => pair.b.set_full(rails),
            }
        }
        if draw.below(40) == 0 {
            lost[draw.below(2) as usize] = draw.below(paths) & draw.below(paths);
        }
        if draw.below(8) == 0 {
            let len = [8, 1_000, 30_000][draw.below(3) as usize];
            pair.message(handle, len);
        }
        for from in [0, 1] {
            turn(&mut pair, from, lost[from]);
            let mut turns = 0;
            let due = |pair: &Pair| [&pair.a, &pair.b][from].next_deadline();
            while due(&pair).is_some_and(|at| at <= pair.now + 1) {
                pair.now += 1;
                turns = if turn(&mut pair, from, lost[from]) {
                    0
                } else {
                    turns + 1
                };
                let text = || [&pair.a, &pair.b][from].describe();
                assert!(
                    turns < TURNS_MAX,
                    "seed {seed}, node {from} spins: {}",
                    text()
                );
            }
        }
    }
}

/// Regression: the ack of an unproven path was due, the rails of all healthy paths had no room, and
/// the only path with room was doubtful and carried no acks (simulator seeds 80002114 and
/// 80015437).
#[test]
fn acks_that_cannot_leave_do_not_wake_the_owner() {
    for seed in 0..1_000 {
        history(seed);
    }
}
