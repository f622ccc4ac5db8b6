//! Histograms: sizes of messages, and waits at outages.

use super::names;
use super::text::{Kind, Sample, Text};
use super::totals::{Counts, Totals};
use marline_engine::stats::{Counters, ProcessCounters, Row};

/// A histogram of which the page has a counter for each class.
struct Histogram {
    name: &'static str,
    help: &'static str,
    /// The counter of each class, and its upper bound in the metric's unit.
    classes: &'static [(&'static str, &'static str)],
}

const HISTOGRAMS: &[Histogram] = &[
    Histogram {
        name: "marline_message_size_bytes",
        help: "Messages sent, by size.",
        classes: &[
            ("sizes_to_64", "64"),
            ("sizes_to_1k", "1024"),
            ("sizes_to_8k", "8192"),
            ("sizes_to_64k", "65536"),
            ("sizes_to_1m", "1048576"),
            ("sizes_to_16m", "16777216"),
            ("sizes_above", "+Inf"),
        ],
    },
    Histogram {
        name: "marline_outage_wait_seconds",
        help: "Outages after which a peer was reached again, by the time without a delivery.",
        classes: &[
            ("waits_to_10ms", "0.01"),
            ("waits_to_100ms", "0.1"),
            ("waits_to_1s", "1"),
            ("waits_to_10s", "10"),
            ("waits_above", "+Inf"),
        ],
    },
];

/// True for the counter of a class, which has no metric of its own.
pub fn is_class(row: &Row) -> bool {
    let mut classes = HISTOGRAMS.iter().flat_map(|histogram| histogram.classes);
    classes.any(|(name, _)| *name == row.name)
}

/// Adds the histograms of all hosts. Pages have no sums of the values.
pub fn write(text: &mut Text, totals: &Totals) {
    for histogram in HISTOGRAMS {
        let hosts = totals.iter();
        let samples = hosts.flat_map(|(host, of)| histogram.samples(host, &of.own));
        let samples: Vec<_> = samples.collect();
        text.metric(histogram.name, Kind::Histogram, histogram.help, samples);
    }
}

impl Histogram {
    /// The buckets of a host, each with those before it, and their count.
    fn samples<'a>(&self, host: &'a str, counts: &Counts) -> Vec<Sample<'a>> {
        let mut sum = 0_u64;
        let mut samples = Vec::new();
        for (class, bound) in self.classes {
            let row = ProcessCounters::ROWS.iter().find(|row| row.name == *class);
            let of = row.and_then(|row| counts.get(&names::metric("process", row)));
            sum = sum.saturating_add(of.copied().unwrap_or(0));
            samples.push(Sample {
                suffix: "_bucket",
                ..Sample::new(vec![("host", host), ("le", bound)], sum)
            });
        }
        samples.push(Sample {
            suffix: "_count",
            ..Sample::new(vec![("host", host)], sum)
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
        let named = HISTOGRAMS.iter().flat_map(|histogram| histogram.classes);
        assert!(classes.map(|row| row.name).eq(named.map(|(name, _)| *name)));
        let mut page = JobPage::default();
        page.process.sizes_to_64 = 1;
        page.process.sizes_to_1m = 2;
        page.process.sizes_above = 4;
        page.process.waits_to_1s = 5;
        let totals = Totals::from([("h0".to_owned(), OfHost::of(&page))]);
        let mut text = Text::default();
        write(&mut text, &totals);
        let values = text.0.lines().filter(|line| !line.starts_with('#'));
        let values: Vec<&str> = values.filter_map(|line| line.split(' ').nth(1)).collect();
        assert_eq!(
            values,
            ["1", "1", "1", "1", "3", "3", "7", "7", "0", "0", "5", "5", "5", "5"]
        );
        let bucket = "marline_message_size_bytes_bucket{host=\"h0\",le=\"1048576\"} 3\n";
        assert!(text.0.contains(bucket), "{}", text.0);
    }
}
