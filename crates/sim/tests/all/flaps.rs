//! All rails of all hosts fail in turn, and each time their kernels repeat the neighbour discovery
//! a second later; nothing passes meanwhile (docs/design/peer-failure.md).

use marline_sim::script::parse;
use marline_sim::{run_setup, Outcome, Setup, Work};
use std::fmt::Write;

const MS: u64 = 1_000_000;
const TIMEOUT_MS: u64 = 5_000;
/// Duration of an outage, and interval between two outages.
const DOWN_MS: u64 = 50;
const EVERY_MS: u64 = 150;
/// Further time in which the rail loses outgoing packets.
const ASKS_MS: u64 = 1_000;

/// Two hosts with flapping rails until then.
fn flapping(seed: u64, until_ms: u64, more: &str) -> Setup {
    let mut setup = Setup::plain(seed, 2, 2);
    setup.node.peer_timeout_ns = TIMEOUT_MS * MS;
    (setup.work, setup.ops, setup.size_max) = (Work::Halo, 4_000, 100_000);
    setup.rate.fill(1_250_000_000);
    let mut faults = more.to_string();
    for (turn, from) in (5..until_ms).step_by(EVERY_MS as usize).enumerate() {
        let (down, mute) = (from + DOWN_MS, from + DOWN_MS + ASKS_MS);
        // The first outage affects all rails at once, so that work is left afterwards.
        for (host, rail) in [(0, 0), (0, 1), (1, 0), (1, 1)] {
            if turn > 0 && rail != turn % 2 {
                continue;
            }
            let at = format!("{host}:{rail}");
            writeln!(faults, "{from}ms {down}ms {at} down").expect("text");
            writeln!(faults, "{from}ms {mute}ms {at} blackhole out").expect("text");
        }
    }
    setup.follow(&parse(&faults, 2, 2).expect("faults"));
    setup
}

fn right(setup: &Setup) -> Outcome {
    let outcome = run_setup(setup, false);
    let failure = outcome
        .failure
        .as_ref()
        .and_then(|text| text.lines().next());
    assert_eq!(failure, None);
    let flaps = outcome.troubles.get("rail down, told");
    assert!(flaps.is_some_and(|flaps| *flaps > 50), "{flaps:?}");
    outcome
}

/// The rails flap for more than twice the timeout for silent peers.
#[test]
fn nobody_is_dead_while_all_rails_flap() {
    for seed in 0..4 {
        let until_ms = TIMEOUT_MS * 5 / 2;
        let outcome = right(&flapping(seed, until_ms, ""));
        let worked_ms = outcome.worked_ns / MS;
        assert!(worked_ms > until_ms, "over at {worked_ms} ms");
    }
}

/// The simulator checks the bound on reporting a death.
#[test]
fn a_death_during_flaps_is_reported() {
    for seed in 0..4 {
        let setup = flapping(seed, 5 * TIMEOUT_MS, "1s 26s 1 restarts\n");
        assert_eq!(right(&setup).troubles.get("died"), Some(&1));
    }
}
