//! Checks `FI_MARLINE_*` in the environment: errors that the provider only warns about stop the
//! command.

use marline_codes::Code;
use marline_engine::settings::{self, Settings, PREFIX};
use marline_rails::FaultScript;

/// Checks names and values of all `FI_MARLINE_*` among `variables`.
pub fn check(variables: &[(String, String)]) -> Result<(), String> {
    let unknown = settings::unknown_in(variables.iter().map(|(name, _)| name));
    if !unknown.is_empty() {
        return Err(unknown.join("\nmarline: "));
    }
    for notice in settings::former_in(variables.iter().map(|(name, _)| name)) {
        crate::tool::say(&Code::SettingFormer.message(notice));
    }
    let lookup = |name: &str| {
        let full = format!("{PREFIX}{}", name.to_ascii_uppercase());
        let found = variables.iter().find(|(n, _)| *n == full);
        found.map(|(_, value)| value.clone())
    };
    let settings = Settings::from_lookup(lookup)?;
    let script = FaultScript::parse_all(&settings.faults);
    script
        .map(drop)
        .map_err(|why| format!("{PREFIX}FAULTS: {why}"))
}

/// The environment as text; variables that are not UTF-8 are no settings.
pub fn environment() -> Vec<(String, String)> {
    std::env::vars_os()
        .filter_map(|(name, value)| Some((name.into_string().ok()?, value.into_string().ok()?)))
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_script_of_faults_is_read_before_anything_starts() {
        let set = |script: &str| check(&[("FI_MARLINE_FAULTS".to_owned(), script.to_owned())]);
        let all = "seed=7;rail=1;tx:drop=0.01,duplicate=0.001;rx:corrupt=0.001/rail=0;kill_at_ms=5";
        assert_eq!(set(all), Ok(()));
        let error = set("tx:dorp=0.1").unwrap_err();
        assert!(error.starts_with("FI_MARLINE_FAULTS: "), "{error}");
        assert!(error.contains("dorp is not a fault; there are"), "{error}");
    }

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
