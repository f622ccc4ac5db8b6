//! `marline run -- mpiexec …`.

pub mod child;
mod contradict;
mod elf;
pub mod env;
pub mod exec;
pub mod job_key;
mod linked;
mod mca;
pub mod mpi;
mod mpiexec_args;
mod preload;
pub mod provider;
pub mod settings;
pub mod stats_dir;
pub mod summary;

use crate::run::mpi::{Fabric, Mpi, Var};
use crate::run::stats_dir::{StatsDir, STATS_DIR};
use crate::run::summary::{finish, Ran, SummaryArgs};
use crate::tool;
use marline_codes::{Code, Coded, Message};
use marline_engine::stats::page;
use std::path::{Path, PathBuf};
use std::process::Command;

/// The text after the options in `marline run --help`: every variable, set or read.
pub const AFTER_HELP: &str = "\
Variables that are set for the job (those with a * only if you have not set them; -v shows them):
  all MPIs    FI_PROVIDER FI_PROVIDER_PATH FI_MARLINE_ANY_SOURCE_FAILS* FI_MARLINE_BORROW*
              FI_MARLINE_SAY_WAITS* FI_MARLINE_STATS_DIR*,
              without FI_MARLINE_AUTH=off FI_MARLINE_KEY* (a new key for the job),
              where the job goes on without lost ranks (ULFM) FI_MARLINE_PEER_TIMEOUT_MS*,
              but with --no-multicast MARLINE_MULTICAST MARLINE_MULTICAST_CALLS
              MARLINE_MULTICAST_UNASKED LD_PRELOAD (behind yours; before with --multicast)
  MPICH       MPIR_CVAR_CH4_NETMOD MPIR_CVAR_CH4_OFI_ENABLE_RMA* MPIR_CVAR_CH4_OFI_ENABLE_ATOMICS*
              MPIR_CVAR_CH4_OFI_RNDV_PROTOCOL* LD_PRELOAD (before yours),
              with --no-shm MPIR_CVAR_NOLOCAL, with -disable-auto-cleanup MPIR_CVAR_NOLOCAL*
  Intel MPI   I_MPI_OFI_PROVIDER MPIR_CVAR_CH4_OFI_ENABLE_RMA* MPIR_CVAR_CH4_OFI_ENABLE_ATOMICS*
              with --no-shm I_MPI_FABRICS
  Open MPI    OMPI_MCA_pml OMPI_MCA_mtl OMPI_MCA_mtl_ofi_provider_include OMPI_MCA_btl*
              OMPI_MCA_opal_common_ofi_provider_include (5) OMPI_MCA_osc* (4.1)
              PRTE_MCA_prte_launch_agent* (5)
              OMPI_MCA_mpi_yield_when_idle* LD_PRELOAD (before yours)

Variables that are read:
  MARLINE_PROVIDER_DIR   directory with the library
  MARLINE_REQUIRE        as --require, unless it is 0, off, false or no
  FI_MARLINE_...         settings of the library, docs/settings.md; those that people set first:
                         FI_MARLINE_RAILS (interfaces to use), FI_MARLINE_CHECKSUM,
                         FI_MARLINE_PEER_TIMEOUT_MS, FI_MARLINE_STATS_DIR (keeps the statistics)";

/// The variable that makes rank 0 print its summary at its end.
const SUMMARY: &str = "FI_MARLINE_SUMMARY";

/// Arguments of `run`.
#[derive(clap::Args)]
pub struct RunArgs {
    #[command(flatten)]
    pub common: Common,
    #[command(flatten)]
    summary: SummaryArgs,
    /// `mpiexec` (a name on PATH or a path) and its arguments.
    #[arg(trailing_var_arg = true, required = true, value_name = "MPIEXEC")]
    command: Vec<String>,
}

/// Options of everything that starts or prepares a job.
#[derive(Default, clap::Args)]
pub struct Common {
    /// Print the variables that are set and the command that is run.
    #[arg(short, long)]
    pub verbose: bool,
    /// Use Marline between ranks of one host too, instead of the MPI's shared memory.
    #[arg(long)]
    pub no_shm: bool,
    /// Preload nothing (MPICH is then slower, as it yields before it delivers a message, and so are
    /// threads of Open MPI, which do not yield to each other; MPI_Mrecv of Open MPI then loses data
    /// with gaps, and MPI_Alltoallw of Open MPI 4.1 sends wrong data).
    #[arg(long)]
    pub no_preload: bool,
    /// Do collective calls by multicast, or only these, from the first broadcast on
    /// (docs/multicast.md).
    #[arg(long, value_name = "CALLS", num_args = 0.., require_equals = true, value_delimiter = ',',
          default_missing_values = preload::CALLS, value_parser = preload::CALLS,
          overrides_with = "no_multicast")]
    pub multicast: Option<Vec<String>>,
    /// Do no calls by multicast. Without either option, broadcasts of 16 KiB and more go by
    /// multicast after the hundredth on a communicator of 4 to 64 ranks with a host each.
    #[arg(long)]
    pub no_multicast: bool,
    /// Directory with libmarline-fi.so.
    #[arg(long)]
    pub provider_dir: Option<PathBuf>,
}

