//! The result of a command, and the exit status of a refusal.

pub use marline_codes::EXIT_REFUSED;
use marline_codes::{Code, Message};

/// The result of a command: an exit status, or an error for the user.
pub type Outcome = Result<u8, Message>;

/// The result of a command whose errors have one code, which `main` gives them, or their own.
pub type Uncoded = Result<u8, Failure>;

/// An error that may have a code of its own.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Failure {
    code: Option<Code>,
    text: String,
}

impl Failure {
    /// An error with this code.
    pub fn with(code: Code, text: impl Into<String>) -> Failure {
        Failure {
            code: Some(code),
            text: text.into(),
        }
    }

    /// The error's own code.
    pub fn code(&self) -> Option<Code> {
        self.code
    }

    /// The text without a code.
    pub fn text(&self) -> &str {
        &self.text
    }
}

impl From<String> for Failure {
    fn from(text: String) -> Failure {
        Failure { code: None, text }
    }
}

impl From<&str> for Failure {
    fn from(text: &str) -> Failure {
        text.to_owned().into()
    }
}

impl From<Failure> for String {
    fn from(failure: Failure) -> String {
        failure.text
    }
}

/// Results whose errors may have a code.
pub trait OrCode<T> {
    /// Makes the error a message with its own code, or with this one.
    fn or_code(self, code: Code) -> Result<T, Message>;
}

impl<T> OrCode<T> for Result<T, Failure> {
    fn or_code(self, code: Code) -> Result<T, Message> {
        self.map_err(|failure| failure.code.unwrap_or(code).message(failure.text))
    }
}
