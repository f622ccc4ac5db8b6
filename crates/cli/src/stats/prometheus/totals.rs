//! Counters that only grow, by host and rail.

use super::names;
use marline_engine::stats::rows::JobPage;
use marline_engine::stats::waits::ProcessWaits;
use marline_engine::stats::{Combine, Counters, Row};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// Counters that are not 0, by metric.
pub type Counts = BTreeMap<String, u64>;

/// The counters of a host, or of one of its processes.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct OfHost {
    /// Of processes and peers.
    pub own: Counts,
    /// By rail.
    pub rails: BTreeMap<String, Counts>,
}

/// Counters by host.
pub type Totals = BTreeMap<String, OfHost>;

/// The rows of a group that have totals.
pub fn summed<C: Counters>() -> impl Iterator<Item = (usize, &'static Row)> {
    let rows = C::ROWS.iter().enumerate();
    rows.filter(|(_, row)| row.combine == Combine::Sum)
}

impl OfHost {
    /// The counters of a page.
    pub fn of(page: &JobPage) -> OfHost {
        let mut host = OfHost::default();
        count(&mut host.own, "process", &page.process);
        count(&mut host.own, "peers", &page.peer_totals());
        count_waits(&mut host.own, &page.waits);
        for (n, rail) in page.rails.iter().enumerate() {
            let counts = host.rails.entry(rail.name.clone()).or_default();
            count(counts, "rail", &rail.counters);
            count(counts, "paths", &page.path_totals(n));
        }
        host
    }

    /// Adds others.
    pub fn add(&mut self, others: &OfHost) {
        self.merge(others, u64::saturating_add);
    }

    /// Raises each counter to that of a later look.
    pub fn raise(&mut self, later: &OfHost) {
        self.merge(later, u64::max);
    }

    fn merge(&mut self, others: &OfHost, with: fn(u64, u64) -> u64) {
        merge(&mut self.own, &others.own, with);
        for (rail, counts) in &others.rails {
            merge(self.rails.entry(rail.clone()).or_default(), counts, with);
        }
    }
}

fn count<C: Counters>(counts: &mut Counts, group: &str, counters: &C) {
    let words = counters.words();
    for (n, row) in summed::<C>() {
        let value = words.as_ref()[n];
        if value > 0 {
            let sum = counts.entry(names::metric(group, row)).or_default();
            *sum = sum.saturating_add(value);
        }
    }
}

fn count_waits(counts: &mut Counts, waits: &ProcessWaits) {
    for (kind, waits) in waits.named() {
        let counted = waits.0.iter().enumerate().filter(|(_, &count)| count > 0);
        counted.for_each(|(class, &count)| {
            counts.insert(wait(kind, class), count);
        });
    }
}

/// The name of a count of waits.
pub fn wait(kind: &str, class: usize) -> String {
    format!("waits_{kind}_{class}")
}

fn merge(into: &mut Counts, others: &Counts, with: fn(u64, u64) -> u64) {
    for (metric, &value) in others {
        let sum = into.entry(metric.clone()).or_default();
        *sum = with(*sum, value);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use marline_engine::stats::rows::RailRow;

    #[test]
    fn pages_are_summed_by_rail() {
        let rail = |name: &str, packets| {
            let mut row = RailRow {
                name: name.into(),
                ..RailRow::default()
            };
            row.counters.wire_packets_sent = packets;
            row
        };
        let mut page = JobPage::default();
        page.process.polls = 5;
        page.process.log_bytes_max = 7;
        page.rails = vec![rail("eth0", 1), rail("eth1", 2), rail("eth0", 3)];
        let mut sum = OfHost::of(&page);
        assert_eq!(sum.own.len(), 1, "{sum:?}");
        sum.add(&OfHost::of(&page));
        assert_eq!(sum.own["marline_process_polls_total"], 10);
        let sent = "marline_rail_wire_packets_sent_total";
        assert_eq!(sum.rails["eth0"][sent], 8);
        assert_eq!(sum.rails["eth1"][sent], 4);
        let before = sum.clone();
        sum.raise(&OfHost::of(&page));
        assert_eq!(sum, before);
    }
}