impl Common {
    /// The directory of Marline's library.
    pub fn library(&self) -> Result<PathBuf, Message> {
        provider::find_dir(self.provider_dir.as_deref()).coded(Code::LibraryMissing)
    }
}

/// A job about to start, and its mpiexec command.
pub struct Job {
    /// The MPI.
    pub mpi: Mpi,
    /// Variables to set.
    pub set: Vec<(String, String)>,
    /// mpiexec's arguments, including the program's.
    pub args: Vec<String>,
}

/// Runs the command.
pub fn main(args: &RunArgs) -> crate::outcome::Outcome {
    let (word, rest) = args
        .command
        .split_first()
        .ok_or("which mpiexec?")
        .coded(Code::CommandLine)?;
    let mpi = mpi::detect(word).coded(Code::MpiUnusable)?;
    let dir = args.common.library()?;
    let environment = settings::environment();
    settings::check(&environment).coded(Code::SettingWrong)?;
    let fabric = Fabric::Marline(dir);
    let prepared = variables((&mpi, rest), &fabric, &args.common, &environment);
    let mut set = prepared.print_warnings();
    set.extend(job_key::made(&environment).coded(Code::NoKey)?);
    let job = Job {
        mpi,
        set,
        args: rest.to_vec(),
    };
    let command = Command::new(&job.mpi.file);
    start(command, job, &args.common, Some(&args.summary))
}

/// The variables of a job.
#[derive(Default)]
pub struct Prepared {
    /// Names and values of the variables.
    pub set: Vec<(String, String)>,
    /// Warnings for the user.
    pub said: Vec<Message>,
}

impl Prepared {
    /// Returns the variables after printing the warnings.
    pub fn print_warnings(self) -> Vec<(String, String)> {
        self.said.iter().for_each(tool::say);
        self.set
    }
}

/// The variables for a job of this MPI in `environment` with these arguments of mpiexec.
pub fn variables(
    (mpi, args): (&Mpi, &[String]),
    fabric: &Fabric,
    common: &Common,
    environment: &[(String, String)],
) -> Prepared {
    let kind = mpi.kind;
    let known = [mca::of_files(mpi, environment), environment.to_vec()].concat();
    let matching = mpiexec_args::matching(kind, &mca::spelled_out(mpi, args), &known);
    let vars = mpi::variables(kind, fabric, common.no_shm, matching);
    let hazards = mpi::hazards(kind, environment).into_iter();
    let mut prepared = Prepared {
        set: effective(&vars, environment),
        said: hazards.map(|text| Code::MpiHazard.message(text)).collect(),
    };
    if let Fabric::Marline(dir) = fabric {
        if mpiexec_args::outlives_ranks(kind, &mca::spelled_out(mpi, args), &known) {
            let chosen = mpiexec_args::assignments(args).into_iter();
            let chosen = chosen.map(|(_, name, value)| (name, value));
            let chosen: Vec<_> = environment.iter().cloned().chain(chosen).collect();
            let vars = mpi::for_lost_ranks(kind, common.no_shm);
            prepared.set.extend(effective(&vars, &chosen));
        }
        preloads(&mut prepared, kind, dir, common, environment);
    }
    prepared
}

/// The variables of ranks that a launcher other than `marline run` starts.
pub fn for_ranks(
    mpi: &Mpi,
    common: &Common,
    environment: &[(String, String)],
) -> Result<Prepared, Message> {
    settings::check(environment).coded(Code::SettingWrong)?;
    let dir = common.library()?;
    let mut prepared = variables((mpi, &[]), &Fabric::Marline(dir), common, environment);
    let gives_way = contradict::check(mpi.kind, &prepared.set, &[], environment);
    let gives_way = gives_way.coded(Code::Contradiction)?.into_iter();
    let gives_way = gives_way.map(|text| Code::Contradiction.message(text));
    prepared.said.extend(gives_way);
    // Within `marline run`, that command prints the summary.
    if !environment
        .iter()
        .any(|(name, _)| name == SUMMARY || name == page::RUN)
    {
        prepared.set.push((SUMMARY.to_owned(), "on".to_owned()));
    }
    Ok(prepared)
}

