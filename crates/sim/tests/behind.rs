//! A rail that stands behind another, as TCP does behind UDP (docs/design/peer-failure.md).

use marline_sim::script::parse;
use marline_sim::{run_setup, Outcome, Setup, Work};

/// Two hosts of two rails, one behind the other, with these faults.
fn run(seed: u64, faults: &str) -> Outcome {
    let mut setup = Setup::plain(seed, 2, 2);
    setup.set_behind(1);
    (setup.work, setup.ops, setup.size_max) = (Work::PingPong, 400, 1 << 16);
    setup.faults_end_ns = 600_000_000;
    setup.follow(&parse(faults, 2, 2).expect("faults"));
    let report = run_setup(&setup, false);
    assert_eq!(report.failure, None, "seed {seed}");
    report
}

fn stood_in(report: &Outcome) -> u64 {
    report.troubles.get("stands in").copied().unwrap_or(0)
}

#[test]
fn nothing_is_asked_behind_a_rail_that_works() {
    for seed in 0..6 {
        assert_eq!(stood_in(&run(seed, "")), 0);
    }
}

/// The process of host 1 is stopped, so that it says nothing, while a firewall refuses datagrams.
#[test]
fn who_is_refused_by_datagrams_alone_is_not_dead() {
    for seed in 0..6 {
        let report = run(seed, "2ms 400ms 1:0 refuses\n2ms 400ms 1 stopped");
        assert_eq!(report.troubles.get("rail refuses"), Some(&1));
        assert!(stood_in(&report) > 0);
    }
}

#[test]
fn it_carries_while_the_rail_before_it_is_down() {
    for seed in 0..6 {
        assert!(stood_in(&run(seed, "2ms 400ms 0:0 silent")) > 0);
    }
}
