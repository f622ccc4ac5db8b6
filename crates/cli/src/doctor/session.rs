//! The coordinator's end of the agents: starts them, asks, and waits until a deadline.

use super::messages::{Answer, Request};
use std::io::{BufRead, BufReader, Read, Write};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::mpsc::{channel, Receiver, Sender};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

/// Longest wait for the end of an agent that is no longer needed, and the time between looks.
const END: Duration = Duration::from_secs(1);
const LOOK: Duration = Duration::from_millis(5);
/// Last bytes of an agent's standard error that are kept.
const SAID_MAX: usize = 2_000;

/// The reason why an agent gave no answer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Failure {
    /// The launching program could not be started.
    NotStarted(String),
    /// It ended: exit status, and its standard error.
    Ended(Option<i32>, String),
    /// No answer until the deadline, and its standard error.
    Silent(String),
    /// The agent refused, or answered in other words.
    Other(String),
}

/// An agent on a host.
struct Agent {
    child: Option<Child>,
    requests: Option<Sender<String>>,
    said: Arc<Mutex<String>>,
    /// Reads the standard error to its end.
    listener: Option<thread::JoinHandle<()>>,
    failure: Option<Failure>,
}

/// All agents.
pub struct Session {
    agents: Vec<Agent>,
    /// Lines of the agents by their number; `None`: the end of the output.
    lines: Receiver<(usize, Option<String>)>,
}

impl Session {
    /// Starts an agent by each of these commands.
    pub fn start(commands: Vec<Command>) -> Session {
        let (sender, lines) = channel();
        let agents = commands.into_iter().enumerate();
        let agents = agents.map(|(at, command)| Agent::start(at, command, &sender));
        Session {
            agents: agents.collect(),
            lines,
        }
    }

    /// Asks agents, all at the same time. Returns the answers by agent, in the order of arrival; an
    /// agent that fails, or does not answer for this long, is asked no more.
    pub fn ask(
        &mut self,
        requests: impl IntoIterator<Item = (usize, Request)>,
        longest: Duration,
    ) -> Vec<(usize, Answer)> {
        let until = Instant::now() + longest;
        let mut waiting: Vec<usize> = Vec::new();
        for (at, request) in requests {
            if self.agents[at].send(&request) {
                waiting.push(at);
            }
        }
        let mut answers = Vec::new();
        while !waiting.is_empty() {
            let left = until.saturating_duration_since(Instant::now());
            let Ok((at, line)) = self.lines.recv_timeout(left) else {
                break;
            };
            let place = waiting.iter().position(|&w| w == at);
            if let Some(answer) = self.agents[at].read(line, place.is_some()) {
                answers.push((at, answer));
            }
            if let Some(place) = place {
                waiting.swap_remove(place);
            }
        }
        for at in waiting {
            let said = self.agents[at].said();
            self.agents[at].failure = Some(Failure::Silent(said));
        }
        answers
    }

    /// The reason why an agent is asked no more.
    pub fn failure(&self, at: usize) -> Option<&Failure> {
        self.agents[at].failure.as_ref()
    }
}

impl Agent {
    fn start(at: usize, mut command: Command, lines: &Sender<(usize, Option<String>)>) -> Agent {
        let said = Arc::new(Mutex::new(String::new()));
        let pipes = command.stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut child = match pipes.stderr(Stdio::piped()).spawn() {
            Ok(child) => child,
            Err(e) => {
                let why = crate::tool::spawn_error(&command, &e);
                return Agent {
                    child: None,
                    requests: None,
                    said,
                    listener: None,
                    failure: Some(Failure::NotStarted(why)),
                };
            }
        };
        let (requests, queue) = channel::<String>();
        if let Some(mut stdin) = child.stdin.take() {
            // A pipe that is full, since an agent hangs, must not hold the others up.
            thread::spawn(move || {
                for line in queue {
                    if stdin.write_all(line.as_bytes()).is_err() {
                        break;
                    }
                }
            });
        }
        if let Some(stdout) = child.stdout.take() {
            let lines = lines.clone();
            thread::spawn(move || {
                for line in BufReader::new(stdout).lines().map_while(Result::ok) {
                    // A login shell may print lines of its own.
                    if line.starts_with('{') && lines.send((at, Some(line))).is_err() {
                        return;
                    }
                }
                let _ = lines.send((at, None));
            });
        }
        let listener = child.stderr.take().map(|stderr| {
            let said = said.clone();
            thread::spawn(move || keep_last(stderr, &said))
        });
        Agent {
            child: Some(child),
            requests: Some(requests),
            said,
            listener,
            failure: None,
        }
    }

