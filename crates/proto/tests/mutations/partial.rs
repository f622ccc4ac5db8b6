//! Partial networks: only one direction works, or only small packets pass.

use crate::face;

use face::Pair;
use marline_proto::{Config, Event, PeerId, RecvSpec, SendSpec, Source};

const TIMEOUT_NS: u64 = 400_000_000;
/// A long message: rendezvous, over all rails.
const LONG: u64 = 3_000_000;

/// Two nodes with messages both ways.
struct Run {
    pair: Pair,
    to_a: PeerId,
    posted: u32,
    deaths: usize,
    /// Packets that the network dropped.
    lost: usize,
}

impl Run {
    /// Before the first packet.
    fn new(rails: u8, config: Config) -> Run {
        let nodes = [1, 2].map(|host| face::node_with(config, host, rails));
        let mut pair = Pair::of(nodes, true);
        let to_a = pair.b.peer(&pair.a.address());
        Run {
            pair,
            to_a,
            posted: 10,
            deaths: 0,
            lost: 0,
        }
    }

    /// All paths are proven, their sizes known.
    fn met(rails: u8) -> Run {
        let mut run = Run::new(rails, config());
        assert!(run.exchange(LONG, &|_, _, _| true).is_some());
        run
    }

    /// Sends a message each way; returns how long both take, if they end.
    fn exchange(&mut self, len: u64, passes: &dyn Fn(usize, usize, usize) -> bool) -> Option<u64> {
        self.posted += 1;
        let (handle, pair) = (self.posted, &mut self.pair);
        let (begun, mut open) = (pair.now, [true; 2]);
        for (node, peer) in [(&mut pair.a, pair.to_b), (&mut pair.b, self.to_a)] {
            node.post_recv(
                &RecvSpec {
                    handle: handle + 1_000,
                    source: Source::Peer(peer),
                    tag: None,
                    capacity: len,
                    multi_min: None,
                },
                pair.now,
            );
            node.post_send(&SendSpec {
                handle,
                peer,
                tag: None,
                data: None,
                len,
                urgent_ack: true,
            });
        }
        while open != [false; 2] && pair.now < begun + 20 * TIMEOUT_NS {
            let mut count = |from, rail, bytes| {
                let arrives = passes(from, rail, bytes);
                self.lost += !arrives as usize;
                arrives
            };
            pair.step_through(&mut count);
            for (node, open) in [&mut pair.a, &mut pair.b].into_iter().zip(&mut open) {
                while let Some(event) = node.poll_event() {
                    self.deaths += matches!(event, Event::PeerDead { .. }) as usize;
                    *open &= !matches!(event, Event::SendDone { handle: h, .. } if h == handle);
                }
            }
        }
        (open == [false; 2]).then_some(pair.now - begun)
    }
}

fn config() -> Config {
    Config {
        peer_timeout_ns: TIMEOUT_NS,
        ..Config::default()
    }
}

/// Messages of each kind both ways: the duration of the slowest, and the packets lost.
fn slowest(rails: u8, passes: &dyn Fn(usize, usize, usize) -> bool) -> (u64, usize) {
    // Also from the first packet on.
    let (first, _) = slowest_of(Run::new(rails, config()), passes);
    let (later, lost) = slowest_of(Run::met(rails), passes);
    println!("{rails} rails: the slowest rounds took {first} and {later} ns, {lost} packets lost");
    (first.max(later), lost)
}

fn slowest_of(mut run: Run, passes: &dyn Fn(usize, usize, usize) -> bool) -> (u64, usize) {
    let slowest = rounds(&mut run, passes).unwrap_or_else(|complaint| panic!("{complaint}"));
    (slowest, run.lost)
}

/// Duration of the slowest of twelve rounds; an error if a round hangs or a peer counts as dead.
fn rounds(run: &mut Run, passes: &dyn Fn(usize, usize, usize) -> bool) -> Result<u64, String> {
    let mut slowest = 0;
    for round in 0..12 {
        let len = [100, 20_000, LONG, 1_300][round % 4];
        let took = run.exchange(len, passes);
        let state = || format!("{}{}", run.pair.a.describe(), run.pair.b.describe());
        if run.deaths > 0 {
            return Err(format!("round {round}, dead: {}", state()));
        }
        slowest = slowest.max(took.ok_or_else(|| format!("round {round} hangs: {}", state()))?);
    }
    Ok(slowest)
}

