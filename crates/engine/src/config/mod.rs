//! Settings and the machine's profile.

pub mod auth;
pub mod checksum_choice;
mod contradictions;
mod document;
pub(crate) mod experiments;
mod job_key;
mod kind;
pub mod policy;
pub mod ports;
pub mod profile;
pub mod secret;
pub mod settings;
mod unknown;
mod value;
pub mod verbs_marks;
pub mod workers;
