//! The content of a report as plain data, which `--json` prints as it stands
//! (`marline schema report`).

use super::given::Given;
use crate::stats::averages::Mean;
use marline_codes::Code;
use schemars::JsonSchema;
use serde::Serialize;

/// A report.
#[derive(Debug, Default, Serialize, JsonSchema)]
pub struct Report {
    /// Version of the command that made the report.
    pub version: String,
    /// Version of the layout of the statistics pages.
    pub pages_version: u64,
    /// The jobs that used Marline, in order of their start.
    pub jobs: Vec<JobReport>,
}

/// The report of a job.
#[derive(Debug, Default, Serialize, JsonSchema)]
pub struct JobReport {
    /// The facts that the statistics hold.
    #[serde(flatten)]
    pub facts: Facts,
    /// The facts in words, the most important first.
    pub findings: Vec<Finding>,
}

/// The facts of a job.
#[derive(Debug, Default, Serialize, JsonSchema)]
pub struct Facts {
    /// Number of the job, as in `marline stats`: the process number of its first process.
    pub job: u32,
    /// True if all its processes have ended.
    pub ended: bool,
    /// The verdict, as in `marline stats --json`.
    pub verdict: &'static str,
    /// Start of the first process in nanoseconds since 1970.
    pub from_unix_ns: u64,
    /// Last update of any process in nanoseconds since 1970.
    pub to_unix_ns: u64,
    /// Hosts of its processes, by name.
    pub hosts: Vec<String>,
    /// Processes that were in touch with others.
    pub processes: usize,
    /// Processes that never were in touch with others.
    pub processes_unused: usize,
    /// Processes that ended without closing their page, as if killed.
    pub left_behind: Vec<String>,
    /// Messages sent.
    pub messages_sent: u64,
    /// Payload bytes sent, each once.
    pub bytes_sent: u64,
    /// Messages sent, by size.
    pub sizes: Vec<Size>,
    /// Messages delivered, by the time from the first chance to leave to the last ack.
    pub waits: Vec<Wait>,
    /// Longest of these waits.
    pub message_wait_max_ns: u64,
    /// Longest time from a packet's departure to its ack.
    pub ack_wait_max_ns: u64,
    /// Rails by host and name.
    pub rails: Vec<Rail>,
    /// Outages in order of time.
    pub outages: Vec<Outage>,
    /// Outages put together by place, in order of first occurrence.
    pub outages_by_place: Vec<Outage>,
    /// Place that paths which were given up have in common.
    pub given_up: Paths,
    /// Place that paths with damaged packets have in common.
    pub damaged: Paths,
    /// Peers that were declared dead, the root cause first.
    pub dead_peers: Vec<Dead>,
    /// The host on one side of all pairs of processes that fell silent to each other, if it is the
    /// only such host.
    pub cut_off: Option<String>,
    /// The pairs of processes with most traffic.
    pub pairs: Vec<Pair>,
    /// Number of pairs with traffic.
    pub pairs_all: usize,
    /// The processes that sent most.
    pub talkers: Vec<Talker>,
    /// Bytes of rails over time.
    pub bandwidth: Bandwidth,
    /// Payload bytes that hosts sent to each other.
    pub between_hosts: Matrix,
    /// Averages per process, in the terms of the literature on reliability in software.
    pub averages: Vec<Mean>,
    /// Versions of the library and of the wire protocol.
    pub versions: Vec<Given>,
    /// Settings that differ from their defaults.
    pub settings: Vec<Given>,
    /// Protection in use.
    pub protection: Protection,
    /// Number of events that the statistics hold.
    pub events: usize,
    /// Number of older events that the statistics hold no more.
    pub events_missing: u64,
}

/// A class of message sizes.
#[derive(Debug, Default, Serialize, JsonSchema)]
pub struct Size {
    /// Largest size of the class; `None`: no limit.
    pub up_to_bytes: Option<u64>,
    /// Messages sent.
    pub messages: u64,
}

/// A class of waits.
#[derive(Debug, Default, Serialize, JsonSchema)]
pub struct Wait {
    /// Longest wait of the class in nanoseconds; `None`: no limit.
    pub up_to_ns: Option<u64>,
    /// Messages sent eagerly.
    pub eager: u64,
    /// Messages sent after a grant; the time without a receive is not counted.
    pub rendezvous: u64,
}

