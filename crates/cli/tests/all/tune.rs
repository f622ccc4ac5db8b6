//! `marline tune` and `marline model`: measurements are stored, shown and drawn, and engines read
//! the profile.

use crate::support;

use marline_engine::profile::{Found, Machine, Profile, Tuned};
use marline_engine::settings::Settings;
use marline_engine::LogLevel;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use support::{fail, marline, outcome, succeed, Dir};

/// `marline WORD…` with its own data directory.
fn command(dir: &Dir, word: &str, words: &[&str]) -> Command {
    let mut command = marline(&dir.0);
    command.env_remove("FI_MARLINE_PROFILE");
    command.env("XDG_DATA_HOME", dir.0.join("data"));
    command.arg(word).args(words);
    command
}

fn tune(dir: &Dir, words: &[&str]) -> Command {
    command(dir, "tune", words)
}

fn model(dir: &Dir, words: &[&str]) -> Command {
    command(dir, "model", words)
}

/// Settings with this profile.
fn with_profile(path: &Path, checksum: &str) -> Settings {
    let lookup = |name: &str| match name {
        "profile" => path.to_str().map(str::to_owned),
        "checksum" => Some(checksum.to_owned()),
        _ => None,
    };
    Settings::from_lookup(lookup).unwrap()
}

#[test]
fn measurements_are_stored_shown_drawn_and_used() {
    let dir = Dir::new("tune");
    let said = succeed(&mut tune(
        &dir,
        &["--quick", "--algorithms", "crc64-nvme,xxh3,fnv1a"],
    ));
    // The file is where engines look, under this machine's name.
    let here = Machine::here();
    let path = dir
        .0
        .join("data/marline/profiles")
        .join(format!("{}.toml", here.file_stem()));
    assert!(said.contains(path.to_str().unwrap()), "{said}");
    let profile = Profile::load(&path).unwrap();
    assert_eq!(profile.machine, here);
    let names: Vec<&str> = profile.algorithms.iter().map(|a| a.name.as_str()).collect();
    assert_eq!(names, ["crc64-nvme", "xxh3", "fnv1a"]);
    assert!(profile.rail.is_some());

    let figures = dir.0.join("figures");
    let shown = succeed(&mut tune(
        &dir,
        &["--show", "--svg", figures.to_str().unwrap()],
    ));
    for word in [
        "crc64-nvme",
        "fnv1a",
        "super-pipeline",
        "separate",
        &profile.date,
    ] {
        assert!(shown.contains(word), "{word}: {shown}");
    }
    for figure in [
        "figure1-sum",
        "figure2a-separate",
        "figure2b-fused",
        "ways-memory",
    ] {
        let text = std::fs::read_to_string(figures.join(format!("{figure}.svg"))).unwrap();
        assert!(
            text.starts_with("<svg") && text.contains("crc64-nvme"),
            "{figure}"
        );
    }

    // An engine takes the fastest measured algorithm of the class: not the weak one, and none that
    // the profile lacks.
    let said = std::cell::RefCell::new(Vec::new());
    let log = |level: LogLevel, text: &str| said.borrow_mut().push((level, text.to_owned()));
    let tuned = Tuned::open(&with_profile(&path, "strong"), log);
    assert_eq!(tuned.algorithm.name(), "crc64-nvme");
    assert_eq!(tuned.eager_max_bytes, profile.eager_max_bytes);
    assert!(said.borrow()[0].1.contains("is used"), "{said:?}");
    let fast = Tuned::open(&with_profile(&path, "fast"), |_, _| {}).algorithm;
    assert!(["crc64-nvme", "xxh3"].contains(&fast.name()), "{fast}");
}

