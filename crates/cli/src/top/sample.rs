//! Makes a snapshot out of statistics pages.

use super::data::{EventRow, JobRow, Path, Rail, Snapshot, State};
use super::rates::{Change, RailSums, Rates};
use crate::json::verdict;
use crate::run::stats_dir::process;
use crate::stats::jobs::Job;
use crate::stats::on_page::{is_down, state, OnPage};
use crate::stats::shown::{shown, Shown};
use crate::stats::{read, Found};
use marline_engine::stats::outages::{by_endpoint, rail_name};
use marline_engine::stats::rows::{JobPage, PathRow, PathState, PeerRow};
use marline_engine::stats::summary::RailSummary;
use marline_engine::stats::Counters;
use marline_engine::wall_clock;
use std::collections::{BTreeMap, HashMap};
use std::path::PathBuf;

/// Most paths that a rail lists: as many as fit a terminal of 24 lines beside the rest.
pub const WORST_MAX: usize = 3;
/// Most events of a snapshot: more than a terminal shows.
const EVENTS_MAX: usize = 100;

/// Reads pages time after time.
pub struct Sampler {
    /// Pages or directories; none: those of this host.
    paths: Vec<PathBuf>,
    /// Only the job of this process.
    job: Option<u32>,
    rates: Rates,
}

impl Sampler {
    /// Reads the pages in these places, of all jobs or of the job of a process.
    pub fn new(paths: &[PathBuf], job: Option<u32>) -> Sampler {
        Sampler {
            paths: paths.to_owned(),
            job,
            rates: Rates::default(),
        }
    }

    /// Reads all pages. The rates are those since the call before.
    pub fn take(&mut self) -> Result<Snapshot, String> {
        let found = read(&self.paths, self.job)?;
        let snapshot = self.snapshot(&found);
        self.rates
            .keep(found.jobs.iter().flat_map(|job| &job.pages));
        Ok(snapshot)
    }

    /// The snapshot of these pages.
    pub fn snapshot(&self, found: &Found) -> Snapshot {
        let used: Vec<&Job> = found.jobs.iter().filter(|job| is_used(job)).collect();
        // Ended jobs are of interest only where none runs.
        let any_lives = used.iter().any(|job| !job.has_ended());
        let wanted = || {
            let jobs = used.iter().copied();
            jobs.filter(move |job| !any_lives || !job.has_ended())
        };
        let mut events: Vec<EventRow> = wanted().flat_map(events).collect();
        events.sort_by_key(|event| event.unix_ns);
        events.drain(..events.len().saturating_sub(EVENTS_MAX));
        Snapshot {
            version: marline_version::TEXT.to_owned(),
            unix_ns: wall_clock::unix_ns(),
            jobs: wanted().map(|job| self.job_row(job)).collect(),
            rails: wanted().flat_map(|job| self.rails(job)).collect(),
            events,
            unread: found.unread.clone(),
        }
    }

    fn changes(&self, job: &Job) -> Vec<Change> {
        let pages = job.pages.iter();
        pages
            .map(|(file, page)| self.rates.change(file, page))
            .collect()
    }

    fn job_row(&self, job: &Job) -> JobRow {
        let (s, changes) = (&job.summary, self.changes(job));
        let mut hosts: Vec<&String> = job.pages.iter().map(|(_, page)| &page.host).collect();
        hosts.sort();
        hosts.dedup();
        let opened = job.pages.iter().map(|(_, page)| page.opened_unix_ns);
        JobRow {
            job: job.id(),
            ended: job.has_ended(),
            verdict: verdict(s),
            processes: s.processes,
            hosts: hosts.len(),
            from_unix_ns: opened.min().unwrap_or(0),
            messages_sent_per_s: changes.iter().map(Change::messages_sent_per_s).sum(),
            bytes_sent_per_s: changes.iter().map(Change::bytes_sent_per_s).sum(),
            dead_peers: s.dead.iter().map(|peer| peer.name()).collect(),
        }
    }

    /// The rails of a job by host and name.
    fn rails(&self, job: &Job) -> Vec<Rail> {
        let by_endpoint = by_endpoint(job.pages.iter().map(|(_, page)| page));
        let changes = self.changes(job);
        let mut rails: BTreeMap<(&str, &str), Vec<Changing<'_>>> = BTreeMap::new();
        for ((_, page), change) in job.pages.iter().zip(&changes) {
            if !page.is_used() {
                continue;
            }
            for (n, row) in page.rails.iter().enumerate() {
                let of = rails.entry((&page.host, &row.name)).or_default();
                let on = OnPage { page, n };
                of.push(Changing { on, change });
            }
        }
        let rail = |all: &Vec<Changing<'_>>| rail(job.id(), all, &by_endpoint);
        rails.values().map(rail).collect()
    }
}

fn is_used(job: &Job) -> bool {
    job.summary.processes > 0
}

