//! Histograms: sizes of messages, their waits, and waits at outages.

use super::names;
use super::text::{Kind, Labels, Sample, Text};
use super::totals::{wait, Counts, Totals};
use marline_engine::stats::waits::{Waits, WAIT_CLASSES};
use marline_engine::stats::{Counters, ProcessCounters, Row};

/// The counters of message sizes, and the upper bound of each class in bytes.
const SIZES: [(&str, &str); 7] = [
    ("sizes_to_64", "64"),
    ("sizes_to_1k", "1024"),
    ("sizes_to_8k", "8192"),
    ("sizes_to_64k", "65536"),
    ("sizes_to_1m", "1048576"),
    ("sizes_to_16m", "16777216"),
    ("sizes_above", "+Inf"),
];

/// True for the counter of a class, which has no metric of its own.
pub fn is_class(row: &Row) -> bool {
    SIZES.iter().any(|(name, _)| *name == row.name)
}

/// A series of a histogram on each host.
struct Series {
    labels: Labels<'static>,
    /// The count of each class, and its upper bound in the metric's unit.
    classes: Vec<(String, String)>,
}

fn sizes() -> Series {
    let counted = |name| {
        let row = ProcessCounters::ROWS.iter().find(|row| row.name == name);
        row.map_or_else(String::new, |row| names::metric("process", row))
    };
    let classes = SIZES.map(|(name, bound)| (counted(name), bound.to_owned()));
    Series {
        labels: Vec::new(),
        classes: classes.into(),
    }
}

fn waits(kind: &str, labels: Labels<'static>) -> Series {
    let bound = |class| match Waits::bound_ns(class) {
        Some(ns) => (ns as f64 / 1e9).to_string(),
        None => "+Inf".to_owned(),
    };
    let classes = (0..WAIT_CLASSES).map(|class| (wait(kind, class), bound(class)));
    Series {
        labels,
        classes: classes.collect(),
    }
}

/// Adds the histograms of all hosts. Pages have no sums of the values.
pub fn write(text: &mut Text, totals: &Totals) {
    let help = "Messages sent, by size.";
    add(
        text,
        totals,
        ("marline_message_size_bytes", help),
        &[sizes()],
    );
    let kinds = ["eager", "rendezvous"].map(|kind| waits(kind, vec![("kind", kind)]));
    let help = "Messages delivered, by the time from the first chance to leave to the last ack; \
                without the time in which a rendezvous message has no receive.";
    add(text, totals, ("marline_message_wait_seconds", help), &kinds);
    let help = "Outages after which a peer was reached again, by the time without a delivery.";
    let outages = [waits("outages", Vec::new())];
    add(
        text,
        totals,
        ("marline_outage_wait_seconds", help),
        &outages,
    );
}

fn add(text: &mut Text, totals: &Totals, (name, help): (&str, &str), all: &[Series]) {
    let mut samples = Vec::new();
    for (host, of) in totals {
        samples.extend(all.iter().flat_map(|series| series.samples(host, &of.own)));
    }
    text.metric(name, Kind::Histogram, help, samples);
}

impl Series {
    /// The buckets of a host, each with those before it, and their count.
    fn samples<'a>(&'a self, host: &'a str, counts: &Counts) -> Vec<Sample<'a>> {
        let labels = || {
            let mut labels = vec![("host", host)];
            labels.extend(&self.labels);
            labels
        };
        let mut sum = 0_u64;
        let mut samples = Vec::new();
        for (class, bound) in &self.classes {
            sum = sum.saturating_add(counts.get(class).copied().unwrap_or(0));
            let mut labels = labels();
            labels.push(("le", bound));
            samples.push(Sample {
                suffix: "_bucket",
                ..Sample::new(labels, sum)
            });
        }
        samples.push(Sample {
            suffix: "_count",
            ..Sample::new(labels(), sum)
        });
        samples
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::stats::prometheus::totals::OfHost;
    use marline_engine::stats::rows::JobPage;

    #[test]
    fn classes_are_added_up_to_their_bounds() {
        let classes = ProcessCounters::ROWS.iter().filter(|row| is_class(row));
        assert!(classes.map(|row| row.name).eq(SIZES.map(|(name, _)| name)));
        let mut page = JobPage::default();
        page.process.sizes_to_64 = 1;
        page.process.sizes_to_1m = 2;
        page.process.sizes_above = 4;
        page.waits.eager.count(5_000);
        page.waits.eager.count(u64::MAX);
        page.waits.outages.count(1_000_000);
        let totals = Totals::from([("h0".to_owned(), OfHost::of(&page))]);
        let mut text = Text::default();
        write(&mut text, &totals);
        let of = |metric: &str| {
            let lines = text.0.lines().filter(|line| line.starts_with(metric));
            let values: Vec<&str> = lines.filter_map(|line| line.split(' ').nth(1)).collect();
            values.join(" ")
        };
        assert_eq!(of("marline_message_size_bytes"), "1 1 1 1 3 3 7 7");
        let waits = "marline_message_wait_seconds";
        assert_eq!(
            of(waits),
            format!("0{} 2 2{}", " 1".repeat(22), " 0".repeat(25))
        );
        assert_eq!(
            of("marline_outage_wait_seconds"),
            format!("0{}{}", " 0".repeat(7), " 1".repeat(17))
        );
        for line in [
            "marline_message_size_bytes_bucket{host=\"h0\",le=\"1048576\"} 3",
            "marline_message_wait_seconds_bucket{host=\"h0\",kind=\"eager\",le=\"0.000008192\"} 1",
            "marline_message_wait_seconds_count{host=\"h0\",kind=\"rendezvous\"} 0",
        ] {
            assert!(
                text.0.lines().any(|found| found == line),
                "{line}: {}",
                text.0
            );
        }
    }
}
