//! `marline env`: the settings of `marline run`, for a job script.

use crate::run::stats_dir::{StatsDir, STATS_DIR};
use crate::run::{for_ranks, Common};
use crate::run::{job_key, mpi, settings};
use crate::tool;
use marline_codes::{Code, Coded};
use serde_json::{Map, Value};
use std::path::PathBuf;

/// Arguments of `env`.
#[derive(clap::Args)]
pub struct EnvArgs {
    #[command(flatten)]
    common: Common,
    /// mpiexec, by name or path, or the MPI's directory.
    #[arg(long, default_value = "mpiexec")]
    mpi: String,
    /// Like `export` lines for a POSIX shell: eval "$(marline env --shell)".
    #[arg(long, conflicts_with = "json")]
    shell: bool,
    /// As a JSON object.
    #[arg(long)]
    json: bool,
    /// Make a directory for this job's statistics in DIR, which all hosts of the job have to see:
    /// `marline stats` then sums the whole job up.
    #[arg(long, value_name = "DIR")]
    stats: Option<PathBuf>,
}

/// The text that follows the options in `marline env --help`.
pub const AFTER_HELP: &str = "\
In a job script:
  eval \"$(marline env --shell --mpi mpiexec --stats .)\"
  srun ./app
  marline stats --require

Rank 0 writes a summary of its own to standard error when it ends (FI_MARLINE_SUMMARY=on). What the
variables are for: `marline run --help`.";

/// Prints the settings.
pub fn main(args: &EnvArgs) -> crate::outcome::Outcome {
    let mpi = mpi::detect(&args.mpi).coded(Code::MpiUnusable)?;
    if args.common.verbose {
        tool::note(&mpi.describe());
    }
    let environment = settings::environment();
    let mut set = for_ranks(&mpi, &args.common, &environment)?.print_warnings();
    set.extend(job_key::made_outside_of_ranks(&environment).coded(Code::NoKey)?);
    if let Some(parent) = &args.stats {
        let dir = StatsDir::of_job(parent).coded(Code::StatisticsRoom)?;
        let dir = dir.to_string_lossy().into_owned();
        set.push((STATS_DIR.to_owned(), dir));
    }
    if args.json {
        let set: Map<String, Value> = set.into_iter().map(|(n, v)| (n, v.into())).collect();
        println!("{:#}", Value::from(set));
        return Ok(0);
    }
    let lines: Result<Vec<_>, _> = set.iter().map(|(n, v)| line(args.shell, n, v)).collect();
    lines
        .coded(Code::SettingWrong)?
        .iter()
        .for_each(|line| println!("{line}"));
    Ok(0)
}

/// A setting as a line. Without `--shell` nothing is quoted: the reader would take a value of two
/// lines for two settings.
fn line(shell: bool, name: &str, value: &str) -> Result<String, String> {
    if shell {
        return Ok(format!("export {name}={}", tool::quote(value)));
    }
    match value.contains(['\n', '\r']) {
        true => Err(format!("{name} has a line break: use --shell or --json")),
        false => Ok(format!("{name}={value}")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Regression: the second line of a value was a setting of its own.
    #[test]
    fn values_of_two_lines_are_refused_where_they_are_not_quoted() {
        let value = "lo\nLD_PRELOAD=/tmp/x.so";
        assert!(line(false, "FI_MARLINE_RAILS", value).is_err());
        assert!(line(false, "FI_MARLINE_RAILS", "lo\r").is_err());
        let shell = line(true, "FI_MARLINE_RAILS", value).unwrap();
        assert_eq!(shell, format!("export FI_MARLINE_RAILS='{value}'"));
        assert_eq!(line(false, "A", "b c").unwrap(), "A=b c");
    }
}
