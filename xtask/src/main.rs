//! `cargo xtask tidy` checks the house rules; `cargo xtask circles` shows imports that go round.
#![forbid(unsafe_code)]

use std::process::ExitCode;

fn main() -> ExitCode {
    let words: Vec<String> = std::env::args().skip(1).collect();
    match words.join(" ").as_str() {
        "tidy" => tidy(),
        "circles" => circles(),
        _ => {
            eprintln!("usage: cargo xtask tidy | circles");
            ExitCode::from(2)
        }
    }
}

/// Prints the circles of files that import each other.
fn circles() -> ExitCode {
    match xtask::circles(&xtask::root()) {
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

/// Prints the complaints.
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
