//! Metrics in Prometheus' text format: per process, per rail, and totals of peers and paths.

use super::jobs::Job;
use crate::former::former;
use marline_engine::stats::rows::JobPage;
use marline_engine::stats::{Combine, Counters, PathCounters};

/// A metric per counter of a group, with its samples.
struct Family<C> {
    name: &'static str,
    samples: Vec<(String, C)>,
}

impl<C: Counters> Family<C> {
    fn new(name: &'static str) -> Family<C> {
        Family {
            name,
            samples: Vec::new(),
        }
    }

    fn text(&self) -> String {
        let mut out = String::new();
        for (n, row) in C::ROWS.iter().enumerate() {
            let (kind, end) = match row.combine {
                Combine::Sum => ("counter", "_total"),
                Combine::Max => ("gauge", ""),
            };
            for name in [Some(row.name), former(row.name)].into_iter().flatten() {
                let metric = format!("marline_{}_{name}{end}", self.name);
                out += &format!("# HELP {metric} {}\n# TYPE {metric} {kind}\n", row.doc);
                for (labels, counters) in &self.samples {
                    let value = counters.words().as_ref()[n];
                    out += &format!("{metric}{{{labels}}} {value}\n");
                }
            }
        }
        out
    }
}

/// The metrics of all jobs.
pub fn metrics(jobs: &[Job]) -> String {
    let (mut process, mut peers) = (Family::new("process"), Family::new("peers"));
    let (mut rails, mut paths) = (Family::new("rail"), Family::new("paths"));
    for job in jobs {
        for (_, page) in &job.pages {
            let labels = labels(job, page);
            process.samples.push((labels.clone(), page.process));
            peers.samples.push((labels.clone(), page.peer_totals()));
            for (n, rail) in page.rails.iter().enumerate() {
                let labels = format!("{labels},rail={}", quoted(&rail.name));
                let of_paths: PathCounters = page.path_totals(n);
                rails.samples.push((labels.clone(), rail.counters));
                paths.samples.push((labels, of_paths));
            }
        }
    }
    process.text() + &peers.text() + &rails.text() + &paths.text()
}

fn labels(job: &Job, page: &JobPage) -> String {
    let rank = page.rank.map_or(String::new(), |rank| rank.to_string());
    format!(
        "job=\"{}\",host={},process=\"{}\",endpoint=\"{:016x}\",rank=\"{rank}\"",
        job.id(),
        quoted(&page.host),
        page.pid,
        page.endpoint()
    )
}

/// A quoted label value. (Pages with unprintable text are rejected earlier.)
fn quoted(text: &str) -> String {
    format!("\"{}\"", text.replace('\\', "\\\\").replace('"', "\\\""))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::stats::jobs;
    use marline_engine::stats::rows::RailRow;

    #[test]
    fn every_counter_is_a_metric_with_its_labels() {
        let mut page = JobPage {
            pid: 12,
            host: "h\"0".into(),
            rank: Some(3),
            ..JobPage::default()
        };
        page.process.polls = 5;
        page.rails.push(RailRow {
            name: "eth0".into(),
            ..RailRow::default()
        });
        let text = metrics(&jobs::group(vec![("p".into(), page)]));
        for line in [
            "# TYPE marline_process_polls_total counter",
            "# TYPE marline_process_log_bytes_max gauge",
        ] {
            assert!(text.lines().any(|l| l == line), "{line}: {text}");
        }
        let labels = r#"job="12",host="h\"0",process="12",endpoint="0000000000000000",rank="3""#;
        let line = format!("marline_process_polls_total{{{labels}}} 5\n");
        assert!(text.contains(&line), "{line}: {text}");
        assert!(text.contains(r#",rank="3",rail="eth0"} 0"#), "{text}");
    }
}
