//! Reports to users: the verdict of `marline run`, the tables of `marline stats`, and error texts
//! of both. Prepared statistics pages replace ranks.

use crate::support;

use marline_engine::stats::page::{Page, PageInfo};
use marline_engine::stats::rows::{PathRow, PathState, PeerRow, PeerState, RailRow};
use serde_json::Value;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use support::{marline, outcome, put_provider, succeed, write_script, Dir};

/// A provider's directory, and an mpiexec that prints `version` when asked, and otherwise copies
/// the pages in `pages/` to the statistics directory and runs its arguments.
fn workshop(tag: &str, version: &str) -> Dir {
    let dir = Dir::new(tag);
    std::fs::create_dir_all(dir.0.join("pages")).unwrap();
    put_provider(&dir.0);
    let pages = dir.0.join("pages");
    let script = format!(
        "#!/bin/sh\nif [ \"$1\" = --version ]; then\necho '{version}'; exit\nfi\n\
         cp {}/*.page \"$FI_MARLINE_STATS_DIR\" 2>/dev/null\nexec \"$@\"\n",
        pages.display()
    );
    write_script(&dir.0.join("mpiexec"), &script);
    dir
}

const HYDRA: &str = "HYDRA build details: Version:  5.0.2";

/// Writes a rank's page: with one endpoint, and one peer unless `peer` is 0.
fn leave_page(dir: &Path, endpoint: u64, peer: u64) -> PathBuf {
    leave_page_of(dir, None, endpoint, peer)
}

/// The same for a rank of the run with this number.
fn leave_page_of(dir: &Path, run: Option<u64>, endpoint: u64, peer: u64) -> PathBuf {
    let info = PageInfo {
        dir: dir.to_str().unwrap(),
        rank: Some(endpoint as u32),
        run,
        ..PageInfo::default()
    };
    let mut page = Page::open(&info).unwrap();
    page.publish(|w| {
        let mut rail = RailRow {
            name: "eth1".into(),
            address: "10.0.0.1:7".into(),
            up: true,
            ..RailRow::default()
        };
        rail.counters.wire_packets_sent = 11;
        w.page.rails.push(rail);
        w.page.endpoints = vec![endpoint];
        let mut path = PathRow {
            state: PathState::Up,
            ..PathRow::default()
        };
        path.counters.resent_pto = 5;
        let mut row = PeerRow {
            endpoint: peer,
            address: "10.0.0.2:7".into(),
            state: PeerState::Alive,
            checksum: Some(1),
            paths: vec![path],
            ..PeerRow::default()
        };
        row.counters.bytes_sent = 1_000_000;
        if peer != 0 {
            w.peer(row);
        }
    });
    page.path().to_owned()
}

/// `marline run` with options before mpiexec and words after it.
fn run(dir: &Dir, options: &[&str], words: &[&str]) -> Command {
    let mut command = marline(&dir.0);
    command
        .env("MARLINE_PROVIDER_DIR", &dir.0)
        .arg("run")
        .args(options)
        .arg(dir.0.join("mpiexec"))
        .args(words);
    command
}

#[test]
fn a_job_is_run_without_the_two_hyphens() {
    let dir = workshop("hyphens", HYDRA);
    let (status, said) = outcome(&mut run(&dir, &["--no-shm"], &["sh", "-c", "exit 7"]));
    assert_eq!(status, Some(7), "{said}");
}

#[test]
fn a_run_that_sent_nothing_is_reported_and_fails_on_request() {
    let dir = workshop("require", HYDRA);
    leave_page(&dir.0.join("pages"), 1, 0);
    let (status, said) = outcome(&mut run(&dir, &[], &["true"]));
    assert_eq!(status, Some(0), "{said}");
    assert!(said.starts_with("Marline: NOT USED: "), "{said}");
    assert!(said.contains("(--no-shm"), "{said}");
    let (_, said) = outcome(&mut run(&dir, &["--no-shm"], &["true"]));
    assert!(
        said.contains("NOT USED") && !said.contains("shared memory"),
        "{said}"
    );
    let (status, said) = outcome(&mut run(&dir, &["--require"], &["true"]));
    assert_eq!(status, Some(125), "{said}");
    assert!(said.contains("--require (MARLINE_REQUIRE)"), "{said}");
    for (value, want) in [("1", 125), ("on", 125), ("0", 0), ("off", 0), ("", 0)] {
        let (status, said) = outcome(run(&dir, &[], &["true"]).env("MARLINE_REQUIRE", value));
        assert_eq!(status, Some(want), "{value}: {said}");
    }
    let (status, said) = outcome(&mut run(&dir, &["--require"], &["sh", "-c", "exit 7"]));
    assert_eq!(status, Some(7), "its own status is the better news: {said}");
    leave_page(&dir.0.join("pages"), 2, 3);
    let (status, said) = outcome(&mut run(&dir, &["--require"], &["true"]));
    assert_eq!(status, Some(0), "{said}");
}

