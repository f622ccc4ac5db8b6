//! The version as text: `0.1.0 (wire 3, commit 0123456789ab)`. A separate crate, so that a new
//! commit only recompiles the crates that print it. Without git and without the `.commit` file of a
//! source tarball the commit is omitted.
#![no_std]
#![forbid(unsafe_code)]

/// The versions of the crate and the wire format, and the commit if it is known.
pub const TEXT: &str = env!("MARLINE_VERSION_TEXT");

#[cfg(test)]
mod tests {
    use super::TEXT;

    #[test]
    fn version_and_wire_are_named() {
        assert!(TEXT.starts_with(env!("CARGO_PKG_VERSION")), "{TEXT}");
        assert!(TEXT.contains(" (wire "), "{TEXT}");
    }
}
