//! `marline report`: a job after its end or while it runs, in words, as a page and as data.
//!
//! [`collect`] makes plain facts out of statistics pages, [`findings`] puts them into words,
//! [`compose`] puts both together, and [`text`], [`html`] and JSON show them.

mod checks;
mod collect;
mod common;
pub mod compose;
mod curves;
pub mod data;
mod findings;
mod given;
mod heat;
mod html;
mod text;
mod timeline;
mod traffic;
mod words;

pub use common::{common, Ends, Known};
pub use data::{Common, End, Place};

use crate::outcome::OrCode;
use crate::stats::load;
use crate::tool;
use compose::{report, write_page};
use marline_codes::{Code, Coded};
use std::path::PathBuf;

/// Arguments of `report`.
#[derive(clap::Args)]
pub struct ReportArgs {
    /// The directory that a job had in FI_MARLINE_STATS_DIR. Default: that variable's, else those
    /// of this host's jobs.
    #[arg(value_name = "DIRECTORY")]
    paths: Vec<PathBuf>,
    /// Only the job that this process of it belongs to.
    #[arg(long, value_name = "PID")]
    job: Option<u32>,
    /// As text, which is the default without --html.
    #[arg(long, group = "form")]
    text: bool,
    /// As one JSON object.
    #[arg(long, group = "form")]
    json: bool,
    /// Write a page for a browser to FILE, without addresses of other files.
    #[arg(long, value_name = "FILE")]
    html: Option<PathBuf>,
}

/// Prints or writes the report.
pub fn main(args: &ReportArgs) -> crate::outcome::Outcome {
    let mut status = 0;
    let jobs = load(&args.paths, args.job, &mut status).or_code(Code::StatisticsUnreadable)?;
    let report = report(&jobs);
    if let Some(file) = &args.html {
        let written = write_page(file, &report);
        written
            .map_err(|e| format!("--html {}: {e}", file.display()))
            .coded(Code::Output)?;
    }
    if args.json {
        let json = serde_json::to_string_pretty(&report).map_err(|e| format!("--json: {e}"));
        tool::print(&format!("{}\n", json.coded(Code::Output)?)).coded(Code::Output)?;
    } else if args.text || args.html.is_none() {
        tool::print(&text::text(&report)).coded(Code::Output)?;
    }
    Ok(status)
}

#[cfg(test)]
#[path = "report_test.rs"]
mod tests;
