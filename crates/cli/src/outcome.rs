//! The result of a command, and the exit status of a refusal.

use marline_codes::Message;

/// The result of a command: an exit status, or an error for the user.
pub type Outcome = Result<u8, Message>;

/// The result of a command whose errors all have one code, which `main` gives them.
pub type Uncoded = Result<u8, String>;

/// Exit status when Marline itself refuses, as `env` and `timeout` have one, distinct from the
/// status of the program that was run.
pub const EXIT_REFUSED: u8 = marline_sim::REFUSED;
