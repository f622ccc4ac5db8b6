//! `cargo run -p marline-fuzz --example replay TARGET FILE...`: runs inputs through a target, with
//! any compiler.

use std::process::ExitCode;

fn main() -> ExitCode {
    let mut words = std::env::args().skip(1);
    let name = words.next().unwrap_or_default();
    let targets = marline_fuzz::TARGETS;
    let Some((_, target)) = targets.iter().find(|(target, _)| *target == name) else {
        let names: Vec<_> = targets.iter().map(|(name, _)| *name).collect();
        eprintln!(
            "usage: replay TARGET FILE...; targets: {}",
            names.join(", ")
        );
        return ExitCode::from(2);
    };
    for path in words {
        match std::fs::read(&path) {
            Ok(data) => target(&data),
            Err(e) => {
                eprintln!("{path}: {e}");
                return ExitCode::FAILURE;
            }
        }
        println!("{path}: passes");
    }
    ExitCode::SUCCESS
}
