//! Failure injection in a few seconds; `make detect` delivers millions of damaged copies.

use marline_checksum::Algorithm;
use marline_sim::damage::{HEAD_KINDS, PAYLOAD_KINDS};
use marline_sim::inject::{Plan, Stuff, Tally};

fn run(plan: &Plan) -> Tally {
    plan.run().unwrap_or_else(|text| panic!("{text}"))
}

/// With the default algorithm no damage passes, and all messages arrive.
#[test]
fn nothing_damaged_is_delivered_with_the_default() {
    let mut tried = 0;
    for (seed, kind) in HEAD_KINDS.into_iter().chain(PAYLOAD_KINDS).enumerate() {
        for stuff in [Stuff::Noise, Stuff::Integers] {
            let plan = Plan {
                algorithm: Algorithm::default(),
                stuff,
                kind,
                packets: 2_000,
                seed: seed as u64,
            };
            let tally = run(&plan);
            assert_eq!(tally.missed(), 0, "{plan:?}: {tally:?}");
            assert!(tally.by_head + tally.by_payload > 0, "{plan:?}: {tally:?}");
            tried += tally.tried;
        }
    }
    assert!(tried >= 2 * 25 * 2_000);
}

/// Weak algorithms miss exactly what their construction implies: the injection is effective.
#[test]
fn every_algorithm_misses_what_theory_says() {
    for algorithm in Algorithm::all() {
        for kind in PAYLOAD_KINDS {
            let plan = Plan {
                algorithm,
                stuff: Stuff::Noise,
                kind,
                packets: 1_000,
                seed: 7,
            };
            let tally = run(&plan);
            if let Some((least, most)) = plan.theory().bounds(tally.tried) {
                let fits = (least..=most).contains(&tally.missed());
                assert!(fits, "{plan:?}: {tally:?}, expected {least}..={most}");
            }
        }
    }
}
