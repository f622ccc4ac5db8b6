//! `marline events --follow`: prints events as they come.

use super::data::Followed;
use super::jobs::Job;
use super::read;
use super::shown::{shown, Shown};
use crate::json;
use crate::outcome::Uncoded;
use crate::tool;
use marline_codes::Code;
use std::collections::HashSet;
use std::io::{ErrorKind, Write};
use std::path::PathBuf;
use std::time::Duration;

/// Time between two looks: engines update their pages ten times a second.
const LOOK: Duration = Duration::from_millis(200);

/// Prints all events there are, then new ones, until the job that `--job` names has ended, the
/// reader has gone, or a signal ends the command.
pub fn main(paths: &[PathBuf], job: Option<u32>, as_json: bool) -> Uncoded {
    let (mut follow, mut any) = (Follow::default(), false);
    loop {
        let ended = match read(paths, job) {
            Ok(found) => {
                found.unread.iter().for_each(|text| follow.complain(text));
                if !print(&follow.new_lines(&found.jobs, as_json)?)? {
                    return Ok(0);
                }
                any = true;
                found.jobs.iter().all(Job::has_ended)
            }
            // The pages of a job that has ended may be gone.
            Err(why) if job.is_some() && !any => return Err(why),
            Err(_) if job.is_some() => true,
            Err(why) => {
                follow.complain(why.text());
                false
            }
        };
        if ended && job.is_some() {
            return Ok(0);
        }
        std::thread::sleep(LOOK);
    }
}

/// Prints text; false if the reader has gone.
fn print(text: &str) -> Result<bool, String> {
    let mut out = std::io::stdout();
    match out.write_all(text.as_bytes()).and_then(|()| out.flush()) {
        Ok(()) => Ok(true),
        Err(e) if e.kind() == ErrorKind::BrokenPipe => Ok(false),
        Err(e) => Err(format!("standard output: {e}")),
    }
}

/// The events and complaints that were printed.
#[derive(Default)]
struct Follow {
    printed: HashSet<Key>,
    complaints: HashSet<String>,
}

/// Identity of an event: its page, and what does not change when the event occurs again.
#[derive(PartialEq, Eq, Hash)]
struct Key {
    host: String,
    process: (u64, u32, u64),
    unix_ns: u64,
    kind: &'static str,
    path: (u64, u8, u8),
}

impl Key {
    fn of(shown: &Shown<'_>) -> Key {
        let Shown { page, event, .. } = shown;
        Key {
            host: page.host.clone(),
            process: (page.pid_space, page.pid, page.opened_unix_ns),
            unix_ns: event.unix_ns,
            kind: event.kind.name(),
            path: (event.peer, event.rail, event.peer_rail),
        }
    }
}

impl Follow {
    fn complain(&mut self, text: &str) {
        if self.complaints.insert(text.to_owned()) {
            tool::say(&Code::StatisticsUnreadable.message(text));
        }
    }

    /// Lines for the events that were not printed before, oldest first.
    fn new_lines(&mut self, jobs: &[Job], as_json: bool) -> Result<String, String> {
        let all = jobs
            .iter()
            .flat_map(|job| shown(job).into_iter().map(move |shown| (job, shown)));
        let mut all: Vec<(&Job, Shown<'_>)> = all.collect();
        all.sort_by_key(|(_, shown)| shown.event.unix_ns);
        let (mut lines, mut present) = (String::new(), HashSet::new());
        for (job, shown) in all {
            let key = Key::of(&shown);
            if !self.printed.contains(&key) {
                lines += &match as_json {
                    true => json::line(&followed(job, &shown))?,
                    false => shown.line(),
                };
            }
            present.insert(key);
        }
        // Events that no page holds any more cannot come again.
        self.printed = present;
        Ok(lines)
    }
}

fn followed(job: &Job, shown: &Shown<'_>) -> Followed {
    Followed {
        event: shown.data(),
        job: job.id(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::stats::jobs::group;
    use marline_engine::stats::events::{Event, Kind};
    use marline_engine::stats::rows::JobPage;

    fn jobs(events: &[Event]) -> Vec<Job> {
        let mut page = JobPage {
            host: "h1".into(),
            pid: 7,
            ..JobPage::default()
        };
        page.events.list = events.to_vec();
        group(vec![("marline-7.page".into(), page)])
    }

    fn event(unix_ns: u64, times: u32) -> Event {
        Event {
            unix_ns,
            times,
            kind: Kind::PathSuspect,
            ..Event::default()
        }
    }

    #[test]
    fn each_event_is_printed_once() {
        let mut follow = Follow::default();
        let text = follow.new_lines(&jobs(&[event(1, 1)]), false).unwrap();
        assert_eq!(text.lines().count(), 1, "{text}");
        // The same event with more occurrences, and another.
        let text = follow
            .new_lines(&jobs(&[event(1, 9), event(2, 1)]), true)
            .unwrap();
        assert_eq!(text.lines().count(), 1, "{text}");
        let value: serde_json::Value = serde_json::from_str(&text).unwrap();
        assert_eq!((&value["unix_ns"], &value["job"]), (&2.into(), &7.into()));
        assert_eq!(follow.new_lines(&jobs(&[event(2, 3)]), false).unwrap(), "");
    }
}
