//! Runs: the event loop, one seed, many seeds, shrinking of failures, the command.

pub(crate) mod campaign;
pub mod command;
pub(crate) mod drive;
pub(crate) mod frames;
pub(crate) mod many;
pub(crate) mod rounds;
pub(crate) mod scale;
pub(crate) mod seed;
pub(crate) mod shrink;
pub(crate) mod steps;
pub(crate) mod watch;
