//! The jobs of the demonstration: `marline lab run` with this command as its program.

use super::outcome::{End, Outcome, Verdict};
use super::screen::{Rails, Tell};
use crate::lab::made::Made;
use crate::tool;
use marline_demo_rank::Report;
use serde_json::Value;
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
use std::cell::RefCell;
use std::collections::BTreeMap;
use std::io::{BufRead, BufReader, Read};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::sync::mpsc::{channel, Receiver, RecvTimeoutError, Sender};
use std::sync::Arc;
use std::time::{Duration, Instant};

/// Ranks of a job, one on each host.
const RANKS: usize = 2;
/// Silence after which a job is ended. (Its MPI would wait longer.)
const STUCK: Duration = Duration::from_secs(8);
/// Interval at which a job is looked at.
const LOOK: Duration = Duration::from_millis(100);
/// Time for a job's start and end beside the exchange.
const AROUND: Duration = Duration::from_secs(60);
/// Lines that are shown of a job that died.
const TAIL: usize = 6;
/// Bytes that libfabric's TCP keeps of messages without a receive; more of them end a job.
const TCP_SAVED: (&str, &str) = ("FI_TCP_MAX_SAVED", "1048576");

/// The transport of a job.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Over {
    /// The MPI's own TCP, on the first rail.
    Tcp,
    /// Marline, on all rails.
    Marline,
}

/// The jobs' MPI and libraries.
pub struct Job {
    /// The word for mpiexec.
    pub mpi: String,
    /// The MPI's library.
    pub library: PathBuf,
    /// The MPI is Intel's.
    pub intel: bool,
    /// Directory of Marline's library, if the user named one.
    pub provider_dir: Option<PathBuf>,
}

/// A change of the network while a job runs.
pub struct Event {
    after: Duration,
    rail: usize,
    fault: &'static str,
    state: String,
}

impl Event {
    /// A fault of `marline lab fault` on a rail, some time after the first message; the rail has
    /// this state in words from then on.
    pub fn new(after: Duration, rail: usize, fault: &'static str, state: &str) -> Event {
        let state = state.to_owned();
        Event {
            after,
            rail,
            fault,
            state,
        }
    }
}

/// Runs jobs on a lab.
pub struct Runner<'a> {
    lab: &'a Made,
    tell: &'a Tell,
    job: Job,
    own: PathBuf,
    /// The rails' states in words.
    states: RefCell<Vec<String>>,
    /// A signal asks this command to end.
    interrupted: Arc<AtomicBool>,
}

/// A job's output so far.
#[derive(Default)]
struct Said {
    /// The last report of each rank.
    reports: BTreeMap<usize, Report>,
    /// Other lines.
    lines: Vec<String>,
}

impl Said {
    fn add(&mut self, line: String) {
        match Report::parse(&line) {
            Some(report) => drop(self.reports.insert(report.rank, report)),
            None => self.lines.push(line),
        }
    }

    fn messages(&self) -> u64 {
        self.reports.values().map(|report| report.messages).sum()
    }

    /// The progress of rank 0, which reports regularly, in words.
    fn note(&self) -> String {
        let Some(report) = self.reports.get(&0) else {
            return "starting".to_owned();
        };
        let wrong: u64 = self.reports.values().map(|report| report.wrong).sum();
        let wrong = match wrong {
            0 => "none wrong".to_owned(),
            n => format!("{n} WRONG"),
        };
        format!(
            "t={:.2} s: rank 0 has {} messages ({} MB), {wrong}",
            report.ms as f64 / 1e3,
            report.messages,
            report.bytes / 1_000_000
        )
    }

    /// Packets sent again and failovers, by the summary in JSON.
    fn repairs(&self) -> (u64, u64) {
        let json = self.lines.iter().rev().find(|line| line.starts_with('{'));
        let json: Option<Value> = json.and_then(|line| serde_json::from_str(line).ok());
        let rails = json.as_ref().and_then(|json| json["rails"].as_array());
        let sum = |name: &str| {
            let rails = rails.into_iter().flatten();
            rails.filter_map(|rail| rail[name].as_u64()).sum()
        };
        (sum("resent"), sum("failovers"))
    }
}

