//! Rails that corrupt data: isolated if a better one exists, and reinstated when clean.

use marline_sim::{run_setup, Fault, Outcome, PacketFaults, Setup, Topology, Trouble, Work};

const MS: u64 = 1_000_000;

/// Two hosts exchange large messages over `rails` equal rails of 10 Gbit/s for half a second, while
/// each of `bad` (rail, ppm, until ms) damages packets.
fn play(rails: usize, bad: &[(usize, u32, u64)]) -> Outcome {
    play_with(rails, bad, &[])
}

/// Like [`play`], with other faults.
fn play_with(rails: usize, bad: &[(usize, u32, u64)], others: &[Fault]) -> Outcome {
    let mut setup = Setup::plain(1, 2, rails);
    setup.topology = Topology::Planes;
    setup.packet_faults = PacketFaults::default();
    setup.work = Work::Halo;
    (setup.ops, setup.size_max, setup.pause_ns) = (16_000, 1 << 20, 500);
    setup.latency_ns = vec![20_000; rails];
    setup.rate = vec![1_250_000_000; rails];
    setup.datagram_max = vec![1_472; rails];
    setup.socket_bytes = 4 << 20;
    setup.node = Default::default();
    let fault = |&(rail, ppm, until_ms): &(usize, u32, u64)| Fault {
        from_ns: 0,
        to_ns: until_ms * MS,
        what: Trouble::Corrupt { host: 0, rail, ppm },
    };
    setup.faults = bad.iter().map(fault).chain(others.to_vec()).collect();
    setup.faults_end_ns = 2_000 * MS;
    let outcome = run_setup(&setup, false);
    assert!(outcome.failure.is_none(), "{:?}", outcome.failure);
    outcome
}

/// The share of bytes sent on rail 1.
fn share(outcome: &Outcome) -> f64 {
    let bytes = |rail: usize| outcome.rails[rail].bytes_sent as f64;
    bytes(1) / (bytes(0) + bytes(1))
}

#[test]
fn a_corrupting_rail_is_isolated() {
    let clean = play(2, &[]);
    let bad = play(2, &[(1, 50_000, 2_000)]);
    assert!(share(&clean) > 0.4, "{:?}", clean.rails);
    assert!(share(&bad) < 0.2 * share(&clean), "{:?}", bad.rails);
    assert!(bad.rails[1].corrupt_downs > 0 && bad.rails[0].corrupt_downs == 0);
}

#[test]
fn a_clean_rail_is_reinstated() {
    let outcome = play(2, &[(1, 50_000, 5)]);
    let rail = &outcome.rails[1];
    assert!(rail.corrupt_downs > 0 && rail.returns > 0, "{rail:?}");
    assert!(
        share(&outcome) > 0.2,
        "{} ms {:?}",
        outcome.worked_ns / MS,
        outcome.rails
    );
}

#[test]
fn below_the_limit_a_rail_is_not_isolated() {
    let outcome = play(2, &[(1, 1_000, 2_000)]);
    assert_eq!(outcome.rails[1].corrupt_downs, 0);
    assert!(outcome.rails[1].corrupt > 0);
    // (Short messages use the first of two equal rails.)
    assert!(share(&outcome) > 0.3, "{:?}", outcome.rails);
}

#[test]
fn when_all_rails_corrupt_all_are_used() {
    let outcome = play(2, &[(0, 50_000, 2_000), (1, 50_000, 2_000)]);
    assert!((0.2..0.8).contains(&share(&outcome)), "{:?}", outcome.rails);
}

#[test]
fn the_only_rail_is_not_isolated() {
    let outcome = play(1, &[(0, 50_000, 2_000)]);
    assert_eq!(outcome.rails[0].corrupt_downs, 0);
}

/// A rail that damages some packets is better than one that carries nothing: without it a job would
/// fail for lack of a rail.
#[test]
fn an_isolated_rail_carries_when_the_clean_one_falls_silent() {
    let hole = |outgoing| Fault {
        from_ns: 200 * MS,
        to_ns: 1_900 * MS,
        what: Trouble::Blackhole {
            host: 0,
            rail: 0,
            outgoing,
        },
    };
    let alone = play(2, &[(1, 50_000, 2_000)]);
    let outcome = play_with(2, &[(1, 50_000, 2_000)], &[hole(true), hole(false)]);
    assert!(outcome.rails[1].corrupt_downs > 0);
    assert!(alone.worked_ns > 300 * MS, "{} ms", alone.worked_ns / MS);
    // At a fraction of the rate; the black hole ends after 1.9 s.
    assert!(
        outcome.worked_ns < 1_500 * MS,
        "{} ms",
        outcome.worked_ns / MS
    );
}
