//! The codes of all messages that warn a user or refuse something: `MARLINE-E301`. A message is
//! made with its code, so that none lacks one; `marline explain` and docs/errors.md show the table.
#![forbid(unsafe_code)]

mod document;
mod message;
mod table;

pub use document::document;
pub use message::{Coded, Message};
pub use table::{Code, GROUPS, RETIRED};
