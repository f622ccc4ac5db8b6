//! Metrics in Prometheus' text format: a series per host and rail, whatever the number of processes
//! and peers.

mod file;
mod histograms;
mod kept;
mod limits;
mod names;
mod now;
mod slurm;
mod text;
mod totals;

use super::jobs::{is_over, Job};
use kept::Kept;
use limits::Names;
use marline_engine::stats::rows::JobPage;
use marline_engine::stats::{Counters, PathCounters, PeerCounters, ProcessCounters, RailCounters};
use marline_engine::wall_clock::unix_ns;
use now::{of_rail, Running};
use std::path::{Path, PathBuf};
use text::{Kind, Labels, Sample, Text};
use totals::{summed, Counts, Totals};

/// The metrics of these jobs; `unread` is the number of pages and directories that are left out.
pub fn metrics(jobs: &[Job], unread: usize) -> String {
    look(&mut Kept::default(), jobs, unread)
}

/// Writes the same to a file for node_exporter, with the totals of pages that were removed.
pub fn write(jobs: &[Job], unread: usize, file: &Path) -> Result<(), String> {
    let mut kept = Kept::load(file);
    let text = look(&mut kept, jobs, unread);
    // Metrics that are newer than the totals would go backwards at the next look.
    kept.save(file)?;
    file::replace(file, &text)
}

fn look(kept: &mut Kept, jobs: &[Job], unread: usize) -> String {
    let all: Vec<&(PathBuf, JobPage)> = jobs.iter().flat_map(|job| &job.pages).collect();
    let there = all.len() + unread;
    let pages = Names::of(&kept.totals()).within(all);
    let unread = there - pages.len();
    kept.look(pages.iter().copied(), unix_ns());
    let totals = kept.totals();
    let live = pages.iter().map(|(_, page)| page);
    let live = live.filter(|page| !is_over(page));
    let mut text = Text::default();
    Running::of(live, totals.keys().map(String::as_str)).write(&mut text);
    counted(&mut text, &totals);
    histograms::write(&mut text, &totals);
    let unread = vec![Sample::new(Vec::new(), unread)];
    let help = "Statistics pages and directories that are left out.";
    text.metric("marline_pages_unread", Kind::Gauge, help, unread);
    text.0
}

/// Adds the counters of all hosts and rails.
fn counted(text: &mut Text, totals: &Totals) {
    let hosts = totals.iter();
    let hosts = hosts.map(|(host, of)| (vec![("host", host.as_str())], &of.own));
    let hosts: Vec<(Labels<'_>, &Counts)> = hosts.collect();
    counters::<ProcessCounters>(text, "process", &hosts);
    counters::<PeerCounters>(text, "peers", &hosts);
    let rails = totals.iter().flat_map(|(host, of)| {
        let rails = of.rails.iter();
        rails.map(move |(rail, counts)| (of_rail(host, rail), counts))
    });
    let rails: Vec<(Labels<'_>, &Counts)> = rails.collect();
    counters::<RailCounters>(text, "rail", &rails);
    counters::<PathCounters>(text, "paths", &rails);
}

fn counters<C: Counters>(text: &mut Text, group: &str, of: &[(Labels<'_>, &Counts)]) {
    for (_, row) in summed::<C>().filter(|(_, row)| !histograms::is_class(row)) {
        let name = names::metric(group, row);
        let samples = of.iter().map(|(labels, counts)| {
            let value = counts.get(&name).copied().unwrap_or(0);
            Sample::new(labels.clone(), names::value(row, value))
        });
        text.metric(&name, Kind::Counter, row.doc, samples.collect());
    }
}

#[cfg(test)]
#[path = "prometheus_test.rs"]
mod test;