#[test]
fn the_verdict_is_first_and_quiet_prints_only_problems() {
    let dir = workshop("verdict", HYDRA);
    let (one, two) = (1, 2);
    leave_page(&dir.0.join("pages"), one, two);
    leave_page(&dir.0.join("pages"), two, one);
    let (_, said) = outcome(&mut run(&dir, &[], &["true"]));
    let first = said.lines().next().unwrap();
    assert!(
        first.starts_with("Marline: 2 processes sent 2.0 MB over 1 rail in "),
        "{said}"
    );
    assert!(first.ends_with("; nothing was lost"), "{said}");
    let words: Vec<&str> = said.lines().nth(2).unwrap().split_whitespace().collect();
    // Rail, out, in, packets, lost, resent, spurious.
    assert_eq!(
        words,
        ["eth1", "0", "B", "0", "B", "22", "0", "0", "10", "0", "0"],
        "{said}"
    );
    assert!(!said.contains("average per process"), "{said}");
    let (_, said) = outcome(&mut run(&dir, &["-v"], &["true"]));
    assert!(said.contains("average per process"), "{said}");
    assert_eq!(succeed(&mut run(&dir, &["--quiet"], &["true"])), "");
    let idle = workshop("quiet", HYDRA);
    assert!(succeed(&mut run(&idle, &["--quiet"], &["true"])).contains("NOT USED"));
}

/// Two jobs may share a statistics directory.
#[test]
fn pages_of_another_run_are_not_summed_up() {
    let dir = workshop("others", HYDRA);
    let pages = dir.0.join("pages");
    leave_page(&pages, 1, 2);
    leave_page(&pages, 2, 1);
    leave_page_of(&pages, Some(7), 3, 4);
    let (_, said) = outcome(&mut run(&dir, &[], &["true"]));
    assert!(said.starts_with("Marline: 2 processes sent"), "{said}");
    let (_, said) = outcome(marline(&dir.0).arg("stats").arg(&pages));
    assert_eq!(said.matches("job of process").count(), 2, "{said}");
}

#[test]
fn damaged_pages_are_named_and_the_others_summed_up() {
    let dir = Dir::new("damaged");
    let stats = || {
        let done = marline(&dir.0).arg("stats").arg(&dir.0).output().unwrap();
        let text = |bytes| String::from_utf8(bytes).unwrap();
        (done.status.code(), text(done.stdout), text(done.stderr))
    };
    let (status, _, said) = stats();
    assert_eq!(status, Some(125), "{said}");
    assert!(said.contains("no job has left any there"), "{said}");
    leave_page(&dir.0, 1, 2);
    let whole = std::fs::read(leave_page(&dir.0, 2, 1)).unwrap();
    std::fs::write(dir.0.join("marline-h-1-0.page"), &whole[..20_000]).unwrap();
    let (status, told, said) = stats();
    assert_eq!(status, Some(1), "{said}");
    assert!(
        said.contains("marline-h-1-0.page is cut off or damaged"),
        "{said}"
    );
    assert!(told.starts_with("Marline: 2 processes sent"), "{told}");
}

