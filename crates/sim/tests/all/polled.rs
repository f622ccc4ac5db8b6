//! Readers that poll memory written by peers, and store there after the awaited bytes appeared. On
//! rails of every kind, with loss, damage and failing rails, no wrong byte is visible, the last
//! byte of a write is visible last, and stored bytes stay.

use marline_proto::Config;
use marline_sim::{
    run_setup, FalseReport, Fault, Outcome, PacketFaults, Setup, Topology, Trouble, Verbs, Work,
};

const MS: u64 = 1_000_000;
const FAULTS_NS: u64 = 100 * MS;

/// A kind of rails.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Kind {
    /// Datagrams, as UDP.
    Datagrams,
    /// Direct writes in long datagrams, some of them repeated.
    Direct,
    /// Connections with writes, as TCP.
    Streams,
    /// Writes by key that land before or after the packets that report them.
    Unordered,
    /// Reliable InfiniBand connections.
    Reliable,
    /// Unreliable InfiniBand connections.
    Unreliable,
}

const KINDS: [Kind; 6] = [
    Kind::Datagrams,
    Kind::Direct,
    Kind::Streams,
    Kind::Unordered,
    Kind::Reliable,
    Kind::Unreliable,
];

/// Two hosts write into each other's memory over two rails of a kind, with loss, damage, duplicates
/// and reordering, or breaks; the first rail of host 0 fails meanwhile.
fn setup(seed: u64, kind: Kind) -> Setup {
    let mut setup = Setup::plain(seed, 2, 2);
    setup.topology = Topology::Planes;
    setup.work = Work::Random;
    (setup.remote, setup.calls, setup.polled) = (true, true, true);
    (setup.ops, setup.size_max, setup.pause_ns) = (800, 200_000, 500);
    (setup.latency_ns, setup.rate) = (vec![5_000, 30_000], vec![1_250_000_000; 2]);
    setup.datagram_max = vec![1_472, 8_972];
    (setup.socket_bytes, setup.queue_ns) = (4 << 20, 10 * MS);
    // Puts of some seeds need grants from 4 KiB on, those of others leave at once.
    let eager_max = if seed % 2 == 0 { 4_096 } else { 65_536 };
    setup.node = Config {
        eager_max,
        write_min: 8_192,
        ..Config::default()
    };
    setup.registered_max = usize::MAX;
    setup.packet_faults = PacketFaults {
        drop: 5_000,
        reorder: 20_000,
        reorder_ns: 300_000,
        corrupt_payload: 20_000,
        duplicate: 10_000,
        breaks: 500,
        ..PacketFaults::default()
    };
    setup.faults_end_ns = FAULTS_NS;
    let (host, rail) = (0, 0);
    let mut fault = |from_ns: u64, what| {
        setup.faults.push(Fault {
            from_ns,
            to_ns: FAULTS_NS,
            what,
        });
    };
    fault(
        3 * MS,
        Trouble::RailDown {
            host,
            rail,
            notified: seed % 2 == 0,
        },
    );
    if kind == Kind::Unordered {
        let (rail, how) = (1, FalseReport::Late(MS));
        fault(0, Trouble::Lies { host, rail, how });
    }
    if matches!(kind, Kind::Streams | Kind::Reliable) {
        // Connections lose nothing but break: bytes come again only after that.
        setup.packet_faults.breaks = 10_000;
    }
    match kind {
        Kind::Datagrams => {}
        Kind::Direct => (setup.direct, setup.direct_again) = (true, true),
        Kind::Streams => {
            (setup.streams, setup.connected) = (vec![true; 2], vec![true; 2]);
            setup.writes = vec![true; 2];
        }
        Kind::Unordered => setup.writes = vec![true; 2],
        Kind::Reliable => (0..2).for_each(|rail| setup.set_verbs(rail, Verbs::Rc)),
        Kind::Unreliable => (0..2).for_each(|rail| setup.set_verbs(rail, Verbs::Uc)),
    }
    setup
}

fn hurt(outcome: &Outcome) -> u64 {
    let net = &outcome.net;
    net.dropped + net.damaged + net.writes_hurt + net.broken + net.cut
}

#[test]
fn visible_bytes_are_right_and_stored_ones_stay() {
    for kind in KINDS {
        let (mut seen, mut eager, mut harm) = (0, 0, 0);
        for seed in 0..10 {
            let outcome = run_setup(&setup(seed, kind), false);
            assert_eq!(outcome.failure, None, "{kind:?}, seed {seed}");
            let count = |what| outcome.troubles.get(what).copied().unwrap_or(0);
            seen += count("put seen by its reader");
            eager += count("eager put");
            harm += hurt(&outcome);
        }
        println!("{kind:?}: {seen} puts seen, {eager} eager, {harm} times harm");
        assert!(
            seen > 50 && eager > 50 && harm > 10,
            "{kind:?}: {seen}, {eager}, {harm}"
        );
    }
}

/// A stream breaks during puts; even without sums its bytes are stored once.
#[test]
fn without_sums_no_byte_is_stored_twice() {
    for kind in [Kind::Datagrams, Kind::Streams] {
        for seed in 0..10 {
            let mut setup = setup(seed, kind);
            setup.node.summed = (u64::MAX, u64::MAX);
            setup.packet_faults.corrupt_payload = 0;
            let outcome = run_setup(&setup, false);
            assert_eq!(outcome.failure, None, "{kind:?}, seed {seed}");
        }
    }
}

#[cfg(feature = "mutation")]
#[test]
fn mistakes_with_polled_memory_are_noticed_on_every_kind_of_rails() {
    use marline_proto::Mutation::{OpenVisible, ShowAgain, ShowEndEarly, ShowUnverified};
    std::panic::set_hook(Box::new(|_| {}));
    for (mutation, kinds) in [
        (ShowUnverified, &[Kind::Datagrams, Kind::Direct][..]),
        (ShowAgain, &KINDS),
        (ShowEndEarly, &KINDS),
        (OpenVisible, &[Kind::Direct, Kind::Streams, Kind::Reliable]),
    ] {
        for &kind in kinds {
            let noticed = (0..200).find_map(|seed| {
                let mut setup = setup(seed, kind);
                setup.node.mutation = Some(mutation);
                run_setup(&setup, false).failure
            });
            let how = noticed.unwrap_or_else(|| panic!("{mutation:?} on {kind:?}: not noticed"));
            println!(
                "{mutation:?} {kind:?}: {}",
                how.lines().next().unwrap_or_default()
            );
        }
    }
}
