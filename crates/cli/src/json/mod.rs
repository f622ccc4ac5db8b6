//! The summary of a job as data, which `marline stats --json` and `marline run --json` print;
//! `marline schema` prints its members with their types and meanings.

mod group;

use crate::former::former;
use group::Group;
use marline_codes::Code;
use marline_engine::stats::dead::DeadPeer;
use marline_engine::stats::outages;
use marline_engine::stats::summary::{self, RailSummary};
use marline_engine::stats::{PathCounters, PeerCounters, ProcessCounters, RailCounters};
use schemars::JsonSchema;
use serde::Serialize;
use serde_json::Value;
use std::collections::BTreeMap;

/// A value as a line, with its members in order of their names.
pub fn line(value: &impl Serialize) -> Result<String, String> {
    let sorted: Result<Value, _> = serde_json::to_value(value);
    sorted.map_or_else(|e| Err(format!("JSON: {e}")), |v| Ok(format!("{v}\n")))
}

/// The verdict as one word.
pub fn verdict(s: &summary::Summary) -> &'static str {
    match s {
        _ if s.processes == 0 => "unused",
        _ if !s.dead.is_empty() => "peer-dead",
        _ if s.is_unprotected() => "unprotected",
        _ if s.problems() > 0 => "repaired",
        _ => "clean",
    }
}

/// The code of the verdict, unless it needs no action.
fn code(s: &summary::Summary) -> Option<Code> {
    let dead = s.dead.first().map(|dead| dead.reason.code_of_peer());
    match s.processes {
        0 => Some(Code::NotUsed),
        _ => dead.or(s.is_unprotected().then_some(Code::Unprotected)),
    }
}

/// The summary of many processes.
#[derive(Debug, Serialize, JsonSchema)]
pub struct Summary {
    /// `clean`, `repaired` (something was lost or damaged, or a path left), `unprotected`,
    /// `peer-dead` or `unused`.
    verdict: &'static str,
    /// The code of the verdict; null: no action is needed.
    code: Option<String>,
    /// Processes that were in touch with others.
    processes: usize,
    /// Processes that were not.
    processes_unused: usize,
    /// Longest life of a process's engine.
    seconds: f64,
    /// Peers that were given up, the root cause first.
    dead_peers: Vec<Dead>,
    /// Numbers of processes whose settings disable a protection.
    unprotected: Unprotected,
    /// Outages of rails in order of time.
    outages: Vec<Outage>,
    /// Rails by name.
    rails: Vec<Rail>,
    /// Counters of all processes.
    process: Group<ProcessCounters>,
    /// Counters of all peers of all processes.
    peers: Group<PeerCounters>,
}

impl From<&summary::Summary> for Summary {
    fn from(s: &summary::Summary) -> Summary {
        let of = &s.unprotected;
        Summary {
            verdict: verdict(s),
            code: code(s).map(|code| code.to_string()),
            processes: s.processes,
            processes_unused: s.idle,
            seconds: (s.elapsed_ns as f64 / 1e6).round() / 1e3,
            dead_peers: s.dead.iter().map(Dead::from).collect(),
            unprotected: Unprotected {
                reliability: of.reliability,
                checksums: of.sums,
                some_checksums: of.some_sums,
                faults: of.faults,
            },
            outages: s.outages.iter().map(Outage::from).collect(),
            rails: s.rails.iter().map(Rail::from).collect(),
            process: Group(s.process),
            peers: Group(s.peers),
        }
    }
}

/// A peer that was given up.
#[derive(Debug, Serialize, JsonSchema)]
struct Dead {
    /// Number of its endpoint, 16 hexadecimal digits.
    endpoint: String,
    /// An address of it.
    address: String,
    /// Its rank, if known.
    rank: Option<u32>,
    /// Its host, if known.
    host: Option<String>,
    /// Number of processes that gave it up.
    named_by: usize,
    /// True if the process is gone or its host refused packets.
    gone: bool,
    /// Reason of the first that gave it up, as of events.
    reason: &'static str,
    /// The code of the reason.
    code: String,
}

impl From<&DeadPeer> for Dead {
    fn from(dead: &DeadPeer) -> Dead {
        Dead {
            endpoint: format!("{:016x}", dead.endpoint),
            address: dead.address.clone(),
            rank: dead.rank,
            host: dead.host.clone(),
            named_by: dead.named_by,
            gone: dead.gone,
            reason: dead.reason.name(),
            code: dead.reason.code_of_peer().to_string(),
        }
    }
}

