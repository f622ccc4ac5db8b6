//! The statistics and events of jobs as data, which `--json` prints (`marline schema`).

use super::jobs::Job;
use crate::json::Summary;
use marline_engine::stats::rows::JobPage;
use schemars::JsonSchema;
use serde::Serialize;
use std::path::Path;

/// The output of `marline stats --json`.
#[derive(Debug, Serialize, JsonSchema)]
pub struct Stats {
    /// The jobs, in order of their start.
    jobs: Vec<StatsOfJob>,
}

/// The statistics of a job.
#[derive(Debug, Serialize, JsonSchema)]
struct StatsOfJob {
    /// The sums over its processes.
    #[serde(flatten)]
    summary: Summary,
    /// Number of the job: the process number of its first process.
    job: u32,
    /// Its pages.
    pages: Vec<Page>,
}

impl Stats {
    /// The statistics of these jobs.
    pub fn of(jobs: &[Job]) -> Stats {
        let of_job = |job: &Job| StatsOfJob {
            summary: Summary::from(&job.summary),
            job: job.id(),
            pages: job.pages.iter().map(|(path, p)| page(path, p)).collect(),
        };
        Stats {
            jobs: jobs.iter().map(of_job).collect(),
        }
    }
}

/// The page of an engine.
#[derive(Debug, Serialize, JsonSchema)]
struct Page {
    /// Its file.
    file: String,
    /// Host name.
    host: String,
    /// Process number.
    process: u32,
    /// Rank, if known.
    rank: Option<u32>,
    /// Number of the first endpoint, 16 hexadecimal digits.
    endpoint: String,
    /// Numbers of the first 16 endpoints.
    endpoints: Vec<String>,
    /// Number of further endpoints.
    endpoints_beyond: u64,
    /// True if the engine has closed.
    closed: bool,
    /// True if the process ended without closing.
    left_behind: bool,
}

fn page(file: &Path, page: &JobPage) -> Page {
    let digits = |number: &u64| format!("{number:016x}");
    Page {
        file: file.to_string_lossy().into_owned(),
        host: page.host.clone(),
        process: page.pid,
        rank: page.rank,
        endpoint: digits(&page.endpoint()),
        endpoints: page.endpoints.iter().map(digits).collect(),
        endpoints_beyond: page.endpoints_beyond,
        closed: page.closed,
        left_behind: page.is_left_behind(),
    }
}

/// The output of `marline events --json`.
#[derive(Debug, Serialize, JsonSchema)]
pub struct Events {
    /// The jobs, in order of their start.
    pub jobs: Vec<EventsOfJob>,
}

/// The events of a job.
#[derive(Debug, Serialize, JsonSchema)]
pub struct EventsOfJob {
    /// Number of the job.
    pub job: u32,
    /// Its events, oldest first.
    pub events: Vec<Event>,
    /// Number of older events that are not kept any more.
    pub missing: u64,
}

/// A line of `marline events --follow --json`.
#[derive(Debug, Serialize, JsonSchema)]
pub struct Followed {
    /// The event.
    #[serde(flatten)]
    pub event: Event,
    /// Number of its job.
    pub job: u32,
}

/// An event.
#[derive(Debug, Serialize, JsonSchema)]
pub struct Event {
    /// Time in nanoseconds since 1970.
    pub unix_ns: u64,
    /// Number of occurrences in `lasted_ms`.
    pub times: u32,
    /// Time of these occurrences in milliseconds.
    pub lasted_ms: u32,
    /// The code, of which `marline explain` has the meaning.
    pub code: String,
    /// The kind.
    pub kind: &'static str,
    /// The reason.
    pub reason: &'static str,
    /// Host of the process that recorded it.
    pub host: String,
    /// Number of that process.
    pub process: u32,
    /// Rank of that process, if known.
    pub rank: Option<u32>,
    /// Name of its rail, if of one.
    pub rail: Option<String>,
    /// The peer, if of one.
    pub peer: Option<Peer>,
    /// Packets moved to other paths.
    pub packets_moved: u64,
    /// Time without delivery in nanoseconds.
    pub gap_ns: u64,
    /// The value before, or an error number, by the kind.
    pub from: u32,
    /// The value after, by the kind.
    pub to: u32,
    /// The new address, if of one.
    pub address: Option<String>,
}

/// The peer of an event.
#[derive(Debug, Serialize, JsonSchema)]
pub struct Peer {
    /// Number of its endpoint, 16 hexadecimal digits.
    pub endpoint: String,
    /// Its rank, if known.
    pub rank: Option<u32>,
    /// Its host, if known.
    pub host: Option<String>,
    /// Name of its rail, if known.
    pub rail: Option<String>,
}