impl Wait {
    /// Messages of the class.
    pub fn messages(&self) -> u64 {
        self.eager.saturating_add(self.rendezvous)
    }
}

/// A rail of a host, of all its processes.
#[derive(Debug, Default, Serialize, JsonSchema)]
pub struct Rail {
    /// Host and name of the rail.
    #[serde(flatten)]
    pub end: End,
    /// Address in one of the processes.
    pub address: String,
    /// Largest packet in bytes, in one of the processes.
    pub packet_bytes_max: u64,
    /// Processes that have the rail.
    pub processes: usize,
    /// Processes in which it is up.
    pub up: usize,
    /// Bytes sent, without UDP and IP headers.
    pub bytes_sent: u64,
    /// Bytes received, without UDP and IP headers.
    pub bytes_received: u64,
    /// Packets sent.
    pub packets_sent: u64,
    /// Packets received.
    pub packets_received: u64,
    /// Packets sent that were lost.
    pub lost: u64,
    /// Packets sent again because of loss or a failed path.
    pub resent: u64,
    /// Packets sent again without need.
    pub resent_spurious: u64,
    /// Packets received damaged.
    pub corrupt: u64,
    /// Times a path was given up.
    pub failovers: u64,
    /// Times a path was taken back.
    pub failbacks: u64,
    /// Times the system reported the rail down.
    pub downs: u64,
    /// Packets dropped by the full receive buffer of the host.
    pub receiver_drops: u64,
    /// Times large packets vanished and shorter ones were used.
    pub shrinks: u64,
    /// Packets of another version of the protocol.
    pub wrong_version: u64,
    /// Packets and connections without the tag of the job's key.
    pub forged: u64,
}

/// Bytes of rails over time.
#[derive(Debug, Default, Serialize, JsonSchema)]
pub struct Bandwidth {
    /// Length of an interval in nanoseconds; the first begins with the job.
    pub interval_ns: u64,
    /// Rails by host and name.
    pub rails: Vec<Curve>,
}

/// Bytes of a rail in each interval.
#[derive(Debug, Default, Serialize, JsonSchema)]
pub struct Curve {
    /// Host and name of the rail.
    #[serde(flatten)]
    pub end: End,
    /// Bytes sent, without UDP and IP headers.
    pub sent: Vec<u64>,
    /// Bytes received, without UDP and IP headers.
    pub received: Vec<u64>,
}

/// Bytes that hosts sent to each other.
#[derive(Debug, Default, Serialize, JsonSchema)]
pub struct Matrix {
    /// Names of the hosts, or of groups of them.
    pub hosts: Vec<String>,
    /// Payload bytes sent: a row for each sender.
    pub bytes: Vec<Vec<u64>>,
    /// Payload bytes sent to processes whose host is unknown.
    pub bytes_elsewhere: u64,
}

/// Traffic of a process.
#[derive(Debug, Default, Serialize, JsonSchema)]
pub struct Talker {
    /// The process.
    pub process: String,
    /// Messages sent.
    pub messages: u64,
    /// Payload bytes sent.
    pub bytes: u64,
}

/// A rail of a host.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, JsonSchema)]
pub struct End {
    /// Host name, or an address if no name is known.
    pub host: String,
    /// The rail's name.
    pub rail: String,
}

impl End {
    /// Name for display: `h3:rail0`.
    pub fn name(&self) -> String {
        format!("{}:{}", self.host, self.rail)
    }
}

/// An outage.
#[derive(Clone, Debug, Default, Serialize, JsonSchema)]
pub struct Outage {
    /// Rails and hosts in words.
    pub place: String,
    /// The code.
    pub code: String,
    /// The rails that failed, or between which no packets passed.
    pub ends: Vec<End>,
    /// True if these rails are known to have failed; otherwise the fault lies between them.
    pub certain: bool,
    /// True if damaged packets were the reason.
    pub corrupt: bool,
    /// Number of outages.
    pub times: usize,
    /// Begin in nanoseconds since 1970.
    pub from_unix_ns: u64,
    /// End in nanoseconds since 1970; `None`: not over.
    pub to_unix_ns: Option<u64>,
    /// Packets moved to other paths.
    pub packets_moved: u64,
    /// Longest time without delivery in nanoseconds; 0: nothing was waiting.
    pub gap_ns: u64,
}

/// Bad paths of one kind and the place that they have in common.
#[derive(Debug, Default, Serialize, JsonSchema)]
pub struct Paths {
    /// Number of the paths.
    pub paths: usize,
    /// The place that they have in common, if any.
    pub common: Option<Common>,
}

