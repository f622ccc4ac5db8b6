//! A range of the simulations that `make soak` runs endlessly: other seeds for every commit.

use marline_sim::{run_seeds, run_setup, shrink, Fault, Hunt, Profile, Setup, Trouble, Work};
use std::process::Command;

/// Seeds per profile: 1,400 in total, about half a minute of one core (`make soak-seeds` goes on).
const SEEDS: u64 = 200;
/// First seed without a commit.
const FALLBACK: u64 = 0x6d61_726c_696e_6500;

/// The first seed: the beginning of the commit's hash. Uncommitted changes do not alter it;
/// failures are printed with a complete command.
fn base() -> u64 {
    let git = Command::new("git")
        .args(["rev-parse", "HEAD"])
        .current_dir(env!("CARGO_MANIFEST_DIR"))
        .output();
    let text = git.ok().filter(|out| out.status.success());
    let text = text.and_then(|out| String::from_utf8(out.stdout).ok());
    let head = text.and_then(|text| u64::from_str_radix(text.get(..12)?, 16).ok());
    head.unwrap_or(FALLBACK)
}

fn clean(profile: Profile, count: u64) {
    let base = base();
    let hunt = Hunt {
        profile,
        stop: 3,
        ..Hunt::default()
    };
    let report = run_seeds(base..base + count, &hunt);
    let mut texts = String::new();
    for (seed, text) in &report.failures {
        texts += &format!(
            "{}\nreplay: cargo run --release -p marline-sim -- --seeds {seed} --profile {} \
             --trace\n",
            text.lines().next().unwrap_or_default(),
            profile.name()
        );
    }
    if let Some(&(seed, _)) = report.failures.first() {
        let small = shrink(&hunt.setup(seed));
        let shown = run_setup(&small, true).failure.unwrap_or_default();
        texts += &format!("seed {seed}, shrunk:\n{shown}");
    }
    assert!(texts.is_empty(), "{texts}");
    assert!(report.net.packets > 100 * count);
    let strange = report.net.strange;
    // Few seeds have most of them.
    assert!(
        strange > count / 10 || profile == Profile::Calm,
        "{strange} of strangers"
    );
}

#[test]
fn every_fault_at_once() {
    clean(Profile::Swarm, 2 * SEEDS);
}

#[test]
fn packets_lost_damaged_and_reordered() {
    clean(Profile::Loss, SEEDS);
}

#[test]
fn rails_fail_and_return() {
    clean(Profile::Rails, SEEDS);
}

#[test]
fn peers_die_stop_and_are_cut_off() {
    clean(Profile::Peers, SEEDS);
}

#[test]
fn rails_of_infiniband() {
    clean(Profile::Verbs, SEEDS);
}

#[test]
fn nothing_fails() {
    clean(Profile::Calm, SEEDS);
}

/// Each run has its own thread with fresh memory: reused receive buffers might contain the right
/// bytes of the run before where a write is lost (seed 5025555587850).
#[test]
fn the_same_seed_gives_the_same_events() {
    for seed in (base()..base() + 40).chain([5025555587850]) {
        let run = |traced| {
            let run = move || run_setup(&Setup::draw(seed, Profile::Swarm, 0, 0), traced).hash;
            std::thread::spawn(run).join().unwrap()
        };
        assert_eq!(run(false), run(true), "seed {seed}");
    }
}

#[test]
fn more_jobs_give_the_same_report_and_every_seed_its_packets() {
    let report = |jobs| {
        let hunt = Hunt {
            packets_min: 3_000,
            jobs,
            ..Hunt::default()
        };
        run_seeds(base()..base() + 12, &hunt)
    };
    let (one, three) = (report(1), report(3));
    assert!(one.failures.is_empty(), "{}", one.failures[0].1);
    let all = |r: &marline_sim::Report| (r.hash, r.messages, r.packets.clone(), r.seeds);
    assert_eq!(all(&one), all(&three));
    assert!(one.packets.iter().all(|&n| n >= 3_000), "{:?}", one.packets);
}

#[test]
fn peers_that_gave_each_other_up_are_replaced_and_send_their_packets() {
    let mut setup = Setup::draw(1, Profile::Peers, 2, 1);
    let to_ns = 200_000 + setup.node.peer_timeout_ns * 3 / 2;
    setup.faults = vec![Fault {
        from_ns: 200_000,
        to_ns,
        what: Trouble::Partition { split: 1 },
    }];
    (setup.may_die, setup.faults_end_ns) = (true, to_ns);
    (setup.work, setup.ops, setup.packets_min) = (Work::Halo, 400, 5_000);
    let outcome = run_setup(&setup, false);
    assert!(outcome.failure.is_none(), "{}", outcome.failure.unwrap());
    assert!(outcome.net.packets >= 5_000);
    assert!(outcome.troubles["renewed"] > 0);
}

