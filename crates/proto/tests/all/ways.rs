//! Any path that carries packets one way, and any that carries them the other way, is found: each
//! rail may carry both directions, one or none. No peer that is reachable so counts as dead.

use crate::face;

use face::{Flying, Pair};
use marline_proto::{Config, Event, PeerId, RecvSpec, SendSpec, Source};
use marline_wire::Packet;

const TIMEOUT_NS: u64 = 1_000_000_000;

/// SplitMix64.
struct Dice(u64);

impl Dice {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mixed = (self.0 ^ self.0 >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let mixed = (mixed ^ mixed >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ mixed >> 31
    }

    fn below(&mut self, n: u64) -> u64 {
        self.next() % n
    }

    fn pick<T: Copy>(&mut self, from: &[T]) -> T {
        from[self.below(from.len() as u64) as usize]
    }

    /// A random subset of the first `n` bits, at least one.
    fn some(&mut self, n: u64) -> u64 {
        1 + self.below((1 << n) - 1)
    }
}

/// A network for a while: which packets it carries, and the traffic.
#[derive(Clone, Copy, Debug)]
struct Phase {
    /// Bit n: rail n of `b` receives (`hears`), or its packets arrive at `a` (`heard`).
    hears: u64,
    heard: u64,
    /// Packets lost of a thousand.
    lost: u64,
    /// Number of messages, one after another, and the longest pause after each.
    messages: u64,
    pause_ns: u64,
    /// Bytes per message, and whether each goes one way only.
    len: u64,
    one_way: bool,
}

impl Phase {
    fn draw(dice: &mut Dice, rails: u64, lost: u64) -> Phase {
        Phase {
            hears: dice.some(rails),
            heard: dice.some(rails),
            lost,
            messages: dice.pick(&[1, 3, 20]),
            pause_ns: dice.pick(&[0, 0, 1_000_000, 30_000_000]),
            len: dice.pick(&[8, 100, 1_300, 20_000, 200_000]),
            one_way: dice.below(3) == 0,
        }
    }

    fn carries(&self, dice: &mut Dice, from: usize, packet: &Flying) -> bool {
        let header = Packet::parse(&packet.1, |_| 0).unwrap().header;
        let open = match from {
            0 => self.hears >> header.dst_rail(),
            _ => self.heard >> header.src_rail(),
        };
        open & 1 == 1 && dice.below(1_000) >= self.lost
    }
}

/// Two nodes that exchange messages, one after another.
struct Run {
    pair: Pair,
    to_a: PeerId,
    handle: u32,
    dice: Dice,
}

impl Run {
    fn new(seed: u64, rails: u8, mesh: bool) -> Run {
        let config = Config {
            peer_timeout_ns: TIMEOUT_NS,
            ..Config::default()
        };
        let node = match mesh {
            true => face::node_in_one,
            false => face::node_with,
        };
        let nodes = [1, 2].map(|host| node(config, host, rails));
        let mut pair = Pair::of(nodes, true);
        let to_a = pair.b.peer(&pair.a.address());
        Run {
            pair,
            to_a,
            handle: 10,
            dice: Dice(seed),
        }
    }

    /// Sends a message each way, or from one node. Returns which nodes wait.
    fn post(&mut self, phase: &Phase) -> [bool; 2] {
        self.handle += 1;
        let (handle, pair) = (self.handle, &mut self.pair);
        let first = self.dice.below(2) as usize;
        let mut waits = [!phase.one_way; 2];
        waits[first] = true;
        for from in (0..2).filter(|&from| waits[from]) {
            let (sender, to, taker, of) = match from {
                0 => (&mut pair.a, pair.to_b, &mut pair.b, self.to_a),
                _ => (&mut pair.b, self.to_a, &mut pair.a, pair.to_b),
            };
            let receive = RecvSpec {
                handle: handle + 100_000,
                source: Source::Peer(of),
                tag: None,
                capacity: phase.len,
                multi_min: None,
            };
            taker.post_recv(&receive, pair.now);
            sender.post_send(&SendSpec {
                handle,
                peer: to,
                tag: None,
                data: None,
                len: phase.len,
                urgent_ack: true,
            });
        }
        waits
    }

