//! `marline stats` and `marline events`: counters and events of engines, running or ended, by job.

pub mod averages;
pub mod data;
pub mod events;
mod follow;
pub mod jobs;
pub mod on_page;
mod prometheus;
mod raw;
pub mod shown;

use crate::json;
use crate::outcome::{Failure, EXIT_REFUSED};
use crate::run::stats_dir::{self, STATS_DIR};
use crate::run::summary::remarks;
use crate::tool;
use averages::averages;
use data::Stats;
use jobs::Job;
use marline_codes::Code;
use marline_engine::stats::page::DEFAULT_DIR;
use marline_engine::stats::reader;
use marline_engine::stats::report::report;
use marline_engine::stats::rows::JobPage;
use marline_engine::stats::text::plural;
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
    /// As metrics for Prometheus, by host and rail.
    #[arg(long, group = "form")]
    prometheus: bool,
    /// With --prometheus: writes them to this file for node_exporter's textfile collector, at once,
    /// with the counts of processes that have ended since the first time; FILE.totals keeps these.
    #[arg(long, value_name = "FILE", requires = "prometheus")]
    textfile: Option<PathBuf>,
    /// Leave with status 125 if nothing was sent over Marline.
    #[arg(long, env = "MARLINE_REQUIRE", value_parser = clap::builder::FalseyValueParser::new())]
    require: bool,
}

/// Prints the statistics.
pub fn main(args: &StatsArgs) -> crate::outcome::Uncoded {
    let found = match read(&args.paths, args.job) {
        Err(_) if args.prometheus && is_idle(args) => Found::default(),
        found => found?,
    };
    let status = report_unread(&found);
    let (jobs, unread) = (&found.jobs, found.unread.len());
    match (args.prometheus, &args.textfile) {
        (true, Some(file)) => prometheus::write(jobs, unread, file)?,
        (true, None) => tool::print(&prometheus::metrics(jobs, unread))?,
        (false, _) => tool::print(&text(args, jobs)?)?,
    }
    if args.require && jobs.iter().all(|job| job.summary.processes == 0) {
        let text = "nothing was sent over Marline, which --require (MARLINE_REQUIRE) asks for";
        tool::say(&Code::NotUsed.message(text));
        return Ok(EXIT_REFUSED);
    }
    Ok(status)
}

/// The statistics as tables, pages or JSON.
fn text(args: &StatsArgs, jobs: &[Job]) -> Result<String, String> {
    Ok(match args {
        _ if args.raw => jobs
            .iter()
            .flat_map(|job| &job.pages)
            .map(raw_page)
            .collect(),
        _ if args.json => json::line(&Stats::of(jobs))?,
        _ => tables(jobs),
    })
}

/// True if the directories are there, and neither this user nor another has pages in them: a host
/// between two jobs, which is no error for a collector of metrics.
fn is_idle(args: &StatsArgs) -> bool {
    let is_empty = |dir: &PathBuf| {
        dir.is_dir() && reader::list_pages(dir).is_empty() && reader::count_foreign(dir) == 0
    };
    args.job.is_none() && places(&args.paths).iter().all(is_empty)
}

/// Reports what could not be read; the exit status is then 1.
fn report_unread(found: &Found) -> u8 {
    let message = |text: &String| Code::StatisticsUnreadable.message(text.clone());
    found.unread.iter().map(message).for_each(|m| tool::say(&m));
    u8::from(!found.unread.is_empty())
}

/// Jobs, and the reasons for which pages are left out.
#[derive(Default)]
pub struct Found {
    /// The jobs in order of their start.
    pub jobs: Vec<Job>,
    /// A line for each page or directory that cannot be read.
    pub unread: Vec<String>,
}

/// The jobs with pages in these places, or the job of one process. Reports unreadable pages, and
/// sets the status to 1 if there are any.
pub fn load(paths: &[PathBuf], job: Option<u32>, status: &mut u8) -> Result<Vec<Job>, Failure> {
    let found = read(paths, job)?;
    *status = (*status).max(report_unread(&found));
    Ok(found.jobs)
}

/// The same without a report.
pub fn read(paths: &[PathBuf], job: Option<u32>) -> Result<Found, Failure> {
    let places = places(paths);
    let mut unread = Vec::new();
    let files = files(&places, &mut unread);
    if files.is_empty() && unread.is_empty() {
        return Err(none_in(&places, paths.is_empty()));
    }
    let mut pages = Vec::new();
    for path in files {
        match reader::read_page(&path) {
            Ok(page) => pages.push((path, page)),
            Err(error) => unread.push(error),
        }
    }
    let mut jobs = jobs::group(pages);
    if let Some(pid) = job {
        jobs.retain(|job| job.pages.iter().any(|(_, page)| page.pid == pid));
        if jobs.is_empty() {
            let unread = unread.iter().map(|text| format!("; {text}"));
            let unread: String = unread.collect();
            let text = format!("process {pid} is of no job here{unread}");
            return Err(Failure::with(Code::NoStatistics, text));
        }
    }
    Ok(Found { jobs, unread })
}

/// The reason for an empty result.
fn none_in(places: &[PathBuf], everywhere: bool) -> Failure {
    let looked: Vec<_> = places.iter().map(|p| p.display().to_string()).collect();
    let looked = looked.join(", ");
    let foreign: usize = places.iter().map(|p| reader::count_foreign(p)).sum();
    if foreign > 0 {
        return format!(
            "no statistics of yours in {looked}: {foreign} pages there are of other users, whom \
             only they and root can ask about"
        )
        .into();
    }
    let text = match everywhere && std::env::var_os(STATS_DIR).is_none_or(|dir| dir.is_empty()) {
        true => format!(
            "no statistics in {looked}: nothing runs over Marline on this host, or {STATS_DIR} \
             says otherwise for it"
        ),
        false => format!(
            "no statistics in {looked}: no job has left any there, as one does that is started \
             with {STATS_DIR} set to that directory"
        ),
    };
    Failure::with(Code::NoStatistics, text)
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

/// The page files in these places, and lines for the places that may not be read.
fn files(places: &[PathBuf], unread: &mut Vec<String>) -> Vec<PathBuf> {
    let mut files = Vec::new();
    for path in places {
        if path
            .read_dir()
            .is_err_and(|e| e.kind() == ErrorKind::PermissionDenied)
        {
            let path = path.display();
            unread.push(format!(
                "{path} is of another user: run as that user, or as root"
            ));
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
