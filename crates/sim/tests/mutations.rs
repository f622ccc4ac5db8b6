//! Every deliberate mistake in the protocol is noticed: prints the table mutation -> seeds needed.
//! `cargo test -p marline-sim --features mutation --test mutations -- --nocapture`
#![cfg(feature = "mutation")]

use marline_proto::Mutation;
use marline_sim::{run_setup, shrink, Profile, Setup};

/// A mistake that hides longer than this calls for a better simulator.
const SEEDS_MAX: u64 = 3_000;

fn hunt(mutation: Mutation) -> Option<(u64, String)> {
    for seed in 0..SEEDS_MAX {
        // Where everything fails at once, one mistake among paths hides behind the others.
        for profile in [Profile::Swarm, Profile::Rails, Profile::Peers] {
            let mut setup = Setup::draw(seed, profile, 0, 0);
            setup.node.mutation = Some(mutation);
            if let Some(text) = run_setup(&setup, false).failure {
                let line = text.lines().next().unwrap_or_default();
                return Some((seed + 1, line.chars().take(90).collect()));
            }
        }
    }
    None
}

#[test]
fn every_mutation_is_noticed() {
    // Broken protocols panic now and then; that counts, and need not be shown.
    std::panic::set_hook(Box::new(|_| {}));
    let mut missed = Vec::new();
    // A hasty verdict costs a failover, no message; `found.rs` has the schedule that shows it.
    for mutation in Mutation::ALL.into_iter().filter(|m| *m != Mutation::Hasty) {
        match hunt(mutation) {
            Some((seeds, how)) => println!("{:<16} {seeds:>5}  {how}", format!("{mutation:?}")),
            None => missed.push(mutation),
        }
    }
    assert!(missed.is_empty(), "not noticed: {missed:?}");
}

#[test]
fn a_failing_setup_shrinks_and_still_fails() {
    let mut setup = Setup::draw(0, Profile::Swarm, 4, 2);
    setup.node.mutation = Some(Mutation::ForgetLost);
    setup.weather.drop = 50_000;
    assert!(run_setup(&setup, false).failure.is_some());
    let small = shrink(&setup);
    assert!(run_setup(&small, false).failure.is_some());
    assert!(small.ops < setup.ops || small.faults.len() < setup.faults.len());
}
