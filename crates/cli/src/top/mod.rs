//! `marline top`: the rails of running jobs on a terminal, as one frame of text, or as data.
//!
//! [`sample`] makes a snapshot out of statistics pages, [`view`] keeps the user's choices,
//! [`mod@frame`] makes lines out of both, and [`live`] shows these on a terminal.

pub mod data;
mod frame;
mod live;
mod rates;
mod sample;
mod screen;
mod text;
mod view;

use crate::outcome::Uncoded;
use crate::tool;
use data::Snapshot;
use sample::Sampler;
use screen::Screen;
use std::path::PathBuf;
use std::time::Duration;
use view::View;

/// Arguments of `top`.
#[derive(clap::Args)]
pub struct TopArgs {
    /// Pages, or directories with pages. Default: FI_MARLINE_STATS_DIR, else those of this host's
    /// jobs, labs included.
    paths: Vec<PathBuf>,
    /// Only the job that this process of it belongs to.
    #[arg(long, value_name = "PID")]
    job: Option<u32>,
    /// Time between two frames, over which rates are taken.
    #[arg(long, value_name = "SECONDS", default_value = "0.5", value_parser = interval)]
    interval: Duration,
    /// Print one frame as text, without a terminal.
    #[arg(long, group = "form")]
    once: bool,
    /// Print one frame as a JSON object.
    #[arg(long, group = "form")]
    json: bool,
}

/// Bounds of the interval in seconds: engines update their pages ten times a second, and a day is
/// longer than anybody looks.
const INTERVAL_S: std::ops::RangeInclusive<f64> = 0.1..=86_400.0;

fn interval(text: &str) -> Result<Duration, String> {
    let seconds = text.parse().map_err(|_| "not a number".to_owned())?;
    match INTERVAL_S.contains(&seconds) {
        true => Ok(Duration::from_secs_f64(seconds)),
        false => Err("not from 0.1 to 86400".to_owned()),
    }
}

/// Shows the jobs.
pub fn main(args: &TopArgs) -> Uncoded {
    let mut sampler = Sampler::new(&args.paths, args.job);
    if !args.once && !args.json {
        return live::main(&mut sampler, args.interval);
    }
    let mut snapshot = sampler.take()?;
    // The rates of ended jobs stay those since their start.
    if snapshot.jobs.iter().any(|job| !job.ended) {
        std::thread::sleep(args.interval);
        snapshot = sampler.take()?;
    }
    let text = match args.json {
        true => serde_json::to_string(&snapshot).map_err(|e| format!("--json: {e}"))?,
        false => once(&snapshot),
    };
    tool::print(&format!("{text}\n"))?;
    Ok(u8::from(!snapshot.unread.is_empty()))
}

/// A frame as text.
fn once(snapshot: &Snapshot) -> String {
    let note = match snapshot.jobs.is_empty() {
        true => "no process is in touch with another over Marline",
        false => "",
    };
    let screen = Screen {
        snapshot,
        view: &View::default(),
        note,
    };
    let lines = frame::frame(&screen, frame::COLUMNS, None);
    let lines = lines
        .iter()
        .map(|line| line.to_string().trim_end().to_owned());
    lines.collect::<Vec<_>>().join("\n")
}

#[cfg(test)]
#[path = "top_test.rs"]
mod tests;
