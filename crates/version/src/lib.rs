//! The version as people read it: `0.1.0 (wire 3, commit 0123456789ab)`. A crate of its own, so
//! that a commit compiles again only what prints it. Without git and without the file that a
//! source tarball has, there is no commit in it.
#![no_std]
#![forbid(unsafe_code)]

/// The version, that of the wire, and the commit if it is known.
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
