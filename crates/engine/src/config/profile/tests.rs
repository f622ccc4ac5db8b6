//! Profiles of machines: valid, damaged, and of other machines.

use super::*;
use crate::config::settings::Settings;
use crate::LogLevel;
use marline_codes::Code;

/// A profile of this machine with these rates (algorithm, GB/s).
pub(crate) fn profile_with(rates: &[(&str, f64)]) -> Profile {
    let figures = |(name, gb_per_s): &(&str, f64)| AlgorithmFigures {
        name: (*name).to_owned(),
        gb_per_s: *gb_per_s,
        blocked_from_bytes: None,
        block_bytes: None,
        stream_from_bytes: None,
    };
    Profile {
        format: FORMAT,
        date: "2026-11-21 10:00".to_owned(),
        eager_max_bytes: 32_768,
        machine: Machine::here(),
        pipeline: Pipeline {
            first_chunk_bytes: 131_072,
            growth: 2.5,
            last_block_bytes: 4096,
        },
        rail: Some(RailFigures {
            what: "lo".to_owned(),
            latency_us: 5.0,
            gb_per_s: 2.0,
            gap_ns: 700.0,
        }),
        algorithms: rates.iter().map(figures).collect(),
    }
}

/// A directory that is removed at the end.
struct Scratch(PathBuf);

