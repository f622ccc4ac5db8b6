//! Networks that reorder packets: an overtaken packet is not taken for a lost oversized one.

use marline_sim::{run_setup, Outcome, PacketFaults, Setup, Topology, Work};

const MS: u64 = 1_000_000;

/// Two hosts exchange large messages over two rails that delay half of all packets by up to
/// `reorder_ns`.
fn play(seed: u64, reorder_ns: u64) -> Outcome {
    let mut setup = Setup::plain(seed, 2, 2);
    setup.topology = Topology::Planes;
    setup.packet_faults = PacketFaults {
        reorder: 500_000,
        reorder_ns,
        ..PacketFaults::default()
    };
    setup.work = Work::Halo;
    (setup.ops, setup.size_max, setup.pause_ns) = (4_000, 1 << 20, 500);
    setup.latency_ns = vec![20_000; 2];
    setup.rate = vec![1_250_000_000; 2];
    setup.datagram_max = vec![1_472; 2];
    setup.socket_bytes = 4 << 20;
    setup.node = Default::default();
    setup.faults_end_ns = 2_000 * MS;
    let outcome = run_setup(&setup, false);
    assert!(outcome.failure.is_none(), "{:?}", outcome.failure);
    outcome
}

#[test]
fn reordering_does_not_reduce_packet_sizes() {
    for reorder_ns in [100_000, MS, 3 * MS] {
        for seed in 0..6 {
            let outcome = play(seed, reorder_ns);
            let late: u64 = outcome.rails.iter().map(|rail| rail.spurious).sum();
            assert!(late > 0, "nothing was overtaken: {:?}", outcome.rails);
            let shrinks: Vec<u64> = outcome.rails.iter().map(|rail| rail.shrinks).collect();
            assert_eq!(shrinks, [0, 0], "seed {seed}, held back by {reorder_ns} ns");
        }
    }
}
