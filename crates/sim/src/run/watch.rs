//! Output during a long run: failures at once, and progress from time to time.

use crate::{Hunt, Report};
use std::fs::{File, OpenOptions};
use std::io::Write;
use std::path::Path;
use std::time::{Duration, Instant};

/// Reports the progress of a run of seeds.
pub struct Watch {
    hunt: Hunt,
    end: u64,
    trace: bool,
    every: Duration,
    start: Instant,
    said: Instant,
    reported: usize,
    file: Option<File>,
}

impl Watch {
    /// For seeds below `end`. Progress is printed every `every` (zero: never). With `trace`,
    /// failures are shrunk. Failures are appended to the file at `path`, which must be writable.
    pub fn new(
        hunt: &Hunt,
        end: u64,
        (trace, every): (bool, Duration),
        path: Option<&Path>,
    ) -> Result<Watch, String> {
        let open = |path: &Path| {
            let file = OpenOptions::new().create(true).append(true).open(path);
            file.map_err(|e| format!("--failures {}: {e}", path.display()))
        };
        Ok(Watch {
            hunt: hunt.clone(),
            end,
            trace,
            every,
            start: Instant::now(),
            said: Instant::now(),
            reported: 0,
            file: path.map(open).transpose()?,
        })
    }

    /// Seconds since the start.
    pub fn seconds(&self) -> f64 {
        self.start.elapsed().as_secs_f64()
    }

    /// Processes the report; `next` is the first seed not included in it.
    pub fn look(&mut self, report: &Report, next: u64) {
        while let Some((seed, text)) = report.failures.get(self.reported) {
            self.reported += 1;
            self.failed(*seed, text);
        }
        if !self.every.is_zero() && self.said.elapsed() >= self.every {
            self.said = Instant::now();
            eprintln!(
                "{} seeds, {} failures, {} packets, {:.0} s; not yet: {next}..{}",
                report.seeds,
                report.failures.len(),
                report.net.packets,
                self.seconds(),
                self.end
            );
        }
    }

    fn failed(&mut self, seed: u64, text: &str) {
        let mut text = text.to_string();
        if self.trace {
            text = self.hunt.explain(seed).unwrap_or(text);
        }
        let replay = self.replay(seed);
        let shown = if self.trace {
            &text
        } else {
            text.lines().next().unwrap_or_default()
        };
        println!("{shown}\n{replay}");
        if let Some(file) = &mut self.file {
            // The failure was already printed: a full disk does not end the run.
            if let Err(e) = writeln!(file, "{text}\n{replay}\n") {
                eprintln!("the file of failures: {e}");
            }
        }
    }

    fn replay(&self, seed: u64) -> String {
        let Hunt { hosts, rails, .. } = self.hunt;
        format!(
            "replay: marline-sim --seeds {seed} --profile {} --hosts {hosts} --rails {rails} \
             --min-packets {} --trace{}",
            self.hunt.profile.name(),
            self.hunt.packets_min,
            self.hunt.script.as_ref().map_or("", |_| " --script FILE")
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_failure_is_appended_to_the_file_once_and_at_once() {
        let path = std::env::temp_dir().join(format!("marline-watch-{}", std::process::id()));
        let mut report = Report::default();
        let hunt = Hunt::default();
        let mut watch = Watch::new(&hunt, 9, (false, Duration::ZERO), Some(&path)).unwrap();
        report.failures.push((3, "stuck\nand how".into()));
        watch.look(&report, 4);
        watch.look(&report, 5);
        let text = std::fs::read_to_string(&path).unwrap();
        std::fs::remove_file(&path).unwrap();
        let line = "replay: marline-sim --seeds 3 --profile swarm --hosts 0 --rails 0 \
                    --min-packets 0 --trace";
        assert_eq!(text, format!("stuck\nand how\n{line}\n\n"));
    }

    #[test]
    fn a_file_that_cannot_be_written_is_refused_before_the_run() {
        let path = Path::new("/no such directory/failures");
        let refused = Watch::new(&Hunt::default(), 9, (false, Duration::ZERO), Some(path));
        assert!(refused.is_err());
    }
}