impl Scratch {
    fn new(name: &str) -> Scratch {
        let path = std::env::temp_dir().join(format!("marline-{name}-{}", std::process::id()));
        std::fs::create_dir_all(&path).unwrap();
        Scratch(path)
    }
    fn file(&self, name: &str, text: &str) -> String {
        let path = self.0.join(name);
        std::fs::write(&path, text).unwrap();
        path.to_str().unwrap().to_owned()
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

fn settings(rows: &[(&str, &str)]) -> Settings {
    let lookup = |name: &str| {
        let row = rows.iter().find(|(n, _)| *n == name);
        row.map(|(_, value)| (*value).to_owned())
    };
    Settings::from_lookup(lookup).unwrap()
}

#[test]
fn what_is_written_is_read() {
    let mut profile = profile_with(&[("crc64-nvme", 20.25), ("xxh3", 18.0)]);
    profile.algorithms[1].blocked_from_bytes = Some(8192);
    profile.algorithms[1].block_bytes = Some(4096);
    profile.algorithms[1].stream_from_bytes = Some(0);
    assert_eq!(
        Profile::parse(&profile.to_text().unwrap()),
        Ok(profile.clone())
    );
    profile.rail = None;
    profile.algorithms.clear();
    assert_eq!(Profile::parse(&profile.to_text().unwrap()), Ok(profile));
}

#[test]
fn numbers_out_of_bounds_and_unknown_names_are_refused() {
    let good = profile_with(&[("crc64-nvme", 20.0)]).to_text().unwrap();
    for (from, to, said) in [
        ("format = 1", "format = 2", "format is 2"),
        ("growth = 2.5", "growth = 0.5", "growth"),
        ("growth = 2.5", "growth = nan", "growth"),
        ("growth = 2.5", "growth = \"fast\"", "growth"),
        (
            "first_chunk_bytes = 131072",
            "first_chunk_bytes = 0",
            "first_chunk_bytes",
        ),
        (
            "first_chunk_bytes = 131072",
            "first_chunk_bytes = -1",
            "first_chunk_bytes",
        ),
        (
            "eager_max_bytes = 32768",
            "eager_max_bytes = 70000",
            "eager_max_bytes",
        ),
        (
            "eager_max_bytes = 32768",
            "eager_max_bites = 1",
            "eager_max_bites",
        ),
        ("latency_us = 5.0", "latency_us = inf", "latency_us"),
        ("crc64-nvme", "md5", "md5"),
        (
            "gb_per_s = 20.0",
            "gb_per_s = 20.0\nblocked_from_bytes = 12",
            "blocks",
        ),
        (
            "gb_per_s = 20.0",
            "gb_per_s = 20.0\nblock_bytes = 100",
            "blocks",
        ),
        (
            "gb_per_s = 20.0",
            "gb_per_s = 20.0\nstream_from_bytes = 100",
            "streams",
        ),
        (
            "gb_per_s = 20.0",
            "gb_per_s = 20.0\nstream_from_bytes = -1",
            "stream_from_bytes",
        ),
        (
            "gb_per_s = 20.0",
            "gb_per_s = 20.0\nstream_from_bytes = true",
            "stream_from_bytes",
        ),
        ("format = 1", "", "format"),
        ("[machine]", "[machine", ""),
    ] {
        assert!(good.contains(from), "{from}\n{good}");
        let error = Profile::parse(&good.replacen(from, to, 1)).unwrap_err();
        assert!(
            error.contains(said) && !error.contains('\n'),
            "{to}: {error}"
        );
    }
    assert!(Profile::parse("").is_err());
    assert!(Profile::parse("\0\u{1}garbage").is_err());
}

/// Profiles of versions that did not measure streams have no values for them.
#[test]
fn streams_follow_measurements_or_defaults() {
    let mut profile = profile_with(&[("crc64-nvme", 20.0), ("xxh3", 18.0)]);
    let text = profile.to_text().unwrap();
    assert!(!text.contains("stream_from_bytes"), "{text}");
    let old = Profile::parse(&text).unwrap();
    let plan = |profile: &Profile, n: usize| profile.algorithms[n].plan();
    assert_eq!(plan(&old, 0), Plan::usual(Algorithm::Crc64Nvme));
    assert_eq!(plan(&old, 1), Plan::usual(Algorithm::Xxh3));
    profile.algorithms[0].stream_from_bytes = Some(0);
    profile.algorithms[1].stream_from_bytes = Some(4 << 20);
    let new = Profile::parse(&profile.to_text().unwrap()).unwrap();
    assert_eq!(plan(&new, 0).stream_from, None);
    assert_eq!(plan(&new, 1).stream_from, Some(4 << 20));
}

#[test]
fn a_given_profile_is_used_and_what_the_user_set_wins() {
    let profile = profile_with(&[("crc64-nvme", 20.0), ("aes-lanes", 40.0)]);
    let tuned = Tuned::of(&settings(&[]), Some(&profile));
    assert_eq!(tuned.algorithm, Algorithm::Crc64Nvme);
    assert_eq!(tuned.eager_max_bytes, 32_768);
    let plan = tuned.pipeline;
    assert_eq!((plan.first_bytes, plan.block_bytes), (65_536, 4_096));
    assert_eq!((plan.growth_permille, plan.chunk_max), (2_500, 65_536));
    let given = settings(&[("eager_max_bytes", "1000"), ("checksum", "fast")]);
    let tuned = Tuned::of(&given, Some(&profile));
    assert_eq!(
        (tuned.algorithm, tuned.eager_max_bytes),
        (Algorithm::AesLanes, 1000)
    );
    let tuned = Tuned::of(&settings(&[("checksum", "xor32")]), Some(&profile));
    assert_eq!(tuned.algorithm, Algorithm::Xor32, "a name is a name");
}

#[test]
fn an_unusable_profile_is_reported_and_defaults_hold() {
    let scratch = Scratch::new("profiles");
    let mut other = profile_with(&[("crc64-nvme", 20.0)]);
    other.machine.cpu = "Some Other Processor".to_owned();
    let other = scratch.file("other.toml", &other.to_text().unwrap());
    let malformed = scratch.file("malformed.toml", "format = 1\neager_max_bytes = 'many'\n");
    let newer = scratch.file("newer.toml", "format = 99\n");
    let folder = scratch.0.to_str().unwrap().to_owned();
    let binary = scratch.0.join("binary.toml");
    std::fs::write(&binary, [0xff; 64]).unwrap();
    let missing = format!("{folder}/missing.toml");
    for (path, said) in [
        (other.as_str(), "another machine (Some Other Processor"),
        (malformed.as_str(), "cannot be used"),
        (newer.as_str(), "format is 99"),
        (folder.as_str(), "cannot be used"),
        (binary.to_str().unwrap(), "cannot be used"),
        (missing.as_str(), "there is no"),
    ] {
        let lines = std::cell::RefCell::new(Vec::new());
        let given = settings(&[("profile", path)]);
        let log = |level, text: &str| lines.borrow_mut().push((level, text.to_owned()));
        let tuned = Tuned::open(&given, log);
        assert_eq!(tuned, Tuned::of(&given, None), "{path}");
        let (level, text) = &lines.borrow()[0];
        assert_eq!(*level, LogLevel::Warn(Code::ProfileUnusable), "{text}");
        assert!(text.contains(said) && text.contains(path), "{text}");
        assert!(text.contains("defaults are used"), "{text}");
    }
}

#[test]
fn a_machine_without_a_profile_is_no_reason_to_warn() {
    for setting in ["none", ""] {
        let here = Machine {
            cpu: "a processor that nobody has".to_owned(),
            kernels: "none".to_owned(),
        };
        let Found::Nothing(level, text) = Found::by(setting, &here) else {
            panic!("a profile for it");
        };
        assert!(!matches!(level, LogLevel::Warn(_)), "{text}");
    }
}

#[test]
fn the_profile_of_this_machine_is_taken_from_the_file_given() {
    let scratch = Scratch::new("profile");
    let mut profile = profile_with(&[("knuth", 5.0)]);
    profile.algorithms[0].blocked_from_bytes = Some(2048);
    profile.algorithms[0].block_bytes = Some(1024);
    profile.algorithms[0].stream_from_bytes = Some(1 << 20);
    let path = scratch.file("mine.toml", &profile.to_text().unwrap());
    let lines = std::cell::RefCell::new(Vec::new());
    let given = settings(&[("profile", &path)]);
    let tuned = Tuned::open(&given, |_, text| lines.borrow_mut().push(text.to_owned()));
    assert_eq!(tuned.eager_max_bytes, 32_768);
    assert!(lines.borrow()[0].contains(&path), "{lines:?}");
    assert_eq!(
        marline_checksum::plan(Algorithm::Knuth),
        profile.algorithms[0].plan()
    );
    marline_checksum::set_plan(Algorithm::Knuth, Plan::usual(Algorithm::Knuth));
}
