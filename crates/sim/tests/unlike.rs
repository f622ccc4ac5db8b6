//! Rails of unlike rates share long messages so that all of them are busy to the end.

use marline_sim::{run_setup, Outcome, Setup, Topology, Weather, Work};

/// Bytes per second of two rails: 400 and 100 Mbit/s.
const RATES: [u64; 2] = [50_000_000, 12_500_000];

/// Two hosts send each other messages of up to 4 MiB, and wait for both in between.
fn play(rates: &[u64], streams: &[bool]) -> Outcome {
    let mut setup = Setup::plain(1, 2, rates.len());
    setup.topology = Topology::Planes;
    setup.weather = Weather::default();
    setup.work = Work::Halo;
    (setup.ops, setup.size_max, setup.pause_ns) = (400, 4 << 20, 500);
    setup.latency_ns = vec![20_000; rates.len()];
    setup.rate = rates.to_vec();
    setup.datagram_max = vec![1_472; rates.len()];
    setup.streams = streams.to_vec();
    setup.connected = streams.to_vec();
    setup.writes = vec![false; rates.len()];
    setup.queue_ns = 50_000_000;
    setup.socket_bytes = 4 << 20;
    setup.node = Default::default();
    setup.faults = Vec::new();
    let outcome = run_setup(&setup, false);
    assert!(outcome.failure.is_none(), "{:?}", outcome.failure);
    outcome
}

/// Bytes per second in one direction.
fn rate(outcome: &Outcome) -> f64 {
    let bytes: u64 = outcome.rails.iter().map(|rail| rail.bytes_sent).sum();
    bytes as f64 / 2.0 * 1e9 / outcome.worked_ns as f64
}

#[test]
fn unlike_rails_finish_together() {
    for streams in [[false, false], [false, true], [true, false]] {
        let alone = rate(&play(&RATES[..1], &streams[..1]));
        let outcome = play(&RATES, &streams);
        let bytes = |rail: usize| outcome.rails[rail].bytes_sent as f64;
        let share = bytes(1) / (bytes(0) + bytes(1));
        let gain = rate(&outcome) / alone;
        println!("{streams:?}: {gain:.3} of the faster alone ({alone:.0}), share {share:.3}");
        assert!((0.14..0.24).contains(&share), "{streams:?}: {share}");
        assert!(gain > 1.03, "{streams:?}: {gain}");
    }
}
