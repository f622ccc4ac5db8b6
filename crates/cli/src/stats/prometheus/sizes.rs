//! Message sizes as a histogram.

use super::names;
use super::text::{Kind, Sample, Text};
use super::totals::Totals;
use marline_engine::stats::{Counters, ProcessCounters, Row};

/// The classes of sizes: the counter and its upper bound in bytes.
const CLASSES: &[(&str, &str)] = &[
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
    CLASSES.iter().any(|(name, _)| *name == row.name)
}

/// Adds the histogram of all hosts. Pages have no sum of the sizes.
pub fn write(text: &mut Text, totals: &Totals) {
    let mut samples = Vec::new();
    for (host, counts) in totals {
        let mut sent = 0_u64;
        for (class, bound) in CLASSES {
            let row = ProcessCounters::ROWS.iter().find(|row| row.name == *class);
            let of = row.and_then(|row| counts.own.get(&names::metric("process", row)));
            sent = sent.saturating_add(of.copied().unwrap_or(0));
            samples.push(Sample {
                suffix: "_bucket",
                ..Sample::new(vec![("host", host), ("le", bound)], sent)
            });
        }
        samples.push(Sample {
            suffix: "_count",
            ..Sample::new(vec![("host", host)], sent)
        });
    }
    let help = "Messages sent, by size.";
    text.metric("marline_message_size_bytes", Kind::Histogram, help, samples);
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::stats::prometheus::totals::OfHost;
    use marline_engine::stats::rows::JobPage;

    #[test]
    fn classes_are_added_up_to_their_bounds() {
        let sized = |row: &&Row| row.name.starts_with("sizes_");
        let rows = ProcessCounters::ROWS.iter().filter(sized);
        assert!(rows.map(|row| row.name).eq(CLASSES.iter().map(|(n, _)| *n)));
        let mut page = JobPage::default();
        page.process.sizes_to_64 = 1;
        page.process.sizes_to_1m = 2;
        page.process.sizes_above = 4;
        let totals = Totals::from([("h0".to_owned(), OfHost::of(&page))]);
        let mut text = Text::default();
        write(&mut text, &totals);
        let values = text.0.lines().filter(|line| !line.starts_with('#'));
        let values: Vec<&str> = values.filter_map(|line| line.split(' ').nth(1)).collect();
        assert_eq!(values, ["1", "1", "1", "1", "3", "3", "7", "7"]);
        let bucket = "marline_message_size_bytes_bucket{host=\"h0\",le=\"1048576\"} 3\n";
        assert!(text.0.contains(bucket), "{}", text.0);
    }
}