#[test]
fn the_model_prints_the_papers_figures_and_this_machines() {
    let dir = Dir::new("model");
    let said = succeed(&mut model(&dir, &["--papers"]));
    let row = |size: &str| {
        let line = said
            .lines()
            .find(|l| l.trim_start().starts_with(size))
            .unwrap();
        line.split_whitespace()
            .map(str::to_owned)
            .collect::<Vec<_>>()
    };
    // Naive, copy then sum, one pass, chunks: the papers' numbers at 4 kB, 32 kB, 1 MB.
    assert_eq!(row("4K ")[9..11], ["7.4%", "33.1%"]);
    assert_eq!(row("32K ")[9], "10.1%");
    assert_eq!(
        (row("64M ")[8].as_str(), row("1M ")[11].as_str()),
        ("50.0%", "0.1%")
    );

    // Without a profile only advice is printed, and the status is that of refusals.
    let (status, said) = outcome(&mut model(&dir, &[]));
    assert_eq!((status, said.lines().count()), (Some(125), 1), "{said}");
    for advice in ["`marline tune` makes it", "`marline model --papers`"] {
        assert!(said.contains(advice), "{said}");
    }
    let output = dir.0.join("p.toml");
    let output = output.to_str().unwrap();
    succeed(&mut tune(
        &dir,
        &["--quick", "--algorithms", "crc64-nvme", "--output", output],
    ));
    let measured = dir.0.join("netpipe.csv");
    let rows = "date,contender,test,bytes,value,unit\nd,mine,pp,8,5.5,us\nd,mine,pp,65536,2,GB/s\n";
    std::fs::write(&measured, rows).unwrap();
    let svg = dir.0.join("model.svg");
    let words = [
        "--profile",
        output,
        "--measured",
        measured.to_str().unwrap(),
    ];
    let said = succeed(model(&dir, &words).arg("--svg").arg(&svg));
    assert!(
        said.contains("crc64-nvme") && said.contains("Measured: mine pp"),
        "{said}"
    );
    let text = std::fs::read_to_string(svg).unwrap();
    assert!(text.contains("measured: mine pp") && text.contains("super-pipeline"));
}

#[test]
fn what_cannot_work_is_refused_by_name() {
    let dir = Dir::new("tune-refusals");
    for (words, said) in [
        (vec!["--algorithms", "md5"], "md5"),
        (vec!["--rail", "nosuch7"], "nosuch7"),
        (vec!["--show"], "marline tune"),
        (
            vec![
                "--output",
                "/proc/nothing/here.toml",
                "--quick",
                "--rail",
                "none",
                "--algorithms",
                "sum32",
            ],
            "/proc/nothing",
        ),
        (vec!["--output", dir.0.to_str().unwrap()], "is a directory"),
        (vec!["--quick", "--svg", "/proc/nothing"], "/proc/nothing"),
        (vec!["--serve", "--show"], "--show"),
    ] {
        let text = fail(&mut tune(&dir, &words));
        assert!(text.contains(said), "{words:?}: {text}");
        assert!(!text.contains("panicked"), "{text}");
        assert!(
            !text.contains("measuring"),
            "too late for {words:?}: {text}"
        );
    }
    let bad = dir.0.join("bad.toml");
    std::fs::write(&bad, "format = 1\n").unwrap();
    let text = fail(&mut model(&dir, &["--profile", bad.to_str().unwrap()]));
    assert!(text.contains("bad.toml"), "{text}");
    let mut without_home = model(&dir, &[]);
    let text = fail(without_home.env_remove("XDG_DATA_HOME").env_remove("HOME"));
    assert!(text.contains("set HOME or FI_MARLINE_PROFILE"), "{text}");
    let text = fail(&mut model(&dir, &["--checksum", "md5"]));
    assert!(text.contains("md5"), "{text}");
}

/// A server, killed at the end of the test.
struct Server(Child);

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

#[test]
fn a_rail_is_measured_to_another_process() {
    use std::io::{BufRead, BufReader};
    let dir = Dir::new("tune-serve");
    let mut command = tune(&dir, &["--serve", "--rail", "lo"]);
    let mut server = Server(command.stdout(Stdio::piped()).spawn().unwrap());
    let mut line = String::new();
    BufReader::new(server.0.stdout.take().unwrap())
        .read_line(&mut line)
        .unwrap();
    let to = line.trim().rsplit(' ').next().unwrap();
    let output = dir.0.join("p.toml");
    let words = [
        "--quick",
        "--algorithms",
        "crc64-nvme",
        "--to",
        to,
        "--output",
    ];
    succeed(tune(&dir, &words).arg(&output));
    let Found::Profile(profile, _) = Found::by(output.to_str().unwrap(), &Machine::here()) else {
        panic!("no profile in {}", output.display());
    };
    let rail = profile.rail.unwrap();
    assert!(rail.what.contains(to) && rail.gb_per_s > 0.0, "{rail:?}");
}