/// The preloaded libraries, and the variables that they need.
fn preloads(
    prepared: &mut Prepared,
    kind: mpi::Kind,
    dir: &Path,
    common: &Common,
    environment: &[(String, String)],
) {
    let own = (!common.no_preload).then(|| preload::library(kind, dir));
    if let Some(lost) = own
        .as_ref()
        .filter(|own| own.is_none())
        .and(preload::lost(kind))
    {
        let text = format!(
            "libmarline-mpi.so is not beside libmarline-fi.so, or its path has a blank or a colon, \
             and is not preloaded (as with --no-preload): {lost}"
        );
        prepared.said.push(Code::NotPreloaded.message(text));
    }
    let own = own.flatten();
    if own.is_some() {
        let yields = effective(mpi::yields(kind).as_slice(), environment);
        prepared.set.extend(yields);
    }
    let multicast = multicast(common, dir, prepared);
    let of_user = environment.iter().find(|(n, _)| n == preload::VARIABLE);
    let value = of_user.map(|(_, value)| value.clone());
    let value = preload::value((own, multicast), common.multicast.is_some(), value);
    let value = value.map(|v| (preload::VARIABLE.to_owned(), v));
    prepared.set.extend(value);
}

/// The multicast library, if it is wanted and present. Also sets its variables.
fn multicast(common: &Common, dir: &Path, prepared: &mut Prepared) -> Option<PathBuf> {
    let asked = common.multicast.as_ref();
    if asked.is_none() && (common.no_multicast || common.no_preload) {
        return None;
    }
    let Some((library, provider)) = preload::multicast(dir) else {
        let said = "--multicast: libmarline-collectives.so is not beside libmarline-fi.so, or its \
                    path has a blank or a colon: all calls stay the MPI's";
        prepared
            .said
            .extend(asked.map(|_| Code::NotPreloaded.message(said)));
        return None;
    };
    let rpcs = asked.map_or_else(|| preload::UNASKED_CALLS.to_owned(), |rpcs| rpcs.join(","));
    let mut set = vec![
        (preload::MULTICAST, provider.to_string_lossy().into_owned()),
        (preload::MULTICAST_CALLS, rpcs),
    ];
    if asked.is_none() {
        set.push((preload::MULTICAST_UNASKED, "1".to_owned()));
    }
    let owned = |(name, value): (&str, String)| (name.to_owned(), value);
    prepared.set.extend(set.into_iter().map(owned));
    Some(library)
}

/// The variables to set, without those of our preferences that the user overrides.
fn effective(vars: &[Var], environment: &[(String, String)]) -> Vec<(String, String)> {
    let decided = |name: &str| environment.iter().any(|(n, _)| n == name);
    vars.iter()
        .filter(|v| !(v.yields && decided(v.name)))
        .map(|v| (v.name.to_owned(), v.value.clone()))
        .collect()
}

