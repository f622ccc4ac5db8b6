//! Runs many seeds on one processor or several, with the same report.

use crate::check::outcome::Outcome;
use crate::group::{run_group, shrink_group, GroupSetup};
use crate::network::net::NetStats;
use crate::run::seed::run_setup;
use crate::run::shrink::shrink;
use crate::setup::choices::{Fault, Setup};
use crate::setup::profile::Profile;
use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::sync::mpsc::{sync_channel, Receiver, SyncSender};

/// Most outcomes that wait for the outcome of an earlier seed.
const WAITING_MAX: usize = 1_024;

/// The parameters common to all seeds.
#[derive(Clone, Debug)]
pub struct Hunt {
    /// Kinds of faults.
    pub profile: Profile,
    /// Hosts of each cluster; 0: drawn.
    pub hosts: usize,
    /// Rails of each host; 0: drawn.
    pub rails: usize,
    /// Faults in place of the drawn ones; see [`Setup::follow`].
    pub script: Option<Vec<Fault>>,
    /// Least packets per seed (see [`Setup::packets_min`]).
    pub packets_min: u64,
    /// Number of failures after which to stop.
    pub stop: usize,
    /// Threads.
    pub jobs: usize,
}

impl Default for Hunt {
    fn default() -> Hunt {
        Hunt {
            profile: Profile::Swarm,
            hosts: 0,
            rails: 0,
            script: None,
            packets_min: 0,
            stop: 1,
            jobs: 1,
        }
    }
}

/// The results of many seeds.
#[derive(Clone, Debug, Default)]
pub struct Report {
    /// Seeds run.
    pub seeds: u64,
    /// Totals of faults and packets.
    pub net: NetStats,
    /// Number of occurrences of each trouble.
    pub troubles: BTreeMap<&'static str, u64>,
    /// Messages sent.
    pub messages: u64,
    /// Virtual time of all seeds.
    pub simulated_ns: u64,
    /// Hash of all events of all seeds.
    pub hash: u64,
    /// Packets of each seed.
    pub packets: Vec<u64>,
    /// Failures: seed and report.
    pub failures: Vec<(u64, String)>,
}

impl Report {
    fn add(&mut self, outcome: Outcome) {
        self.seeds += 1;
        self.net.add(&outcome.net);
        for (name, count) in outcome.troubles {
            *self.troubles.entry(name).or_default() += count;
        }
        self.messages += outcome.messages;
        self.simulated_ns += outcome.simulated_ns;
        self.hash = self.hash.rotate_left(1) ^ outcome.hash;
        self.packets.push(outcome.net.packets);
        if let Some(text) = outcome.failure {
            self.failures.push((outcome.seed, text));
        }
    }
}

impl Hunt {
    /// The setup of a seed.
    pub fn setup(&self, seed: u64) -> Setup {
        let mut setup = Setup {
            packets_min: self.packets_min,
            ..Setup::draw(seed, self.profile, self.hosts, self.rails)
        };
        if let Some(faults) = &self.script {
            setup.follow(faults);
        }
        setup
    }

    /// Runs a seed.
    pub(crate) fn play(&self, seed: u64) -> Outcome {
        match self.profile {
            Profile::Group => run_group(&GroupSetup::draw(seed, self.hosts), false),
            _ => run_setup(&self.setup(seed), false),
        }
    }

    /// The report of a failing seed, shrunk, with its last events; `None` if the seed does not
    /// fail.
    pub fn explain(&self, seed: u64) -> Option<String> {
        match self.profile {
            Profile::Group => {
                let small = shrink_group(&GroupSetup::draw(seed, self.hosts));
                run_group(&small, true).failure
            }
            _ => run_setup(&shrink(&self.setup(seed)), true).failure,
        }
    }
}

/// Runs a range of seeds. The report is the same for any number of jobs.
pub fn run_seeds(seeds: Range<u64>, hunt: &Hunt) -> Report {
    watch_seeds(seeds, hunt, |_, _| {})
}

/// Like [`run_seeds`]; `look` sees the report after each seed, and the first seed not included.
pub fn watch_seeds(seeds: Range<u64>, hunt: &Hunt, look: impl FnMut(&Report, u64)) -> Report {
    let mut report = Report::default();
    let (next, over) = (AtomicU64::new(seeds.start), AtomicBool::new(false));
    let (give, get) = sync_channel(WAITING_MAX);
    std::thread::scope(|scope| {
        for _ in 0..hunt.jobs.max(1) {
            let give = give.clone();
            let (next, over, end) = (&next, &over, seeds.end);
            scope.spawn(move || work(hunt, next, end, over, &give));
        }
        drop(give);
        gather(&get, seeds.start, hunt.stop, &mut report, look);
        over.store(true, Relaxed);
        // Drops the outcomes of seeds already started.
        get.iter().for_each(drop);
    });
    report
}

fn work(hunt: &Hunt, next: &AtomicU64, end: u64, over: &AtomicBool, give: &SyncSender<Outcome>) {
    while !over.load(Relaxed) {
        let seed = next.fetch_add(1, Relaxed);
        if seed >= end || give.send(hunt.play(seed)).is_err() {
            return;
        }
    }
}

/// Adds outcomes to the report in order of seeds, up to the last failure that is wanted.
fn gather(
    get: &Receiver<Outcome>,
    first: u64,
    stop: usize,
    report: &mut Report,
    mut look: impl FnMut(&Report, u64),
) {
    let (mut waiting, mut seed) = (BTreeMap::new(), first);
    for outcome in get {
        waiting.insert(outcome.seed, outcome);
        while let Some(outcome) = waiting.remove(&seed) {
            seed += 1;
            report.add(outcome);
            look(report, seed);
            if report.failures.len() >= stop {
                return;
            }
        }
    }
}
