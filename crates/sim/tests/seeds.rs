//! A slice of the simulations that `make soak` runs for ever, from a fixed base.

use marline_sim::{run_seeds, run_setup, Profile, Setup};

/// Seeds per profile: a few seconds in all.
const SEEDS: u64 = 150;
/// Any number; changing it looks at other schedules.
const BASE: u64 = 0x6d61_726c_696e_6500;

fn clean(profile: Profile, base: u64, count: u64) {
    let report = run_seeds(base..base + count, profile, 0, 0, 3);
    let texts: Vec<&str> = report.failures.iter().map(|f| f.1.as_str()).collect();
    assert!(texts.is_empty(), "{}", texts.join("\n"));
    assert!(report.net.packets > 100 * count);
}

#[test]
fn every_fault_at_once() {
    clean(Profile::Swarm, BASE, 2 * SEEDS);
}

#[test]
fn packets_lost_damaged_and_reordered() {
    clean(Profile::Loss, BASE, SEEDS);
}

#[test]
fn rails_fail_and_return() {
    clean(Profile::Rails, BASE, SEEDS);
}

#[test]
fn peers_die_stop_and_are_cut_off() {
    clean(Profile::Peers, BASE, SEEDS);
}

#[test]
fn nothing_fails() {
    clean(Profile::Calm, BASE, SEEDS);
}

#[test]
fn the_same_seed_gives_the_same_events() {
    for seed in BASE..BASE + 40 {
        let setup = Setup::draw(seed, Profile::Swarm, 0, 0);
        let (a, b) = (run_setup(&setup, false), run_setup(&setup, true));
        assert_eq!(a.hash, b.hash, "seed {seed}");
    }
}