/// Starts the job with `command` as the beginning of the command line, waits, and prints a summary
/// if Marline carries the messages.
pub fn start(
    mut command: Command,
    mut job: Job,
    common: &Common,
    summary: Option<&SummaryArgs>,
) -> crate::outcome::Outcome {
    let environment = settings::environment();
    let mut stats = None;
    if summary.is_some() {
        let kind = job.mpi.kind;
        let gives_way = contradict::check(kind, &job.set, &job.args, &environment);
        for said in gives_way.coded(Code::Contradiction)? {
            tool::say(&Code::Contradiction.message(said));
        }
        contradict::check(kind, &job.set, &mca::spelled_out(&job.mpi, &job.args), &[])
            .map_err(|why| format!("{why} (a file that --tune or --am names says so)"))
            .coded(Code::Contradiction)?;
        let given = environment.iter().find(|(name, _)| name == STATS_DIR);
        let given = given.map(|(_, dir)| Path::new(dir));
        let given = given.filter(|dir| !dir.as_os_str().is_empty());
        let dir = StatsDir::open(given).coded(Code::StatisticsRoom)?;
        job.set.extend(dir.variables());
        stats = Some(dir);
    }
    let mut carried = job.set.clone();
    // The user's settings of libfabric must reach the other hosts, too.
    let of_user = environment.iter().filter(|(n, _)| n.starts_with("FI_"));
    let of_user = of_user.filter(|(n, _)| !job.set.iter().any(|(s, _)| s == n));
    carried.extend(of_user.cloned());
    let for_spawned = mpi::for_spawned(job.mpi.kind, &carried, &environment, &job.args);
    job.set.extend(for_spawned);
    if job.mpi.kind == mpi::Kind::OpenMpi5 {
        job.set.extend(job_key::carried_by_open_mpi(&carried));
    }
    command.args(mpi::forward_args(job.mpi.kind, &carried, &job.args));
    command.args(&job.args);
    command.envs(job.set.iter().map(|(n, v)| (n, v)));
    command.envs(job.mpi.path.iter().map(|path| ("PATH", path)));
    if common.verbose {
        tool::note(&job.mpi.describe());
        for (name, value) in &job.set {
            let value = match job_key::is_secret(name) {
                true => "(secret)",
                false => value,
            };
            tool::note(&format!("set {name}={}", tool::quote(value)));
        }
        tool::note(&tool::describe(&command));
    }
    let status = child::run(&mut command).coded(Code::ProgramStart)?;
    let (Some(stats), Some(args)) = (stats, summary) else {
        return Ok(status);
    };
    let ran = Ran {
        mpi: &job.mpi,
        no_shm: common.no_shm,
        status,
        verbose: common.verbose,
    };
    Ok(finish(&stats, &ran, args))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn open_mpi_yields_where_the_library_is_preloaded_and_the_user_has_not_decided() {
        let dir = std::env::temp_dir().join(format!("marline-run-{}", std::process::id()));
        std::fs::create_dir_all(&dir).unwrap();
        std::fs::write(dir.join("libmarline-mpi.so"), "").unwrap();
        let fabric = Fabric::Marline(dir.clone());
        let mpi = Mpi {
            kind: mpi::Kind::OpenMpi5,
            version: "5.0.0".to_owned(),
            file: "mpiexec".into(),
            path: None,
        };
        let names = |common: &Common, environment: &[(String, String)]| {
            let set = variables((&mpi, &[]), &fabric, common, environment).set;
            let has = |name: &str| set.iter().any(|(n, _)| n == name);
            (has(preload::VARIABLE), has(mpi::YIELD_WHEN_IDLE))
        };
        let mut common = Common::default();
        assert_eq!(names(&common, &[]), (true, true));
        let user = [(mpi::YIELD_WHEN_IDLE.to_owned(), "1".to_owned())];
        assert_eq!(names(&common, &user), (true, false));
        common.no_preload = true;
        assert_eq!(names(&common, &[]), (false, false));
        std::fs::remove_dir_all(&dir).unwrap();
    }

    /// Regression: an argument that leaves the messages of a host to MPICH was refused.
    #[test]
    fn a_preference_for_lost_ranks_gives_way_to_mpiexecs_arguments() {
        let mpi = Mpi {
            kind: mpi::Kind::Mpich,
            version: "5.0.2".to_owned(),
            file: "mpiexec".into(),
            path: None,
        };
        let set = |args: &str| {
            let args: Vec<_> = args.split(' ').map(str::to_owned).collect();
            let fabric = Fabric::Marline("/p".into());
            let set = variables((&mpi, &args), &fabric, &Common::default(), &[]).set;
            assert!(contradict::check(mpi.kind, &set, &args, &[]).is_ok());
            set.iter().any(|(name, _)| name == "MPIR_CVAR_NOLOCAL")
        };
        assert!(set("-disable-auto-cleanup -n 2 ./app"));
        assert!(!set(
            "-disable-auto-cleanup -genv MPIR_CVAR_NOLOCAL 0 ./app"
        ));
    }

    #[test]
    fn a_preference_gives_way_to_the_user() {
        let vars = mpi::variables(
            mpi::Kind::Mpich,
            &Fabric::Marline("/p".into()),
            false,
            mpi::Matching::Marlines,
        );
        let user = [
            ("MPIR_CVAR_CH4_OFI_ENABLE_RMA".to_owned(), "0".to_owned()),
            ("FI_PROVIDER".to_owned(), "tcp".to_owned()),
        ];
        let set = effective(&vars, &user);
        let has = |name: &str| set.iter().any(|(n, _)| n == name);
        assert!(!has("MPIR_CVAR_CH4_OFI_ENABLE_RMA"));
        assert!(has("MPIR_CVAR_CH4_OFI_ENABLE_ATOMICS"));
        assert!(has("FI_PROVIDER"));
    }
}
