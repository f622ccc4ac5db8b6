//! Tests of the library by calls of its interface, in one binary. Tests that change or measure
//! their process have binaries of their own.

#[path = "../../src/abi/mod.rs"]
mod abi;
#[path = "../common/mod.rs"]
mod common;

mod addresses;
mod atomics;
mod attributes;
mod callers;
mod counted;
mod counted_regions;
mod ends;
mod names;
mod nic;
mod objects;
mod remote_flags;
mod segments;
mod waits;