    /// Sends a request; false if the agent has failed.
    fn send(&mut self, request: &Request) -> bool {
        let line = match (&self.failure, serde_json::to_string(request)) {
            (None, Ok(line)) => line + "\n",
            _ => return false,
        };
        let sent = self.requests.as_ref().map(|r| r.send(line));
        sent.is_some() // an agent that has ended is noticed by its closed output
    }

    /// Reads a line, or the end of the output. Returns the answer if the agent was asked.
    fn read(&mut self, line: Option<String>, asked: bool) -> Option<Answer> {
        let Some(line) = line else {
            self.end();
            return None;
        };
        let read = asked.then(|| serde_json::from_str(&line))?;
        let why = match read {
            Ok(Answer::Error { why }) => why,
            Ok(answer) => return Some(answer),
            Err(e) => e.to_string(),
        };
        self.failure = Some(Failure::Other(why));
        None
    }

    /// Notes that the agent has ended.
    fn end(&mut self) {
        let status = self.wait(END).and_then(|status| status.code());
        // Its last words may still be on their way.
        let until = Instant::now() + END;
        let unread = |l: &thread::JoinHandle<()>| !l.is_finished() && Instant::now() < until;
        while self.listener.as_ref().is_some_and(unread) {
            thread::sleep(LOOK);
        }
        let ended = Failure::Ended(status, self.said());
        self.failure.get_or_insert(ended);
    }

    /// The last words on standard error.
    fn said(&self) -> String {
        let said = self.said.lock().unwrap_or_else(PoisonError::into_inner);
        said.trim().to_owned()
    }

    /// Waits for the process, at most this long.
    fn wait(&mut self, longest: Duration) -> Option<ExitStatus> {
        let until = Instant::now() + longest;
        let child = self.child.as_mut()?;
        loop {
            match child.try_wait() {
                Ok(None) if Instant::now() < until => thread::sleep(LOOK),
                ended => return ended.ok().flatten(),
            }
        }
    }
}

impl Drop for Session {
    fn drop(&mut self) {
        for agent in &mut self.agents {
            agent.requests = None; // closes its standard input
        }
        let until = Instant::now() + END;
        for agent in &mut self.agents {
            let left = until.saturating_duration_since(Instant::now());
            if agent.wait(left).is_none() {
                if let Some(child) = &mut agent.child {
                    let _ = child.kill();
                    let _ = child.wait();
                }
            }
        }
    }
}

fn keep_last(mut from: impl Read, said: &Mutex<String>) {
    let mut bytes = [0; 1_024];
    while let Ok(len @ 1..) = from.read(&mut bytes) {
        let mut said = said.lock().unwrap_or_else(PoisonError::into_inner);
        said.push_str(&String::from_utf8_lossy(&bytes[..len]));
        let mut from = said.len().saturating_sub(SAID_MAX);
        while !said.is_char_boundary(from) {
            from += 1;
        }
        said.drain(..from);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shell(script: &str) -> Command {
        let mut command = Command::new("sh");
        command.args(["-c", script]);
        command
    }

    #[test]
    fn answers_come_beside_agents_that_fail() {
        let clock = r#"read a; echo hello; echo '{"is":"clock","unix_ns":7}'; read a"#;
        let commands = vec![
            shell(clock),
            shell("echo no way >&2; exit 3"),
            shell("read a; echo '{\"is\":\"new\"}'; read a"),
            Command::new("no-such-launcher-at-all"),
        ];
        let mut session = Session::start(commands);
        let asked = (0..4).map(|at| (at, Request::Clock));
        let answers = session.ask(asked, Duration::from_secs(60));
        assert!(matches!(answers[..], [(0, Answer::Clock { unix_ns: 7 })]));
        assert_eq!(session.failure(0), None);
        let ended = Failure::Ended(Some(3), "no way".to_owned());
        assert_eq!(session.failure(1), Some(&ended));
        assert!(matches!(session.failure(2), Some(Failure::Other(_))));
        assert!(matches!(session.failure(3), Some(Failure::NotStarted(_))));
    }

    #[test]
    fn an_agent_that_hangs_does_not_hold_the_others_up() {
        let mut session = Session::start(vec![shell("echo waiting >&2; exec sleep 600")]);
        let answers = session.ask([(0, Request::Tally)], Duration::from_millis(1));
        assert!(answers.is_empty());
        assert!(matches!(session.failure(0), Some(Failure::Silent(_))));
        let child = session.agents[0].child.as_ref().unwrap().id();
        drop(session);
        let left = std::path::PathBuf::from(format!("/proc/{child}"));
        assert!(!left.exists(), "process {child} still runs");
    }
}
