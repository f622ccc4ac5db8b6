//! Settings, and the profile of the machine.

pub mod choice;
mod contradictions;
pub mod profile;
pub mod settings;
