//! `marline run` and `marline env`, with an mpiexec that shows its environment and arguments.

use crate::support;

use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use support::{as_a_user, fail, marline, outcome, put_provider, succeed, write_script, Dir};

/// A directory with a provider library, and an mpiexec that has Hydra's version output and
/// otherwise runs its arguments.
fn workshop(tag: &str) -> Dir {
    let dir = Dir::new(tag);
    put_provider(&dir.0);
    let script = "#!/bin/sh\nif [ \"$1\" = --version ]; then\n\
                  echo 'HYDRA build details:'; echo '    Version:   5.0.2'; exit\nfi\n\
                  exec \"$@\"\n";
    write_script(&dir.0.join("mpiexec"), script);
    dir
}

fn run(dir: &Dir, words: &[&str]) -> Command {
    let mut command = marline(&dir.0);
    command
        .env("MARLINE_PROVIDER_DIR", &dir.0)
        .arg("run")
        .arg("--")
        .arg(dir.0.join("mpiexec"));
    command.args(words);
    command
}

#[test]
fn the_program_sees_the_settings_and_its_status_comes_back() {
    let dir = workshop("settings");
    let script = "env; test -d \"$FI_MARLINE_STATS_DIR\" || exit 9; exit 7";
    let (status, said) = outcome(&mut run(&dir, &["sh", "-c", script]));
    assert_eq!(status, Some(7), "{said}");
    assert!(!said.contains("another MPI"), "it failed by itself: {said}");
    let value = |name: &str| {
        said.lines()
            .find_map(|l| l.strip_prefix(&format!("{name}=")))
    };
    assert_eq!(value("FI_PROVIDER"), Some("marline"));
    assert_eq!(
        value("FI_PROVIDER_PATH"),
        dir.0.canonicalize().unwrap().to_str()
    );
    assert_eq!(value("MPIR_CVAR_CH4_OFI_ENABLE_RMA"), Some("1"));
    let stats = value("FI_MARLINE_STATS_DIR").expect("a place for statistics");
    assert!(!Path::new(stats).exists(), "{stats} is left behind");
}

#[test]
fn a_directory_for_statistics_of_the_users_own_is_kept() {
    let dir = workshop("kept");
    let script = "echo \"$FI_MARLINE_STATS_DIR\"; echo 1 > \"$FI_MARLINE_STATS_DIR/result\"";
    let mut command = run(&dir, &["sh", "-c", script]);
    let said = succeed(command.current_dir(&dir.0).env("FI_MARLINE_STATS_DIR", "."));
    let kept = dir.0.canonicalize().unwrap();
    assert!(said.contains(kept.to_str().unwrap()), "{said}");
    assert!(kept.join("result").exists());
    let mut command = run(&dir, &["true"]);
    let (status, said) = outcome(command.env("FI_MARLINE_STATS_DIR", kept.join("none")));
    assert_eq!(status, Some(125), "{said}");
    assert!(said.contains("make it"), "{said}");
}

#[test]
fn a_preference_of_the_user_stays() {
    let dir = workshop("prefer");
    let mut command = run(&dir, &["env"]);
    let said = succeed(
        command
            .env("MPIR_CVAR_CH4_OFI_ENABLE_RMA", "0")
            .env("FI_PROVIDER", "tcp"),
    );
    assert!(said.contains("MPIR_CVAR_CH4_OFI_ENABLE_RMA=0\n"), "{said}");
    assert!(said.contains("FI_PROVIDER=marline\n"), "{said}");
}

#[test]
fn verbose_says_what_it_sets() {
    let dir = workshop("verbose");
    let mut command = marline(&dir.0);
    command
        .args(["run", "-v", "--no-shm", "--provider-dir"])
        .arg(&dir.0)
        .arg("--");
    let said = succeed(command.arg(dir.0.join("mpiexec")).arg("true"));
    for part in [
        "Marline: NOT USED: no process on this host",
        "built for another MPI",
        "MPICH 5.0.2",
        "set FI_PROVIDER=marline",
        "set MPIR_CVAR_NOLOCAL=1",
    ] {
        assert!(said.contains(part), "{part}: {said}");
    }
}

