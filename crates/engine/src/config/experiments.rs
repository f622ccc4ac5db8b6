//! `FI_MARLINE_TEST=key=value,...`: settings of experiments, for which no user has a use.
//!
//! Variables of their own, which these settings had before, are read for one more version.

use crate::config::settings::{Kind, Setting, PREFIX, TABLE};

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

/// The setting of experiments that had a variable of its own, by the end of that variable's name in
/// lower case.
pub(crate) fn by_former_variable(key: &str) -> Option<&'static Setting> {
    let renamed = FORMER.iter().find(|(_, before)| *before == key);
    let name = renamed.map_or(key, |(now, _)| now);
    TABLE.iter().find(|row| row.test && row.name == name)
}

/// Keys and values. The value of a list may have commas: a part without a key of the table goes on
/// with the list before it. An error is a text for people.
pub(crate) fn parse(text: &str) -> Result<Vec<(&'static str, String)>, String> {
    let mut pairs: Vec<(&'static Setting, String)> = Vec::new();
    for part in text
        .split(',')
        .map(str::trim)
        .filter(|part| !part.is_empty())
    {
        let (key, value) = part.split_once('=').unwrap_or((part, ""));
        let row = TABLE.iter().find(|row| row.test && row.name == key.trim());
        match (row, pairs.last_mut()) {
            (Some(row), _) => pairs.push((row, value.trim().to_owned())),
            (None, Some((list, values))) if takes_commas(&list.kind) => {
                *values = format!("{values},{part}");
            }
            _ => return Err(unknown(key)),
        }
    }
    Ok(pairs
        .into_iter()
        .map(|(row, value)| (row.name, value))
        .collect())
}

fn takes_commas(kind: &Kind) -> bool {
    matches!(kind, Kind::List | Kind::RailKinds | Kind::RailChecksums)
}

fn unknown(key: &str) -> String {
    let names: Vec<_> = TABLE
        .iter()
        .filter(|row| row.test)
        .map(|row| row.name)
        .collect();
    let names = names.join(", ");
    format!("{PREFIX}TEST: {key:?} is no key; there are {names}")
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
                "FI_MARLINE_GSO is FI_MARLINE_TEST=gso=... now, and will not be read by the next version",
                "FI_MARLINE_REPAIR_CAP_MS is FI_MARLINE_TEST=pto_cap_ms=... now, and will not be read by the next version",
            ]
        );
    }
}