impl<'a> Runner<'a> {
    /// Runs jobs on this lab, until a signal asks to end.
    pub fn new(lab: &'a Made, tell: &'a Tell, job: Job) -> Result<Runner<'a>, String> {
        let interrupted = Arc::new(AtomicBool::new(false));
        for signal in [SIGHUP, SIGINT, SIGTERM] {
            let flag = interrupted.clone();
            signal_hook::flag::register(signal, flag).map_err(|e| format!("signals: {e}"))?;
        }
        Ok(Runner {
            states: RefCell::new(vec![String::new(); lab.rails()]),
            own: tool::own_path()?,
            lab,
            tell,
            job,
            interrupted,
        })
    }

    /// True if a signal asked to end.
    pub fn is_interrupted(&self) -> bool {
        self.interrupted.load(Relaxed)
    }

    /// Makes a fault, and notes the rail's state in words.
    pub fn order(&self, rail: usize, fault: &str, state: &str) -> Result<(), String> {
        self.lab.fault(rail, fault)?;
        if let Some(known) = self.states.borrow_mut().get_mut(rail) {
            *known = state.to_owned();
        }
        Ok(())
    }

    /// Runs a job with events, and prints its progress and result; `faulty`: faults hit packets.
    pub fn run(
        &self,
        over: Over,
        length: Duration,
        faulty: bool,
        events: Vec<Event>,
    ) -> Result<Outcome, String> {
        let mut command = self.command(over, length);
        let child = command.spawn();
        let child = child.map_err(|error| tool::spawn_error(&command, &error))?;
        let mut running = Running::new(self, child);
        let end = running.follow(length, events)?;
        let said = &running.said;
        let mut outcome = Outcome::of(&said.reports, RANKS, end);
        if outcome.verdict == Verdict::Dead {
            for line in said.lines.iter().rev().take(TAIL).rev() {
                self.tell.paragraph(line, 3);
            }
        }
        (outcome.resent, outcome.failovers) = said.repairs();
        let text = self.in_words(over, &outcome, faulty)?;
        self.tell.verdict(outcome.verdict, &text);
        Ok(outcome)
    }

    fn in_words(&self, over: Over, outcome: &Outcome, faulty: bool) -> Result<String, String> {
        let mut text = outcome.text.clone();
        if outcome.verdict == Verdict::Stuck && over == Over::Tcp {
            text += " TCP is bound to that link, while the other one lies idle.";
        }
        if faulty {
            let (drops, damages) = (self.lab.hits("drop")?, self.lab.hits("corrupt")?);
            text += &format!(" The kernel dropped {drops} packets and corrupted {damages}.");
        }
        if faulty && over == Over::Marline && outcome.verdict == Verdict::Right {
            let (resent, failovers) = (outcome.resent, outcome.failovers);
            text +=
                &format!(" Marline sent {resent} packets again and left a link {failovers} times.");
        }
        Ok(text)
    }

    fn command(&self, over: Over, length: Duration) -> Command {
        let mut command = Command::new(&self.own);
        command.args([
            "lab",
            "run",
            "--name",
            self.lab.name(),
            "--mpi",
            &self.job.mpi,
        ]);
        command.args(["-n", &RANKS.to_string()]);
        match over {
            Over::Tcp => {
                command.args(["--provider", "tcp"]);
                command.env(TCP_SAVED.0, TCP_SAVED.1);
            }
            Over::Marline => {
                command.args(["--no-shm", "--json"]);
                let dir = self.job.provider_dir.iter();
                command.args(dir.flat_map(|dir| [Path::new("--provider-dir"), dir]));
            }
        }
        command.arg("--").arg(&self.own).arg("demo-rank");
        command.arg(&self.job.library);
        command.arg(length.as_millis().to_string());
        // The lab has rails of its own.
        command.env_remove("FI_MARLINE_RAILS");
        if self.job.intel {
            // Its library finds libfabric there; pinning would put both ranks on one processor.
            command.env(
                "LD_LIBRARY_PATH",
                self.job.library.parent().unwrap_or(Path::new("/")),
            );
            command.env("I_MPI_PIN", "0");
        }
        command
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped());
        command
    }
}

/// A running job.
struct Running<'a> {
    runner: &'a Runner<'a>,
    child: Child,
    output: Receiver<String>,
    said: Said,
}