fn events(job: &Job) -> Vec<EventRow> {
    let row = |shown: &Shown<'_>| EventRow {
        job: job.id(),
        unix_ns: shown.event.unix_ns,
        code: shown.event.code().to_string(),
        text: shown.text(),
    };
    shown(job).iter().map(row).collect()
}

/// A rail of one process, and what changed on its page.
#[derive(Clone, Copy)]
struct Changing<'a> {
    on: OnPage<'a>,
    change: &'a Change,
}

impl Changing<'_> {
    fn since_before(self) -> RailSums {
        self.change.rail(self.on.n)
    }
}

fn rail(job: u32, all: &[Changing<'_>], by_endpoint: &HashMap<u64, &JobPage>) -> Rail {
    let sums = sums(all);
    let living = all.iter().filter(|rail| rail.on.is_live());
    let living: Vec<Changing<'_>> = living.copied().collect();
    let live: Vec<OnPage<'_>> = living.iter().map(|rail| rail.on).collect();
    let per_s = |count: fn(RailSums) -> u64| {
        let rates = living
            .iter()
            .map(|rail| rail.change.per_s(count(rail.since_before())));
        rates.sum::<f64>()
    };
    let paths = || live.iter().flat_map(|on| on.paths()).map(|(_, path)| path);
    let (host, name) = all.first().map_or(("", ""), |Changing { on, .. }| {
        (&on.page.host, &on.row().name)
    });
    Rail {
        job,
        host: host.to_owned(),
        rail: name.to_owned(),
        state: state(&live),
        processes: all.len(),
        up: live.iter().filter(|on| on.row().up).count(),
        paths: paths().count(),
        paths_down: paths().filter(|path| is_down(path)).count(),
        bytes_sent_per_s: per_s(|sums| sums.bytes_sent),
        bytes_received_per_s: per_s(|sums| sums.bytes_received),
        packets_sent_per_s: per_s(|sums| sums.packets_sent),
        loss: loss(&living),
        lost: sums.lost(),
        resent: sums.resent(),
        corrupt: sums.corrupt(),
        rtt_ns: paths().map(|path| path.counters.rtt_ns).max().unwrap_or(0),
        worst: worst(&live, by_endpoint),
    }
}

/// The counters of a rail of several processes.
fn sums(all: &[Changing<'_>]) -> RailSummary {
    let mut sums = RailSummary::default();
    for Changing { on, .. } in all {
        sums.counters.merge(&on.row().counters);
        sums.paths.merge(&on.page.path_totals(on.n));
        sums.alive.merge(&on.page.path_totals_alive(on.n));
    }
    sums
}

/// The share of the packets sent since the last reading that were lost.
fn loss(living: &[Changing<'_>]) -> Option<f64> {
    let changes = || living.iter().map(|rail| rail.since_before());
    let sent: u64 = changes().map(|sums| sums.path_packets_sent).sum();
    let lost: u64 = changes().map(|sums| sums.lost).sum();
    // Packets sent earlier are found lost later.
    (sent > 0).then(|| (lost as f64 / sent as f64).min(1.0))
}

fn path_state(path: &PathRow) -> State {
    match path.state {
        PathState::Down => State::Down,
        PathState::Suspect => State::Suspect,
        PathState::Probation => State::Probation,
        PathState::Up | PathState::Unknown => State::Up,
    }
}

/// The worst paths of a rail.
fn worst(live: &[OnPage<'_>], by_endpoint: &HashMap<u64, &JobPage>) -> Vec<Path> {
    let paths = live.iter().flat_map(|on| {
        let paths = on.paths();
        paths.map(move |(peer, row)| (on.page, peer, row, measured(row)))
    });
    let mut paths: Vec<_> = paths.collect();
    paths.sort_by(|(.., a), (.., b)| a.order(b));
    paths.truncate(WORST_MAX);
    let named = |(page, peer, row, path): (&JobPage, &PeerRow, &PathRow, Path)| {
        let (to, to_rail) = match by_endpoint.get(&peer.endpoint) {
            Some(page) => (process(page), peer_rail(page, row)),
            None => (
                format!("peer {}", peer.address),
                format!("rail {}", row.peer_rail),
            ),
        };
        let from = process(page);
        Path {
            from,
            to,
            to_rail,
            ..path
        }
    };
    paths.into_iter().map(named).collect()
}

/// A path without its names.
fn measured(row: &PathRow) -> Path {
    let c = &row.counters;
    Path {
        state: path_state(row),
        lost: c.lost.saturating_sub(c.spurious),
        resent: c.resent(),
        corrupt: c.corrupt_payloads,
        rtt_ns: c.rtt_ns,
        ..Path::default()
    }
}

/// The name of the peer's rail; empty for several rails together.
fn peer_rail(page: &JobPage, path: &PathRow) -> String {
    match path.peer_rail {
        PathRow::SEVERAL => String::new(),
        number => rail_name(page, u8::try_from(number).unwrap_or(u8::MAX)),
    }
}
