//! Prometheus' text format.

use std::fmt::Display;

/// The type of a metric.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// Only grows.
    Counter,
    /// Any number.
    Gauge,
    /// Counts by upper bound, which the label `le` has.
    Histogram,
}

impl Kind {
    fn name(self) -> &'static str {
        match self {
            Kind::Counter => "counter",
            Kind::Gauge => "gauge",
            Kind::Histogram => "histogram",
        }
    }
}

/// Names and values of a sample's labels.
pub type Labels<'a> = Vec<(&'static str, &'a str)>;

/// A sample of a metric.
pub struct Sample<'a> {
    /// End of the name after the metric's: `_bucket`, or nothing.
    pub suffix: &'static str,
    /// Its labels; those without a value are left out.
    pub labels: Labels<'a>,
    /// The value as text.
    pub value: String,
}

impl<'a> Sample<'a> {
    /// A sample under the metric's own name.
    pub fn new(labels: Labels<'a>, value: impl Display) -> Sample<'a> {
        Sample {
            suffix: "",
            labels,
            value: value.to_string(),
        }
    }
}

/// Metrics as text.
#[derive(Default)]
pub struct Text(pub String);

impl Text {
    /// Adds a metric with its samples, unless there are none.
    pub fn metric(&mut self, name: &str, kind: Kind, help: &str, samples: Vec<Sample<'_>>) {
        if samples.is_empty() {
            return;
        }
        let kind = kind.name();
        self.0 += &format!("# HELP {name} {help}\n# TYPE {name} {kind}\n");
        for sample in samples {
            let labels = labels(&sample.labels);
            self.0 += &format!("{name}{}{labels} {}\n", sample.suffix, sample.value);
        }
    }
}

fn labels(labels: &[(&str, &str)]) -> String {
    let given = labels.iter().filter(|(_, value)| !value.is_empty());
    let quoted: Vec<String> = given
        .map(|(name, value)| format!("{name}=\"{}\"", escaped(value)))
        .collect();
    match &*quoted.join(",") {
        "" => String::new(),
        text => format!("{{{text}}}"),
    }
}

/// A label's value. (Pages with unprintable text are rejected earlier.)
fn escaped(text: &str) -> String {
    text.replace('\\', "\\\\").replace('"', "\\\"")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn samples_follow_help_and_type() {
        let mut text = Text::default();
        text.metric("none", Kind::Gauge, "Nothing.", Vec::new());
        let labels = || vec![("host", r#"h"\0"#), ("slurm_job_id", "")];
        let bare = Sample::new(Vec::new(), 0.5);
        let samples = vec![Sample::new(labels(), 5), bare];
        text.metric("marline_x_total", Kind::Counter, "All.", samples);
        let wanted = "# HELP marline_x_total All.\n# TYPE marline_x_total counter\n\
                      marline_x_total{host=\"h\\\"\\\\0\"} 5\nmarline_x_total 0.5\n";
        assert_eq!(text.0, wanted);
    }
}
