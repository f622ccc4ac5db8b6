//! The command: output and exit status, and the lines that its page shows.

use std::path::PathBuf;
use std::process::Command;

/// Runs the command; returns its exit status and all that it printed.
fn run(words: &[&str]) -> (Option<i32>, String) {
    let done = Command::new(env!("CARGO_BIN_EXE_marline-sim"))
        .args(words)
        .current_dir(env!("CARGO_TARGET_TMPDIR"))
        .output()
        .unwrap();
    let text = [done.stdout, done.stderr].concat();
    (done.status.code(), String::from_utf8(text).unwrap())
}

/// A file of this test in the directory for temporary files, by its name.
fn file(name: &str, text: &str) -> PathBuf {
    let path = std::env::temp_dir().join(format!("{name}-{}", std::process::id()));
    std::fs::write(&path, text).unwrap();
    path
}

#[test]
fn seeds_run_and_give_the_same_twice() {
    let hash = || {
        let words = ["--seeds", "5..8", "--profile", "loss", "--hosts", "2"];
        let (status, text) = run(&words);
        assert!(
            status == Some(0) && text.contains("3 seeds, 0 failures"),
            "{text}"
        );
        let (_, hash) = text.split_once("hash ").unwrap();
        hash.lines().next().map(str::to_owned)
    };
    let first = hash();
    assert!(first.is_some());
    assert_eq!(first, hash());
}

#[test]
fn invalid_arguments_are_refused_with_the_reason() {
    for (words, why) in [
        (&["--seeds", "9..3"][..], "B must be greater than A"),
        (&["--profile", "storm"], "there are swarm, calm, loss, "),
        (&["--hosts", "1"], "from 2 to"),
        (&["--rails", "9"], "up to 8"),
        (&["--script", "/no/such"], "wants --hosts and --rails"),
        (
            &["--script", "/no/such", "--hosts", "2", "--rails", "1"],
            "--script /no/such: No such file",
        ),
        (&["--failures", "/no/such"], "--failures /no/such: No such"),
    ] {
        let (status, text) = run(words);
        // 1 would mean a violated invariant.
        assert!(matches!(status, Some(2 | 125)), "{text}");
        assert!(text.contains(why), "{text}");
    }
}

#[test]
fn faults_come_from_a_file() {
    let script = file(
        "marline-faults",
        "1ms 4ms 0:1 blackhole out\n2ms 9ms all partition=1\n",
    );
    let words = [
        "--seeds",
        "3",
        "--profile",
        "calm",
        "--script",
        script.to_str().unwrap(),
    ];
    let cluster = ["--hosts", "2", "--rails", "2"];
    let (status, text) = run(&[&words[..], &cluster].concat());
    assert_eq!(status, Some(0), "{text}");
    for fault in ["blackhole", "partition"] {
        let once = |end| text.contains(&format!("\"{fault}\": 1{end}"));
        assert!(once(',') || once('}'), "{fault}: {text}");
    }
    let (status, text) = run(&words);
    assert_eq!(status, Some(125));
    assert!(text.contains("wants --hosts and --rails"), "{text}");
    std::fs::write(&script, "1ms 4ms 0:2 blackhole out\n").unwrap();
    let (status, text) = run(&[&words[..], &cluster].concat());
    assert_eq!(status, Some(125));
    assert!(text.contains("line 1: rail 2: there are 0 to 1"), "{text}");
    std::fs::remove_file(script).unwrap();
}

/// The arguments of a line of the page, with two of its seeds, or with a cluster no larger than its
/// first.
fn shortened(line: &str) -> Vec<String> {
    let command = line.split("  ").next().unwrap();
    let mut words: Vec<_> = command.split(' ').skip(1).map(str::to_owned).collect();
    for at in 0..words.len() - 1 {
        match words[at].as_str() {
            "--seeds" if words[at + 1].contains("..") => {
                let first: u64 = words[at + 1].split("..").next().unwrap().parse().unwrap();
                words[at + 1] = format!("{first}..{}", first + 2);
            }
            "--scale" => words[at + 1] = "16".into(),
            _ => (),
        }
    }
    words
}

#[test]
fn the_lines_of_the_page_run() {
    let page = include_str!("../../../../docs/simulator.md");
    let lines = page.lines().filter(|line| line.starts_with("marline-sim "));
    let commands: Vec<_> = lines.map(shortened).collect();
    assert!(commands.len() > 3);
    for words in commands {
        let words: Vec<_> = words.iter().map(String::as_str).collect();
        let (status, text) = run(&words);
        assert_eq!(status, Some(0), "{words:?}: {text}");
    }
}
