//! Every deliberate mistake in the protocol is noticed: prints the seeds that each needs, and the
//! first complaint.
//!
//! `cargo test -p marline-sim --features mutation --test mutations -- --nocapture mutations::`;
//! with `MUTATIONS=IgnoreTag,AcceptReplays` only these mistakes.
#![cfg(feature = "mutation")]

use marline_auth::Level;
use marline_proto::group::GroupMutation;
use marline_proto::Mutation;
use marline_sim::group::{run_group, GroupSetup};
use marline_sim::{run_setup, shrink, Profile, Setup};
use std::fmt::Debug;
use std::sync::Mutex;

/// A mistake that hides longer than this calls for a better simulator.
const SEEDS_MAX: u64 = 3_000;

/// Seeds that showed mistakes which few seeds show: each is tried first, and saves a search of up
/// to a minute as long as `Setup::draw` draws the same from it.
const FIRST: [(&str, u64); 18] = [
    ("Strand", 854),
    ("BelieveResets", 331),
    ("ForgetRefusal", 309),
    ("LeaveToSilent", 184),
    ("BoundlessLog", 112),
    ("KeepDeadlines", 103),
    ("AskNoStandby", 100),
    ("BelieveRefusals", 62),
    ("HideUnreachable", 839),
    ("WriteUnchecked", 372),
    ("MournStrangers", 341),
    ("HandOverLate", 256),
    ("Unasked", 212),
    ("ForgetOrphans", 194),
    ("BlindSums", 137),
    ("OpenVisible", 126),
    ("ShowAgain", 109),
    ("WriteLate", 63),
];

/// The seeds that it takes until one fails, and the complaint.
fn hunt(name: &str, fails: impl Fn(u64) -> Option<String>) -> Option<(u64, String)> {
    let first = FIRST
        .iter()
        .find(|(rare, _)| *rare == name)
        .map(|&(_, seed)| seed);
    for (tried, seed) in (1..).zip(first.into_iter().chain(0..SEEDS_MAX)) {
        if let Some(text) = fails(seed) {
            let line = text.lines().next().unwrap_or_default();
            return Some((tried, line.chars().take(90).collect()));
        }
    }
    None
}

fn with(mutation: Mutation, seed: u64) -> Option<String> {
    let mut setup = Setup::draw(seed, Profile::Swarm, 0, 0);
    setup.node.mutation = Some(mutation);
    run_setup(&setup, false).failure
}

fn with_group(mutation: GroupMutation, seed: u64) -> Option<String> {
    let mut setup = GroupSetup::draw(seed, 0);
    setup.mutation = Some(mutation);
    run_group(&setup, false).failure
}

/// Hunts all of them, one on each core at a time.
fn hunt_all<M: Copy + Debug + Sync + Send>(
    all: &[M],
    fails: impl Fn(M, u64) -> Option<String> + Sync,
) {
    // Broken protocols panic now and then; that counts, and need not be shown.
    std::panic::set_hook(Box::new(|_| {}));
    let only = std::env::var("MUTATIONS").unwrap_or_default();
    let only: Vec<&str> = only.split(',').filter(|name| !name.is_empty()).collect();
    let asked = |m: &M| only.is_empty() || only.contains(&format!("{m:?}").as_str());
    let left = Mutex::new(all.iter().copied().filter(asked));
    let missed = Mutex::new(Vec::new());
    let work = || loop {
        let next = left.lock().unwrap().next();
        let Some(mutation) = next else { break };
        let name = format!("{mutation:?}");
        match hunt(&name, |seed| fails(mutation, seed)) {
            Some((seeds, how)) => println!("{name:<16} {seeds:>5}  {how}"),
            None => missed.lock().unwrap().push(mutation),
        }
    };
    let cores = std::thread::available_parallelism().map_or(1, usize::from);
    std::thread::scope(|scope| (0..cores).for_each(|_| drop(scope.spawn(work))));
    let missed = missed.into_inner().unwrap();
    // The hook above hides what a failing assertion says.
    println!("not noticed: {missed:?}");
    assert!(missed.is_empty());
}

#[test]
fn every_mutation_is_noticed() {
    hunt_all(&Mutation::ALL, with);
}

#[test]
fn every_mutation_of_groups_is_noticed() {
    hunt_all(&GroupMutation::ALL, with_group);
}

/// Any host on the path can replace a payload whose sum has no key, and none whose sum has one.
#[test]
fn replaced_payloads_with_the_same_sum_pass_without_a_key_alone() {
    let run = |seed, mutation| {
        let mut setup = Setup::plain(seed, 2, 1);
        (setup.node.key_mark, setup.level) = (1, Level::Payloads);
        (setup.node.algorithm, setup.node.summed) = (1, (0, u64::MAX));
        setup.node.mutation = mutation;
        setup.packet_faults.corrupt_payload = 20_000;
        run_setup(&setup, false)
    };
    let (mut replaced, mut passed) = (0, 0);
    for seed in 0..6 {
        let keyed = run(seed, None);
        assert_eq!(keyed.failure, None, "{seed}");
        replaced += keyed.troubles.get("payload replaced").unwrap_or(&0);
        let failure = run(seed, Some(Mutation::UnkeyedSums)).failure;
        passed += failure.is_some_and(|text| text.contains("wrong bytes pass")) as u32;
    }
    assert!(replaced > 0 && passed > 0, "{replaced}, {passed}");
}

#[test]
fn a_failing_setup_shrinks_and_still_fails() {
    let mut setup = Setup::draw(0, Profile::Swarm, 4, 2);
    setup.node.mutation = Some(Mutation::ForgetLost);
    setup.packet_faults.drop = 50_000;
    assert!(run_setup(&setup, false).failure.is_some());
    let small = shrink(&setup);
    assert!(run_setup(&small, false).failure.is_some());
    assert!(small.ops < setup.ops || small.faults.len() < setup.faults.len());
}

/// A failure in the first round, on any rail, is shown without the others.
#[test]
fn later_rounds_and_other_rails_are_taken_away() {
    let mut setup = Setup::draw(0, Profile::Swarm, 3, 3);
    setup.node.mutation = Some(Mutation::IgnoreSum);
    setup.packet_faults.corrupt_payload = 100_000;
    setup.packets_min = 20_000;
    assert!(run_setup(&setup, false).failure.is_some());
    let small = shrink(&setup);
    assert!(run_setup(&small, false).failure.is_some());
    assert_eq!((small.rails, small.packets_min), (1, 0), "{small:#?}");
    assert!(small.faults.is_empty(), "{small:#?}");
}
