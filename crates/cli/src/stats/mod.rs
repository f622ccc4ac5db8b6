//! `marline stats` and `marline events`: counters and events of engines, running or ended, by job.

pub mod averages;
pub mod events;
mod jobs;
mod prometheus;
mod raw;

use crate::json::{array, summary};
use crate::outcome::EXIT_REFUSED;
use crate::run::stats_dir::{self, STATS_DIR};
use crate::run::summary::remarks;
use crate::tool;
use averages::averages;
use jobs::Job;
use marline_engine::stats::page::DEFAULT_DIR;
use marline_engine::stats::reader;
use marline_engine::stats::report::report;
use marline_engine::stats::rows::JobPage;
use marline_engine::stats::text::plural;
use serde_json::json;
use std::io::ErrorKind;
use std::path::PathBuf;

/// Arguments of `stats`.
#[derive(clap::Args)]
pub struct StatsArgs {
    /// Pages, or directories with pages. Default: FI_MARLINE_STATS_DIR, else those of this host's
    /// jobs.
    paths: Vec<PathBuf>,
    /// Only the job that this process of it belongs to.
    #[arg(long, value_name = "PID")]
    job: Option<u32>,
    /// Every page for itself, with every counter that is not 0.
    #[arg(long, group = "form")]
    raw: bool,
    /// As one JSON object.
    #[arg(long, group = "form")]
    json: bool,
    /// As metrics for Prometheus.
    #[arg(long, group = "form")]
    prometheus: bool,
    /// Leave with status 125 if nothing was sent over Marline.
    #[arg(long, env = "MARLINE_REQUIRE", value_parser = clap::builder::FalseyValueParser::new())]
    require: bool,
}

/// Prints the statistics.
pub fn main(args: &StatsArgs) -> crate::outcome::Outcome {
    let mut status = 0;
    let jobs = load(&args.paths, args.job, &mut status)?;
    let text = match args {
        _ if args.raw => jobs
            .iter()
            .flat_map(|job| &job.pages)
            .map(raw_page)
            .collect(),
        _ if args.json => as_json(&jobs),
        _ if args.prometheus => prometheus::metrics(&jobs),
        _ => tables(&jobs),
    };
    tool::print(&text)?;
    if args.require && jobs.iter().all(|job| job.summary.processes == 0) {
        tool::say("nothing was sent over Marline, which --require (MARLINE_REQUIRE) asks for");
        return Ok(EXIT_REFUSED);
    }
    Ok(status)
}

/// The jobs with pages in these places, or the job of one process. Reports unreadable pages and
/// sets the status to 1.
fn load(paths: &[PathBuf], job: Option<u32>, status: &mut u8) -> Result<Vec<Job>, String> {
    let places = places(paths);
    let files = files(&places, status);
    if files.is_empty() && *status == 0 {
        return Err(none_in(&places, paths.is_empty()));
    }
    let mut pages = Vec::new();
    for path in files {
        match reader::read_page(&path) {
            Ok(page) => pages.push((path, page)),
            Err(error) => {
                tool::say(&error);
                *status = 1;
            }
        }
    }
    let mut jobs = jobs::group(pages);
    if let Some(pid) = job {
        jobs.retain(|job| job.pages.iter().any(|(_, page)| page.pid == pid));
        if jobs.is_empty() {
            return Err(format!("process {pid} is of no job here"));
        }
    }
    Ok(jobs)
}

/// The reason for an empty result.
fn none_in(places: &[PathBuf], everywhere: bool) -> String {
    let looked: Vec<_> = places.iter().map(|p| p.display().to_string()).collect();
    let looked = looked.join(", ");
    let foreign: usize = places.iter().map(|p| reader::count_foreign(p)).sum();
    if foreign > 0 {
        return format!(
            "no statistics of yours in {looked}: {foreign} pages there are of other users, whom \
             only they and root can ask about"
        );
    }
    match everywhere && std::env::var_os(STATS_DIR).is_none_or(|dir| dir.is_empty()) {
        true => format!(
            "no statistics in {looked}: nothing runs over Marline on this host, or {STATS_DIR} \
             says otherwise for it"
        ),
        false => format!(
            "no statistics in {looked}: no job has left any there, as one does that is started \
             with {STATS_DIR} set to that directory"
        ),
    }
}

fn raw_page((path, page): &(PathBuf, JobPage)) -> String {
    raw::show(path, page)
}

/// The directories and files to read.
fn places(paths: &[PathBuf]) -> Vec<PathBuf> {
    let set = std::env::var_os(STATS_DIR).filter(|dir| !dir.is_empty());
    match (paths.is_empty(), set) {
        (false, _) => paths.to_owned(),
        (true, Some(dir)) => vec![dir.into()],
        (true, None) => running(),
    }
}

/// The page files there; a place without read permission sets the status to 1.
fn files(places: &[PathBuf], status: &mut u8) -> Vec<PathBuf> {
    let mut files = Vec::new();
    for path in places {
        if path
            .read_dir()
            .is_err_and(|e| e.kind() == ErrorKind::PermissionDenied)
        {
            let path = path.display();
            tool::say(&format!(
                "{path} is of another user: run as that user, or as root"
            ));
            *status = 1;
        }
        match path.is_dir() {
            true => files.extend(reader::list_pages(path)),
            false => files.push(path.clone()),
        }
    }
    files
}

/// Default directories of this host's engines, and the directory of each `marline run`.
fn running() -> Vec<PathBuf> {
    let runs = stats_dir::bases().into_iter();
    let runs = runs.flat_map(|base| stats_dir::of_runs(&base));
    std::iter::once(DEFAULT_DIR.into()).chain(runs).collect()
}

/// A table for each job that used Marline, and one line for the others.
fn tables(jobs: &[Job]) -> String {
    let (used, idle): (Vec<&Job>, Vec<&Job>) =
        jobs.iter().partition(|job| job.summary.processes > 0);
    let mut out = String::new();
    for job in &used {
        if used.len() > 1 {
            out += &format!("{}\n", job.title());
        }
        out += &report(&job.summary);
        out += &remarks(&job.pages().collect::<Vec<_>>());
        out += &averages(job.pages.iter().map(|(_, page)| page), &job.summary);
        if used.len() > 1 {
            out.push('\n');
        }
    }
    let processes: usize = idle.iter().map(|job| job.summary.idle).sum();
    if processes > 0 {
        let have = plural(
            processes as u64,
            "process has opened it and is",
            "processes have opened it and are",
        );
        out += &format!("Marline: {have} in touch with no other\n");
    }
    out
}

fn as_json(jobs: &[Job]) -> String {
    let page = |(path, page): &(PathBuf, JobPage)| {
        json!({
            "file": path.to_string_lossy(),
            "host": page.host,
            "process": page.pid,
            "rank": page.rank,
            "endpoint": format!("{:016x}", page.endpoint()),
            "endpoints": array(&page.endpoints, |number| json!(format!("{number:016x}"))),
            "endpoints_beyond": page.endpoints_beyond,
            "closed": page.closed,
            "left_behind": page.is_left_behind(),
        })
    };
    let job = |job: &Job| {
        let mut value = summary(&job.summary);
        value["job"] = json!(job.id());
        value["pages"] = array(&job.pages, page);
        value
    };
    format!("{}\n", json!({ "jobs": array(jobs, job) }))
}
