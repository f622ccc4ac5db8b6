//! `marline exec`: the settings it makes, and its detection of a program's MPI.

use crate::support;

use std::path::Path;
use std::process::Command;
use support::{marline, outcome, put_provider, succeed, write_script, Dir};

/// `marline exec` with the provider's library in `dir` and without launcher variables.
fn exec(dir: &Dir, words: &[&str]) -> Command {
    let mut command = marline(&dir.0);
    for (name, _) in std::env::vars() {
        let of_mpi = [
            "PMI", "OMPI_", "I_MPI_", "HYDI_", "SLURM_", "MARLINE_", "FI_",
        ];
        if of_mpi.iter().any(|start| name.starts_with(start)) {
            command.env_remove(name);
        }
    }
    command.env("MARLINE_PROVIDER_DIR", &dir.0).arg("exec");
    command.args(words);
    command
}

fn workshop(tag: &str) -> Dir {
    let dir = Dir::new(tag);
    put_provider(&dir.0);
    dir
}

fn cc(dir: &Path, words: &[&str]) {
    succeed(Command::new("cc").current_dir(dir).args(words));
}

/// Builds a library with an MPI's name that contains these words, and a program linked with it.
fn program(dir: &Dir, library: &str, words: &str) {
    let text = format!("const char words[] = \"{words}\";\n");
    std::fs::write(dir.0.join("mpi.c"), text).unwrap();
    let main = "extern const char words[];\nint main(void) { return !words[0]; }\n";
    std::fs::write(dir.0.join("app.c"), main).unwrap();
    let name = format!("-Wl,-soname,{library}");
    cc(&dir.0, &["-shared", "-fPIC", &name, "-o", library, "mpi.c"]);
    cc(&dir.0, &["-o", "app", "app.c", library]);
}

#[test]
fn exec_replaces_the_process_with_the_mpis_settings() {
    let dir = workshop("becomes");
    let mut command = exec(&dir, &["--", "sh", "-c", "echo $$; env; exit 7"]);
    command.env("HYDI_CONTROL_FD", "7");
    let child = command
        .stdout(std::process::Stdio::piped())
        .spawn()
        .unwrap();
    let pid = child.id();
    let output = child.wait_with_output().unwrap();
    let said = String::from_utf8(output.stdout).unwrap();
    assert_eq!(output.status.code(), Some(7), "{said}");
    assert_eq!(said.lines().next(), Some(&*pid.to_string()), "{said}");
    for line in [
        "FI_PROVIDER=marline",
        "MPIR_CVAR_CH4_NETMOD=ofi",
        "FI_MARLINE_SUMMARY=on",
    ] {
        assert!(said.lines().any(|l| l == line), "{line}: {said}");
    }
}

#[test]
fn a_job_of_marline_run_is_summed_up_there() {
    let dir = workshop("of-run");
    let mut command = exec(&dir, &["--", "env"]);
    command.env("HYDI_CONTROL_FD", "7").env("MARLINE_RUN", "5");
    let said = succeed(&mut command);
    assert!(!said.contains("FI_MARLINE_SUMMARY"), "{said}");
}

#[test]
fn the_mpi_is_that_of_the_linked_library() {
    let dir = workshop("linked");
    program(&dir, "libmpi.so.12", "MPIR_CVAR_CH4_NETMOD fi_getinfo");
    let app = dir.0.join("app");
    let mut command = exec(&dir, &["-v", "--", app.to_str().unwrap()]);
    // The launcher belongs to another MPI: the program decides.
    command.env("OMPI_VERSION", "5.0.11");
    let said = succeed(command.env("LD_LIBRARY_PATH", &dir.0));
    assert!(
        said.contains("MPICH (") && said.contains("libmpi.so.12)"),
        "{said}"
    );
    let behind = ["-v", "--", "env", "A=b", app.to_str().unwrap()];
    let said = succeed(exec(&dir, &behind).env("LD_LIBRARY_PATH", &dir.0));
    assert!(said.contains("MPICH ("), "{said}");
    let script = dir.0.join("job");
    write_script(&script, "#!/bin/sh\nexec \"$(dirname $0)/app\"\n");
    let mut command = exec(&dir, &["-v", "--", script.to_str().unwrap()]);
    let said = succeed(
        command
            .env("LD_LIBRARY_PATH", &dir.0)
            .env("I_MPI_HYDRA_UUID", "1"),
    );
    assert!(said.contains("Intel MPI (I_MPI_HYDRA_UUID)"), "{said}");
}

#[test]
fn unknown_mpis_and_bad_settings_are_refused() {
    let dir = workshop("refused");
    let refused = |command: &mut Command, part: &str| {
        let (status, said) = outcome(command);
        assert_eq!(status, Some(125), "{said}");
        assert!(said.contains(part), "{part}: {said}");
    };
    let unknown = "cannot tell which MPI `true` uses";
    refused(&mut exec(&dir, &["--", "true"]), unknown);
    refused(exec(&dir, &["--", "true"]).env("PMI_RANK", "0"), unknown);
    refused(
        &mut exec(&dir, &["--mpi", "srun", "--", "true"]),
        "batch system",
    );
    let mut typo = exec(&dir, &["--", "true"]);
    refused(
        typo.env("OMPI_VERSION", "5.0")
            .env("FI_MARLINE_RIALS", "lo"),
        "RIALS",
    );
    let mut gone = exec(&dir, &["--", "/no/such/app"]);
    refused(gone.env("HYDI_CONTROL_FD", "7"), "/no/such/app");
    program(&dir, "libmpi.so.12", "MPIR_CVAR_CH4_NETMOD ucx");
    let app = dir.0.join("app");
    let words = ["--", app.to_str().unwrap()];
    refused(&mut exec(&dir, &words), "libmpi.so.12: cannot open");
    let path = dir.0.as_os_str();
    refused(exec(&dir, &words).env("LD_LIBRARY_PATH", path), "ch4:ofi");
}

#[test]
fn messages_for_all_ranks_are_printed_once() {
    let dir = workshop("one-says");
    let said = |rank: &str| {
        let mut command = exec(&dir, &["-v", "--", "true"]);
        command.env("HYDI_CONTROL_FD", "7").env("PMI_RANK", rank);
        succeed(command.env("FI_PROVIDER", "tcp"))
    };
    assert!(said("0").contains("gives way to FI_PROVIDER=marline"));
    assert_eq!(said("1"), "");
}
