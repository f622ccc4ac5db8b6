//! Puts facts and findings of jobs together, and writes them as a page.

use super::data::{JobReport, Report};
use super::{collect, findings, html};
use crate::stats::jobs::Job;
use marline_engine::stats::page;
use std::path::Path;

/// The report of these jobs, without those that did not use Marline.
pub fn report(jobs: &[Job]) -> Report {
    let used = jobs.iter().filter(|job| job.summary.processes > 0);
    Report {
        version: marline_version::TEXT.to_owned(),
        pages_version: page::VERSION,
        jobs: used
            .map(|job| {
                let facts = collect::facts(job);
                let findings = findings::findings(&facts);
                JobReport { facts, findings }
            })
            .collect(),
    }
}

/// Writes a report as a page for a browser.
pub fn write_page(file: &Path, report: &Report) -> std::io::Result<()> {
    std::fs::write(file, html::page(report))
}
