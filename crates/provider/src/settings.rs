//! Settings `FI_MARLINE_*`: the engine's table, through libfabric's parameter calls.

use crate::{host, log};
use marline_engine::settings::{Settings, TABLE};
use std::sync::Once;

/// Makes libfabric know every setting.
pub(crate) fn define_all() {
    for row in TABLE {
        let help = match row.default {
            "" => row.help.to_owned(),
            default => format!("{} (default: {default})", row.help),
        };
        host::param_define(row.name, &help);
    }
}

/// The part of the name that all settings share.
const PREFIX: &str = "FI_MARLINE_";

/// Names in the environment that look like settings and are none, in the order of the alphabet.
fn unknown(names: impl Iterator<Item = String>) -> Vec<String> {
    let known = |name: &str| TABLE.iter().any(|row| row.name.eq_ignore_ascii_case(name));
    let mut strangers: Vec<String> = names
        .filter(|n| n.strip_prefix(PREFIX).is_some_and(|name| !known(name)))
        .collect();
    strangers.sort_unstable();
    strangers
}

/// Warns once per process of misspelt settings.
fn warn_of_unknown() {
    static ONCE: Once = Once::new();
    ONCE.call_once(|| {
        let names = std::env::vars_os().filter_map(|(name, _)| name.into_string().ok());
        for name in unknown(names) {
            log::warn(&format!(
                "unknown setting {name} ignored; `fi_info -e` lists all of them"
            ));
        }
    });
}

/// Reads what the user set. The error is a text for people.
pub(crate) fn read() -> Result<Settings, String> {
    warn_of_unknown();
    Settings::from_lookup(host::param_get)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn misspelt_settings_are_found() {
        let names = [
            "FI_MARLINE_RAILS",
            "FI_MARLINE_RIALS",
            "FI_LOG_LEVEL",
            "FI_MARLINE_",
        ];
        let strangers = unknown(names.iter().map(|n| (*n).to_owned()));
        assert_eq!(strangers, ["FI_MARLINE_", "FI_MARLINE_RIALS"]);
    }
}
