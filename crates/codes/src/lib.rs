//! The codes of all messages that warn a user or refuse something: `MARLINE-E301`. A message is
//! made with its code, so that none lacks one; `marline explain` and docs/errors.md show the table.
#![forbid(unsafe_code)]

mod closed_output;
mod document;
mod message;
mod table;

pub use closed_output::{end_with_reader, EXIT_REFUSED};
pub use document::document;
pub use message::{Coded, Message};
pub use table::{Code, GROUPS, RETIRED};
