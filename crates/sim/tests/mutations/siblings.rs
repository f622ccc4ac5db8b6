//! Hosts with two processes each at the same addresses: one that is killed is told soon, as its
//! host refuses it alone; a firewall that refuses both is no death.

use marline_sim::script::parse;
use marline_sim::{run_setup, Outcome, Setup, Work};

const MS: u64 = 1_000_000;
const HOSTS: usize = 4;
const RAILS: usize = 2;

/// Two machines with two processes each. For silence nobody is dead within these tests.
fn setup(seed: u64, streams: bool, faults: &str) -> Setup {
    let mut setup = Setup::plain(seed, HOSTS, RAILS);
    setup.paired = true;
    if streams {
        (setup.streams, setup.connected) = (vec![true; RAILS], vec![true; RAILS]);
    }
    setup.refuses = true;
    setup.node.peer_timeout_ns = 120_000 * MS;
    (setup.work, setup.ops, setup.size_max) = (Work::AllToAll, 400, 20_000);
    setup.follow(&parse(faults, HOSTS, RAILS).expect("faults"));
    setup
}

fn clean(setup: &Setup) -> Outcome {
    let outcome = run_setup(setup, false);
    assert_eq!(outcome.failure, None, "seed {}", setup.seed);
    outcome
}

/// A firewall that refuses what comes to these hosts for three seconds, in which nothing is heard
/// of the first of them.
fn firewall(hosts: &[usize]) -> String {
    let mut faults = format!("2ms 3000ms {} stopped\n", hosts[0]);
    for host in hosts {
        for rail in 0..RAILS {
            faults += &format!("2ms 3000ms {host}:{rail} refuses\n");
        }
    }
    faults
}

#[test]
fn a_firewall_that_refuses_all_processes_for_seconds_ends_none() {
    for streams in [false, true] {
        let mut refused = 0;
        for seed in 0..12 {
            refused += clean(&setup(seed, streams, &firewall(&[2, 3]))).net.refused;
        }
        assert!(refused > 100, "{refused} refusals, streams: {streams}");
    }
}

#[test]
fn a_firewall_of_a_host_with_one_process_ends_none() {
    for streams in [false, true] {
        let mut refused = 0;
        for seed in 0..12 {
            let mut setup = setup(seed, streams, &firewall(&[2]));
            setup.paired = false;
            refused += clean(&setup).net.refused;
        }
        assert!(refused > 100, "{refused} refusals, streams: {streams}");
    }
}

/// All that waits for the killed process ends within a second or so. (Host 0 alone waits for it:
/// its sibling speaks to nobody else at their addresses.)
#[test]
fn a_killed_process_beside_one_that_lives_is_told_soon() {
    let (mut refused, mut late) = (0, Vec::new());
    for seed in 0..12 {
        let mut setup = setup(seed, false, "10ms 11ms 2 dies");
        setup.work = Work::Incast;
        let outcome = clean(&setup);
        refused += outcome.net.refused + outcome.net.nobody;
        if outcome.worked_ns > 1_500 * MS {
            late.push((seed, outcome.worked_ns / MS));
        }
    }
    assert!(refused > 100, "{refused} refusals");
    assert!(late.is_empty(), "{late:?} ms");
}

/// A node that takes what reached another process before for what reaches it now is noticed.
#[cfg(feature = "mutation")]
#[test]
fn siblings_that_are_trusted_unasked_are_noticed() {
    for streams in [false, true] {
        let fails = |seed| {
            let mut setup = setup(seed, streams, &firewall(&[2, 3]));
            setup.node.mutation = Some(marline_proto::Mutation::TrustSiblings);
            let failure = run_setup(&setup, false).failure;
            failure.is_some_and(|text| text.contains("is called dead, and lives"))
        };
        assert!((0..12).any(fails), "streams: {streams}");
    }
}
