//! `FI_MARLINE_*` in the environment: what the provider would only warn about stops the command.

use marline_engine::settings::{self, Settings, PREFIX};

/// Checks names and values of all `FI_MARLINE_*` among `variables`.
pub fn check(variables: &[(String, String)]) -> Result<(), String> {
    let unknown = settings::unknown_in(variables.iter().map(|(name, _)| name));
    if !unknown.is_empty() {
        return Err(unknown.join("\nmarline: "));
    }
    let lookup = |name: &str| {
        let full = format!("{PREFIX}{}", name.to_ascii_uppercase());
        let found = variables.iter().find(|(n, _)| *n == full);
        found.map(|(_, value)| value.clone())
    };
    Settings::from_lookup(lookup).map(drop)
}

/// The environment as text; what is not text cannot be a setting of ours.
pub fn environment() -> Vec<(String, String)> {
    std::env::vars_os()
        .filter_map(|(name, value)| Some((name.into_string().ok()?, value.into_string().ok()?)))
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn unknown_names_are_refused_with_the_list() {
        let set = |name: &str| check(&[(name.to_owned(), "lo".to_owned())]);
        assert_eq!(set("FI_MARLINE_RAILS"), Ok(()));
        assert_eq!(set("FI_TCP_IFACE"), Ok(()));
        let error = set("FI_MARLINE_RIALS").unwrap_err();
        assert!(
            error.contains("FI_MARLINE_RIALS") && error.contains("FI_MARLINE_RAILS"),
            "{error}"
        );
    }
}
