//! `cargo xtask tidy`: the house rules, checked.
#![forbid(unsafe_code)]

use std::process::ExitCode;

fn main() -> ExitCode {
    let words: Vec<String> = std::env::args().skip(1).collect();
    if words != ["tidy"] {
        eprintln!("usage: cargo xtask tidy");
        return ExitCode::from(2);
    }
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
