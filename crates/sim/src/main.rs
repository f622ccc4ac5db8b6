//! `marline-sim`: the simulator's command.
#![forbid(unsafe_code)]

use clap::Parser;
use marline_codes::{end_with_reader, EXIT_REFUSED};
use marline_sim::command::{run, SimArgs};
use std::process::ExitCode;

/// Worlds consist of many small allocations.
#[cfg(feature = "jemalloc")]
#[global_allocator]
static ALLOCATOR: tikv_jemallocator::Jemalloc = tikv_jemallocator::Jemalloc;

/// Simulated clusters of Marline, with every fault, reproducible from a seed.
#[derive(Parser)]
#[command(name = "marline-sim", version)]
struct Cli {
    #[command(flatten)]
    args: SimArgs,
}

fn main() -> ExitCode {
    end_with_reader();
    match run(&Cli::parse().args) {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(why) => {
            eprintln!("marline-sim: {why}");
            ExitCode::from(EXIT_REFUSED)
        }
    }
}
