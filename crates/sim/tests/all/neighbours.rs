//! Hosts whose kernels send neighbour requests in vain during an outage, and not again for a long
//! time.

use marline_sim::script::parse;
use marline_sim::{run_setup, Outcome, Setup, Work};
use std::fmt::Write;

const MS: u64 = 1_000_000;

/// Both rails of one of two hosts lose their carrier several times, for this long each. Kernels
/// repeat a failed request after a minute, far longer than the timeout for silent peers.
fn setup(seed: u64, down_ms: u64) -> Setup {
    let mut setup = Setup::plain(seed, 2, 2);
    setup.node.peer_timeout_ns = 5_000 * MS;
    (setup.work, setup.ops, setup.size_max) = (Work::Halo, 4_000, 100_000);
    setup.rate.fill(1_250_000_000);
    let mut faults = String::new();
    for turn in 0..4 {
        let from = 5 + turn * (down_ms + 700);
        for rail in [0, 1] {
            writeln!(faults, "{from}ms {}ms 1:{rail} down", from + down_ms).expect("text");
        }
    }
    setup.follow(&parse(&faults, 2, 2).expect("faults"));
    setup.neighbour_resolution_ns = 60_000 * MS;
    setup
}

fn clean(setup: &Setup) -> Outcome {
    let outcome = run_setup(setup, false);
    assert_eq!(outcome.failure, None);
    outcome
}

#[test]
fn a_failed_neighbour_request_ends_by_announcement() {
    for down_ms in [50, 1_200, 4_200] {
        let mut told = 0;
        for seed in 0..6 {
            told += clean(&setup(seed, down_ms)).net.announced;
        }
        assert!(told > 6, "{told} times: {down_ms} ms");
    }
}

/// The mutation without announcements of silent rails is noticed.
#[cfg(feature = "mutation")]
#[test]
fn missing_announcements_are_noticed() {
    let fails = |seed| {
        let mut setup = setup(seed, 1_200);
        setup.node.mutation = Some(marline_proto::Mutation::HideSilence);
        run_setup(&setup, false).failure.is_some()
    };
    assert!((0..6).any(fails));
}