/// Requires partial networks to deliver within half of the silence timeout.
fn carry(rails: u8, networks: &[&dyn Fn(usize, usize, usize) -> bool]) {
    let rounds: Vec<_> = networks.iter().map(|n| slowest(rails, n)).collect();
    let late = rounds.iter().any(|&(ns, _)| ns > TIMEOUT_NS / 2);
    let lost: usize = rounds.iter().map(|r| r.1).sum();
    assert!(!late && lost > 10, "{rounds:?}");
}

/// Rail 0 carries from `b` to `a` only, rail 1 from `a` to `b` only: data one way, and its acks the
/// other way.
#[test]
fn each_rail_carries_one_way() {
    carry(
        2,
        &[&|from, rail, _| from != rail, &|from, rail, _| from == rail],
    );
}

/// The same with a third rail that carries nothing, and is used first: the acks lost there are
/// repeated on the others.
#[test]
fn two_one_way_rails_and_a_dead_one_carry() {
    carry(3, &[&|from, rail, _| [false, from == 0, from == 1][rail]]);
    carry(3, &[&|from, rail, _| [false, from == 1, from == 0][rail]]);
}

/// A lost ack-only packet has no consequence for its sender: acks sent on one path only take until
/// the timers of the paths have drifted apart, or until the peer counts as dead.
#[cfg(feature = "mutation")]
#[test]
fn acks_sent_on_one_path_arrive_late() {
    let first_contact = |mutation| {
        let config = Config {
            mutation,
            ..config()
        };
        let passes = |from, rail, _| [false, from == 0, from == 1][rail];
        rounds(&mut Run::new(3, config), &passes)
    };
    let everywhere = first_contact(None).expect("a live peer is reached");
    if let Ok(once) = first_contact(Some(marline_proto::Mutation::SayOnce)) {
        assert!(once > 2 * everywhere, "{once} ns");
    }
}

/// One of two rails carries small packets only, in one direction or both.
#[test]
fn one_rail_carries_small_packets_only() {
    for max in [560, 1_172, 1_400] {
        for rail in [0, 1] {
            let both = |_, r, len| r != rail || len <= max;
            let one = |from, r, len| r != rail || from == 1 || len <= max;
            carry(2, &[&both, &one]);
        }
    }
}

/// The only rail carries small packets only.
#[test]
fn the_only_rail_carries_small_packets_only() {
    for max in [560, 1_172, 1_400] {
        carry(1, &[&|_, _, len| len <= max]);
        carry(1, &[&|from, _, len| from == 1 || len <= max]);
    }
}

/// A repaired network is used again as before.
#[test]
fn a_larger_size_that_passes_again_is_found() {
    let mut run = Run::met(1);
    let whole = run.exchange(LONG, &|_, _, _| true);
    run.exchange(LONG, &|_, _, len| len <= 1_172)
        .expect("it shrinks");
    let (mut mended, begun) = (None, run.pair.now);
    while run.pair.now < begun + 10_000_000_000 && mended != whole {
        run.pair.now += 100_000_000;
        mended = run.exchange(LONG, &|_, _, _| true);
    }
    let sizes = format!("{}{}", run.pair.a.describe(), run.pair.b.describe());
    assert_eq!(sizes.matches(" mtu 1472 ").count(), 2, "{sizes}");
    assert_eq!(run.deaths, 0);
}

/// No packet long enough for data passes, while short ones do: nothing hangs.
#[test]
fn a_network_that_carries_no_data_ends_in_an_error() {
    for rails in [1, 2] {
        let mut run = Run::met(rails);
        let took = run.exchange(LONG, &|_, _, len| len <= 300);
        assert!(
            run.deaths > 0 && took.is_some(),
            "{rails} rails: {}{}",
            run.pair.a.describe(),
            run.pair.b.describe()
        );
        let took = took.unwrap_or(0);
        assert!((TIMEOUT_NS..3 * TIMEOUT_NS).contains(&took), "{took} ns");
    }
}

/// Both rails carry from `b` to `a` only: nothing hangs.
#[test]
fn a_network_that_carries_one_way_only_ends_in_an_error() {
    for rails in [1, 2] {
        let mut run = Run::met(rails);
        let took = run.exchange(LONG, &|from, _, _| from == 1);
        assert!(
            run.deaths > 0 && took.is_some(),
            "{rails} rails: {}{}",
            run.pair.a.describe(),
            run.pair.b.describe()
        );
        let took = took.unwrap_or(0);
        assert!((TIMEOUT_NS..3 * TIMEOUT_NS).contains(&took), "{took} ns");
    }
}