    /// Exchanges the messages of a phase; returns the duration of the slowest.
    fn play(&mut self, phase: &Phase) -> Result<u64, String> {
        let mut slowest = 0;
        for _ in 0..phase.messages {
            let (begun, mut open) = (self.pair.now, self.post(phase));
            while open != [false; 2] {
                self.step(phase, &mut open)?;
                if self.pair.now > begun + 3 * TIMEOUT_NS {
                    return Err("hangs".into());
                }
            }
            slowest = slowest.max(self.pair.now - begun);
            let pause = self.pair.now + self.dice.below(1 + phase.pause_ns);
            while self.pair.now < pause {
                self.step(phase, &mut open)?;
            }
        }
        Ok(slowest)
    }

    /// A step of both; `open`: nodes that wait for the end of a message.
    fn step(&mut self, phase: &Phase, open: &mut [bool; 2]) -> Result<(), String> {
        let (pair, dice) = (&mut self.pair, &mut self.dice);
        pair.step_where(&mut |from, packet| phase.carries(dice, from, packet));
        for (node, open) in [&mut pair.a, &mut pair.b].into_iter().zip(open) {
            while let Some(event) = node.poll_event() {
                match event {
                    Event::PeerDead { .. } => return Err("dead".into()),
                    Event::SendDone { handle, .. } => *open &= handle != self.handle,
                    _ => {}
                }
            }
        }
        Ok(())
    }
}

/// Several networks, one after another; returns the duration of the slowest message.
fn history(seed: u64, rails: u8, mesh: bool, lost: u64) -> u64 {
    let mut run = Run::new(seed, rails, mesh);
    let mut phases: Vec<_> = (0..1 + run.dice.below(8))
        .map(|_| Phase::draw(&mut run.dice, rails as u64, lost))
        .collect();
    // An address names two rails: one of them has to carry the first packet.
    phases[0].hears |= 1 << run.dice.below(2);
    let mut slowest = 0;
    for (at, phase) in phases.iter().enumerate() {
        let took = run.play(phase).unwrap_or_else(|what| {
            panic!(
                "seed {seed}, {rails} rails, mesh {mesh}, lost {lost}: {what} in phase {at} of \
                 {phases:#?}\n{}{}",
                run.pair.a.describe(),
                run.pair.b.describe()
            )
        });
        slowest = slowest.max(took);
    }
    slowest
}

fn histories(rails: u8, mesh: bool, lost: u64, most_ns: u64) {
    let count: u64 = std::env::var("COUNT").map_or(100, |n| n.parse().unwrap());
    let base: u64 = std::env::var("BASE").map_or(0, |n| n.parse().unwrap());
    let mut times: Vec<_> = (base..base + count)
        .map(|seed| (history(seed, rails, mesh, lost), seed))
        .collect();
    times.sort_unstable();
    let (median, most) = (times[times.len() / 2].0, times[times.len() - 1]);
    println!("{rails} rails, mesh {mesh}, lost {lost}: median {median} ns, most {most:?}");
    assert!(most.0 <= most_ns, "{most:?}");
}

#[test]
fn two_rails() {
    histories(2, false, 0, TIMEOUT_NS / 2);
}

#[test]
fn three_rails() {
    histories(3, false, 0, TIMEOUT_NS / 2);
}

#[test]
fn two_rails_in_one_subnet() {
    histories(2, true, 0, TIMEOUT_NS / 2);
}

#[test]
fn four_rails_in_one_subnet() {
    histories(4, true, 0, TIMEOUT_NS / 2);
}

#[test]
fn two_rails_that_lose_packets() {
    histories(2, false, 300, TIMEOUT_NS / 2);
}

#[test]
fn two_rails_in_one_subnet_that_lose_packets() {
    histories(2, true, 300, TIMEOUT_NS / 2);
}
