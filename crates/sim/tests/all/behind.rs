//! Standby rails, as TCP stands by for UDP (docs/design/peer-failure.md).

use marline_sim::script::parse;
use marline_sim::{run_setup, Outcome, Setup, Work};

/// Runs two hosts with a rail and its standby rail and these faults.
fn run(seed: u64, faults: &str) -> Outcome {
    let mut setup = Setup::plain(seed, 2, 2);
    setup.set_standby(1);
    (setup.work, setup.ops, setup.size_max) = (Work::PingPong, 400, 1 << 16);
    setup.faults_end_ns = 600_000_000;
    setup.follow(&parse(faults, 2, 2).expect("faults"));
    let report = run_setup(&setup, false);
    assert_eq!(report.failure, None, "seed {seed}");
    report
}

fn stood_in(report: &Outcome) -> u64 {
    report.troubles.get("standby carries").copied().unwrap_or(0)
}

#[test]
fn standby_rails_are_idle_while_the_rail_works() {
    for seed in 0..6 {
        assert_eq!(stood_in(&run(seed, "")), 0);
    }
}

/// Host 1's process is stopped and therefore silent, while a firewall refuses datagrams.
#[test]
fn refusals_of_datagrams_alone_do_not_declare_a_peer_dead() {
    for seed in 0..6 {
        let report = run(seed, "2ms 400ms 1:0 refuses\n2ms 400ms 1 stopped");
        assert_eq!(report.troubles.get("rail refuses"), Some(&1));
        assert!(stood_in(&report) > 0);
    }
}

#[test]
fn a_standby_rail_carries_while_the_preferred_rail_is_down() {
    for seed in 0..6 {
        assert!(stood_in(&run(seed, "2ms 400ms 0:0 silent")) > 0);
    }
}
