//! Detects unknown settings and suggests similar names.

use crate::config::experiments::current;
use crate::config::settings::{Setting, PREFIX, TABLE};

/// Complaints about names with our prefix that are no settings, each with the most similar setting.
pub fn unknown_in<S: AsRef<str>>(names: impl IntoIterator<Item = S>) -> Vec<String> {
    let mut out = Vec::new();
    for name in names {
        let name = name.as_ref();
        let Some(key) = name.strip_prefix(PREFIX) else {
            continue;
        };
        let known = |row: &Setting| !row.test && row.name.to_ascii_uppercase() == key;
        if TABLE.iter().any(known) || by_former_variable(key).is_some() {
            continue;
        }
        out.push(match nearest(key) {
            Some(row) => format!(
                "{name} is not a setting of Marline; did you mean {}?",
                row.variable()
            ),
            None => format!("{name} is not a setting of Marline"),
        });
    }
    out
}

/// The setting of experiments that had this variable (without the prefix) before.
fn by_former_variable(key: &str) -> Option<&'static Setting> {
    let key = key.to_ascii_lowercase();
    TABLE
        .iter()
        .find(|row| row.test && row.name == current(&key))
}

/// Notices about variables that are now keys of `FI_MARLINE_TEST`, and are still read.
pub fn former_in<S: AsRef<str>>(names: impl IntoIterator<Item = S>) -> Vec<String> {
    let mut out = Vec::new();
    for name in names {
        let name = name.as_ref();
        if let Some(row) = name.strip_prefix(PREFIX).and_then(by_former_variable) {
            let now = row.variable();
            out.push(format!(
                "{name} is now {now}=...; the next version ignores it"
            ));
        }
    }
    out
}

/// The row whose name differs least from `key`, unless more than a third of the letters differ (or
/// more than two letters are swapped).
fn nearest(key: &str) -> Option<&'static Setting> {
    let key = key.to_ascii_lowercase();
    let (row, distance) = TABLE
        .iter()
        .filter(|row| !row.test)
        .map(|row| (row, edits(&key, row.name)))
        .min_by_key(|&(_, distance)| distance)?;
    (distance <= (row.name.len() / 3).max(2)).then_some(row)
}

/// Levenshtein distance over bytes.
fn edits(a: &str, b: &str) -> usize {
    let b = b.as_bytes();
    let mut row: Vec<usize> = (0..=b.len()).collect();
    for (i, x) in a.bytes().enumerate() {
        let mut diagonal = row[0];
        row[0] = i + 1;
        for (j, &y) in b.iter().enumerate() {
            let replaced = diagonal + usize::from(x != y);
            diagonal = row[j + 1];
            row[j + 1] = replaced.min(row[j] + 1).min(diagonal + 1);
        }
    }
    row[b.len()]
}
