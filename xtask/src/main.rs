//! `cargo xtask tidy` checks the house rules, `cargo xtask map` lists the source files, and `cargo
//! xtask circles` shows import cycles.
#![forbid(unsafe_code)]

use std::process::ExitCode;

fn main() -> ExitCode {
    let words: Vec<String> = std::env::args().skip(1).collect();
    let words: Vec<&str> = words.iter().map(String::as_str).collect();
    match words[..] {
        ["tidy"] => tidy(),
        ["map"] => print(xtask::map(&xtask::root(), "")),
        ["map", under] => print(xtask::map(&xtask::root(), under)),
        ["circles"] => print(xtask::circles(&xtask::root())),
        _ => {
            eprintln!("usage: cargo xtask tidy | map [PATH] | circles");
            ExitCode::from(2)
        }
    }
}

/// Prints a result or an error.
fn print(text: Result<String, String>) -> ExitCode {
    match text {
        Ok(text) => {
            print!("{text}");
            ExitCode::SUCCESS
        }
        Err(error) => {
            eprintln!("xtask: {error}");
            ExitCode::from(2)
        }
    }
}

/// Prints the violations.
fn tidy() -> ExitCode {
    match xtask::tidy(&xtask::root()) {
        Ok(report) => {
            for note in &report.notes {
                println!("note: {note}");
            }
            for complaint in &report.complaints {
                println!("{complaint}");
            }
            println!(
                "{} files, {} complaints",
                report.files,
                report.complaints.len()
            );
            ExitCode::from(u8::from(!report.complaints.is_empty()))
        }
        Err(error) => {
            eprintln!("xtask: {error}");
            ExitCode::from(2)
        }
    }
}
