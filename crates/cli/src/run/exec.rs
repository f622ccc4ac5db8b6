//! `marline exec -- ./app`: starts one rank of a job under any launcher.

use crate::outcome::Outcome;
use crate::run::mpi::{self, Kind, Mpi};
use crate::run::{for_ranks, Common};
use crate::run::{job_key, linked, settings};
use crate::tool;
use marline_codes::{Code, Coded};
use marline_engine::stats::page;
use std::ffi::{OsStr, OsString};
use std::io::Read;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::Command;

/// The text that follows the options in `marline exec --help`.
pub const AFTER_HELP: &str = "\
Put it before the program, behind whatever starts the ranks:
  srun marline exec -- ./app
  mpiexec -n 4 marline exec -- ./app
  mpirun -n 4 marline exec -- python prog.py

It sets what `marline run` would set (see its --help), for this process alone, preloads the
libraries, and becomes the program. Which MPI the program uses, it learns from the first of these
that tells:
  --mpi, MARLINE_MPI    an mpiexec, by name or path, or the MPI's directory
  the program           the libmpi.so that the dynamic linker finds for it, or for a program that
                        its arguments name, as in `numactl -N 0 ./app`
  Python                what its mpi4py loads
  the launcher          Open MPI's, Intel's and MPICH's leave their marks in the environment
Rank 0 writes a summary of its own to standard error when it ends (FI_MARLINE_SUMMARY=on).";

/// Said of a job whose ranks share no key: a rank cannot make one for the others.
const NO_KEY: &str = "the ranks have no key of the job: packets of strangers are believed. Start \
                      them by `marline run` or with `marline env`, or name a file with a key by \
                      FI_MARLINE_KEY_FILE (FI_MARLINE_AUTH=off: as now, without this line)";

/// Arguments of `exec`.
#[derive(clap::Args)]
pub struct ExecArgs {
    #[command(flatten)]
    common: Common,
    /// The MPI of the program: an mpiexec, by name or path, or the MPI's directory.
    #[arg(long, env = "MARLINE_MPI", hide_env_values = true)]
    mpi: Option<String>,
    /// The program and its arguments.
    #[arg(trailing_var_arg = true, required = true, value_name = "PROGRAM")]
    command: Vec<OsString>,
}

/// Replaces this process by the program.
pub fn main(args: &ExecArgs) -> Outcome {
    let (program, rest) = args
        .command
        .split_first()
        .ok_or("which program?")
        .coded(Code::CommandLine)?;
    let environment = settings::environment();
    let mpi = match &args.mpi {
        Some(word) => mpi::detect(word),
        None => find(&args.command, &environment),
    };
    let mpi = mpi.coded(Code::MpiUnusable)?;
    let prepared = for_ranks(&mpi, &args.common, &environment)?;
    let mut command = Command::new(program);
    command.args(rest);
    command.envs(prepared.set.iter().map(|(name, value)| (name, value)));
    // Messages that concern all ranks are printed by rank 0.
    if page::rank_from_env().unwrap_or(0) == 0 {
        prepared.said.iter().for_each(tool::say);
        if !job_key::is_decided(&environment).coded(Code::NoKey)? {
            tool::say(&Code::NoKey.message(NO_KEY));
        }
        if args.common.verbose {
            describe(&mpi, &prepared.set, &command);
        }
    }
    let error = command.exec();
    Err(tool::spawn_error(&command, &error)).coded(Code::ProgramStart)
}

fn describe(mpi: &Mpi, set: &[(String, String)], command: &Command) {
    tool::note(&mpi.describe());
    for (name, value) in set {
        tool::note(&format!("set {name}={}", tool::quote(value)));
    }
    tool::note(&tool::describe(command));
}

/// The MPI of a command: from its program, otherwise from its launcher's variables.
fn find(words: &[OsString], environment: &[(String, String)]) -> Result<Mpi, String> {
    let found = of_words(words, SCRIPTS_MAX)?.or_else(|| of_launcher(environment));
    found.ok_or_else(|| {
        let program = words.first().map(|word| word.to_string_lossy());
        format!(
            "cannot tell which MPI `{}` uses: it is linked with none, and its launcher left no \
             mark of one in the environment; name it by --mpi MPIEXEC, or by MARLINE_MPI in the \
             environment",
            program.unwrap_or_default()
        )
    })
}

/// The MPI of the first word that is a program of an MPI: the program itself, or the argument of a
/// wrapper (`numactl -N 0 ./app`).
fn of_words(words: &[OsString], scripts: u32) -> Result<Option<Mpi>, String> {
    for word in words {
        if let Some(mpi) = file(word).map_or(Ok(None), |file| of_file(&file, scripts))? {
            return Ok(Some(mpi));
        }
    }
    Ok(None)
}

/// The file of a command word, searched as by execvp(3).
fn file(word: &OsStr) -> Option<PathBuf> {
    if word.as_bytes().contains(&b'/') {
        return Some(PathBuf::from(word)).filter(|path| mpi::is_executable(path));
    }
    let name = word.to_str().filter(|name| !name.starts_with('-'))?;
    mpi::on_path(name)
}

