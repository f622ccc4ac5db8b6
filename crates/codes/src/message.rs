//! Messages for the user, each with a code.

use crate::Code;
use std::fmt::{Display, Formatter, Result as Written};

/// A message for the user. Its text is shown with the code behind it: `TEXT [MARLINE-E301]`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Message {
    /// The code.
    pub code: Code,
    /// The text without the code.
    pub text: String,
}

impl Display for Message {
    fn fmt(&self, f: &mut Formatter<'_>) -> Written {
        write!(f, "{} [{}]", self.text.trim_end(), self.code)
    }
}

impl Code {
    /// Makes a message with this code.
    pub fn message(self, text: impl Into<String>) -> Message {
        let text = text.into();
        Message { code: self, text }
    }

    /// The text with this code behind it.
    pub fn mark(self, text: &str) -> String {
        self.message(text).to_string()
    }
}

/// Results whose errors get a code.
pub trait Coded<T> {
    /// Makes the error a message with this code.
    fn coded(self, code: Code) -> Result<T, Message>;
}

impl<T, E: Display> Coded<T> for Result<T, E> {
    fn coded(self, code: Code) -> Result<T, Message> {
        self.map_err(|why| code.message(why.to_string()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_code_stands_behind_the_text() {
        let said = Code::PeerDead.mark("peer 7 is dead\n");
        assert_eq!(said, "peer 7 is dead [MARLINE-E301]");
    }

    #[test]
    fn an_error_gets_its_code() {
        let error = "no such file".parse::<u8>().coded(Code::Lab).unwrap_err();
        assert_eq!(error.code, Code::Lab);
        assert!(error.to_string().ends_with(" [MARLINE-E601]"), "{error}");
    }
}
