//! The summary of a job as JSON; docs/statistics.md documents its shape.

use crate::former::former;
use marline_engine::stats::dead::DeadPeer;
use marline_engine::stats::outages::{End, Outage};
use marline_engine::stats::summary::{RailSummary, Summary};
use marline_engine::stats::{Counters, Row};
use serde_json::{json, Map, Value};

/// An array of values.
pub fn array<T>(items: &[T], value: impl Fn(&T) -> Value) -> Value {
    items.iter().map(value).collect()
}

/// A group of counters as an object, with the former names.
fn counters<C: Counters>(group: &C) -> Value {
    let named = |(row, value): (&'static Row, u64)| {
        let names = [Some(row.name), former(row.name)].into_iter().flatten();
        names.map(move |name| (name.to_owned(), json!(value)))
    };
    group.values().flat_map(named).collect::<Map<_, _>>().into()
}

/// The verdict as one word.
pub fn verdict(s: &Summary) -> &'static str {
    match s {
        _ if s.processes == 0 => "unused",
        _ if !s.dead.is_empty() => "peer-dead",
        _ if s.is_unprotected() => "unprotected",
        _ if s.problems() > 0 => "repaired",
        _ => "clean",
    }
}

/// The summary of many processes.
pub fn summary(s: &Summary) -> Value {
    let of = &s.unprotected;
    json!({
        "verdict": verdict(s),
        "processes": s.processes,
        "processes_unused": s.idle,
        "seconds": (s.elapsed_ns as f64 / 1e6).round() / 1e3,
        "dead_peers": array(&s.dead, dead),
        "unprotected": {
            "reliability": of.reliability,
            "checksums": of.sums,
            "some_checksums": of.some_sums,
            "faults": of.faults,
        },
        "outages": array(&s.outages, outage),
        "rails": array(&s.rails, rail),
        "process": counters(&s.process),
        "peers": counters(&s.peers),
    })
}

fn dead(dead: &DeadPeer) -> Value {
    json!({
        "endpoint": format!("{:016x}", dead.endpoint),
        "address": dead.address,
        "rank": dead.rank,
        "host": dead.host,
        "named_by": dead.named_by,
        "gone": dead.gone,
        "reason": dead.reason.name(),
    })
}

fn outage(outage: &Outage) -> Value {
    let end = |end: &End| json!({ "host": end.host, "rail": end.rail });
    json!({
        "text": outage.line(),
        "ends": array(&outage.ends, end),
        "certain": outage.certain,
        "corrupt": outage.corrupt,
        "from_unix_ns": outage.from_unix_ns,
        "to_unix_ns": outage.to_unix_ns,
        "packets_moved": outage.moved,
        "gap_ns": outage.gap_ns,
    })
}

/// Retransmissions without need, of which the row of a rail has a total.
const SPURIOUS: &str = "resent_spurious";

fn rail(rail: &RailSummary) -> Value {
    json!({
        "name": rail.name,
        "rails": rail.rails,
        "up": rail.up,
        "lost": rail.lost(),
        "resent": rail.resent(),
        SPURIOUS: rail.resent_spurious(),
        former(SPURIOUS).unwrap_or(SPURIOUS): rail.resent_spurious(),
        "corrupt": rail.corrupt(),
        "failovers": rail.paths.downs,
        "rail": counters(&rail.counters),
        "paths": counters(&rail.paths),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_summary_is_an_object_with_every_counter() {
        let mut s = Summary::default();
        s.rails.push(RailSummary::default());
        s.dead.push(DeadPeer::default());
        let value = summary(&s);
        assert_eq!(value["verdict"], "unused");
        assert_eq!(value["rails"][0]["paths"]["spurious"], 0);
        assert_eq!(value["dead_peers"][0]["rank"], Value::Null);
        assert_eq!(value["process"]["peers_dead"], 0);
    }
}
