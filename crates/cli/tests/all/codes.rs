//! Codes of the command's messages, and `marline explain`.

use crate::support;

use marline_codes::Code;
use std::process::Command;
use support::{fail, marline, outcome, put_provider, succeed, write_script, Dir};

#[test]
fn explain_prints_one_entry_or_all() {
    let dir = Dir::new("explain");
    let said = succeed(marline(&dir.0).args(["explain", "e301"]));
    assert!(said.starts_with("MARLINE-E301: A peer is dead. "), "{said}");
    assert_eq!(said.matches("MARLINE-E").count(), 1, "{said}");
    let all = succeed(marline(&dir.0).arg("explain"));
    for code in Code::ALL {
        assert!(all.contains(&format!("{code}: ")), "{code} is missing");
    }
    let (status, said) = outcome(marline(&dir.0).args(["explain", "E301", "E999"]));
    assert_eq!(status, Some(125), "{said}");
    assert!(said.ends_with("[MARLINE-E605]\n"), "{said}");
}

/// A directory with a library, and an mpiexec of MPICH's that runs its arguments.
fn workshop(tag: &str) -> Dir {
    let dir = Dir::new(tag);
    put_provider(&dir.0);
    let script = "#!/bin/sh\n[ \"$1\" = --version ] || exec \"$@\"\n\
                  echo 'HYDRA build details:'; echo '    Version:   5.0.2'\n";
    write_script(&dir.0.join("mpiexec"), script);
    dir
}

fn run(dir: &Dir, words: &[&str]) -> Command {
    let mut command = marline(&dir.0);
    command.env("MARLINE_PROVIDER_DIR", &dir.0);
    command.args(["run", "--"]).arg(dir.0.join("mpiexec"));
    command.args(words);
    command
}

#[test]
fn each_refusal_of_a_job_ends_with_its_code() {
    let dir = workshop("codes");
    let nowhere = dir.0.join("nowhere");
    let mut cases = vec![
        (run(&dir, &["true"]), Code::SettingWrong),
        (run(&dir, &["true"]), Code::LibraryMissing),
        (run(&dir, &["true"]), Code::StatisticsRoom),
        (
            run(&dir, &["-genv", "FI_PROVIDER", "tcp", "true"]),
            Code::Contradiction,
        ),
        (marline(&dir.0), Code::MpiUnusable),
        (marline(&dir.0), Code::NoStatistics),
        (marline(&dir.0), Code::NoLab),
        (marline(&dir.0), Code::CommandLine),
        (marline(&dir.0), Code::Namespaces),
        (marline(&dir.0), Code::ToolMissing),
        (marline(&dir.0), Code::MpiUnusable),
        (marline(&dir.0), Code::ProfileUnusable),
        (marline(&dir.0), Code::CommandLine),
        (marline(&dir.0), Code::NoRail),
        (marline(&dir.0), Code::NoAnswer),
        (marline(&dir.0), Code::Output),
    ];
    cases[0].0.env("FI_MARLINE_RIALS", "eth0");
    cases[1].0.env("MARLINE_PROVIDER_DIR", &nowhere);
    cases[2].0.env("FI_MARLINE_STATS_DIR", &nowhere);
    cases[4].0.args(["run", "--"]).arg(nowhere.join("mpiexec"));
    cases[5].0.arg("stats").arg(&dir.0);
    cases[6].0.args(["lab", "status"]);
    cases[7].0.args(["run", "--no-such-option"]);
    // A system that refuses namespaces, and one without tools.
    let (refuses, empty) = (dir.0.join("refuses"), dir.0.join("empty"));
    for tools in [&refuses, &empty] {
        std::fs::create_dir(tools).unwrap();
    }
    let unshare = "#!/bin/sh\necho 'unshare: Operation not permitted' >&2; exit 1\n";
    write_script(&refuses.join("unshare"), unshare);
    for (case, tools) in [(8, &refuses), (9, &empty)] {
        cases[case].0.args(["lab", "up"]).env("PATH", tools);
    }
    cases[10].0.arg("demo").env("PATH", &empty);
    let profile = nowhere.join("profile");
    cases[11].0.args(["tune", "--show", "-o"]).arg(&profile);
    cases[12].0.args(["tune", "--algorithms", "md5"]);
    cases[13].0.args(["tune", "--rail", "nothing0"]);
    let silent = std::net::UdpSocket::bind("127.0.0.1:0").unwrap();
    let to = silent.local_addr().unwrap().to_string();
    cases[14].0.args(["tune", "--quick", "--to", &to]);
    cases[15].0.args(["tune", "-o"]).arg(&dir.0);
    for (command, code) in &mut cases {
        let said = fail(command);
        assert!(said.ends_with(&format!(" [{code}]\n")), "{code}: {said}");
    }
}

#[test]
fn a_job_that_sent_nothing_has_the_code_in_text_and_json() {
    let dir = workshop("unused-code");
    let said = succeed(&mut run(&dir, &["true"]));
    assert!(said.contains("NOT USED"), "{said}");
    assert!(said.contains("[MARLINE-E501]"), "{said}");
    let mut command = marline(&dir.0);
    command.env("MARLINE_PROVIDER_DIR", &dir.0);
    command.args(["run", "--json", "--"]);
    let said = succeed(command.arg(dir.0.join("mpiexec")).arg("true"));
    let last = said.lines().last().unwrap();
    let value: serde_json::Value = serde_json::from_str(last).unwrap();
    assert_eq!(value["code"], "MARLINE-E501", "{said}");
}