#[test]
fn a_summary_as_json_goes_to_its_file_or_to_the_last_line() {
    let dir = workshop("json", HYDRA);
    leave_page(&dir.0.join("pages"), 1, 2);
    let file = dir.0.join("summary.json");
    let option = format!("--json={}", file.display());
    let (status, said) = outcome(&mut run(&dir, &[&option], &["sh", "-c", "exit 3"]));
    assert_eq!(status, Some(3), "{said}");
    let text = std::fs::read_to_string(&file).unwrap();
    let value: Value = serde_json::from_str(&text).unwrap();
    assert_eq!(value["verdict"], "clean");
    assert_eq!(value["processes"], 1);
    assert_eq!(value["program_status"], 3);
    assert_eq!(value["endpoints_absent"], 1);
    assert_eq!(value["rails"][0]["resent_spurious"], 5);
    let (_, said) = outcome(&mut run(&dir, &["--json", "--quiet"], &["true"]));
    assert!(said.ends_with("}\n"), "{said}");
    let value: Value = serde_json::from_str(&said).unwrap();
    assert!(value["verdict"].is_string(), "{said}");
}

#[test]
fn a_run_writes_its_report_as_a_page() {
    let dir = workshop("report", HYDRA);
    leave_page(&dir.0.join("pages"), 1, 2);
    leave_page(&dir.0.join("pages"), 2, 1);
    let file = dir.0.join("report.html");
    let option = file.to_str().unwrap();
    let (status, said) = outcome(&mut run(
        &dir,
        &["--report", option],
        &["sh", "-c", "exit 3"],
    ));
    assert_eq!(status, Some(3), "{said}");
    let page = std::fs::read_to_string(&file).unwrap();
    assert!(
        page.contains("What happened") && page.contains("2 processes on 1 host"),
        "{page}"
    );
    let options = ["--report", "/no/such/file"];
    let (status, said) = outcome(&mut run(&dir, &options, &["sh", "-c", "exit 3"]));
    assert_eq!(status, Some(3), "the program's own status: {said}");
    let why = "marline: --report /no/such/file: No such file";
    assert!(said.contains(why), "{said}");
}

/// If the file cannot be written, the summary is printed: the job's counters are gone.
#[test]
fn a_summary_goes_to_stderr_if_its_file_cannot_be_written() {
    let dir = workshop("json-full", HYDRA);
    leave_page(&dir.0.join("pages"), 1, 2);
    for (file, why) in [
        ("/dev/full", "No space left"),
        ("/no/such/file", "No such file"),
    ] {
        let option = format!("--json={file}");
        let (status, said) = outcome(&mut run(&dir, &[&option], &["sh", "-c", "exit 3"]));
        assert_eq!(status, Some(3), "{said}");
        assert!(
            said.contains(&format!("marline: {option}: {why}")),
            "{said}"
        );
        let last = said.lines().last().unwrap();
        let value: Value = serde_json::from_str(last).unwrap();
        assert_eq!(value["verdict"], "clean", "{said}");
    }
}

#[test]
fn settings_against_marline_are_refused_or_named() {
    let dir = workshop("contradict", HYDRA);
    let (status, said) = outcome(&mut run(
        &dir,
        &[],
        &["-genv", "FI_PROVIDER", "tcp", "true"],
    ));
    assert_eq!(status, Some(125), "{said}");
    assert!(
        said.contains("`-genv FI_PROVIDER tcp` contradicts FI_PROVIDER=marline"),
        "{said}"
    );
    let said = succeed(run(&dir, &[], &["true"]).env("FI_PROVIDER", "tcp"));
    assert!(
        said.contains("FI_PROVIDER=tcp in the environment gives way"),
        "{said}"
    );
    let dir = workshop("contradict-open", "mpiexec (Open MPI) 5.0.11");
    let (status, said) = outcome(&mut run(&dir, &[], &["--mca", "pml", "ucx", "true"]));
    assert_eq!(status, Some(125), "{said}");
    assert!(
        said.contains("`--mca pml ucx` contradicts OMPI_MCA_pml=cm"),
        "{said}"
    );
    let dir = workshop(
        "contradict-intel",
        "Intel(R) MPI Library for Linux* OS, Version 2021.18",
    );
    let mut command = run(&dir, &[], &["true"]);
    let (status, said) = outcome(command.env("I_MPI_FABRICS", "shm"));
    assert_eq!(status, Some(125), "{said}");
    assert!(
        said.contains("`I_MPI_FABRICS=shm` keeps the job from Marline"),
        "{said}"
    );
}

