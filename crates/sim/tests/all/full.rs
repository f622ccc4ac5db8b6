//! A hung queue that takes nothing for longer than the timeout for silent peers: data leaves by
//! another rail, no live peer is declared dead, and the rail comes back.

use marline_sim::{run_setup, Fault, Outcome, Setup, Topology, Trouble, Work};

const MS: u64 = 1_000_000;

fn setup(seed: u64) -> Setup {
    let mut setup = Setup::plain(seed, 2, 2);
    setup.topology = [Topology::Planes, Topology::Mesh][seed as usize % 2];
    let works = [Work::PingPong, Work::Halo, Work::Incast, Work::Random];
    setup.work = works[seed as usize / 2 % 4];
    setup.size_max = [2_000, 70_000, 1 << 20][seed as usize / 8 % 3];
    (setup.ops, setup.pause_ns) = (400, 500);
    setup.rate = vec![1_250_000_000; 2];
    setup.socket_bytes = 4 << 20;
    setup.log_bytes = 64 << 20;
    setup.node.peer_timeout_ns = 1_000 * MS;
    // A third of the seeds has direct writes, a third other writes.
    setup.direct = seed % 3 == 1;
    setup.writes = vec![seed % 3 == 2; 2];
    setup
}

/// The queue of a rail of host 0 hangs.
fn hang(setup: &mut Setup, rail: usize, (from_ms, to_ms): (u64, u64)) {
    setup.faults.push(Fault {
        from_ns: from_ms * MS,
        to_ns: to_ms * MS,
        what: Trouble::Hung { host: 0, rail },
    });
    setup.faults_end_ns = setup.faults_end_ns.max(to_ms * MS);
}

fn play(seed: u64, setup: &Setup) -> Outcome {
    let outcome = run_setup(setup, false);
    assert_eq!(outcome.failure, None, "seed {seed}");
    assert!(outcome.troubles.contains_key("queue hangs"));
    outcome
}

#[test]
fn a_hung_queue_delays_no_other_rail() {
    let (mut late, mut fell) = (0, 0);
    for seed in 0..96 {
        let mut setup = setup(seed);
        hang(&mut setup, seed as usize / 5 % 2, (1, 3_000));
        let outcome = play(seed, &setup);
        late += u64::from(outcome.worked_ns > MS);
        fell += outcome.rails.iter().map(|r| r.failovers).sum::<u64>();
        // Long before the queue recovers. (Random work continues until all faults are over.)
        let worked_ms = outcome.worked_ns / MS;
        let over = worked_ms < 500 || setup.work == Work::Random;
        assert!(over, "seed {seed}: {worked_ms} ms");
    }
    assert!(late > 64, "work went on when the queue hung in {late} runs");
    assert!(fell > 64, "{fell} failovers");
}

/// Rails in turn, so that a rail that does not come back is noticed.
#[test]
fn a_recovered_queue_is_used_again() {
    let mut came = 0;
    for seed in 0..24 {
        let mut setup = setup(seed);
        setup.work = Work::Halo;
        setup.ops = 4_000;
        for turn in 0..4 {
            let from_ms = 1 + 400 * turn;
            hang(&mut setup, turn as usize % 2, (from_ms, from_ms + 300));
        }
        // One outage lasts until only probes are sent.
        hang(&mut setup, 0, (1_600, 3_200));
        let outcome = play(seed, &setup);
        came += outcome.rails.iter().map(|r| r.returns).sum::<u64>();
    }
    assert!(came > 24, "{came} came back");
}

/// With a single rail, all waits for the queue, for less time than until a peer is declared dead.
#[test]
fn a_single_hung_rail_is_waited_for() {
    for seed in 0..24 {
        let mut setup = setup(seed);
        setup.rails = 1;
        for of_rails in [&mut setup.rate, &mut setup.latency_ns] {
            of_rails.truncate(1);
        }
        setup.datagram_max.truncate(1);
        setup.streams.truncate(1);
        setup.writes.truncate(1);
        hang(&mut setup, 0, (1, 700));
        play(seed, &setup);
    }
}
