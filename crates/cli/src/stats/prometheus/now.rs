//! The running processes: their number, disabled protection, and the states of their rails.

use super::names;
use super::slurm::job_id;
use super::text::{Kind, Labels, Sample, Text};
use crate::stats::on_page::{state, OnPage};
use crate::top::data::State;
use marline_engine::stats::rows::JobPage;
use marline_engine::stats::summary::{Summary, Unprotected};
use marline_engine::stats::{
    Combine, Counters, PathCounters, PeerCounters, ProcessCounters, RailCounters,
};
use std::collections::BTreeMap;

/// The pages of a host by number of their Slurm job.
type Jobs<'a> = BTreeMap<String, Vec<&'a JobPage>>;

/// Running processes that were in touch with others.
pub struct Running<'a> {
    hosts: BTreeMap<&'a str, Jobs<'a>>,
}

impl<'a> Running<'a> {
    /// The processes with these pages, on these hosts.
    pub fn of(
        pages: impl Iterator<Item = &'a JobPage>,
        hosts: impl Iterator<Item = &'a str>,
    ) -> Running<'a> {
        let hosts = hosts.map(|host| (host, Jobs::new()));
        let mut hosts: BTreeMap<&str, Jobs<'_>> = hosts.collect();
        for page in pages.filter(|page| page.is_used()) {
            let jobs = hosts.entry(&page.host).or_default();
            jobs.entry(job_id(page)).or_default().push(page);
        }
        // Each host has a number of processes, and be it 0.
        for jobs in hosts.values_mut().filter(|jobs| jobs.is_empty()) {
            jobs.insert(String::new(), Vec::new());
        }
        Running { hosts }
    }

    /// Adds all metrics.
    pub fn write(&self, text: &mut Text) {
        self.processes(text);
        self.rail_states(text);
        self.greatest::<ProcessCounters>(text, "process", |page| page.process);
        self.greatest::<PeerCounters>(text, "peers", JobPage::peer_totals);
        self.greatest_of_rails::<RailCounters>(text, "rail", |on| on.row().counters);
        self.greatest_of_rails::<PathCounters>(text, "paths", |on| on.page.path_totals(on.n));
    }

    fn processes(&self, text: &mut Text) {
        let (mut all, mut unprotected) = (Vec::new(), Vec::new());
        for (&host, jobs) in &self.hosts {
            for (job, pages) in jobs {
                let pages: Vec<JobPage> = pages.iter().map(|&page| page.clone()).collect();
                let summary = Summary::of(&pages);
                let labels = || vec![("host", host), ("slurm_job_id", job.as_str())];
                all.push(Sample::new(labels(), summary.processes));
                for (reason, count) in reasons(&summary.unprotected) {
                    let mut labels = labels();
                    labels.push(("reason", reason));
                    unprotected.push(Sample::new(labels, count));
                }
            }
        }
        let help = "Running processes that were in touch with others.";
        text.metric("marline_processes", Kind::Gauge, help, all);
        let name = "marline_unprotected_processes";
        let help = "Running processes whose settings disable a protection, or inject faults.";
        text.metric(name, Kind::Gauge, help, unprotected);
    }

    fn pages(&self, host: &str) -> impl Iterator<Item = &'a JobPage> + '_ {
        let jobs = self.hosts.get(host).into_iter().flat_map(Jobs::values);
        jobs.flatten().copied()
    }

    /// The rails by host and name.
    fn rails(&self) -> BTreeMap<(&'a str, &'a str), Vec<OnPage<'a>>> {
        let mut rails: BTreeMap<(&str, &str), Vec<OnPage<'a>>> = BTreeMap::new();
        for &host in self.hosts.keys() {
            for page in self.pages(host) {
                for (n, row) in page.rails.iter().enumerate() {
                    let of = rails.entry((host, &row.name)).or_default();
                    of.push(OnPage { page, n });
                }
            }
        }
        rails
    }

    fn rail_states(&self, text: &mut Text) {
        let mut samples = Vec::new();
        let names = State::LIVE.map(|state| (state, state.name().replace(' ', "_")));
        for ((host, rail), on) in &self.rails() {
            let now = state(on);
            for (state, name) in &names {
                let mut labels = of_rail(host, rail);
                labels.push(("state", name));
                samples.push(Sample::new(labels, u8::from(*state == now)));
            }
        }
        let help = "1 for the state that the rail is in.";
        text.metric("marline_rail_state", Kind::Gauge, help, samples);
    }

    fn greatest<C: Counters>(&self, text: &mut Text, group: &str, of: fn(&JobPage) -> C) {
        let hosts = self.hosts.keys().map(|&host| {
            let counters = self.pages(host).map(of);
            (vec![("host", host)], merged(counters))
        });
        gauges(text, group, hosts.collect());
    }

    fn greatest_of_rails<C: Counters>(
        &self,
        text: &mut Text,
        group: &str,
        of: fn(OnPage<'_>) -> C,
    ) {
        let rails = self.rails();
        let rails = rails.iter().map(|((host, rail), on)| {
            let counters = on.iter().map(|&on| of(on));
            (of_rail(host, rail), merged(counters))
        });
        gauges(text, group, rails.collect());
    }
}

/// The labels of a rail.
pub fn of_rail<'a>(host: &'a str, rail: &'a str) -> Labels<'a> {
    vec![("host", host), ("rail", rail)]
}

/// Numbers of unprotected processes by the label `reason`.
fn reasons(of: &Unprotected) -> [(&'static str, usize); 4] {
    [
        ("reliability_off", of.reliability),
        ("no_checksums", of.sums),
        ("some_checksums", of.some_sums),
        ("faults_injected", of.faults),
    ]
}

fn merged<C: Counters>(counters: impl Iterator<Item = C>) -> C {
    counters.fold(C::default(), |mut sum, each| {
        sum.merge(&each);
        sum
    })
}

/// Adds a gauge for each counter of which the greatest is taken.
fn gauges<C: Counters>(text: &mut Text, group: &str, of: Vec<(Labels<'_>, C)>) {
    let rows = C::ROWS.iter().enumerate();
    for (n, row) in rows.filter(|(_, row)| row.combine == Combine::Max) {
        let samples = of.iter().map(|(labels, counters)| {
            let value = counters.words().as_ref()[n];
            Sample::new(labels.clone(), names::value(row, value))
        });
        let name = names::metric(group, row);
        text.metric(&name, Kind::Gauge, row.doc, samples.collect());
    }
}
