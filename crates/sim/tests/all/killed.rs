//! A process is killed while it and another of the same host establish contact by shared memory
//! (docs/design/shm.md).

use marline_sim::script::parse;
use marline_sim::{run_setup, Outcome, Setup};

const MS: u64 = 1_000_000;

/// Two processes of one host; the second is killed after this many microseconds.
fn run(seed: u64, after_us: u64) -> Outcome {
    let mut setup = Setup::plain(seed, 2, 1);
    (setup.near, setup.streams[0], setup.connected[0]) = (Some(0), true, true);
    (setup.writes[0], setup.refuses) = (false, true);
    setup.node.peer_timeout_ns = 5_000 * MS;
    setup.faults_end_ns = 20 * MS;
    let faults = format!("{after_us}us {}us 1 dies", after_us + 1);
    setup.follow(&parse(&faults, 2, 1).expect("faults"));
    let outcome = run_setup(&setup, false);
    assert_eq!(outcome.failure, None, "seed {seed}, {after_us} us");
    outcome
}

/// No process listens under the name of its rail, which is never reused: the death is reported at
/// once, even if the dead process had acknowledged nothing.
#[test]
fn a_process_killed_on_the_same_host_is_reported_at_once() {
    let (mut told, mut late) = (0, Vec::new());
    for seed in 0..40 {
        for after_us in [1, 3, 10, 20, 30, 50, 100, 300] {
            let outcome = run(seed, after_us);
            let over_ms = outcome.worked_ns / MS;
            told += u64::from(over_ms >= 100);
            if over_ms > 1_000 {
                late.push((seed, after_us, over_ms));
            }
        }
    }
    assert!(told > 0, "operations end by the death");
    assert!(late.is_empty(), "{} are late: {late:?}", late.len());
}
