//! Settings, the profile of the machine, and what an engine is made of by them.

pub(crate) mod assemble;
pub mod choice;
mod contradictions;
pub mod profile;
pub mod settings;
