//! Tests of the `marline` command, in one binary.

#[path = "../support/mod.rs"]
mod support;

mod codes;
mod doctor;
mod exec;
mod generate;
mod lab;
mod lab_files;
mod run;
mod told;
mod tune;
