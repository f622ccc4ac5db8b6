//! The result of a command, and the exit status of a refusal.

/// The result of every command: the exit status to leave with, or a text for people.
pub type Outcome = Result<u8, String>;

/// Our own refusals leave with this, as `env` and `timeout` do for theirs, so that a script can
/// tell them from the exit status of the program that was run.
pub const EXIT_REFUSED: u8 = marline_sim::REFUSED;
