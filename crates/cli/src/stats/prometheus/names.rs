//! Names and values of metrics by Prometheus' rules: base units, at the end of the name.

use marline_engine::stats::{Combine, Row};

/// A unit of the counters: in tables, in their names, in metrics.
struct Unit {
    table: &'static str,
    name: &'static str,
    metric: &'static str,
}

/// The units that metrics name. Metrics that count things have none.
const UNITS: &[Unit] = &[
    Unit {
        table: "bytes",
        name: "bytes",
        metric: "bytes",
    },
    Unit {
        table: "ns",
        name: "ns",
        metric: "seconds",
    },
    Unit {
        table: "bytes/s",
        name: "bytes_per_s",
        metric: "bytes_per_second",
    },
];

/// The metric of a counter of a group.
pub fn metric(group: &str, row: &Row) -> String {
    let unit = UNITS.iter().find(|unit| unit.table == row.unit);
    let (without, unit) = match unit {
        Some(unit) => {
            let between = format!("_{}_", row.name);
            let without = between.replace(&format!("_{}_", unit.name), "_");
            (without.trim_matches('_').to_owned(), unit.metric)
        }
        None => (row.name.to_owned(), ""),
    };
    let end = match row.combine {
        Combine::Sum => "total",
        Combine::Max => "",
    };
    let words = ["marline", group, &without, unit, end];
    let words: Vec<&str> = words.into_iter().filter(|word| !word.is_empty()).collect();
    words.join("_")
}

/// A counter's value in its metric's unit.
pub fn value(row: &Row, count: u64) -> String {
    match row.unit {
        "ns" => (count as f64 / 1e9).to_string(),
        _ => count.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use marline_engine::stats::{
        Counters, PathCounters, PeerCounters, ProcessCounters, RailCounters,
    };

    fn all() -> Vec<(String, &'static Row)> {
        let of = |group: &'static str, rows: &'static [Row]| {
            rows.iter().map(move |row| (metric(group, row), row))
        };
        let process = of("process", ProcessCounters::ROWS).chain(of("peers", PeerCounters::ROWS));
        let rails = of("rail", RailCounters::ROWS).chain(of("paths", PathCounters::ROWS));
        process.chain(rails).collect()
    }

    #[test]
    fn names_end_in_base_units() {
        let names = all();
        for name in [
            "marline_process_polls_total",
            "marline_process_ack_wait_max_seconds",
            "marline_process_log_max_bytes",
            "marline_process_summed_by_workers_bytes_total",
            "marline_rail_wire_sent_bytes_total",
            "marline_peers_sent_bytes_total",
            "marline_paths_rtt_seconds",
            "marline_paths_bytes_per_second",
        ] {
            assert!(names.iter().any(|(found, _)| found == name), "{name}");
        }
        let all: std::collections::BTreeSet<&String> = names.iter().map(|(name, _)| name).collect();
        assert_eq!(all.len(), names.len(), "no two have one name");
    }

    #[test]
    fn values_are_in_base_units() {
        let of = |name: &str, count| {
            let all = all();
            let row = all.iter().find(|(found, _)| found == name);
            value(row.unwrap().1, count)
        };
        assert_eq!(of("marline_paths_rtt_seconds", 1_500_000), "0.0015");
        let bytes = "marline_peers_sent_bytes_total";
        assert_eq!(of(bytes, u64::MAX), u64::MAX.to_string());
    }
}
