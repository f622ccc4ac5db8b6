//! A frame of `marline top` as plain data, which `--json` prints (`marline schema top`).

use schemars::JsonSchema;
use serde::Serialize;
use std::cmp::{Ordering, Reverse};

/// The jobs at one time.
#[derive(Clone, Debug, Default, Serialize, JsonSchema)]
pub struct Snapshot {
    /// Version of the command.
    pub version: String,
    /// Time of the snapshot in nanoseconds since 1970.
    pub unix_ns: u64,
    /// The jobs, in order of their start.
    pub jobs: Vec<JobRow>,
    /// Rails by job, host and name.
    pub rails: Vec<Rail>,
    /// The newest events, in order of time.
    pub events: Vec<EventRow>,
    /// Reasons for which pages are left out.
    pub unread: Vec<String>,
}

/// A job.
#[derive(Clone, Debug, Default, Serialize, JsonSchema)]
pub struct JobRow {
    /// Number of the job, as in `marline stats`: the process number of its first process.
    pub job: u32,
    /// True if all its processes have ended.
    pub ended: bool,
    /// The verdict, as in `marline stats --json`.
    pub verdict: &'static str,
    /// Processes that were in touch with others.
    pub processes: usize,
    /// Hosts of its processes.
    pub hosts: usize,
    /// Start of the first process in nanoseconds since 1970.
    pub from_unix_ns: u64,
    /// Messages sent per second.
    pub messages_sent_per_s: f64,
    /// Payload bytes sent per second.
    pub bytes_sent_per_s: f64,
    /// Peers that were declared dead, the root cause first.
    pub dead_peers: Vec<String>,
}

/// A rail of a host, of all processes of a job there.
#[derive(Clone, Debug, Default, Serialize, JsonSchema)]
pub struct Rail {
    /// Number of the job.
    pub job: u32,
    /// Host name.
    pub host: String,
    /// The rail's name.
    pub rail: String,
    /// State of the rail and its paths.
    pub state: State,
    /// Processes that have the rail.
    pub processes: usize,
    /// Processes in which its interface is up.
    pub up: usize,
    /// Paths to peers that live.
    pub paths: usize,
    /// Paths of these that are down.
    pub paths_down: usize,
    /// Bytes sent per second, without UDP and IP headers.
    pub bytes_sent_per_s: f64,
    /// Bytes received per second, without UDP and IP headers.
    pub bytes_received_per_s: f64,
    /// Packets sent per second.
    pub packets_sent_per_s: f64,
    /// Share of the packets sent lately that were lost; `None`: no packets were sent.
    pub loss: Option<f64>,
    /// Packets lost, in all.
    pub lost: u64,
    /// Packets sent again because of loss or a failed path, in all.
    pub resent: u64,
    /// Packets received damaged, in all.
    pub corrupt: u64,
    /// Longest smoothed round trip of its paths in nanoseconds; 0: unknown.
    pub rtt_ns: u64,
    /// Its worst paths, the worst first.
    pub worst: Vec<Path>,
}

impl Rail {
    /// Name for display: `h3:rail0`.
    pub fn name(&self) -> String {
        format!("{}:{}", self.host, self.rail)
    }
}

/// A path of a rail.
#[derive(Clone, Debug, Default, Serialize, JsonSchema)]
pub struct Path {
    /// The process.
    pub from: String,
    /// The peer.
    pub to: String,
    /// The peer's rail.
    pub to_rail: String,
    /// State of the path.
    pub state: State,
    /// Packets lost, in all.
    pub lost: u64,
    /// Packets sent again, in all.
    pub resent: u64,
    /// Packets received damaged, in all.
    pub corrupt: u64,
    /// Smoothed round trip in nanoseconds; 0: unknown.
    pub rtt_ns: u64,
}

impl Path {
    /// The order of the worst paths: by state, then by packets lost or damaged, then by round trip.
    pub fn order(&self, other: &Path) -> Ordering {
        let key = |path: &Path| {
            let harm = path.lost.saturating_add(path.corrupt);
            (path.state, Reverse(harm), Reverse(path.rtt_ns))
        };
        key(self).cmp(&key(other))
    }
}

/// The state of a rail or of a path, the worst first.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum State {
    /// The interface is down in all processes.
    LinkDown,
    /// All paths are down.
    Down,
    /// Some paths are down, or the interface is down in some processes.
    PartDown,
    /// The rail waits for its interface or an address.
    Waiting,
    /// PTOs of a path have expired.
    Suspect,
    /// A path answers again; it is on probation.
    Probation,
    /// In use.
    #[default]
    Up,
    /// Carries only while no preferred rail does.
    Standby,
    /// All processes have ended.
    Ended,
}

impl State {
    /// The states of rails in use.
    pub const LIVE: [State; 8] = [
        State::LinkDown,
        State::Down,
        State::PartDown,
        State::Waiting,
        State::Suspect,
        State::Probation,
        State::Up,
        State::Standby,
    ];

    /// Name for display, of at most nine characters.
    pub fn name(self) -> &'static str {
        match self {
            State::LinkDown => "link down",
            State::Down => "down",
            State::PartDown => "part down",
            State::Waiting => "waiting",
            State::Suspect => "suspect",
            State::Probation => "probation",
            State::Up => "up",
            State::Standby => "standby",
            State::Ended => "ended",
        }
    }
}

/// An event.
#[derive(Clone, Debug, Default, Serialize, JsonSchema)]
pub struct EventRow {
    /// Number of the job.
    pub job: u32,
    /// Time in nanoseconds since 1970.
    pub unix_ns: u64,
    /// The code, of which `marline explain` has the meaning.
    pub code: String,
    /// Process and event in words.
    pub text: String,
}