/// Numbers of processes whose settings disable a protection.
#[derive(Debug, Serialize, JsonSchema)]
struct Unprotected {
    /// Software reliability is off.
    reliability: usize,
    /// No payload to or from some peer has a checksum.
    checksums: usize,
    /// Some payloads have no checksum.
    some_checksums: usize,
    /// Faults are injected.
    faults: usize,
}

/// An outage of rails.
#[derive(Debug, Serialize, JsonSchema)]
struct Outage {
    /// The outage in words.
    text: String,
    /// The code.
    code: String,
    /// The rails that failed, or between which no packets passed.
    ends: Vec<End>,
    /// True if these rails are known to have failed.
    certain: bool,
    /// True if damaged packets were the reason.
    corrupt: bool,
    /// Begin in nanoseconds since 1970.
    from_unix_ns: u64,
    /// End in nanoseconds since 1970; null: not over.
    to_unix_ns: Option<u64>,
    /// Packets moved to other paths.
    packets_moved: u64,
    /// Longest time without delivery in nanoseconds.
    gap_ns: u64,
}

/// A rail of a host.
#[derive(Debug, Serialize, JsonSchema)]
struct End {
    /// Host name.
    host: String,
    /// The rail's name.
    rail: String,
}

impl From<&outages::Outage> for Outage {
    fn from(outage: &outages::Outage) -> Outage {
        let end = |end: &outages::End| End {
            host: end.host.clone(),
            rail: end.rail.clone(),
        };
        Outage {
            text: outage.line(),
            code: outage.code().to_string(),
            ends: outage.ends.iter().map(end).collect(),
            certain: outage.certain,
            corrupt: outage.corrupt,
            from_unix_ns: outage.from_unix_ns,
            to_unix_ns: outage.to_unix_ns,
            packets_moved: outage.moved,
            gap_ns: outage.gap_ns,
        }
    }
}

/// Retransmissions without need, of which the row of a rail has a total.
const SPURIOUS: &str = "resent_spurious";

/// All rails of one name.
#[derive(Debug, Serialize, JsonSchema)]
struct Rail {
    /// The rail's name.
    name: String,
    /// Number of rails put together.
    rails: usize,
    /// Number of these that are up.
    up: usize,
    /// Packets sent that were lost.
    lost: u64,
    /// Packets sent again because of loss or a failed path.
    resent: u64,
    /// Packets received damaged.
    corrupt: u64,
    /// Times a path was given up.
    failovers: u64,
    /// Packets sent again without need, by the counter's present and former name.
    #[serde(flatten)]
    spurious: BTreeMap<&'static str, u64>,
    /// Counters of the rails alone.
    rail: Group<RailCounters>,
    /// Counters of all their paths.
    paths: Group<PathCounters>,
}

impl From<&RailSummary> for Rail {
    fn from(rail: &RailSummary) -> Rail {
        let names = [Some(SPURIOUS), former(SPURIOUS)].into_iter().flatten();
        Rail {
            name: rail.name.clone(),
            rails: rail.rails,
            up: rail.up,
            lost: rail.lost(),
            resent: rail.resent(),
            corrupt: rail.corrupt(),
            failovers: rail.paths.downs,
            spurious: names.map(|name| (name, rail.resent_spurious())).collect(),
            rail: Group(rail.counters),
            paths: Group(rail.paths),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_summary_is_an_object_with_every_counter() {
        let mut s = summary::Summary::default();
        s.rails.push(RailSummary::default());
        s.dead.push(DeadPeer::default());
        let value = serde_json::to_value(Summary::from(&s)).unwrap();
        assert_eq!(value["verdict"], "unused");
        assert_eq!(value["rails"][0]["paths"]["spurious"], 0);
        let former = crate::former::former("resent_spurious").unwrap();
        assert_eq!(value["rails"][0][former], 0);
        assert_eq!(value["dead_peers"][0]["rank"], Value::Null);
        assert_eq!(value["process"]["peers_dead"], 0);
    }

    #[test]
    fn members_are_in_order_of_their_names() {
        #[derive(Serialize)]
        struct Two {
            z: u8,
            a: u8,
        }
        assert_eq!(line(&Two { z: 1, a: 2 }).unwrap(), "{\"a\":2,\"z\":1}\n");
    }
}
