//! The result of a command, and the exit status of a refusal.

use marline_codes::Message;
pub use marline_codes::EXIT_REFUSED;

/// The result of a command: an exit status, or an error for the user.
pub type Outcome = Result<u8, Message>;

/// The result of a command whose errors all have one code, which `main` gives them.
pub type Uncoded = Result<u8, String>;
