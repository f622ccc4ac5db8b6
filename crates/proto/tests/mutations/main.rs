//! Tests whose deliberate mistakes `make mutations` looks for, with two nodes face to face.

#[path = "../face/mod.rs"]
mod face;

mod pair;
mod partial;
mod siblings;
mod strangers;
mod validation;
mod versions;
