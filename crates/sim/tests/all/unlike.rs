//! Rails of different rates share long messages such that all are busy to the end.

use marline_proto::RailPolicy;
use marline_sim::{run_setup, Fault, Outcome, PacketFaults, Setup, Topology, Trouble, Work};

const MS: u64 = 1_000_000;

/// Bytes per second of two rails: 400 and 100 Mbit/s.
const RATES: [u64; 2] = [50_000_000, 12_500_000];

/// Two hosts exchange messages of up to 4 MiB, waiting for both of each round.
fn play(rates: &[u64], streams: &[bool]) -> Outcome {
    run(&setup(rates, streams))
}

fn setup(rates: &[u64], streams: &[bool]) -> Setup {
    let mut setup = Setup::plain(1, 2, rates.len());
    setup.topology = Topology::Planes;
    setup.packet_faults = PacketFaults::default();
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
    setup
}

fn run(setup: &Setup) -> Outcome {
    let outcome = run_setup(setup, false);
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

/// Two processes exchange long messages over a connection that falls silent, with another rail
/// available: the additional time over a run without the fault, in ns.
fn stall_ns(seed: u64, from_ns: u64) -> u64 {
    let mut setup = setup(&[125_000_000; 2], &[true, false]);
    (setup.seed, setup.work) = (seed, Work::PingPong);
    (setup.ops, setup.size_max) = (4_000, 256 << 10);
    setup.node.policy = RailPolicy::Standby;
    let whole = run(&setup);
    let fault = |outgoing| Fault {
        from_ns,
        to_ns: whole.worked_ns + 200 * MS,
        what: Trouble::Blackhole {
            host: 0,
            rail: 0,
            outgoing,
        },
    };
    setup.faults = [true, false].map(fault).to_vec();
    setup.faults_end_ns = setup.faults[0].to_ns;
    setup.silent_ns = setup.faults_end_ns;
    run(&setup).worked_ns.saturating_sub(whole.worked_ns)
}

/// Packets of a silent connection move to the other rail soon, without other evidence.
#[test]
fn long_messages_continue_when_their_connection_falls_silent() {
    for seed in 0..8 {
        let stall_ns = stall_ns(seed, 20 * MS + seed * 3 * MS);
        println!("seed {seed}: {} us", stall_ns / 1_000);
        assert!(stall_ns < 40 * MS, "seed {seed}: {stall_ns} ns");
    }
}

/// Pattern, longest message and operations: short and long messages over all rails.
const WORKS: [(Work, u64, u32); 6] = [
    (Work::Halo, 4 << 20, 25),
    (Work::Halo, 300_000, 100),
    (Work::Halo, 30_000, 300),
    (Work::PingPong, 300_000, 100),
    (Work::Storm, 30_000, 2),
    (Work::Fence, 300_000, 50),
];
const SEEDS: u64 = 6;

/// Totals of many runs.
#[derive(Debug, Default)]
struct Sum {
    packets: u64,
    failovers: u64,
    resent_spurious: u64,
}

/// Runs all patterns on a clean network, with as many seeds.
fn play_all(rates: &[u64], streams: &[bool], direct: bool) -> Sum {
    let mut sum = Sum::default();
    for (work, size_max, ops) in WORKS {
        for seed in 0..SEEDS {
            let mut setup = setup(rates, streams);
            (setup.seed, setup.work, setup.direct) = (seed, work, direct);
            (setup.size_max, setup.ops) = (size_max, ops);
            let outcome = run(&setup);
            let lost = outcome.net.overflowed + outcome.net.socket_full;
            assert_eq!(lost, 0, "{work:?}, seed {seed}: the network is clean");
            sum.packets += outcome.net.packets;
            for rail in &outcome.rails {
                sum.failovers += rail.failovers;
                sum.resent_spurious += rail.resent_spurious + rail.spurious;
            }
        }
    }
    println!("{rates:?} {streams:?}, direct writes {direct}: {sum:?}");
    sum
}

/// No path is given up for its queue, whatever the rail's kind and however slow it is, and there
/// are almost no spurious retransmissions.
#[test]
fn no_rail_is_given_up_for_its_queue() {
    let slow_first = [RATES[1], RATES[0]];
    let mut failovers = 0;
    for rates in [RATES, slow_first] {
        for streams in [[false, false], [false, true], [true, false]] {
            for direct in [false, true] {
                let sum = play_all(&rates, &streams, direct);
                failovers += sum.failovers;
                let few = 100 * sum.resent_spurious < sum.packets;
                assert!(few, "{rates:?} {streams:?} {direct}: {sum:?}");
            }
        }
    }
    assert_eq!(failovers, 0);
}

/// Streams over one and two rails of 1 Gbit/s: acks that wait in the peer's queue are not late.
#[test]
fn queued_acks_cause_no_spurious_retransmission() {
    for rails in [1, 2] {
        for direct in [false, true] {
            let (rates, streams) = (vec![125_000_000; rails], vec![false; rails]);
            let sum = play_all(&rates, &streams, direct);
            assert_eq!(sum.failovers, 0, "{rails} {direct}");
            assert!(
                200 * sum.resent_spurious < sum.packets,
                "{rails} {direct}: {sum:?}"
            );
        }
    }
}

/// Packets in the queue of a slow rail are not late, and the rail is not given up for them.
#[test]
fn a_slow_rail_with_a_deep_queue_is_not_given_up() {
    for streams in [[false, false], [false, true], [true, false]] {
        let outcome = play(&RATES, &streams);
        let rails = &outcome.rails;
        let failovers: u64 = rails.iter().map(|rail| rail.failovers).sum();
        let ptos: u64 = rails.iter().map(|rail| rail.ptos).sum();
        let packets = outcome.net.packets;
        println!("{streams:?}: {failovers} failovers, {ptos} repairs of {packets}");
        assert_eq!(failovers, 0, "{streams:?}");
        assert!(20 * ptos < packets, "{streams:?}: {ptos}");
    }
}

/// Single short messages over two rails with these one-way latencies, and faults.
fn short(latency_ns: [u64; 2], faults: &[Fault]) -> Outcome {
    let mut setup = setup(&[1_250_000_000; 2], &[false, false]);
    (setup.work, setup.ops, setup.size_max) = (Work::PingPong, 20_000, 64);
    setup.latency_ns = latency_ns.to_vec();
    setup.faults = faults.to_vec();
    setup.faults_end_ns = faults.iter().map(|fault| fault.to_ns).max().unwrap_or(0);
    run(&setup)
}

/// The share of all packets that left on the second rail.
fn of_second(outcome: &Outcome) -> f64 {
    let packets = |rail: usize| outcome.rails[rail].packets_sent as f64;
    packets(1) / (packets(0) + packets(1))
}

#[test]
fn short_messages_leave_on_the_quicker_rail() {
    for (quick_ns, slow_ns) in [(6_800, 10_600), (20_000, 30_000), (5_000, 60_000)] {
        let first = of_second(&short([quick_ns, slow_ns], &[]));
        let second = of_second(&short([slow_ns, quick_ns], &[]));
        println!("{quick_ns} beside {slow_ns} ns: {first:.4}, {second:.4} on the second rail");
        assert!(first < 0.02, "{first}");
        assert!(second > 0.95, "{second}");
    }
}

/// The second, slower rail becomes the faster one, or was it before.
#[test]
fn a_rail_that_becomes_quicker_is_found() {
    let whole = short([20_000, 30_000], &[]);
    assert!(of_second(&whole) < 0.02);
    for (from_ns, to_ns) in [
        (0, whole.worked_ns / 2),
        (whole.worked_ns / 2, u64::MAX / 4),
    ] {
        let what = Trouble::Gray {
            host: 0,
            rail: 0,
            drop: 0,
            delay_ns: 40_000,
        };
        let to_ns = to_ns.min(10 * whole.worked_ns);
        let share = of_second(&short(
            [20_000, 30_000],
            &[Fault {
                from_ns,
                to_ns,
                what,
            }],
        ));
        println!("slow from {from_ns} to {to_ns} ns: {share:.3} on the second rail");
        assert!((0.15..0.75).contains(&share), "{share}");
    }
}
