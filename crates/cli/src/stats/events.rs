//! `marline events`: events of rails, paths and peers, with times.

use super::data::{Events, EventsOfJob};
use super::jobs::Job;
use super::shown::shown;
use super::{follow, load};
use crate::json;
use crate::tool;
use std::path::PathBuf;

/// Arguments of `events`.
#[derive(clap::Args)]
pub struct EventsArgs {
    /// Pages, or directories with pages. Default: FI_MARLINE_STATS_DIR, else those of this host's
    /// jobs.
    paths: Vec<PathBuf>,
    /// Only the job that this process of it belongs to.
    #[arg(long, value_name = "PID")]
    job: Option<u32>,
    /// As one JSON object; with --follow, one for each event and line.
    #[arg(long)]
    json: bool,
    /// Print further events as they come: with --job until that job has ended, else until the
    /// command is interrupted.
    #[arg(long, short = 'f')]
    follow: bool,
}

/// Prints the events.
pub fn main(args: &EventsArgs) -> crate::outcome::Uncoded {
    if args.follow {
        return follow::main(&args.paths, args.job, args.json);
    }
    let mut status = 0;
    let jobs = load(&args.paths, args.job, &mut status)?;
    let text = match args.json {
        true => json::line(&as_data(&jobs))?,
        // With unreadable pages, "no jobs" would be unfounded.
        false if jobs.is_empty() && status != 0 => String::new(),
        false => as_text(&jobs),
    };
    tool::print(&text)?;
    Ok(status)
}

fn as_data(jobs: &[Job]) -> Events {
    let of_job = |job: &Job| EventsOfJob {
        job: job.id(),
        events: shown(job).iter().map(|shown| shown.data()).collect(),
        missing: job.events_missing(),
    };
    Events {
        jobs: jobs.iter().map(of_job).collect(),
    }
}

fn as_text(jobs: &[Job]) -> String {
    let used: Vec<&Job> = jobs.iter().filter(|j| j.summary.processes > 0).collect();
    let mut out = String::new();
    for job in &used {
        if used.len() > 1 {
            out += &format!("{}\n", job.title());
        }
        let all = shown(job);
        if all.is_empty() {
            out += "no rail, path or peer has failed\n";
        }
        for shown in &all {
            out += &shown.line();
        }
        let missing = job.events_missing();
        if missing > 0 {
            out += &format!("{missing} older events are not kept any more\n");
        }
    }
    if used.is_empty() {
        out += "no process is in touch with another over Marline\n";
    }
    out
}
