//! `FI_MARLINE_TEST=key=value,...`: settings of experiments, which no user needs.
//!
//! The variables that these settings had before are read for one more version.

pub mod rail_checksums;
pub mod scheme;

use crate::config::kind::Kind;

/// Names that have changed: now and before.
const FORMER: &[(&str, &str)] = &[
    ("pto_floor_us", "repair_floor_us"),
    ("pto_cap_ms", "repair_cap_ms"),
];

/// The name that a setting had before.
pub(crate) fn former(name: &str) -> Option<&'static str> {
    let row = FORMER.iter().find(|(now, _)| *now == name);
    row.map(|&(_, before)| before)
}

/// The present name of a setting that may be given by its former name.
pub(crate) fn current(before: &str) -> &str {
    let row = FORMER.iter().find(|(_, name)| *name == before);
    row.map_or(before, |(now, _)| now)
}

/// Keys and values, for the known keys. The value of a list may have commas: a part without a known
/// key continues the list before it. Errors are texts for users.
pub(crate) fn parse(
    text: &str,
    known: impl Iterator<Item = (&'static str, Kind)> + Clone,
) -> Result<Vec<(&'static str, String)>, String> {
    let mut pairs: Vec<((&'static str, Kind), String)> = Vec::new();
    for part in text
        .split(',')
        .map(str::trim)
        .filter(|part| !part.is_empty())
    {
        let (key, value) = part.split_once('=').unwrap_or((part, ""));
        match (
            known.clone().find(|(name, _)| *name == key.trim()),
            pairs.last_mut(),
        ) {
            (Some(row), _) => pairs.push((row, value.trim().to_owned())),
            (None, Some(((_, kind), values))) if takes_commas(kind) => {
                *values = format!("{values},{part}");
            }
            _ => return Err(unknown(key, known.map(|(name, _)| name).collect())),
        }
    }
    Ok(pairs
        .into_iter()
        .map(|((name, _), value)| (name, value))
        .collect())
}

fn takes_commas(kind: &Kind) -> bool {
    matches!(kind, Kind::List | Kind::RailKinds | Kind::RailChecksums)
}

fn unknown(key: &str, names: Vec<&str>) -> String {
    let names = names.join(", ");
    format!("FI_MARLINE_TEST: {key:?} is no key; there are {names}")
}

#[cfg(test)]
mod tests {
    use crate::config::settings::{former_in, unknown_in, Settings};

    fn read(name: &'static str, text: &'static str) -> Result<Settings, String> {
        Settings::from_lookup(|n| (n == name).then(|| text.to_owned()))
    }

    #[test]
    fn keys_and_values_are_read() {
        let text = "gso=off, pto_floor_us=200,checksum_rails=eth0=none,eth1=crc32c,native=udp,tcp";
        let settings = read("test", text).unwrap();
        assert!(!settings.gso && settings.gro);
        assert_eq!(settings.pto_floor_us, 200);
        assert_eq!(settings.checksum_rails.0.len(), 2);
        assert!(settings.was_given("gso") && !settings.was_given("gro"));
        assert!(settings
            .show()
            .contains("FI_MARLINE_TEST=gso=off (given)\n"));
    }

    #[test]
    fn unknown_keys_and_bad_values_are_refused_by_name() {
        for (text, part) in [
            (
                "gsso=off",
                "FI_MARLINE_TEST: \"gsso\" is no key; there are one_copy",
            ),
            ("gso=off,gsso=off", "\"gsso\" is no key"),
            (
                "gso=perhaps",
                "FI_MARLINE_TEST=gso=\"perhaps\" cannot be used",
            ),
            ("rails=eth0", "\"rails\" is no key"),
        ] {
            let error = read("test", text).unwrap_err();
            assert!(error.contains(part), "{error}");
        }
    }

    #[test]
    fn former_variables_are_read_and_reported() {
        assert!(!read("gso", "off").unwrap().gso);
        assert_eq!(read("repair_floor_us", "300").unwrap().pto_floor_us, 300);
        let names = [
            "FI_MARLINE_GSO",
            "FI_MARLINE_REPAIR_CAP_MS",
            "FI_MARLINE_RAILS",
        ];
        assert_eq!(unknown_in(names), [""; 0]);
        let said = former_in(names);
        assert_eq!(
            said,
            [
                "FI_MARLINE_GSO is now FI_MARLINE_TEST=gso=...; the next version ignores it",
                "FI_MARLINE_REPAIR_CAP_MS is now FI_MARLINE_TEST=pto_cap_ms=...; \
                 the next version ignores it",
            ]
        );
    }
}
