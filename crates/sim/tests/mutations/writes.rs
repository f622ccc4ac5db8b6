//! Rails with remote writes: long messages are written, all bytes are correct whatever the rail
//! does, and no memory is accessed after its return to the application (checked in every run).

use marline_checksum::Algorithm;
use marline_proto::Config;
use marline_sim::{
    run_setup, FalseReport, Fault, Outcome, PacketFaults, Setup, Topology, Trouble, Work,
};

const MS: u64 = 1_000_000;

/// Two hosts exchange messages of up to 1 MiB over two rails with writes, in order or not.
fn setup(ordered: bool) -> Setup {
    let mut setup = Setup::plain(1, 2, 2);
    setup.topology = Topology::Planes;
    setup.work = Work::Halo;
    (setup.ops, setup.size_max, setup.pause_ns) = (2_000, 1 << 20, 500);
    setup.latency_ns = vec![5_000, 8_000];
    setup.rate = vec![1_250_000_000; 2];
    setup.datagram_max = vec![1_472; 2];
    setup.socket_bytes = 4 << 20;
    setup.node = Config {
        eager_max: 4_096,
        ..Config::default()
    };
    setup.writes = vec![true; 2];
    setup.streams = vec![ordered; 2];
    setup.faults_end_ns = 500 * MS;
    setup
}

fn play(setup: &Setup) -> Outcome {
    let outcome = run_setup(setup, false);
    assert_eq!(outcome.failure, None);
    assert!(outcome.net.writes > 100, "{:?}", outcome.net);
    outcome
}

fn lying(ordered: bool, how: FalseReport) -> Outcome {
    play(&lie(ordered, how))
}

fn lie(ordered: bool, how: FalseReport) -> Setup {
    let mut setup = setup(ordered);
    setup.faults = vec![Fault {
        from_ns: 0,
        to_ns: 500 * MS,
        what: Trouble::Lies {
            host: 0,
            rail: 0,
            how,
        },
    }];
    setup
}

#[test]
fn long_messages_are_written_with_few_packets() {
    for ordered in [false, true] {
        let with = setup(ordered);
        let without = Setup {
            writes: vec![false; 2],
            ..with.clone()
        };
        let (written, packets) = (play(&with), run_setup(&without, false));
        assert_eq!((packets.failure, packets.net.writes), (None, 0));
        // Some writes are late: a process descheduled for 0.2 ms looks like a loss.
        let (wasted, all) = (written.net.writes_refused, written.net.writes);
        assert!(50 * wasted < all, "{wasted} of {all} refused");
        // A refused write breaks a stream and loses its contents.
        let lost = written.net.writes_lost;
        let broke = ordered && wasted > 0;
        assert!(lost == 0 || broke && 20 * lost < all, "{:?}", written.net);
        assert!(
            2 * written.net.packets < packets.net.packets,
            "{:?} instead of {:?}",
            written.net,
            packets.net
        );
    }
}

#[test]
fn without_sums_only_rails_in_order_write() {
    let mut unsummed = setup(true);
    unsummed.node.summed = (u64::MAX, u64::MAX);
    play(&unsummed);
    unsummed.streams.fill(false);
    let outcome = run_setup(&unsummed, false);
    assert_eq!((outcome.failure, outcome.net.writes), (None, 0));
}

#[test]
fn writes_that_are_lost_or_damaged_are_sent_again() {
    for ordered in [false, true] {
        let mut setup = setup(ordered);
        setup.packet_faults = PacketFaults {
            drop: 2_000,
            reorder: 20_000,
            reorder_ns: 300_000,
            corrupt_payload: 20_000,
            ..PacketFaults::default()
        };
        let outcome = play(&setup);
        assert!(outcome.net.writes_hurt > 0, "{:?}", outcome.net);
    }
}