/// Seeds that failed: a stranger whose paths carry packets in one direction each; another that was
/// forgotten; an endpoint found by host and port; a receive that was posted again; a stranger's
/// HELLO with a further frame, which left no room for acks; hundreds of writes that end one by one;
/// a put that was appended to an answer, as the peer's RPC had the same number; a peer that died
/// before a rail was drained; a first packet whose version was forged.
#[test]
fn seeds_that_failed_once_pass() {
    let swarm = [
        258988698134843,
        5061156804385,
        45276229404875,
        127478280260227,
        911582,
        35916412319632,
        4001289,
    ];
    let swarm = swarm.map(|seed| (Profile::Swarm, seed));
    let others = [(Profile::Verbs, 20942496), (Profile::Peers, 4100120)];
    for (profile, seed) in swarm.into_iter().chain(others) {
        let failure = run_setup(&Setup::draw(seed, profile, 0, 0), false).failure;
        assert_eq!(failure, None, "seed {seed}");
    }
}

/// The application sends to a stranger that was forgotten.
#[test]
fn a_forgotten_stranger_is_sent_to() {
    let mut setup = Setup::draw(140_405_933_621_263, Profile::Swarm, 0, 0);
    setup.work = Work::Collective;
    assert_eq!(run_setup(&setup, false).failure, None);
}

/// Patterns that few seeds draw.
#[test]
fn trees_collectives_and_storms_end() {
    for work in [Work::Tree, Work::Collective, Work::Storm] {
        for seed in base()..base() + 30 {
            let mut setup = Setup::draw(seed, Profile::Swarm, 0, 0);
            setup.work = work;
            let outcome = run_setup(&setup, false);
            let failure = outcome.failure.unwrap_or_default();
            assert!(failure.is_empty(), "{work:?}, seed {seed}: {failure}");
        }
    }
}

/// A storm has thousands of operations open at once.
#[test]
fn a_storm_opens_thousands() {
    let mut setup = Setup::plain(1, 4, 2);
    setup.work = Work::Storm;
    let outcome = run_setup(&setup, false);
    assert_eq!(outcome.failure, None);
    assert!(outcome.open_max >= 2_000, "{}", outcome.open_max);
}

/// Behind a packet longer than its queue all others are lost, and a peer whose packets come just
/// then would be declared dead (seed 9115949).
#[test]
fn queues_hold_a_packet() {
    for seed in 0..500 {
        let setup = Setup::draw(seed, Profile::Swarm, 0, 0);
        for (&max, &rate) in setup.datagram_max.iter().zip(&setup.rate) {
            let queue_bytes = rate * setup.queue_ns / 1_000_000_000;
            assert!(max as u64 <= queue_bytes.max(1_232), "seed {seed}");
        }
    }
}

/// Sleeps must advance the world's time with the process's: otherwise its clock ran ahead and its
/// packets left then (seed 9866981).
#[test]
fn calls_take_time_of_the_world() {
    let mut setup = Setup::draw(9_866_981, Profile::Swarm, 0, 0);
    setup.faults.clear();
    setup.packets_min = 0;
    let outcome = run_setup(&setup, false);
    assert_eq!(outcome.failure, None);
}

/// An application with 29,000 completed receives must read them without pauses: at 64 entries in 20
/// ms it delayed its peers (seed 10189662).
#[test]
fn entries_are_read_without_pause() {
    let setup = Setup::draw(10_189_662, Profile::Swarm, 0, 0);
    let setup = Setup {
        packets_min: 5_000,
        ..setup
    };
    let outcome = run_setup(&setup, false);
    assert_eq!(outcome.failure, None);
}

/// Peers that speak before their address is inserted prove it, whatever the network does.
#[test]
fn strangers_are_validated_under_all_faults() {
    let validated = |seed| {
        let outcome = run_setup(&Setup::draw(seed, Profile::Swarm, 0, 0), false);
        assert_eq!(outcome.failure, None, "seed {seed}");
        outcome.troubles.get("stranger validated").copied()
    };
    let validated: u64 = (0..60).filter_map(validated).sum();
    assert!(validated > 10, "{validated}");
}
