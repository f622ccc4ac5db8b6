//! `marline sim`: output and exit status.

use crate::support;

use support::{fail, marline, outcome, succeed, Dir};

#[test]
fn seeds_run_and_give_the_same_twice() {
    let dir = Dir::new("sim");
    let hash = || {
        let mut command = marline(&dir.0);
        command.args([
            "sim",
            "--seeds",
            "5..8",
            "--profile",
            "loss",
            "--hosts",
            "2",
        ]);
        let text = succeed(&mut command);
        assert!(text.contains("3 seeds, 0 failures"), "{text}");
        text.split_once("hash ").map(|(_, hash)| hash.to_owned())
    };
    let first = hash();
    assert!(first.is_some());
    assert_eq!(first, hash());
}

#[test]
fn invalid_arguments_are_refused_with_the_reason() {
    let dir = Dir::new("sim-refused");
    for (words, why) in [
        (["--seeds", "9..3"], "B must be greater than A"),
        (["--profile", "storm"], "there are swarm, calm, loss, "),
        (["--hosts", "1"], "from 2 to"),
        (["--rails", "9"], "up to 8"),
    ] {
        let text = fail(marline(&dir.0).arg("sim").args(words));
        assert!(text.contains(why), "{text}");
    }
    // 1 would mean a violated invariant.
    for (words, why) in [
        (&["--script", "/no/such"][..], "wants --hosts and --rails"),
        (
            &["--script", "/no/such", "--hosts", "2", "--rails", "1"],
            "--script /no/such: No such file",
        ),
        (&["--failures", "/no/such"], "--failures /no/such: No such"),
    ] {
        let (status, text) = outcome(marline(&dir.0).arg("sim").args(words));
        assert_eq!(status, Some(125), "{text}");
        assert!(
            text.starts_with("marline: ") && text.contains(why),
            "{text}"
        );
    }
}

#[test]
fn faults_come_from_a_file() {
    let dir = Dir::new("sim-script");
    let script = dir.0.join("faults.txt");
    let script = script.to_str().unwrap();
    let words = [
        "sim",
        "--seeds",
        "3",
        "--profile",
        "calm",
        "--script",
        script,
    ];
    let cluster = ["--hosts", "2", "--rails", "2"];
    std::fs::write(
        script,
        "1ms 4ms 0:1 blackhole out\n2ms 9ms all partition=1\n",
    )
    .unwrap();
    let text = succeed(marline(&dir.0).args(words).args(cluster));
    for fault in ["blackhole", "partition"] {
        let once = |end| text.contains(&format!("\"{fault}\": 1{end}"));
        assert!(once(',') || once('}'), "{fault}: {text}");
    }
    let text = fail(marline(&dir.0).args(words));
    assert!(text.contains("wants --hosts and --rails"), "{text}");
    std::fs::write(script, "1ms 4ms 0:2 blackhole out\n").unwrap();
    let text = fail(marline(&dir.0).args(words).args(cluster));
    assert!(text.contains("line 1: rail 2: there are 0 to 1"), "{text}");
}
