//! The result of a run.

use marline_demo_rank::Report;
use std::collections::BTreeMap;

/// The verdict on a run, from good to bad.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Verdict {
    /// All messages arrived with their bytes.
    Right,
    /// No message for seconds.
    Stuck,
    /// The job ended with an error.
    Dead,
    /// Messages had wrong bytes.
    Wrong,
}

/// The result of a run.
#[derive(Clone, Debug)]
pub struct Outcome {
    /// The verdict.
    pub verdict: Verdict,
    /// The result in words.
    pub text: String,
    /// Packets sent again, because of loss or a failed path.
    pub resent: u64,
    /// Times a path was given up.
    pub failovers: u64,
    bytes: u64,
    ms: u64,
}

/// The end of a job.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum End {
    /// The job exited with this status.
    Status(u8),
    /// The demonstration ended it after silence of this many seconds.
    Silent(u64),
}

impl Outcome {
    /// Judges a run of this many ranks by their last reports and its end.
    pub fn of(reports: &BTreeMap<usize, Report>, ranks: usize, end: End) -> Outcome {
        let sum = |of: fn(&Report) -> u64| reports.values().map(of).sum::<u64>();
        let most = |of: fn(&Report) -> u64| reports.values().map(of).max().unwrap_or(0);
        let (wrong, messages, bytes) = (sum(|r| r.wrong), sum(|r| r.messages), sum(|r| r.bytes));
        let complete = reports.values().filter(|report| report.ended).count() == ranks;
        let ended = match end {
            End::Status(0) if complete => "the MPI says nothing of it".to_owned(),
            End::Status(status) => format!("the job ended with status {status}"),
            End::Silent(_) => "the job does not end".to_owned(),
        };
        let (verdict, text) = match end {
            _ if wrong > 0 => (
                Verdict::Wrong,
                format!("{wrong} messages with wrong bytes; {ended}."),
            ),
            End::Silent(seconds) => (
                Verdict::Stuck,
                format!("no message for {seconds} s, and no error: ended by this demo."),
            ),
            End::Status(0) if complete => (
                Verdict::Right,
                format!(
                    "all {messages} messages as sent ({} MB, longest round {} ms).",
                    bytes / 1_000_000,
                    most(|r| r.longest_ms)
                ),
            ),
            End::Status(_) => (Verdict::Dead, format!("{ended}.")),
        };
        Outcome {
            verdict,
            text,
            resent: 0,
            failovers: 0,
            bytes,
            ms: most(|r| r.ms),
        }
    }

    /// The rate of received messages over all ranks, in words.
    pub fn rate(&self) -> String {
        format!("{} MB/s", self.bytes / 1_000 / self.ms.max(1))
    }
}

/// Combines runs: the worst verdict, and the rate of all.
pub fn together(runs: Vec<Outcome>) -> Outcome {
    let (bytes, ms) = (
        runs.iter().map(|r| r.bytes).sum(),
        runs.iter().map(|r| r.ms).sum(),
    );
    let worst = runs.into_iter().max_by_key(|run| run.verdict);
    let worst = worst.unwrap_or_else(|| Outcome::of(&BTreeMap::new(), 1, End::Status(0)));
    Outcome { bytes, ms, ..worst }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn reports(wrong: u64, ended: bool) -> BTreeMap<usize, Report> {
        let report = |rank| Report {
            rank,
            ms: 500,
            bytes: 3_000_000,
            messages: 9,
            wrong,
            longest_ms: 7,
            ended,
        };
        (0..2).map(|rank| (rank, report(rank))).collect()
    }

    #[test]
    fn runs_are_judged_by_bytes_first() {
        for (wrong, ended, end, verdict, says) in [
            (0, true, End::Status(0), Verdict::Right, "all 18 messages"),
            (0, false, End::Status(0), Verdict::Dead, "status 0"),
            (0, false, End::Status(15), Verdict::Dead, "status 15"),
            (0, false, End::Silent(8), Verdict::Stuck, "for 8 s"),
            (
                1,
                true,
                End::Status(0),
                Verdict::Wrong,
                "says nothing of it",
            ),
            (1, false, End::Status(15), Verdict::Wrong, "2 messages"),
            (1, false, End::Silent(8), Verdict::Wrong, "does not end"),
        ] {
            let outcome = Outcome::of(&reports(wrong, ended), 2, end);
            assert_eq!(outcome.verdict, verdict, "{end:?}");
            assert!(outcome.text.contains(says), "{}", outcome.text);
        }
        let silent = Outcome::of(&BTreeMap::new(), 2, End::Status(0));
        assert_eq!(silent.verdict, Verdict::Dead);
    }

    #[test]
    fn runs_together_have_the_worst_verdict_and_one_rate() {
        let right = Outcome::of(&reports(0, true), 2, End::Status(0));
        let dead = Outcome::of(&BTreeMap::new(), 2, End::Status(1));
        assert_eq!(right.rate(), "12 MB/s");
        let both = together(vec![right.clone(), right.clone()]);
        assert_eq!((both.verdict, both.rate()), (Verdict::Right, right.rate()));
        assert_eq!(together(vec![right, dead]).verdict, Verdict::Dead);
    }
}
