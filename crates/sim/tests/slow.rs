//! A host whose reliable connections carry next to nothing: what is sent to it waits for longer
//! than a silent peer is waited for, behind long messages (docs/decisions/0284).

use marline_sim::{run_setup, Fault, Setup, Trouble, Verbs, Work};

const MS: u64 = 1_000_000;
const SLOW_MS: u64 = 60_000;

/// Three hosts, one reliable connection between each two; those of one carry 33 kB/s.
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

/// Before, each of these ended by the death of a peer that had been heard 0 to 1,868 ms before.
#[test]
fn nobody_is_dead_who_is_heard_and_slow() {
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
    }
}
