//! Rails whose addresses change during a run (docs/design/moving-addresses.md).

use marline_sim::script::parse;
use marline_sim::{run_setup, Setup, Topology, Work};

/// A cluster whose work lasts longer than these faults.
fn moving(seed: u64, hosts: usize, rails: usize, faults: &str) -> Setup {
    let mut setup = Setup::plain(seed, hosts, rails);
    (setup.work, setup.ops, setup.size_max) = (Work::Halo, 400, 3 << 20);
    setup.rate.fill(125_000_000);
    setup.faults_end_ns = 60_000_000;
    setup.follow(&parse(faults, hosts, rails).expect("faults"));
    setup
}

fn all_right(setup: &Setup) {
    let report = run_setup(setup, false);
    let moves = report.troubles.get("rail moves");
    assert_eq!(moves.copied(), Some(setup.faults.len() as u64));
    let worked_ns = report.worked_ns;
    assert!(worked_ns > 25_000_000, "over at {worked_ns} ns");
    assert!(
        report.failure.is_none(),
        "seed {}: {:?}",
        setup.seed,
        report.failure
    );
}

#[test]
fn the_only_rail_of_a_host_moves() {
    for seed in 0..6 {
        all_right(&moving(
            seed,
            2,
            1,
            "5ms 7ms 0:0 moves=1\n20ms 22ms 0:0 moves=2",
        ));
    }
}

#[test]
fn both_ends_of_a_rail_move_at_once() {
    for seed in 0..6 {
        let faults = "5ms 7ms 0:1 moves=1\n5ms 7ms 1:1 moves=1\n20ms 22ms 0:1 moves=0\n\
                      20ms 21ms 1:1 moves=5";
        all_right(&moving(seed, 2, 2, faults));
    }
}

#[test]
fn rails_come_later() {
    for seed in 0..6 {
        let mut setup = moving(seed, 2, 2, "5ms 7ms 0:1 moves=0\n5ms 9ms 1:1 moves=1");
        setup.awaited = vec![(0, 1), (1, 1)];
        all_right(&setup);
    }
}

/// A process that starts after all rails of another have moved gets the current addresses: with the
/// first ones it could not reach the peer and declared it dead (profile swarm, seed 12730539078467
/// with 3,000 packets at least).
#[test]
fn a_later_process_gets_the_moved_addresses() {
    for seed in 0..6 {
        let faults = "5ms 7ms 0:0 moves=1\n9ms 11ms 0:1 moves=2\n15ms 20ms 1 restarts";
        let report = run_setup(&moving(seed, 3, 2, faults), false);
        assert_eq!(report.troubles.get("rail moves"), Some(&2));
        assert_eq!(report.troubles.get("died"), Some(&1));
        assert!(
            report.failure.is_none(),
            "seed {seed}: {:?}",
            report.failure
        );
    }
}

/// While a peer is silent, a lost notification of a move is repeated on the paths that lost it
/// only, not on all paths at each loss, which flooded silent peers (seed 3852).
#[test]
fn a_lost_notification_of_a_move_floods_no_peer() {
    let sent = |faults: &str| {
        let mut setup = Setup::plain(1, 3, 4);
        (setup.work, setup.ops, setup.size_max) = (Work::Incast, 50, 64);
        setup.topology = Topology::Mesh;
        setup.follow(&parse(faults, 3, 4).expect("faults"));
        let report = run_setup(&setup, false);
        assert!(report.failure.is_none(), "{:?}", report.failure);
        report.net.packets
    };
    let silence = "1ms 2s all partition=1";
    let stayed = sent(silence);
    let moved = sent(&format!("{silence}\n500ms 501ms 0:0 moves=3"));
    assert!(moved < 3 * stayed, "{moved} packets, {stayed} without");
}
