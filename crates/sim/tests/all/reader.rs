//! The command with closed or full outputs.

use std::fs::OpenOptions;
use std::process::{Command, Output, Stdio};

/// Runs a seed of the simulator with its report going to `out`.
fn simulate(out: Stdio) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_marline-sim"));
    command.args(["--seeds", "0..1", "--progress", "0"]);
    let command = command.stdout(out).stderr(Stdio::piped());
    command.spawn().and_then(|c| c.wait_with_output()).unwrap()
}

#[test]
fn a_closed_output_ends_the_command_silently() {
    let (reader, writer) = std::io::pipe().unwrap();
    drop(reader);
    let output = simulate(writer.into());
    assert_eq!(output.status.code(), Some(141));
    assert_eq!(String::from_utf8_lossy(&output.stderr), "");
}

#[test]
fn a_full_output_ends_the_command_with_an_error() {
    let full = OpenOptions::new().write(true).open("/dev/full").unwrap();
    let output = simulate(full.into());
    assert_eq!(
        output.status.code(),
        Some(125),
        "1 would be a broken promise"
    );
    let said = String::from_utf8_lossy(&output.stderr);
    assert_eq!(said.lines().count(), 1, "{said}");
    assert!(said.contains("No space left"), "{said}");
}
