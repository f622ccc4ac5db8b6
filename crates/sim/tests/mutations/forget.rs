//! A network that forgets what passes it: flows and connections that there are become black holes,
//! and new ones pass.

use marline_sim::{run_setup, Fault, Outcome, Setup, Topology, Trouble};

const MS: u64 = 1_000_000;

/// Two hosts with two rails, which are connections where this says so. Two times all that passes
/// both is forgotten at once.
fn setup(seed: u64, connected: [bool; 2]) -> Setup {
    let mut setup = Setup::plain(seed, 2, 2);
    setup.topology = Topology::Planes;
    for (rail, connected) in connected.into_iter().enumerate() {
        (setup.streams[rail], setup.connected[rail]) = (connected, connected);
    }
    (setup.ops, setup.pause_ns) = (400, 50_000);
    setup.node.peer_timeout_ns = 5_000 * MS;
    let forget = |at_ms: u64, rail| Fault {
        from_ns: at_ms * MS,
        to_ns: at_ms * MS + 1,
        what: Trouble::Forget { host: 1, rail },
    };
    let times = [2, 1_000];
    let faults = times.map(|at_ms| [0, 1].map(|rail| forget(at_ms, rail)));
    setup.faults = faults.concat();
    setup.faults_end_ns = 1_001 * MS;
    setup
}

fn clean(setup: &Setup) -> Outcome {
    let outcome = run_setup(setup, false);
    assert_eq!(outcome.failure, None, "{:?}", setup.connected);
    outcome
}

#[test]
fn all_work_ends_though_all_rails_are_forgotten_at_once() {
    for connected in [[false, false], [true, true], [false, true]] {
        let mut forgotten = 0;
        for seed in 0..20 {
            forgotten += clean(&setup(seed, connected)).net.forgotten;
        }
        assert!(forgotten > 100, "{forgotten} packets: {connected:?}");
    }
}

/// A process died, which took a second and many flows, and another listens at its address, by the
/// same link; then the flows of its paths are forgotten.
fn taken_place(seed: u64) -> Setup {
    let mut setup = Setup::plain(seed, 3, 1);
    (setup.ops, setup.pause_ns) = (400, 5_000_000);
    setup.node.peer_timeout_ns = 1_000 * MS;
    let dies = Fault {
        from_ns: MS,
        to_ns: 8 * MS,
        what: Trouble::Death {
            host: 0,
            reborn: true,
        },
    };
    let forget = Fault {
        from_ns: 1_500 * MS,
        to_ns: 1_500 * MS + 1,
        what: Trouble::Forget { host: 2, rail: 0 },
    };
    (setup.faults, setup.faults_end_ns) = (vec![dies, forget], 1_501 * MS);
    setup
}

/// Each path of a link takes flows that are new to the link, not to the path alone: these have the
/// ports of the dead process's paths, which are forgotten.
#[test]
fn a_process_in_the_place_of_another_is_reached_by_new_flows() {
    let runs = (0..20).map(|seed| clean(&taken_place(seed)).net.forgotten);
    let forgotten: u64 = runs.sum();
    assert!(forgotten > 100, "{forgotten} packets");
}

/// The test before has teeth.
#[cfg(feature = "mutation")]
#[test]
fn flows_that_are_counted_by_paths_are_noticed() {
    let fails = |seed| {
        let mut setup = taken_place(seed);
        setup.node.mutation = Some(marline_proto::Mutation::CountFlowsAlone);
        run_setup(&setup, false).failure.is_some()
    };
    assert!((0..20).any(fails));
}

/// The first test has teeth: paths that leave what is silent to each other are noticed.
#[cfg(feature = "mutation")]
#[test]
fn a_silent_path_that_is_left_to_others_is_noticed() {
    for connected in [[false, false], [true, true], [false, true]] {
        let fails = |seed| {
            let mut setup = setup(seed, connected);
            setup.node.mutation = Some(marline_proto::Mutation::LeaveToSilent);
            run_setup(&setup, false).failure.is_some()
        };
        assert!((0..20).any(fails), "{connected:?}");
    }
}
