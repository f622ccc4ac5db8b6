//! Handles closed outputs (`marline stats | head -1`).

use std::io::{self, Write};
use std::panic::{set_hook, take_hook};
use std::process::exit;

/// Exit status of a process killed by SIGPIPE, in shells' notation.
const NO_READER: i32 = 128 + 13;

/// Exit status when Marline itself refuses, as `env` and `timeout` have one, distinct from the
/// status of a program that was run and from that of a check that failed.
pub const EXIT_REFUSED: u8 = 125;

/// Makes the process exit silently when its standard output or error is closed, as most tools do,
/// and with a message for other write errors such as a full disk. The standard library would panic.
pub fn end_with_reader() {
    let usual = take_hook();
    set_hook(Box::new(move |panic| {
        let text = panic.payload().downcast_ref::<String>();
        let text = text.filter(|text| text.starts_with("failed printing to std"));
        match text {
            Some(text) if text.contains("os error 32") => exit(NO_READER),
            Some(text) => {
                let _ = writeln!(io::stderr(), "marline: {text}");
                exit(EXIT_REFUSED.into())
            }
            None => usual(panic),
        }
    }));
}
