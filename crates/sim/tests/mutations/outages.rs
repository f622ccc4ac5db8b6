//! Outages of all rails for 1 to 100 s, and firewalls that refuse everything temporarily: live
//! peers are not declared dead, deaths are reported, and all work completes.

use marline_sim::{run_setup, Fault, Profile, Setup, Trouble};

const SEEDS: u64 = 150;

fn draw(seed: u64) -> Setup {
    Setup::draw(seed, Profile::Outages, 0, 0)
}

#[test]
fn live_peers_outlast_outages() {
    let (mut long, mut refused, mut dead) = (0, 0, 0);
    let dies = |f: &Fault| matches!(f.what, Trouble::Death { .. });
    for seed in 0..SEEDS {
        let setup = draw(seed);
        let outcome = run_setup(&setup, false);
        assert_eq!(outcome.failure, None, "seed {seed}");
        let lasts = |f: &Fault| f.to_ns - f.from_ns > 10_000_000_000;
        long += u64::from(setup.faults.iter().any(lasts));
        refused += outcome.net.refused;
        dead += u64::from(setup.faults.iter().any(dies));
    }
    println!("{long} outages above 10 s, {refused} refusals, {dead} with a death");
    assert!(long > SEEDS / 4 && refused > 100 && dead > 0);
}

/// The mutation that takes refusals of one kind as immediate proof of a death is noticed.
#[cfg(feature = "mutation")]
#[test]
fn premature_deaths_by_refusals_are_noticed() {
    let fails = |seed: &u64| {
        let mut setup = draw(*seed);
        setup.node.mutation = Some(marline_proto::Mutation::BelieveHiccups);
        let failure = run_setup(&setup, false).failure;
        failure.is_some_and(|text| text.contains("is called dead, and lives"))
    };
    let seed = (0..SEEDS).find(fails).expect("nobody complains");
    println!("noticed by seed {seed}");
}