/// Long messages by direct writes: no duplicate, late, damaged, partial or lost data is delivered.
#[test]
fn direct_writes_are_lost_damaged_and_repeated_like_packets() {
    let mut setup = Setup {
        writes: vec![false; 2],
        direct: true,
        ..setup(false)
    };
    let calm = run_setup(&setup, false);
    assert_eq!(calm.failure, None);
    assert!(calm.net.direct > 300, "{:?}", calm.net);
    setup.direct_again = true;
    setup.packet_faults = PacketFaults {
        drop: 2_000,
        reorder: 20_000,
        reorder_ns: 300_000,
        corrupt_head: 5_000,
        corrupt_payload: 20_000,
        truncate: 5_000,
        duplicate: 20_000,
        ..PacketFaults::default()
    };
    let outcome = run_setup(&setup, false);
    assert_eq!(outcome.failure, None);
    assert!(outcome.net.direct > 100 && outcome.net.damaged > 10);
}

/// Datagrams of a direct write may be merged in another order, which sums and exclusive ors of
/// words do not detect: where such sums are agreed, long messages travel in packets.
#[test]
fn reordered_datagrams_of_direct_writes_never_pass() {
    let shuffled = |algorithm: Algorithm| {
        let mut setup = Setup {
            writes: vec![false; 2],
            direct: true,
            direct_shuffled: true,
            ..setup(false)
        };
        setup.ops = 1_000;
        setup.node.rail_algorithm.fill(Some(algorithm as u8));
        setup.node.algorithms = Algorithm::BY_TRUST_UNKEYED;
        setup.node.seeing_order = Algorithm::SEEING_ORDER;
        run_setup(&setup, false)
    };
    // (`order.rs` of the checksums covers all algorithms.)
    for algorithm in [
        Algorithm::Crc64Nvme,
        Algorithm::Crc64Nh,
        Algorithm::Fletcher64,
        Algorithm::Sum32,
        Algorithm::Xor32,
    ] {
        let Outcome { failure, net, .. } = shuffled(algorithm);
        assert_eq!(failure, None, "{algorithm}: {net:?}");
        match algorithm.sees_order() {
            true => assert!(net.direct > 50 && net.shuffled > 4, "{algorithm}: {net:?}"),
            false => assert_eq!(net.direct, 0, "{algorithm}"),
        }
    }
}

#[test]
fn a_rail_that_never_writes_is_detected() {
    for ordered in [false, true] {
        assert!(lying(ordered, FalseReport::Never).net.writes_lost > 0);
    }
}

/// The mutation that does not end keys first is noticed if many writes are late.
#[cfg(feature = "mutation")]
#[test]
fn late_writes_over_counted_bytes_are_noticed() {
    std::panic::set_hook(Box::new(|_| {}));
    let noticed = |us: &u64| {
        let mut setup = lie(false, FalseReport::Late(us * 1_000));
        setup.node.mutation = Some(marline_proto::Mutation::WriteLate);
        run_setup(&setup, false).failure.is_some()
    };
    let count = (1..=200).map(|n| 20 * n).filter(noticed).count();
    assert!(count > 0);
}

/// Late bytes are not mistaken for their retransmission, and are refused afterwards.
#[test]
fn late_writes_are_refused() {
    for ordered in [false, true] {
        let outcome = lying(ordered, FalseReport::Late(2 * MS));
        assert!(outcome.net.writes_refused > 0, "{:?}", outcome.net);
    }
}

#[test]
fn early_completion_reports_do_no_harm() {
    for ordered in [false, true] {
        lying(ordered, FalseReport::OverEarly);
    }
}

/// The completion watchdog: the memory of a send belongs to the rail until drained.
#[test]
fn a_rail_without_completions_is_drained() {
    for ordered in [false, true] {
        let outcome = lying(ordered, FalseReport::NeverOver);
        // The drain waits for a tenth of a second.
        assert!(outcome.worked_ns > 100 * MS, "{}", outcome.worked_ns);
    }
}
