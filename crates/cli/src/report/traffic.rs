//! Traffic of a job: over time by rail, between hosts, and of processes.

use super::data::{Bandwidth, Curve, End, Matrix, Talker};
use crate::run::stats_dir::process;
use marline_engine::stats::outages::by_endpoint;
use marline_engine::stats::rows::JobPage;
use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet};

/// Most intervals of a job: a curve of this many points is as wide as a page.
const INTERVALS_MAX: u64 = 120;
/// Shortest interval: that of the pages.
const INTERVAL_MIN_NS: u64 = 200_000_000;
/// Most rows and columns of the map of hosts.
const HOSTS_MAX: usize = 64;
/// Most processes with a row.
const TALKERS_MAX: usize = 10;

/// The intervals of a job.
struct Grid {
    from_ns: u64,
    span_ns: u64,
    interval_ns: u64,
}

impl Grid {
    fn of(from_ns: u64, to_ns: u64) -> Grid {
        let span_ns = to_ns.saturating_sub(from_ns);
        Grid {
            from_ns,
            span_ns,
            interval_ns: span_ns.div_ceil(INTERVALS_MAX).max(INTERVAL_MIN_NS),
        }
    }

    fn intervals(&self) -> usize {
        self.span_ns.div_ceil(self.interval_ns).max(1) as usize
    }

    /// Adds bytes that were carried in a time to the intervals that it overlaps.
    fn spread(&self, bytes: u64, (from, to): (u64, u64), sums: &mut [u64]) {
        let place = |ns: u64| ns.saturating_sub(self.from_ns).min(self.span_ns);
        let from = place(from).min(self.span_ns.saturating_sub(1));
        let to = place(to).max(from + 1);
        let mut given = 0;
        for n in from / self.interval_ns..=(to - 1) / self.interval_ns {
            let end = to.min((n + 1).saturating_mul(self.interval_ns));
            let part = u128::from(bytes) * u128::from(end - from) / u128::from(to - from);
            let last = sums.len() - 1;
            let sum = &mut sums[last.min(n as usize)];
            *sum = sum.saturating_add(part as u64 - given);
            given = part as u64;
        }
    }
}

/// The bytes of rails in intervals of the job.
pub fn bandwidth(pages: &[&JobPage], from_ns: u64, to_ns: u64) -> Bandwidth {
    let grid = Grid::of(from_ns, to_ns);
    let mut curves: BTreeMap<End, Curve> = BTreeMap::new();
    for page in pages.iter().filter(|page| page.is_used()) {
        for (row, history) in page.rails.iter().zip(&page.history.rails) {
            let end = End {
                host: page.host.clone(),
                rail: row.name.clone(),
            };
            let curve = curves.entry(end.clone()).or_insert_with(|| Curve {
                end,
                sent: vec![0; grid.intervals()],
                received: vec![0; grid.intervals()],
            });
            add(&grid, page, &history.sent, &mut curve.sent);
            add(&grid, page, &history.received, &mut curve.received);
        }
    }
    let mut rails: Vec<Curve> = curves.into_values().collect();
    let sum = |slots: &[u64]| slots.iter().fold(0, |a: u64, b| a.saturating_add(*b));
    rails.retain(|rail| sum(&rail.sent) > 0 || sum(&rail.received) > 0);
    Bandwidth {
        interval_ns: grid.interval_ns,
        rails,
    }
}

fn add(grid: &Grid, page: &JobPage, slots: &[u64], sums: &mut [u64]) {
    let length = page.history.interval_ns.max(1);
    let at = |n: usize| {
        let since = (n as u64).saturating_mul(length);
        let at = page.opened_unix_ns.saturating_add(since);
        at.min(page.published_unix_ns)
    };
    for (n, &bytes) in slots.iter().enumerate().filter(|(_, bytes)| **bytes > 0) {
        grid.spread(bytes, (at(n), at(n + 1)), sums);
    }
}

/// The order of hosts: by name, with numbers at the end by value.
fn order(host: &str) -> (&str, u64, &str) {
    let name = host.trim_end_matches(|c: char| c.is_ascii_digit());
    let number = host.strip_prefix(name).and_then(|n| n.parse().ok());
    (name, number.unwrap_or(0), host)
}

/// The bytes that hosts sent to each other. Of many hosts, those that follow each other by name
/// share a row.
pub fn matrix(pages: &[&JobPage]) -> Matrix {
    let by_endpoint = by_endpoint(pages.iter().copied());
    let used = pages.iter().filter(|page| page.is_used());
    let hosts: BTreeSet<&str> = used.clone().map(|page| page.host.as_str()).collect();
    let mut hosts: Vec<&str> = hosts.into_iter().collect();
    hosts.sort_by_key(|host| order(host));
    let groups: Vec<&[&str]> = hosts
        .chunks(hosts.len().div_ceil(HOSTS_MAX).max(1))
        .collect();
    let members = groups.iter().enumerate();
    let place: BTreeMap<&str, usize> = members
        .flat_map(|(n, group)| group.iter().map(move |&host| (host, n)))
        .collect();
    let mut matrix = Matrix {
        hosts: groups.iter().map(|group| name(group)).collect(),
        bytes: vec![vec![0; groups.len()]; groups.len()],
        bytes_elsewhere: 0,
    };
    for page in used {
        for row in page.peers.iter().chain([&page.others]) {
            let peer = by_endpoint
                .get(&row.endpoint)
                .map(|peer| peer.host.as_str());
            let to = peer.and_then(|host| place.get(host));
            let sum = match (place.get(page.host.as_str()), to) {
                (Some(&from), Some(&to)) => &mut matrix.bytes[from][to],
                _ => &mut matrix.bytes_elsewhere,
            };
            *sum = sum.saturating_add(row.counters.bytes_sent);
        }
    }
    matrix
}

/// The name of a group of hosts.
fn name(group: &[&str]) -> String {
    match group {
        [first, .., last] => format!("{first} to {last}"),
        _ => group.concat(),
    }
}

/// The processes that sent most.
pub fn talkers(pages: &[&JobPage]) -> Vec<Talker> {
    let mut sums: BTreeMap<String, (u64, u64)> = BTreeMap::new();
    for page in pages.iter().filter(|page| page.is_used()) {
        let (totals, sum) = (page.peer_totals(), sums.entry(process(page)).or_default());
        sum.0 = sum.0.saturating_add(totals.messages_sent);
        sum.1 = sum.1.saturating_add(totals.bytes_sent);
    }
    let talker = |(process, (messages, bytes))| Talker {
        process,
        messages,
        bytes,
    };
    let mut all: Vec<Talker> = sums.into_iter().map(talker).collect();
    all.sort_by_key(|talker| Reverse((talker.bytes, talker.messages)));
    all.truncate(TALKERS_MAX);
    all
}

#[cfg(test)]
#[path = "traffic_test.rs"]
mod tests;