#[test]
fn files_of_open_mpi_decide_and_are_refused_as_arguments_are() {
    let dir = workshop("files-open", "mpiexec (Open MPI) 5.0.11");
    let file = dir.0.join("tuned");
    let tuned = file.to_string_lossy();
    std::fs::write(&file, "mpi_ft_enable = 1\n").unwrap();
    let (_, said) = outcome(&mut run(&dir, &["-v"], &["--tune", &tuned, "true"]));
    assert!(said.contains("set OMPI_MCA_pml=ob1"), "{said}");
    let mut command = run(&dir, &["-v"], &["true"]);
    let (_, said) = outcome(command.env("OMPI_MCA_mca_base_param_files", &file));
    assert!(said.contains("set OMPI_MCA_pml=ob1"), "{said}");
    std::fs::write(&file, "mpi_ft_enable = 1\nbtl=^usnic\n").unwrap();
    let (status, said) = outcome(&mut run(&dir, &[], &["--tune", &tuned, "true"]));
    assert_eq!(status, Some(125), "{said}");
    assert!(
        said.contains("`--mca btl ^usnic` contradicts OMPI_MCA_btl=ofi,sm,self")
            && said.contains("a file that --tune or --am names"),
        "{said}"
    );
}

#[test]
fn each_mistake_has_its_answer() {
    let dir = workshop("mistakes", HYDRA);
    let refused = |command: &mut Command, part: &str| {
        let (status, said) = outcome(command);
        assert_eq!(status, Some(125), "{said}");
        assert!(said.contains(part), "{part}: {said}");
    };
    // Not on PATH on any machine.
    let mut srun = marline(&dir.0);
    srun.env("PATH", &dir.0).env("MARLINE_PROVIDER_DIR", &dir.0);
    refused(
        srun.args(["run", "--", "srun", "-n", "4", "./app"]),
        "srun marline exec -- ./app",
    );
    let colon = dir.0.join("a:b");
    std::fs::create_dir_all(&colon).unwrap();
    put_provider(&colon);
    let mut command = run(&dir, &[], &["true"]);
    refused(command.env("MARLINE_PROVIDER_DIR", &colon), "ln -s ");
    // A prterun alone, and a prterun beside an mpirun that knows the version.
    let open = workshop("prterun", "prterun (PRRTE) 3.0.11");
    std::fs::rename(open.0.join("mpiexec"), open.0.join("prterun")).unwrap();
    let said = |dir: &Dir| {
        let mut command = marline(&dir.0);
        command
            .env("MARLINE_PROVIDER_DIR", &dir.0)
            .args(["run", "-v"]);
        outcome(command.arg(dir.0.join("prterun")).arg("true")).1
    };
    assert!(said(&open).contains("OMPI_MCA_pml=cm"));
    write_script(
        &open.0.join("mpirun"),
        "#!/bin/sh\necho 'mpirun (Open MPI) 5.0.11'\n",
    );
    assert!(said(&open).contains("Open MPI 5.0.11 ("));
}

/// Intel's mpirun calls the first `mpiexec.hydra` on PATH.
#[test]
fn an_mpirun_that_is_a_script_finds_its_own_mpiexec() {
    let dir = workshop(
        "script",
        "Intel(R) MPI Library for Linux* OS, Version 2021.18.1",
    );
    std::fs::rename(dir.0.join("mpiexec"), dir.0.join("mpiexec.hydra")).unwrap();
    write_script(
        &dir.0.join("mpirun"),
        "#!/bin/sh\nexec mpiexec.hydra \"$@\"\n",
    );
    let mut command = marline(&dir.0);
    command
        .env("MARLINE_PROVIDER_DIR", &dir.0)
        .args(["run", "--"]);
    let said = succeed(command.arg(dir.0.join("mpirun")).arg("env"));
    assert!(said.contains("I_MPI_OFI_PROVIDER=marline"), "{said}");
}

