//! The setting for the scheme of multicast groups.

use marline_proto::group::Scheme;

/// Name of the default, which depends on the number of members.
const USUAL: &str = "usual";

/// The scheme of groups; the default depends on the number of members.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MulticastScheme {
    name: String,
    scheme: Option<Scheme>,
}

impl MulticastScheme {
    /// Parses the name of a scheme; `None`: unknown.
    pub fn parse(name: &str) -> Option<MulticastScheme> {
        let scheme = match name {
            USUAL => None,
            name => Some(Scheme::parse(name)?),
        };
        Some(MulticastScheme {
            name: name.to_owned(),
            scheme,
        })
    }

    /// The scheme's name.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// The scheme for all groups; `None`: chosen by the number of members.
    pub fn of_all(&self) -> Option<Scheme> {
        self.scheme
    }

    /// All names as text.
    pub fn names() -> String {
        format!("{USUAL}, {}", Scheme::NAMES)
    }
}

impl Default for MulticastScheme {
    fn default() -> MulticastScheme {
        MulticastScheme {
            name: USUAL.to_owned(),
            scheme: None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn schemes_have_names() {
        assert_eq!(
            MulticastScheme::parse(USUAL),
            Some(MulticastScheme::default())
        );
        let basic = MulticastScheme::parse("basic").unwrap();
        assert_eq!(
            (basic.name(), basic.of_all()),
            ("basic", Some(Scheme::BASIC))
        );
        assert_eq!(MulticastScheme::parse("best"), None);
    }
}
