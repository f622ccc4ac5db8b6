//! A report as text of at most 80 columns, where names allow that.

use super::data::{Facts, JobReport, Pair, Rail, Report, Severity, Talker, Wait};
use super::given::Given;
use super::words::{clock, date, duration};
use super::{curves, heat};
use crate::table::table;
use marline_engine::stats::outages::format_gap;
use marline_engine::stats::text::{format_bytes, format_count, plural, wrap};

/// The whole report.
pub fn text(report: &Report) -> String {
    if report.jobs.is_empty() {
        return "no process was in touch with another over Marline\n".to_owned();
    }
    let jobs: Vec<String> = report.jobs.iter().map(job).collect();
    let mut out = jobs.join("\n");
    out += &format!("\nmarline {}\n", report.version);
    out
}

fn job(job: &JobReport) -> String {
    let f = &job.facts;
    let mut out = wrap(&heading(f));
    out += "\nWhat happened\n";
    for finding in &job.findings {
        let mark = match finding.severity {
            Severity::Fault => "!",
            Severity::Warning => "?",
            Severity::Note => "-",
        };
        out += &wrap(&format!("{mark} {}", finding.marked()));
    }
    let look_at = job.look_at();
    if !look_at.is_empty() {
        out += "\nWhat to look at\n";
        out.extend(look_at.iter().map(|text| wrap(&format!("- {text}"))));
    }
    out += "\nRails\n";
    out += &table(&RAILS, (1, 1), f.rails.iter().map(rail));
    if !f.bandwidth.rails.is_empty() {
        out += "\nBytes sent over time (x: rail down), and their mean rate\n";
        out += &curves::text(f);
    }
    if heat::has_pairs(&f.between_hosts) {
        out += "\nBytes between hosts\n";
        out += &heat::text(&f.between_hosts);
    }
    out += &format!("\n{}\n", pairs_heading(f));
    out += &table(&PAIRS, (1, 1), f.pairs.iter().map(pair));
    out += "\nProcesses that sent most\n";
    out += &table(&TALKERS, (1, 1), f.talkers.iter().map(talker));
    out += "\nMessages by size\n";
    out += &sizes(f);
    let waits = shown_waits(f);
    if !waits.is_empty() {
        out += "\nMessages by wait, from their first chance to leave to the last ack\n";
        let classes = waits.iter().map(|wait| {
            let (class, count) = (wait_class(wait), format_count(wait.messages()));
            format!("{class}: {count}")
        });
        out += &wrap(&classes.collect::<Vec<_>>().join(", "));
    }
    out += "\nAverage per process\n";
    out.extend(
        f.averages
            .iter()
            .map(|mean| format!("{:<40} {:>12}\n", mean.name, mean.text)),
    );
    out += "\nVersions and settings\n";
    out.extend(lines(f).iter().map(|line| wrap(line)));
    out + &wrap(&protection(f))
}

/// The line above a job.
pub fn heading(f: &Facts) -> String {
    let lasted = format_gap(f.to_unix_ns.saturating_sub(f.from_unix_ns));
    let state = if f.ended { "" } else { ", running or killed" };
    format!(
        "Job of process {}: {} to {} ({lasted}{state}), {} on {}, {} sent, verdict: {}",
        f.job,
        date(f.from_unix_ns),
        clock(f.to_unix_ns, f.from_unix_ns),
        plural(f.processes as u64, "process", "processes"),
        plural(f.hosts.len() as u64, "host", "hosts"),
        format_bytes(f.bytes_sent),
        f.verdict,
    )
}

/// The title of the table of pairs.
pub fn pairs_heading(f: &Facts) -> String {
    match f.pairs_all > f.pairs.len() {
        true => format!(
            "Pairs with most traffic, {} of {}",
            f.pairs.len(),
            f.pairs_all
        ),
        false => "Pairs by traffic".to_owned(),
    }
}

/// Protection in use.
pub fn protection(f: &Facts) -> String {
    let sums = match &f.protection.checksums[..] {
        [] => "unknown".to_owned(),
        names => names.join(", "),
    };
    format!("Checksums of payloads: {sums}")
}

/// Columns of the table of rails.
pub const RAILS: [&str; 9] = [
    "rail",
    "out",
    "in",
    "packets",
    "lost",
    "resent",
    "spurious",
    "corrupt",
    "failovers",
];
/// Columns of the table of pairs.
pub const PAIRS: [&str; 4] = ["from", "to", "messages", "sent"];

/// Columns of the table of processes.
pub const TALKERS: [&str; 3] = ["process", "messages", "sent"];

/// Columns of the table of waits.
pub const WAITS: [&str; 3] = ["wait", "eager", "rendezvous"];

/// Versions, and settings that differ from their defaults, each with its processes.
pub fn lines(f: &Facts) -> Vec<String> {
    let line = |given: &Given| {
        let processes = plural(given.processes as u64, "process", "processes");
        format!("{} in {processes}", given.text)
    };
    let mut lines: Vec<String> = f.versions.iter().chain(&f.settings).map(line).collect();
    if f.settings.is_empty() {
        lines.push("all settings have their defaults".to_owned());
    }
    lines
}

fn talker(talker: &Talker) -> Vec<String> {
    vec![
        talker.process.clone(),
        format_count(talker.messages),
        format_bytes(talker.bytes),
    ]
}

fn rail(rail: &Rail) -> Vec<String> {
    vec![
        rail.end.name(),
        format_bytes(rail.bytes_sent),
        format_bytes(rail.bytes_received),
        format_count(rail.packets_sent),
        format_count(rail.lost),
        format_count(rail.resent),
        format_count(rail.resent_spurious),
        format_count(rail.corrupt),
        format_count(rail.failovers),
    ]
}

fn pair(pair: &Pair) -> Vec<String> {
    vec![
        pair.from.clone(),
        pair.to.clone(),
        format_count(pair.messages),
        format_bytes(pair.bytes),
    ]
}

/// The name of a class of message sizes.
pub fn size_class(up_to_bytes: Option<u64>) -> String {
    match up_to_bytes {
        Some(bytes) => format!("up to {}", crate::plot::size(bytes as f64)),
        None => "above".to_owned(),
    }
}

/// The classes of waits from the first to the last that have messages.
pub fn shown_waits(f: &Facts) -> &[Wait] {
    let has = |wait: &Wait| wait.messages() > 0;
    let first = f.waits.iter().position(has).unwrap_or(0);
    let end = f.waits.iter().rposition(has).map_or(first, |last| last + 1);
    &f.waits[first..end]
}

/// The name of a class of waits.
pub fn wait_class(wait: &Wait) -> String {
    match wait.up_to_ns {
        Some(ns) => format!("up to {}", duration(ns)),
        None => "longer".to_owned(),
    }
}

fn sizes(f: &Facts) -> String {
    let classes = f.sizes.iter().map(|size| {
        let (class, count) = (size_class(size.up_to_bytes), format_count(size.messages));
        format!("{class}: {count}")
    });
    wrap(&classes.collect::<Vec<_>>().join(", "))
}
