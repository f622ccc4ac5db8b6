//! The lines by which a rank reports its progress.

use std::fmt::{Display, Formatter, Result as Written};

/// The first word of a report.
const START: &str = "marline-demo-rank";
const ENDED: &str = "ended";

/// The state of a rank, as a line of its output.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Report {
    /// The rank.
    pub rank: usize,
    /// Milliseconds since the start of the exchange.
    pub ms: u64,
    /// Bytes of received messages.
    pub bytes: u64,
    /// Received messages.
    pub messages: u64,
    /// Received messages with wrong bytes.
    pub wrong: u64,
    /// Longest round in milliseconds.
    pub longest_ms: u64,
    /// The rank has received all messages.
    pub ended: bool,
}

impl Display for Report {
    fn fmt(&self, f: &mut Formatter<'_>) -> Written {
        let Report {
            rank,
            ms,
            bytes,
            messages,
            wrong,
            longest_ms,
            ended,
        } = self;
        write!(
            f,
            "{START} {rank} {ms} {bytes} {messages} {wrong} {longest_ms}"
        )?;
        match ended {
            true => write!(f, " {ENDED}"),
            false => Ok(()),
        }
    }
}

impl Report {
    /// Reads a line; `None` for other lines.
    pub fn parse(line: &str) -> Option<Report> {
        let (rest, ended) = match line.trim().strip_suffix(ENDED) {
            Some(rest) => (rest, true),
            None => (line, false),
        };
        let numbers = rest.trim().strip_prefix(START)?.split_whitespace();
        let numbers: Result<Vec<u64>, _> = numbers.map(str::parse).collect();
        let &[rank, ms, bytes, messages, wrong, longest_ms] = numbers.ok()?.as_slice() else {
            return None;
        };
        Some(Report {
            rank: usize::try_from(rank).ok()?,
            ms,
            bytes,
            messages,
            wrong,
            longest_ms,
            ended,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_report_is_read_as_it_was_written() {
        for ended in [false, true] {
            let report = Report {
                rank: 1,
                ms: 2,
                bytes: 3,
                messages: 4,
                wrong: 5,
                longest_ms: 6,
                ended,
            };
            assert_eq!(Report::parse(&format!("{report}\n")), Some(report));
        }
        for line in ["", "ended", "marline-demo-rank 1 2", "marline: a note"] {
            assert_eq!(Report::parse(line), None, "{line}");
        }
    }
}
