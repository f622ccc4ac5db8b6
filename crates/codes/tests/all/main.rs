//! All integration tests of this crate.

mod page;