/// A place that bad paths have in common.
#[derive(Debug, PartialEq, Eq, Serialize, JsonSchema)]
pub struct Common {
    /// The place.
    pub place: Place,
    /// Number of the paths that have it.
    pub paths: usize,
}

/// A place of faults.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Place {
    /// A rail of a host.
    #[serde(rename = "rail")]
    End(End),
    /// Two rails, or the way between them.
    Between(End, End),
    /// A host, on several rails.
    Host(String),
    /// All rails of one name, on several hosts.
    #[serde(rename = "rails_named")]
    Rail(String),
}

/// A dead peer.
#[derive(Debug, Default, Serialize, JsonSchema)]
pub struct Dead {
    /// Rank or endpoint number, with an address.
    pub name: String,
    /// Its host, if known.
    pub host: Option<String>,
    /// Name of the reason, as in events.
    pub reason: &'static str,
    /// The code of the reason.
    pub code: String,
    /// The reason in words.
    pub why: String,
    /// Number of processes that declared it dead.
    pub named_by: usize,
    /// Time of the first declaration in nanoseconds since 1970; 0: unknown.
    pub from_unix_ns: u64,
    /// True if the process is gone or its host refused packets.
    pub gone: bool,
    /// True if it was refused at first contact.
    pub refused: bool,
    /// True if it had declared another peer dead before.
    pub follows: bool,
}

/// Traffic from one process to another.
#[derive(Debug, Default, Serialize, JsonSchema)]
pub struct Pair {
    /// The sender.
    pub from: String,
    /// The receiver.
    pub to: String,
    /// Messages sent.
    pub messages: u64,
    /// Payload bytes sent.
    pub bytes: u64,
}

/// Protection in use, and settings that disable some.
#[derive(Debug, Default, Serialize, JsonSchema)]
pub struct Protection {
    /// Names of the payload checksums agreed between processes.
    pub checksums: Vec<String>,
    /// Processes with software reliability off.
    pub without_reliability: usize,
    /// Processes with a peer without checksum.
    pub without_checksums: usize,
    /// Processes in which some payloads have no checksum.
    pub some_checksums: usize,
    /// Processes with injected faults.
    pub faults: usize,
}

/// A finding in words.
#[derive(Debug, PartialEq, Eq, Serialize, JsonSchema)]
pub struct Finding {
    /// Its weight.
    pub severity: Severity,
    /// The code, of which `marline explain` has the meaning; null for notes.
    pub code: Option<String>,
    /// The finding.
    pub text: String,
    /// The thing to look at, if any.
    pub look_at: Option<String>,
}

impl Finding {
    /// A fault, with the thing to look at if there is one.
    pub fn fault(code: Code, text: String, look_at: Option<String>) -> Finding {
        Finding {
            severity: Severity::Fault,
            code: Some(code.to_string()),
            text,
            look_at,
        }
    }

    /// A warning, with the thing to look at if there is one.
    pub fn warning(code: Code, text: String, look_at: &str) -> Finding {
        Finding {
            severity: Severity::Warning,
            code: Some(code.to_string()),
            text,
            look_at: (!look_at.is_empty()).then(|| look_at.to_owned()),
        }
    }

    /// The text with the code behind it.
    pub fn marked(&self) -> String {
        match &self.code {
            Some(code) => format!("{} [{code}]", self.text),
            None => self.text.clone(),
        }
    }

    /// A note.
    pub fn note(text: String) -> Finding {
        Finding {
            severity: Severity::Note,
            code: None,
            text,
            look_at: None,
        }
    }
}

/// The weight of a finding.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum Severity {
    /// Something failed.
    Fault,
    /// Something may fail, or works less well than it could.
    Warning,
    /// For information.
    Note,
}

impl Severity {
    /// Name for display.
    pub fn name(self) -> &'static str {
        match self {
            Severity::Fault => "fault",
            Severity::Warning => "warning",
            Severity::Note => "note",
        }
    }
}

impl JobReport {
    /// The things to look at, each once, in order of the findings.
    pub fn look_at(&self) -> Vec<&str> {
        let mut all: Vec<&str> = Vec::new();
        for text in self.findings.iter().filter_map(|f| f.look_at.as_deref()) {
            if !all.contains(&text) {
                all.push(text);
            }
        }
        all
    }
}
