//! The `marline` command: runs MPI programs over Marline, prints the settings for that, builds labs
//! of network namespaces with injected faults, and runs the simulator.
//!
//! The command handles no message data and is not loaded into applications: it prepares environment
//! and network, starts programs, and reports their counters.
#![forbid(unsafe_code)]

mod demo;
mod doctor;
mod explain;
mod former;
mod generate;
mod json;
mod lab;
mod outcome;
mod papers;
mod plot;
mod report;
mod run;
mod schema;
mod stats;
mod table;
mod tool;
mod top;
mod tune;
mod xdpd;

use clap::{CommandFactory, Parser, Subcommand};
use marline_codes::Code;
use outcome::{OrCode, EXIT_REFUSED};
use papers::model;
use run::{child, env, exec};
use std::process::ExitCode;

/// Marline: unmodified MPI programs over several networks at once.
#[derive(Parser)]
#[command(name = "marline", version = marline_version::TEXT)]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Run an MPI program over Marline: `marline run -- mpiexec -n 4 ./app`.
    #[command(after_help = run::AFTER_HELP,
              override_usage = "marline run [OPTIONS] -- mpiexec -n 4 ./app")]
    Run(run::RunArgs),
    /// Print the settings that `marline run` would make, for a job script.
    #[command(after_help = env::AFTER_HELP)]
    Env(env::EnvArgs),
    /// Become a rank of a job over Marline, where a batch system or any launcher starts the ranks:
    /// `srun marline exec -- ./app`.
    #[command(after_help = exec::AFTER_HELP,
              override_usage = "marline exec [OPTIONS] -- ./app [ARGUMENTS]")]
    Exec(exec::ExecArgs),
    /// Print what Marline counts: of running processes, or of a job that kept its statistics.
    Stats(stats::StatsArgs),
    /// Print what happened to rails, paths and peers: while a job runs, or of one that kept its
    /// statistics.
    Events(stats::events::EventsArgs),
    /// Show the rails of running jobs: states, rates, losses, worst paths, and events as they come.
    Top(top::TopArgs),
    /// Tell in words what happened to a job and what to look at, with tables and a timeline.
    Report(report::ReportArgs),
    /// Print what the code behind a message means and what to do: `marline explain E301`.
    Explain(explain::ExplainArgs),
    /// Print the JSON schema of a command's output.
    Schema(schema::SchemaArgs),
    /// Tell what this machine, or several and the networks between them, lack, and what mends it.
    #[command(after_help = doctor::AFTER_HELP)]
    Doctor(doctor::DoctorArgs),
    /// Show it at work, with the MPI of this machine, on a network that loses and damages packets.
    Demo(demo::DemoArgs),
    /// A test cluster out of network namespaces, with faults made by the kernel.
    #[command(subcommand)]
    Lab(lab::LabCommand),
    /// Measure this machine and write its profile, which Marline reads from then on.
    Tune(tune::TuneArgs),
    /// Lend rails past the kernel's stack to users without the privilege (a service).
    #[command(after_help = xdpd::AFTER_HELP)]
    Xdpd(xdpd::XdpdArgs),
    /// Print what checksums cost, by the papers' models and by this machine's profile.
    Model(model::ModelArgs),
    /// Write man pages and completions into a directory like /usr/share.
    #[command(hide = true)]
    Generate(generate::GenerateArgs),
    /// One rank of a job of `marline demo`.
    #[command(hide = true)]
    DemoRank(demo::RankArgs),
    /// Keeps the namespaces of one lab host alive (started by `marline lab up`).
    #[command(hide = true)]
    LabHolder(lab::holder::HolderArgs),
    /// Starts a command on a lab host in the way of `ssh HOST CMD` (called by mpiexec).
    #[command(hide = true, disable_help_flag = true)]
    LabAgent(lab::enter::AgentArgs),
}

fn main() -> ExitCode {
    marline_codes::end_with_reader();
    child::keep_statuses();
    let parsed = Cli::try_parse().map_err(|error| {
        // Help and version go to standard output, without a prefix.
        let _ = error.print();
        if error.use_stderr() {
            tool::say(&Code::CommandLine.message("wrong arguments"));
            EXIT_REFUSED
        } else {
            0
        }
    });
    let cli = match parsed {
        Ok(cli) => cli,
        Err(status) => return ExitCode::from(status),
    };
    let outcome = match cli.command {
        Command::Run(args) => run::main(&args),
        Command::Env(args) => env::main(&args),
        Command::Exec(args) => exec::main(&args),
        Command::Stats(args) => stats::main(&args).or_code(Code::StatisticsUnreadable),
        Command::Events(args) => stats::events::main(&args).or_code(Code::StatisticsUnreadable),
        Command::Top(args) => top::main(&args).or_code(Code::StatisticsUnreadable),
        Command::Report(args) => report::main(&args),
        Command::Explain(args) => explain::main(&args),
        Command::Schema(args) => schema::main(&args).or_code(Code::Output),
        Command::Doctor(args) => doctor::main(&args).or_code(Code::DoctorFailed),
        Command::Demo(args) => demo::main(&args),
        Command::DemoRank(args) => demo::rank_main(&args).or_code(Code::ToolFailed),
        Command::Lab(command) => lab::main(command),
        Command::Tune(args) => tune::main(&args).or_code(Code::ToolFailed),
        Command::Xdpd(args) => xdpd::main(&args),
        Command::Model(args) => model::main(&args).or_code(Code::ToolFailed),
        Command::Generate(args) => generate::main(&args, &Cli::command()).or_code(Code::Output),
        Command::LabHolder(args) => lab::holder::main(&args).or_code(Code::Lab),
        Command::LabAgent(args) => lab::enter::agent_main(&args).or_code(Code::Lab),
    };
    match outcome {
        Ok(status) => ExitCode::from(status),
        Err(message) => {
            tool::say(&message);
            ExitCode::from(EXIT_REFUSED)
        }
    }
}
