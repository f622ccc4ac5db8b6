//! The end of a command whose output nobody reads (`marline sim | head -1`).

use std::io::{self, Write};
use std::panic::{set_hook, take_hook};
use std::process::exit;

/// Status of a process that died of SIGPIPE, as shells show it.
const NO_READER: i32 = 128 + 13;

/// Status of a command that cannot do what it is told: 1 says that a promise was broken.
pub const REFUSED: u8 = 125;

/// From now on the process ends without a word when its standard output or error is closed, as
/// most tools do, and with a line when it cannot be written (a full disk). The standard library
/// panics then.
pub fn end_with_reader() {
    let usual = take_hook();
    set_hook(Box::new(move |panic| {
        let text = panic.payload().downcast_ref::<String>();
        let text = text.filter(|text| text.starts_with("failed printing to std"));
        match text {
            Some(text) if text.contains("os error 32") => exit(NO_READER),
            Some(text) => {
                let _ = writeln!(io::stderr(), "marline: {text}");
                exit(REFUSED.into())
            }
            None => usual(panic),
        }
    }));
}
