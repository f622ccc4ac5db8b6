//! The settings for a GID and for a partition of InfiniBand and RoCE.

use marline_rails::Partition;

/// The GID that is chosen for its properties.
const AUTO: &str = "auto";
/// The beginning of a P_Key, in contrast to a place in a table.
const HEXADECIMAL: &str = "0x";

/// Place of a rail's GID in its port's table; `None`: the best one.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct GidIndex(pub Option<u8>);

impl GidIndex {
    /// Describes the allowed values.
    pub fn allowed() -> String {
        format!("{AUTO}, or a whole number from 0 to 255")
    }

    /// Parses the setting.
    pub fn parse(text: &str) -> Option<GidIndex> {
        match text.eq_ignore_ascii_case(AUTO) {
            true => Some(GidIndex(None)),
            false => Some(GidIndex(Some(digits(text)?.parse().ok()?))),
        }
    }

    /// Formats the setting.
    pub fn text(&self) -> String {
        self.0
            .map_or_else(|| AUTO.to_owned(), |index| index.to_string())
    }
}

/// A text of digits alone: `parse` would take a sign.
fn digits(text: &str) -> Option<&str> {
    text.bytes().all(|b| b.is_ascii_hexdigit()).then_some(text)
}

/// Describes the allowed values of a partition.
pub fn partitions() -> String {
    format!(
        "a place in the port's table from 0 to 65535, or a P_Key from {HEXADECIMAL}1 to \
         {HEXADECIMAL}ffff"
    )
}

/// Parses a partition.
pub fn parse_partition(text: &str) -> Option<Partition> {
    let Some(key) = text.strip_prefix(HEXADECIMAL) else {
        return Some(Partition::At(digits(text)?.parse().ok()?));
    };
    let key = u16::from_str_radix(digits(key)?, 16).ok()?;
    // The highest bit is membership; the others are the partition, which is not 0.
    (key & 0x7fff != 0).then_some(Partition::Key(key))
}

/// Formats a partition.
pub fn show_partition(partition: &Partition) -> String {
    match partition {
        Partition::At(place) => place.to_string(),
        Partition::Key(key) => format!("{HEXADECIMAL}{key:04x}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn places_and_keys_are_read_and_shown() {
        for (text, index) in [("auto", None), ("0", Some(0)), ("255", Some(255))] {
            assert_eq!(GidIndex::parse(text), Some(GidIndex(index)));
            assert_eq!(GidIndex(index).text(), text);
        }
        for text in ["256", "-1", "+1", "", "a"] {
            assert_eq!(GidIndex::parse(text), None, "{text}");
        }
        for (text, partition) in [
            ("3", Partition::At(3)),
            ("0x8005", Partition::Key(0x8005)),
            ("0x0005", Partition::Key(5)),
        ] {
            assert_eq!(parse_partition(text), Some(partition));
            assert_eq!(show_partition(&partition), text);
        }
        for text in [
            "0x", "0x0", "0x8000", "0x10000", "0x+5", "65536", "8005", "-1", "ff",
        ] {
            assert_eq!(parse_partition(text).is_some(), text == "8005", "{text}");
        }
    }
}