#[test]
fn statistics_are_printed_by_job() {
    let dir = Dir::new("jobs");
    let stats = |options: &[&str]| {
        let mut command = marline(&dir.0);
        outcome(command.arg("stats").args(options).arg(&dir.0))
    };
    leave_page(&dir.0, 1, 2);
    leave_page(&dir.0, 2, 1);
    let (status, said) = stats(&["--require"]);
    assert_eq!(status, Some(0), "{said}");
    assert!(
        said.starts_with("Marline: 2 processes sent 2.0 MB"),
        "{said}"
    );
    assert!(said.contains("average per process"), "{said}");
    leave_page(&dir.0, 5, 6);
    let (_, said) = stats(&[]);
    assert_eq!(said.matches("\njob of process").count() + 1, 2, "{said}");
    let (_, said) = stats(&["--raw"]);
    assert_eq!(said.matches("\n  peer ").count(), 3, "{said}");
    let (_, said) = stats(&["--json"]);
    let value: Value = serde_json::from_str(&said).unwrap();
    assert_eq!(value["jobs"][0]["verdict"], "clean", "{said}");
    let (_, said) = stats(&["--prometheus"]);
    assert!(
        said.contains("# TYPE marline_peers_sent_bytes_total counter\n"),
        "{said}"
    );
    let own = std::process::id().to_string();
    assert_eq!(stats(&["--job", &own]).0, Some(0));
    let (status, said) = stats(&["--job", "1"]);
    assert_eq!(status, Some(125), "{said}");
    assert!(said.contains("process 1 is of no job here"), "{said}");
    assert_eq!(stats(&["--raw", "--json"]).0, Some(125));
}

/// A collector of metrics runs on hosts without a job, too; a directory that is not there is a
/// mistake.
#[test]
fn metrics_of_an_idle_host_are_no_error() {
    let dir = Dir::new("idle");
    let metrics = |place: &Path| {
        let mut command = marline(&dir.0);
        outcome(command.args(["stats", "--prometheus"]).arg(place))
    };
    let (status, said) = metrics(&dir.0);
    assert_eq!(status, Some(0), "{said}");
    assert!(said.contains("\nmarline_processes{host="), "{said}");
    let (status, said) = metrics(&dir.0.join("absent"));
    assert_eq!(status, Some(1), "{said}");
}

/// A page is removed when its process ends; a collector that looks now and then still counts it.
#[test]
fn metrics_in_a_file_outlive_pages() {
    let dir = Dir::new("textfile");
    let pages = dir.0.join("pages");
    std::fs::create_dir(&pages).unwrap();
    let file = dir.0.join("marline.prom");
    let look = |here: &Path, pages: &Path| {
        let mut command = marline(&dir.0);
        command.current_dir(here).args(["stats", "--prometheus"]);
        let (status, said) = outcome(command.arg("--textfile").arg(&file).arg(pages));
        assert_eq!((status, &*said), (Some(0), ""));
        let text = std::fs::read_to_string(&file).unwrap();
        let sent = |line: &&str| line.starts_with("marline_peers_sent_bytes_total{");
        text.lines().find(sent).map(str::to_owned)
    };
    let page = leave_page(&pages, 1, 2);
    let one = look(&dir.0, &pages).unwrap();
    assert!(one.ends_with(" 1000000"), "{one}");
    // The same page by another name.
    assert_eq!(look(&dir.0, Path::new("pages")).unwrap(), one);
    std::fs::remove_file(page).unwrap();
    assert_eq!(look(&pages, &pages).unwrap(), one);
    leave_page(&pages, 1, 2);
    let two = look(&pages, Path::new(".")).unwrap();
    assert!(two.ends_with(" 2000000"), "{two}");
    let mut command = marline(&dir.0);
    let (status, said) = outcome(command.args(["stats", "--textfile"]).arg(&file));
    assert_eq!(status, Some(125), "{said}");
}

/// `marline stats --json >file` fails on a full disk; with `| head -1` it succeeds.
#[test]
fn a_full_disk_is_an_error() {
    let dir = Dir::new("full");
    leave_page(&dir.0, 1, 2);
    for words in [
        &["stats"][..],
        &["stats", "--json"],
        &["events"],
        &["report"],
        &["report", "--json"],
        &["top", "--once"],
        &["top", "--json"],
        &["doctor"],
    ] {
        let mut command = marline(&dir.0);
        command.args(words);
        if words[0] != "doctor" {
            command.arg(&dir.0);
        }
        let full = std::fs::OpenOptions::new()
            .write(true)
            .open("/dev/full")
            .unwrap();
        let (status, said) = outcome_to(&mut command, full.into());
        assert_eq!(status, Some(125), "{words:?}: {said}");
        assert!(
            said.starts_with("marline: ") && said.contains("No space left"),
            "{said}"
        );
        assert_eq!(said.lines().count(), 1, "{said}");
        let (reader, closed) = std::io::pipe().unwrap();
        drop(reader);
        let (_, said) = outcome_to(&mut command, closed.into());
        assert_eq!(said, "", "{words:?}");
    }
}

