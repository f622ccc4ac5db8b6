//! `marline lab run`: runs an MPI program across the lab's hosts.

use super::enter::{self, Place};
use super::net::CONTROL;
use super::place;
use super::state::Lab;
use crate::outcome::OrCode;
use crate::run::mpi::{self, Fabric, Kind};
use crate::run::summary::SummaryArgs;
use crate::run::{job_key, settings};
use crate::run::{start, variables, Common, Job};
use clap::ValueEnum;
use marline_codes::{Code, Coded};

/// The transport that carries the messages.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Provider {
    /// Marline over all rails.
    Marline,
    /// The MPI's own TCP on rail0.
    Tcp,
    /// No transport is set.
    None,
}

/// Arguments of `lab run`.
#[derive(clap::Args)]
pub struct LabRunArgs {
    #[command(flatten)]
    lab: super::names::Name,
    #[command(flatten)]
    common: Common,
    #[command(flatten)]
    summary: SummaryArgs,
    /// mpiexec, by name or path, or the MPI's directory.
    #[arg(long, default_value = "mpiexec")]
    mpi: String,
    /// The transport that carries the messages.
    #[arg(long, value_enum, default_value = "marline")]
    provider: Provider,
    /// Number of ranks.
    #[arg(short = 'n', long = "ranks", value_parser = clap::value_parser!(u32).range(1..))]
    ranks: u32,
    /// Ranks per host; default: as even as whole numbers allow.
    #[arg(long, value_parser = clap::value_parser!(u32).range(1..))]
    ppn: Option<u32>,
    /// The program and its arguments.
    #[arg(trailing_var_arg = true, required = true)]
    program: Vec<String>,
}

/// Runs the program.
pub fn main(args: &LabRunArgs) -> crate::outcome::Outcome {
    let lab = place::running(&args.lab.name).or_code(Code::Lab)?;
    let mpi = mpi::detect(&args.mpi).coded(Code::MpiUnusable)?;
    let environment = settings::environment();
    let fabric = match args.provider {
        Provider::Marline => Fabric::Marline(args.common.library()?),
        Provider::Tcp => Fabric::Tcp(super::state::rail_name(0)),
        Provider::None => Fabric::Unchanged,
    };
    settings::check(&environment).coded(Code::SettingWrong)?;
    let prepared = variables((&mpi, &args.program), &fabric, &args.common, &environment);
    let mut set = prepared.print_warnings();
    let marline = args.provider == Provider::Marline;
    if marline && !environment.iter().any(|(name, _)| name == RAILS) {
        set.push((RAILS.to_owned(), lab.rail_names().join(",")));
    }
    if marline {
        set.extend(job_key::made(&environment).coded(Code::NoKey)?);
    }
    set.extend(launcher_variables(mpi.kind, &lab));
    let mut words = launcher_args(mpi.kind, &lab, args.ranks, args.ppn);
    words.extend(args.program.iter().cloned());
    let mut command = enter::enter(&lab, Place::Switch).coded(Code::Lab)?;
    command.arg(&mpi.file);
    start(
        command,
        Job {
            mpi,
            set,
            args: words,
        },
        &args.common,
        marline.then_some(&args.summary),
    )
}

/// The setting that names the rails.
const RAILS: &str = "FI_MARLINE_RAILS";

/// Variables by which the launcher reaches the hosts.
fn launcher_variables(kind: Kind, lab: &Lab) -> Vec<(String, String)> {
    let agent = enter::agent_path(lab).to_string_lossy().into_owned();
    let agent_variable = match kind {
        Kind::Mpich | Kind::Intel => return Vec::new(),
        Kind::OpenMpi5 => "PRTE_MCA_plm_ssh_agent",
        Kind::OpenMpi4 => "OMPI_MCA_plm_rsh_agent",
    };
    let mut vars = vec![(agent_variable.to_owned(), agent)];
    // Programs in a lab run as root, at least of a user namespace.
    vars.extend(mpi::ALLOW_ROOT.map(|name| (name.to_owned(), "1".to_owned())));
    vars
}

/// mpiexec's arguments before the program.
fn launcher_args(kind: Kind, lab: &Lab, ranks: u32, ppn: Option<u32>) -> Vec<String> {
    let hosts: Vec<String> = (0..lab.shape.hosts).map(|h| lab.host_name(h)).collect();
    let even = ranks.div_ceil(u32::try_from(hosts.len()).unwrap_or(u32::MAX).max(1));
    let ppn = ppn.unwrap_or(even);
    let agent = enter::agent_path(lab).to_string_lossy().into_owned();
    let (ranks, per_host) = (ranks.to_string(), ppn.to_string());
    let words: Vec<String> = match kind {
        Kind::Mpich | Kind::Intel => {
            let hosts = hosts.join(",");
            [
                "-launcher",
                "ssh",
                "-launcher-exec",
                &agent,
                "-iface",
                CONTROL,
                "-hosts",
                &hosts,
            ]
            .iter()
            .chain(&["-ppn", &per_host, "-n", &ranks])
            .map(|w| (*w).to_owned())
            .collect()
        }
        Kind::OpenMpi5 | Kind::OpenMpi4 => {
            let slots: Vec<String> = hosts.iter().map(|h| format!("{h}:{ppn}")).collect();
            // The hosts share this machine's cores: binding each host's first rank to core 0 would
            // put all of them on one core.
            [
                "--host",
                &slots.join(","),
                "--map-by",
                "slot",
                "--bind-to",
                "none",
                "-n",
                &ranks,
            ]
            .map(str::to_owned)
            .to_vec()
        }
    };
    words
}
