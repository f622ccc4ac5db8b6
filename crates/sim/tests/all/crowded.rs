//! Oversubscribed hosts: each process is descheduled most of the time, and links are clean. There
//! must be almost no spurious retransmissions, and no path may be given up. With lossy links and
//! running processes, retransmissions must be as fast as without oversubscription.

use marline_proto::PathStats;
use marline_sim::{run_setup, Fault, Outcome, PacketFaults, Setup, Topology, Trouble, Work};

const MS: u64 = 1_000_000;
const PROCESSORS: usize = 2;
const HOSTS: usize = 8;
/// A processor switches processes after 2 to 8 ms, so that each of four is descheduled for 6 to 24.
const SLICE_NS: (u64, u64) = (2 * MS, 8 * MS);
const OVERSUBSCRIBED_NS: u64 = 1_500 * MS;

/// A pseudo-random number below `n`, by seed and question.
fn pick(seed: u64, question: u64, n: u64) -> u64 {
    let mixed = (seed * 65_536 + question + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    (mixed ^ mixed >> 29) % n
}

/// Time slices of processes that share a processor.
fn slices(seed: u64, hosts: usize) -> Vec<Fault> {
    let mut faults = Vec::new();
    for processor in 0..PROCESSORS {
        let hosts: Vec<usize> = (0..hosts).filter(|h| h % PROCESSORS == processor).collect();
        let mut since = [0; HOSTS];
        let (mut at, mut turn) = (MS, 0);
        while at < OVERSUBSCRIBED_NS {
            let host = hosts[turn % hosts.len()];
            turn += 1;
            if since[host] < at {
                faults.push(Fault {
                    from_ns: since[host].max(MS / 2),
                    to_ns: at,
                    what: Trouble::Stopped { host },
                });
            }
            let question = (turn * PROCESSORS + processor) as u64;
            at += SLICE_NS.0 + pick(seed, question, SLICE_NS.1 - SLICE_NS.0);
            since[host] = at;
        }
    }
    faults
}

fn setup(seed: u64, hosts: usize, work: Work, size_max: u64) -> Setup {
    let mut setup = Setup::plain(seed, hosts, 2);
    setup.topology = Topology::Planes;
    setup.packet_faults = PacketFaults::default();
    (setup.work, setup.size_max) = (work, size_max);
    setup.pause_ns = 500;
    setup.rate = vec![1_250_000_000; 2];
    setup.socket_bytes = 8 << 20;
    setup.log_bytes = 64 << 20;
    setup
}

/// Packets sent, retransmitted frames, paths given up.
fn total(outcome: &Outcome) -> (u64, u64, u64) {
    let sum = |f: &dyn Fn(&PathStats) -> u64| outcome.rails.iter().map(f).sum();
    let resent = sum(&|r| r.resent_loss + r.resent_pto + r.resent_failover);
    (sum(&|r| r.packets_sent), resent, sum(&|r| r.failovers))
}

/// Pattern, longest message, and operations: enough for more than a second.
const WORKS: [(Work, u64, u32); 6] = [
    (Work::PingPong, 2_000, 12_000),
    (Work::PingPong, 300_000, 6_000),
    (Work::Halo, 2_000, 3_000),
    (Work::Halo, 300_000, 3_000),
    (Work::AllToAll, 70_000, 3_000),
    (Work::Collective, 70_000, 3_000),
];

#[test]
fn oversubscription_by_four_causes_no_spurious_retransmission_or_failover() {
    for (work, size_max, ops) in WORKS {
        let (mut packets, mut resent, mut failovers) = (0, 0, 0);
        for seed in 0..3 {
            let mut setup = setup(seed, HOSTS, work, size_max);
            setup.ops = ops;
            setup.faults = slices(seed, HOSTS);
            setup.faults_end_ns = OVERSUBSCRIBED_NS + 50 * MS;
            let outcome = run_setup(&setup, false);
            assert_eq!(outcome.failure, None, "{work:?}, seed {seed}");
            assert!(outcome.troubles["stopped"] > 200, "nobody was away");
            assert_eq!(
                outcome.net.dropped + outcome.net.socket_full,
                0,
                "links are clean"
            );
            let total = total(&outcome);
            packets += total.0;
            resent += total.1;
            failovers += total.2;
        }
        println!("{work:?} of {size_max} B: {resent} sent again of {packets} packets");
        assert!(100 * resent < packets, "{work:?}: {resent} of {packets}");
        assert_eq!(failovers, 0, "{work:?}");
    }
}

/// The same with direct writes, each of whose spurious retransmissions takes 40 packets.
#[test]
fn direct_writes_land_with_oversubscription_by_four() {
    for work in [Work::PingPong, Work::Halo, Work::AllToAll] {
        let (mut packets, mut resent, mut written, mut missed) = (0, 0, 0, 0);
        for seed in 0..3 {
            let mut setup = setup(seed, HOSTS, work, 300_000);
            setup.direct = true;
            setup.ops = 6_000;
            setup.faults = slices(seed, HOSTS);
            setup.faults_end_ns = OVERSUBSCRIBED_NS + 50 * MS;
            let outcome = run_setup(&setup, false);
            assert_eq!(outcome.failure, None, "{work:?}, seed {seed}");
            let total = total(&outcome);
            packets += total.0;
            resent += total.1;
            written += outcome.written.0;
            missed += outcome.written.1;
        }
        println!("{work:?}: {written} written, {missed} missed, {resent} of {packets} sent again");
        assert!(written > 50, "{work:?}: {written} written");
        assert!(100 * missed <= written, "{work:?}: {missed} of {written}");
        // In an all-to-all one packet in 410 to 510 is retransmitted, depending on the seeds.
        assert!(300 * resent < packets, "{work:?}: {resent} of {packets}");
    }
}

/// Lossless rails, such as shared memory and connections: while a link lives nothing is lost,
/// however long the peer is descheduled.
#[test]
fn lossless_rails_lose_nothing_with_oversubscription_by_two() {
    for lossless in [[true, true], [true, false]] {
        for (work, size_max, ops) in WORKS {
            let (mut packets, mut resent, mut lost, mut failovers) = (0, 0, 0, 0);
            for seed in 0..6 {
                let mut setup = setup(seed, 4, work, size_max);
                setup.ops = ops;
                setup.streams = lossless.to_vec();
                setup.connected = lossless.to_vec();
                setup.faults = slices(seed, 4);
                setup.faults_end_ns = OVERSUBSCRIBED_NS + 50 * MS;
                let outcome = run_setup(&setup, false);
                assert_eq!(outcome.failure, None, "{work:?}, seed {seed}");
                packets += total(&outcome).0;
                failovers += total(&outcome).2;
                let rails = outcome.rails.iter().zip(lossless);
                for (rail, _) in rails.filter(|(_, lossless)| *lossless) {
                    lost += rail.lost;
                    resent += rail.resent_loss + rail.resent_pto + rail.resent_failover;
                }
            }
            println!(
                "{work:?} of {size_max} B over {lossless:?}: {lost} lost, {resent} sent again of \
                 {packets} packets, {failovers} failovers"
            );
            assert_eq!((lost, failovers), (0, 0), "{work:?}, {lossless:?}");
            // Some frames are requeued to another path, such as those of a path not proven yet.
            assert!(
                10_000 * resent <= packets,
                "{work:?}, {lossless:?}: {resent} of {packets}"
            );
        }
    }
}

/// Total virtual time of all runs below, before the descheduling grace existed.
const IMPATIENT_US: u64 = 1_911_315;

/// Losses are drawn per packet, so that a run that differs in one packet differs in all later
/// losses; the bound allows 2 % for that.
/// (`what_is_lost_is_sent_again_at_once_though_the_peer_was_away_before` of `proto` is exact.)
#[test]
fn losses_are_retransmitted_without_descheduling_grace() {
    let works = [
        (Work::PingPong, 2_000),
        (Work::PingPong, 70_000),
        (Work::Halo, 2_000),
        (Work::AllToAll, 70_000),
    ];
    let (mut worked, mut lost) = (0, 0);
    for seed in 0..24 {
        for (work, size_max) in works {
            let mut setup = setup(seed, 2, work, size_max);
            setup.ops = 1_000;
            setup.packet_faults.drop = [1_000, 10_000, 50_000][seed as usize % 3];
            let outcome = run_setup(&setup, false);
            assert_eq!(outcome.failure, None, "{work:?}, seed {seed}");
            worked += outcome.worked_ns;
            lost += outcome.net.dropped;
        }
    }
    println!("{} us, {lost} packets lost", worked / 1_000);
    assert!(lost > 2_000, "{lost} packets lost");
    assert!(
        worked / 1_000 < IMPATIENT_US * 102 / 100,
        "{} us",
        worked / 1_000
    );
}