#[test]
fn what_cannot_work_is_refused() {
    let dir = workshop("refused");
    let refused = |command: &mut Command, part: &str| {
        let (status, said) = outcome(command);
        assert_eq!(status, Some(125), "{said}");
        assert!(said.contains(part), "{part}: {said}");
    };
    let wrong = "FI_MARLINE_RIALS";
    refused(run(&dir, &["true"]).env(wrong, "lo"), wrong);
    let least = "FI_MARLINE_CHECKSUM_MIN_BYTES=8192 is too large for \
                 FI_MARLINE_CHECKSUM_MAX_BYTES=4096";
    let mut env = marline(&dir.0);
    env.arg("env").arg("--mpi").arg(dir.0.join("mpiexec"));
    env.env("MARLINE_PROVIDER_DIR", &dir.0);
    for mut command in [run(&dir, &["true"]), env] {
        command.env("FI_MARLINE_CHECKSUM_MIN_BYTES", "8K");
        refused(command.env("FI_MARLINE_CHECKSUM_MAX_BYTES", "4K"), least);
    }
    let mut command = marline(&dir.0);
    refused(
        command.args(["run", "--", "no-such-mpiexec"]),
        "no-such-mpiexec",
    );
    // The user's program is not started to ask for a version.
    let program = dir.0.join("app");
    write_script(&program, "#!/bin/sh\ntouch \"$0.ran\"\n");
    let mut command = marline(&dir.0);
    refused(
        command.args(["run", "--"]).arg(&program),
        "is not an mpiexec: give the whole command",
    );
    assert!(!dir.0.join("app.ran").exists());
    std::os::unix::fs::symlink("/bin/true", dir.0.join("mpirun")).unwrap();
    let mut command = marline(&dir.0);
    refused(
        command.args(["run", "--"]).arg(dir.0.join("mpirun")),
        "is not an mpiexec of MPICH",
    );
    let empty = Dir::new("empty");
    refused(
        run(&dir, &["true"]).env("MARLINE_PROVIDER_DIR", &empty.0),
        "libmarline-fi.so",
    );
    write_script(
        &dir.0.join("mpiexec"),
        "#!/bin/sh\necho 'HYDRA build details: Version: 4.1'; echo '--with-device=ch4:ucx'\n",
    );
    refused(&mut run(&dir, &["true"]), "without the device ch4:ofi");
}

/// `marline run … 2>&1 | head -1`: closed outputs do not change the status.
#[test]
fn the_status_is_returned_with_closed_outputs() {
    let dir = workshop("unread");
    for status in [0, 7] {
        let (reader, writer) = std::io::pipe().unwrap();
        drop(reader);
        let mut command = marline(&dir.0);
        command
            .env("MARLINE_PROVIDER_DIR", &dir.0)
            .args(["run", "-v", "--"]);
        command
            .arg(dir.0.join("mpiexec"))
            .args(["sh", "-c", &format!("exit {status}")]);
        command.stdout(Stdio::null()).stderr(writer);
        assert_eq!(command.status().unwrap().code(), Some(status));
    }
}

/// Unknown commands and options exit with the status of refusals, too.
#[test]
fn a_misspelt_option_leaves_with_our_status() {
    let dir = Dir::new("usage");
    for words in [
        &["run", "--no-smh", "--", "mpiexec"][..],
        &["run", "--no-smh", "mpiexec"],
        &["rum"],
        &[],
    ] {
        let (status, said) = outcome(marline(&dir.0).args(words));
        assert_eq!(status, Some(125), "{said}");
        assert!(said.contains("Usage: marline"), "{said}");
    }
    assert!(succeed(marline(&dir.0).arg("--help")).contains("Usage: marline"));
}

#[test]
fn statistics_of_another_user_are_not_denied() {
    let dir = Dir::new("others");
    let (exe, closed) = (dir.0.join("marline"), dir.0.join("closed"));
    std::fs::copy(env!("CARGO_BIN_EXE_marline"), &exe).unwrap();
    std::fs::create_dir(&closed).unwrap();
    succeed(Command::new("chmod").arg("755").arg(&dir.0));
    succeed(Command::new("chmod").arg("000").arg(&closed));
    let mut command = as_a_user(&exe);
    let (status, said) = outcome(command.current_dir("/").arg("stats").arg(&closed));
    assert_eq!(status, Some(1), "{said}");
    assert!(said.contains("is of another user"), "{said}");
}

/// In /dev/shm any user may create files that look like pages.
#[test]
fn foreign_files_do_not_stop_a_run() {
    let dir = Dir::new("planted-pages");
    let exe = dir.0.join("marline");
    std::fs::copy(env!("CARGO_BIN_EXE_marline"), &exe).unwrap();
    let (fifo, foreign) = (
        dir.0.join("marline-0-1-0.page"),
        dir.0.join("marline-0-2-0.page"),
    );
    succeed(Command::new("mkfifo").args(["-m", "666"]).arg(&fifo));
    // Root's page for another user; without root both belong to one user.
    std::fs::write(&foreign, "hello").unwrap();
    succeed(Command::new("chmod").arg("755").arg(&dir.0));
    let stats =
        |path: &std::path::Path| outcome(as_a_user(&exe).current_dir("/").arg("stats").arg(path));
    let (status, said) = stats(&fifo);
    assert_eq!(status, Some(1), "{said}");
    assert!(said.contains("not a regular file"), "{said}");
    let (_, said) = stats(&foreign);
    let told = ["of another user", "not a statistics page"];
    assert!(told.iter().any(|t| said.contains(t)), "{said}");
    let (status, said) = stats(&dir.0);
    assert_ne!(status, Some(0), "{said}");
}

