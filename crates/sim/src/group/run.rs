//! A seed of groups: played, and the report.

use super::setup::GroupSetup;
use super::truth::{self, Times};
use super::world::GroupWorld;
use crate::check::outcome::Outcome;
use std::fmt::Write;
use std::panic::{catch_unwind, AssertUnwindSafe};

/// Number of last events shown for a traced failure.
const SHOWN: usize = 120;

/// Runs one simulation of groups. With `tracing` a failure shows the setup and the last events.
pub fn run_group(setup: &GroupSetup, tracing: bool) -> Outcome {
    play(setup, tracing).0
}

/// Like [`run_group`]; also returns the longest virtual times of broadcasts.
pub fn time_group(setup: &GroupSetup) -> (Outcome, Times) {
    play(setup, false)
}

fn play(setup: &GroupSetup, tracing: bool) -> (Outcome, Times) {
    let mut world = GroupWorld::new(setup, tracing);
    let played = catch_unwind(AssertUnwindSafe(|| world.play()));
    let played = played.unwrap_or_else(|panic| {
        let text = panic.downcast_ref::<String>().cloned();
        Err(format!(
            "panic: {}",
            text.unwrap_or_else(|| "see above".into())
        ))
    });
    let failure = played.err().map(|text| describe(setup, &world, &text));
    let mut troubles = std::mem::take(&mut world.troubles);
    let left = world.left().len() as u64;
    if left > 0 {
        troubles.insert("groups left", left);
    }
    let messages = setup.groups.iter().map(|g| g.script.len() as u64).sum();
    let times = match failure {
        None => times(setup, &world),
        Some(_) => Times {
            longest_ns: u64::MAX,
            ..Times::default()
        },
    };
    let outcome = Outcome {
        seed: setup.seed,
        hash: world.hash,
        failure,
        net: world.net.stats,
        troubles,
        moments: 0,
        messages,
        open_max: 0,
        worked_ns: world.worked_ns,
        simulated_ns: world.now,
        recovery_ns: 0,
        peers: 0,
        peer_bytes: 0,
        rails: Vec::new(),
        written: (0, 0),
        skipped: (0, 0),
        drained: 0,
    };
    (outcome, times)
}

fn times(setup: &GroupSetup, world: &GroupWorld<'_>) -> Times {
    let mut all = Times::default();
    for (group, spec) in setup.groups.iter().enumerate() {
        let members: Vec<_> = world.members(group).collect();
        let times = truth::times(setup, spec, &members);
        all.longest_ns = all.longest_ns.max(times.longest_ns);
        if times.silence.ns > all.silence.ns {
            all.silence = times.silence;
        }
    }
    all
}

fn describe(setup: &GroupSetup, world: &GroupWorld<'_>, text: &str) -> String {
    let mut report = format!("seed {}: {text}\n", setup.seed);
    let Some(trace) = &world.trace else {
        return report;
    };
    let _ = writeln!(report, "{setup:#?}");
    let from = trace.len().saturating_sub(SHOWN);
    trace[from..]
        .iter()
        .for_each(|line| report += &format!("{line}\n"));
    report
}