/// The MPI of the program in a file, through at most `scripts` levels of interpreters.
fn of_file(file: &Path, scripts: u32) -> Result<Option<Mpi>, String> {
    if let Some(mpi) = linked::of_program(file)? {
        return Ok(Some(mpi));
    }
    // The python of a virtual environment is a link to another python, and finds its packages only
    // under its own name.
    let name = file.file_name().unwrap_or_default();
    if name.as_bytes().starts_with(b"python") {
        return linked::of_python(file);
    }
    match (interpreter(file), scripts.checked_sub(1)) {
        (Some(words), Some(scripts)) => of_words(&words, scripts),
        _ => Ok(None),
    }
}

/// The maximum depth of scripts that interpret scripts (execve(2)).
const SCRIPTS_MAX: u32 = 5;
/// Bytes of a script in which the kernel looks for the interpreter line.
const SCRIPT_HEAD: u64 = 256;

/// The words of a script's interpreter line.
fn interpreter(file: &Path) -> Option<Vec<OsString>> {
    let mut head = Vec::new();
    let file = std::fs::File::open(file).ok()?;
    file.take(SCRIPT_HEAD).read_to_end(&mut head).ok()?;
    let line = head.strip_prefix(b"#!")?;
    let line = line.split(|&byte| byte == b'\n' || byte == 0).next()?;
    let words = line.split(|byte| byte.is_ascii_whitespace());
    let words = words.filter(|word| !word.is_empty());
    Some(
        words
            .map(|word| OsStr::from_bytes(word).to_owned())
            .collect(),
    )
}

/// Variables that the launcher of one MPI sets for its ranks, the most specific first. (PMI and
/// PMIx variables alone may belong to any MPI.)
const MARKS: [(&str, Kind); 4] = [
    ("OMPI_MCA_orte_launch", Kind::OpenMpi4),
    ("I_MPI_HYDRA_UUID", Kind::Intel),
    ("HYDI_CONTROL_FD", Kind::Mpich),
    ("PMI_HOSTNAME", Kind::Mpich),
];

/// The MPI whose launcher set these variables.
fn of_launcher(environment: &[(String, String)]) -> Option<Mpi> {
    let value = |name: &str| environment.iter().find(|(n, _)| n == name);
    let mpi = |(kind, version, file): (Kind, &str, &Path)| Mpi {
        kind,
        version: version.to_owned(),
        file: file.to_owned(),
        path: None,
    };
    // Open MPI 5 also sets its version and library directory.
    if let Some((name, version)) = value("OMPI_VERSION") {
        let place = value("OMPI_LIBDIR_LOC").map(|(_, dir)| Path::new(dir).join("libmpi.so"));
        let place = place.unwrap_or_else(|| name.into());
        return Some(mpi((Kind::OpenMpi5, version, &place)));
    }
    let mark = MARKS.iter().find(|(name, _)| value(name).is_some());
    mark.map(|&(name, kind)| mpi((kind, "", Path::new(name))))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn launched_by(variables: &[(&str, &str)]) -> Option<Kind> {
        let owned = variables
            .iter()
            .map(|(n, v)| ((*n).to_owned(), (*v).to_owned()));
        of_launcher(&owned.collect::<Vec<_>>()).map(|mpi| mpi.kind)
    }

    #[test]
    fn launchers_are_known_by_their_marks_and_process_managers_are_not() {
        let open = [("OMPI_VERSION", "5.0.11"), ("PMIX_RANK", "0")];
        assert_eq!(launched_by(&open), Some(Kind::OpenMpi5));
        let four = [("OMPI_MCA_orte_launch", "1")];
        assert_eq!(launched_by(&four), Some(Kind::OpenMpi4));
        let hydra = [("PMI_RANK", "0"), ("HYDI_CONTROL_FD", "7")];
        assert_eq!(launched_by(&hydra), Some(Kind::Mpich));
        let intel = [("PMI_RANK", "0"), ("I_MPI_HYDRA_UUID", "2c")];
        assert_eq!(launched_by(&intel), Some(Kind::Intel));
        assert_eq!(launched_by(&[("PMI_RANK", "0"), ("PMI_FD", "9")]), None);
        assert_eq!(launched_by(&[("PMIX_RANK", "0")]), None);
    }

    #[test]
    fn a_script_names_its_interpreter() {
        let script = std::env::temp_dir().join(format!("marline-exec-{}", std::process::id()));
        std::fs::write(&script, "#! /usr/bin/env python3\nprint()\n").unwrap();
        assert_eq!(
            interpreter(&script).unwrap(),
            ["/usr/bin/env", "python3"].map(OsString::from)
        );
        std::fs::write(&script, "\x7fELF").unwrap();
        assert_eq!(interpreter(&script), None);
        std::fs::remove_file(&script).unwrap();
    }
}