impl<'a> Running<'a> {
    fn new(runner: &'a Runner<'a>, mut child: Child) -> Running<'a> {
        let (sender, output) = channel();
        read(child.stdout.take(), sender.clone());
        read(child.stderr.take(), sender);
        Running {
            runner,
            child,
            output,
            said: Said::default(),
        }
    }

    /// Draws until the job has ended or is stuck, and makes events.
    fn follow(&mut self, length: Duration, events: Vec<Event>) -> Result<End, String> {
        let Runner { lab, tell, .. } = *self.runner;
        let mut rails = Rails::new(tell, lab);
        let mut events = events.into_iter().peekable();
        let (start, mut first) = (Instant::now(), None);
        let (mut moved, mut messages, mut drawn) = (start, 0, start);
        loop {
            let ended = self.listen(LOOK);
            let now = Instant::now();
            if self.said.messages() > messages {
                (messages, moved) = (self.said.messages(), now);
                first = first.or(Some(now));
            }
            let since = first.map_or(Duration::ZERO, |first| now - first);
            while let Some(event) = events.next_if(|event| first.is_some() && since >= event.after)
            {
                self.runner.order(event.rail, event.fault, &event.state)?;
            }
            if ended || now - drawn >= tell.refresh() {
                rails.draw(&self.runner.states.borrow(), &self.said.note());
                drawn = now;
            }
            if ended {
                return self.status();
            }
            if self.runner.is_interrupted() {
                return Err("interrupted".to_owned());
            }
            let silent = now - moved;
            if (first.is_some() && silent > STUCK) || now - start > 3 * length + AROUND {
                lab.end_programs()?;
                while !self.listen(STUCK) {}
                self.status()?;
                return Ok(End::Silent(silent.as_secs()));
            }
        }
    }

    /// Takes the output of some time; returns whether the job closed its output.
    fn listen(&mut self, time: Duration) -> bool {
        let until = Instant::now() + time;
        loop {
            let left = until.saturating_duration_since(Instant::now());
            match self.output.recv_timeout(left) {
                Ok(line) => self.said.add(line),
                Err(RecvTimeoutError::Timeout) => return false,
                Err(RecvTimeoutError::Disconnected) => return true,
            }
        }
    }

    fn status(&mut self) -> Result<End, String> {
        /// The status of a process that a signal ended.
        const SIGNALLED: i32 = 255;
        let status = self.child.wait().map_err(|e| e.to_string())?;
        let code = status.code().unwrap_or(SIGNALLED);
        Ok(End::Status(u8::try_from(code).unwrap_or(u8::MAX)))
    }
}

impl Drop for Running<'_> {
    fn drop(&mut self) {
        // After an error; a job that has ended is not there any more.
        let _ = self.runner.lab.end_programs();
        let _ = self.child.wait();
    }
}

/// Sends the lines of an output as they come.
fn read(output: Option<impl Read + Send + 'static>, sender: Sender<String>) {
    let Some(output) = output else { return };
    std::thread::spawn(move || {
        let mut lines = BufReader::new(output);
        let mut line = Vec::new();
        while lines.read_until(b'\n', &mut line).is_ok_and(|n| n > 0) {
            let text = String::from_utf8_lossy(&line).trim_end().to_owned();
            if sender.send(text).is_err() {
                return;
            }
            line.clear();
        }
    });
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reports_and_the_summary_are_known_among_other_lines() {
        let mut said = Said::default();
        assert_eq!(said.note(), "starting");
        let report = Report {
            rank: 0,
            ms: 1_250,
            bytes: 7_000_000,
            messages: 40,
            wrong: 1,
            ..Report::default()
        };
        for line in [
            report.to_string(),
            Report { rank: 1, ..report }.to_string(),
            "an error".to_owned(),
            r#"{"rails":[{"resent":3,"failovers":1},{"resent":4,"failovers":0}]}"#.to_owned(),
        ] {
            said.add(line);
        }
        assert_eq!(said.messages(), 80);
        assert_eq!(
            said.note(),
            "t=1.25 s: rank 0 has 40 messages (7 MB), 2 WRONG"
        );
        assert_eq!(said.repairs(), (7, 1));
        assert_eq!(said.lines[0], "an error");
    }
}