/// Exit status and standard error of a command with this standard output.
fn outcome_to(command: &mut Command, out: Stdio) -> (Option<i32>, String) {
    let output = command.stdout(out).stderr(Stdio::piped()).spawn().unwrap();
    let output = output.wait_with_output().unwrap();
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    (output.status.code(), said)
}

#[test]
fn statistics_of_a_job_that_sent_nothing_fail_on_request() {
    let dir = Dir::new("unused");
    leave_page(&dir.0, 1, 0);
    let (status, said) = outcome(marline(&dir.0).arg("stats").arg(&dir.0));
    assert_eq!(status, Some(0), "{said}");
    assert!(said.contains("in touch with no other"), "{said}");
    let mut command = marline(&dir.0);
    let (status, said) = outcome(command.arg("stats").arg(&dir.0).env("MARLINE_REQUIRE", "1"));
    assert_eq!(status, Some(125), "{said}");
}

/// A job script gets rank 0's summary, and a directory for the job.
#[test]
fn a_job_script_gets_a_place_for_statistics() {
    let dir = workshop("script-stats", HYDRA);
    let env = || {
        let mut command = marline(&dir.0);
        command.env("MARLINE_PROVIDER_DIR", &dir.0).arg("env");
        command.arg("--mpi").arg(dir.0.join("mpiexec"));
        command
    };
    let said = succeed(env().arg("--stats").arg(&dir.0));
    assert!(said.contains("FI_MARLINE_SUMMARY=on\n"), "{said}");
    let place = said
        .lines()
        .find_map(|l| l.strip_prefix("FI_MARLINE_STATS_DIR="));
    let place = Path::new(place.expect("a directory"));
    assert!(
        place.is_dir() && place.starts_with(dir.0.canonicalize().unwrap()),
        "{said}"
    );
    assert!(!succeed(&mut env()).contains("STATS_DIR"));
    let own = succeed(env().env("FI_MARLINE_SUMMARY", "off"));
    assert!(!own.contains("FI_MARLINE_SUMMARY"), "{own}");
    let (status, said) = outcome(env().args(["--stats", "/no/such/place"]));
    assert_eq!(status, Some(125), "{said}");
}

/// Every variable that `marline run` sets is in the help.
#[test]
fn help_names_the_variables() {
    let help = succeed(marline(Path::new("/")).args(["run", "--help"]));
    for (version, tag) in [
        (HYDRA, "h"),
        ("Intel(R) MPI Library for Linux* OS, Version 2021.18.1", "i"),
        ("mpiexec (Open MPI) 5.0.11", "5"),
        ("mpiexec (OpenRTE) 4.1.4", "4"),
    ] {
        let dir = workshop(&format!("help-{tag}"), version);
        let mut command = marline(&dir.0);
        command
            .env("MARLINE_PROVIDER_DIR", &dir.0)
            .args(["env", "--no-shm", "--mpi"]);
        let said = succeed(command.arg(dir.0.join("mpiexec")));
        for line in said.lines().filter(|line| !line.starts_with("marline: ")) {
            let name = line.split('=').next().unwrap();
            assert!(
                name == "FI_MARLINE_SUMMARY" || help.contains(name),
                "{name}: {help}"
            );
        }
    }
    for name in [
        "MARLINE_PROVIDER_DIR",
        "MARLINE_REQUIRE",
        "FI_MARLINE_RAILS",
    ] {
        assert!(help.contains(name), "{name}: {help}");
    }
    let (_, after) = help.split_once("Variables that are set").unwrap();
    assert!(after.lines().all(|line| line.len() <= 100), "{after}");
}
