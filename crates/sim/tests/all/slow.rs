//! A host with very slow reliable connections: messages to it wait behind long ones for longer than
//! the timeout for silent peers (docs/design/peer-failure.md), and its device is not considered
//! hung (docs/design/verbs.md).

use marline_sim::{run_setup, FalseReport, Fault, Outcome, Setup, Trouble, Verbs, Work};

const MS: u64 = 1_000_000;
const SLOW_MS: u64 = 60_000;

/// Three hosts with one reliable connection per pair; those of one host carry 33 kB/s.
fn slow(seed: u64, size_max: u64, reads: bool) -> Setup {
    let mut setup = Setup::plain(seed, 3, 1);
    setup.set_verbs(0, Verbs::Rc);
    setup.node.peer_timeout_ns = 5_000 * MS;
    (setup.work, setup.ops, setup.size_max) = (Work::Halo, 60, size_max);
    (setup.node.eager_max, setup.node.write_min) = (4_096, 8_192);
    setup.registered_max = usize::MAX;
    if reads {
        setup.read_all();
    }
    setup.rate.fill(10_000_000);
    setup.socket_bytes = 4 << 20;
    setup.faults_end_ns = SLOW_MS * MS;
    setup.faults.push(Fault {
        from_ns: 1_000,
        to_ns: SLOW_MS * MS,
        what: Trouble::Slow {
            host: 0,
            rail: 0,
            divisor: 300,
        },
    });
    setup
}

/// No peer may be declared dead shortly after it was heard.
#[test]
fn a_slow_peer_is_not_declared_dead() {
    for (seed, size_max, reads) in [
        (0, 300_000, false),
        (4, 300_000, true),
        (4, 4_000_000, true),
    ] {
        let outcome = run_setup(&slow(seed, size_max, reads), false);
        let failure = outcome.failure.as_ref();
        let failure = failure.and_then(|text| text.lines().next());
        assert_eq!(failure, None, "{seed}");
        let worked_ms = outcome.worked_ns / MS;
        assert!(worked_ms > 15_000, "over at {worked_ms} ms");
        // Connections must not be drained for their slowness.
        let ends = (outcome.drained, outcome.net.connected);
        assert_eq!(ends, (0, 6), "{seed}");
    }
}

/// Two hosts with two rails of one kind, one of which carries 2 MB/s from the first host: behind
/// other data a write takes far longer than the watchdog's limit for a hung device, but operations
/// of that rail end continuously.
fn slow_beside_another(seed: u64, kind: Verbs) -> Setup {
    let mut setup = Setup::plain(seed, 2, 2);
    (0..2).for_each(|rail| setup.set_verbs(rail, kind));
    (setup.work, setup.ops, setup.size_max) = (Work::Halo, 200, 1 << 20);
    (setup.node.eager_max, setup.node.write_min) = (4_096, 8_192);
    setup.registered_max = usize::MAX;
    setup.rate.fill(10_000_000);
    setup.socket_bytes = 4 << 20;
    setup.faults_end_ns = SLOW_MS * MS;
    add(
        &mut setup,
        Trouble::Slow {
            host: 0,
            rail: 0,
            divisor: 5,
        },
    );
    setup
}

fn add(setup: &mut Setup, what: Trouble) {
    setup.faults.push(Fault {
        from_ns: 1_000,
        to_ns: setup.faults_end_ns,
        what,
    });
}

fn clean(seed: u64, setup: &Setup) -> Outcome {
    let outcome = run_setup(setup, false);
    let failure = outcome.failure.as_ref();
    assert_eq!(failure.and_then(|text| text.lines().next()), None, "{seed}");
    outcome
}

#[test]
fn a_slow_device_is_not_drained() {
    let (mut writes, mut drained) = (0, 0);
    for (seed, kind) in (0..8).flat_map(|seed| [(seed, Verbs::Rc), (seed, Verbs::Uc)]) {
        let outcome = clean(seed, &slow_beside_another(seed, kind));
        (writes, drained) = (writes + outcome.net.writes, drained + outcome.drained);
    }
    assert!(writes > 1_000, "{writes} writes");
    // (The only drain may follow packets, whose buffers are free here once they left, on the slow
    // side long before they arrive.)
    assert!(drained <= 1, "{drained} of {writes} writes");
}

/// Three hosts, one of which receives 2 MB/s on a rail: others' sends to it end slowly one after
/// another, while their sends to each other on the same rail end at once.
#[test]
fn completions_for_others_do_not_shorten_a_slow_peers_timeout() {
    let (mut writes, mut drained) = (0, 0);
    for (seed, kind) in (0..8).flat_map(|seed| [(seed, Verbs::Rc), (seed, Verbs::Uc)]) {
        let mut setup = slow_beside_another(seed, kind);
        setup.hosts = 3;
        let outcome = clean(seed, &setup);
        (writes, drained) = (writes + outcome.net.writes, drained + outcome.drained);
    }
    assert!(writes > 1_000, "{writes} writes");
    // (See `a_slow_device_is_not_drained`: lone packets' buffers, too, are free once they left.)
    assert!(drained <= 2, "{drained} of {writes} writes");
}

/// A device that never reports the end of a write is drained, with or without another rail, and
/// also while other writes of it end. All work completes.
#[test]
fn a_hung_device_is_drained() {
    for rails in [1, 2] {
        let mut drained = 0;
        for seed in 0..8 {
            let mut setup = Setup::plain(seed, 2, rails);
            (0..rails).for_each(|rail| setup.set_verbs(rail, Verbs::Rc));
            (setup.ops, setup.size_max) = (200, 300_000);
            (setup.node.eager_max, setup.node.write_min) = (4_096, 8_192);
            setup.registered_max = usize::MAX;
            setup.socket_bytes = 4 << 20;
            setup.faults_end_ns = 2 * MS;
            let how = FalseReport::NeverOver;
            let (host, rail) = (0, 0);
            add(&mut setup, Trouble::Lies { host, rail, how });
            drained += clean(seed, &setup).drained;
        }
        assert!(drained > 0, "{rails} rails");
    }
}