#[test]
fn signals_reach_the_program() {
    let dir = workshop("signals");
    let script = "trap 'exit 9' TERM; echo armed; while :; do sleep 0.1; done";
    let mut child = run(&dir, &["sh", "-c", script])
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
    assert_eq!(lines.next().unwrap().unwrap(), "armed");
    succeed(Command::new("kill").args(["-TERM", &child.id().to_string()]));
    assert_eq!(child.wait().unwrap().code(), Some(9));
}

/// A job that prints its statistics directory and then waits for the end of its input.
fn waiting(dir: &Dir) -> (Child, String) {
    let mut child = run(
        dir,
        &["sh", "-c", "echo \"$FI_MARLINE_STATS_DIR\"; read line"],
    )
    .stdin(Stdio::piped())
    .stdout(Stdio::piped())
    .spawn()
    .unwrap();
    let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
    (child, lines.next().unwrap().unwrap())
}

/// A killed run cannot remove its directory: the next run does, sparing those of running ones.
#[test]
fn a_killed_runs_directory_is_removed_by_the_next() {
    let dir = workshop("killed");
    let (mut lives, of_living) = waiting(&dir);
    let (mut killed, left) = waiting(&dir);
    killed.kill().unwrap();
    killed.wait().unwrap();
    assert!(Path::new(&left).exists());
    succeed(&mut run(&dir, &["true"]));
    assert!(!Path::new(&left).exists(), "{left} is left behind");
    assert!(Path::new(&of_living).exists());
    drop(lives.stdin.take());
    lives.wait().unwrap();
    assert!(!Path::new(&of_living).exists());
}

#[test]
fn env_prints_the_same_three_ways() {
    let dir = workshop("env");
    let env = |flag: &[&str]| {
        let mut command = marline(&dir.0);
        command
            .env("MARLINE_PROVIDER_DIR", &dir.0)
            .arg("env")
            .args(flag);
        succeed(command.arg("--mpi").arg(dir.0.join("mpiexec")))
    };
    assert!(env(&[]).contains("FI_PROVIDER=marline\n"));
    assert!(env(&["--shell"]).contains("export FI_PROVIDER=marline\n"));
    assert!(env(&["--json"]).contains("\"FI_PROVIDER\": \"marline\""));
    let script = "eval \"$(cat)\"; test \"$MPIR_CVAR_CH4_NETMOD\" = ofi";
    let mut shell = Command::new("sh")
        .args(["-c", script])
        .stdin(Stdio::piped())
        .spawn()
        .unwrap();
    let text = env(&["--shell"]);
    std::io::Write::write_all(&mut shell.stdin.take().unwrap(), text.as_bytes()).unwrap();
    assert!(shell.wait().unwrap().success());
    fail(marline(&dir.0).args(["env", "--shell", "--json"]));
}

/// `marline run` of a shell script, started with a signal ignored.
fn run_ignoring(dir: &Dir, signal: &str, script: &str) -> (Option<i32>, String) {
    let run = run(dir, &["sh", "-c", script]);
    let mut env = Command::new("env");
    env.arg(format!("--ignore-signal={signal}"));
    env.arg(run.get_program()).args(run.get_args());
    let values = run.get_envs();
    env.envs(values.filter_map(|(name, value)| Some((name, value?))));
    outcome(&mut env)
}

/// The ignored signals of a program that prints its status.
fn ignored(said: &str) -> u64 {
    let mask = said.lines().find_map(|l| l.strip_prefix("SigIgn:\t"));
    u64::from_str_radix(mask.expect("the mask"), 16).unwrap()
}

/// Some schedulers and daemons ignore SIGCHLD, which their children inherit.
#[test]
fn the_status_is_returned_with_sigchld_ignored() {
    const SIGCHLD: u32 = 17;
    let dir = workshop("sigchld");
    let script = "grep SigIgn /proc/self/status; exit 7";
    let (status, said) = run_ignoring(&dir, "CHLD", script);
    assert_eq!(status, Some(7), "{said}");
    assert_eq!(ignored(&said) >> (SIGCHLD - 1) & 1, 0, "{said}");
}

/// `nohup marline run …`, and scripts that start it in the background.
#[test]
fn ignored_signals_stay_ignored_in_the_job() {
    let dir = workshop("nohup");
    for (name, number) in [("HUP", 1), ("INT", 2), ("QUIT", 3)] {
        let script = format!("grep SigIgn /proc/self/status; kill -{name} $$ $PPID; exit 7");
        let (status, said) = run_ignoring(&dir, name, &script);
        assert_eq!(status, Some(7), "{name}: {said}");
        assert_eq!(ignored(&said) >> (number - 1) & 1, 1, "{name}: {said}");
    }
}
