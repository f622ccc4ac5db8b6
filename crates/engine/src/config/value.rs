//! Values of settings, from texts and to texts.

use crate::config::auth::Auth;
use crate::config::checksum_choice::{parse_checksum, ChecksumChoice};
use crate::config::experiments::rail_checksums::RailChecksums;
use crate::config::experiments::scheme::MulticastScheme;
use crate::config::kind::Kind;
use crate::config::policy::{RailKinds, RailsPolicy};
use crate::config::ports::PortRange;
use crate::config::verbs_marks::{parse_partition, show_partition, GidIndex};
use crate::config::workers::Workers;
use marline_rails::Partition;

const SWITCH: &[(&str, bool)] = &[
    ("on", true),
    ("off", false),
    ("1", true),
    ("0", false),
    ("yes", true),
    ("no", false),
    ("true", true),
    ("false", false),
];

/// A type of a field of [`Settings`].
pub(crate) trait Value: Sized {
    fn from_text(text: &str, kind: &Kind) -> Option<Self>;
    fn to_text(&self) -> String;
}

impl Value for Vec<String> {
    fn from_text(text: &str, _: &Kind) -> Option<Self> {
        let parts = text.split(',').map(str::trim);
        Some(parts.filter(|p| !p.is_empty()).map(str::to_owned).collect())
    }
    fn to_text(&self) -> String {
        self.join(",")
    }
}

impl Value for String {
    fn from_text(text: &str, _: &Kind) -> Option<Self> {
        Some(text.to_owned())
    }
    fn to_text(&self) -> String {
        self.clone()
    }
}

macro_rules! value_by_name {
    ($($type:ty, $choices:ident;)*) => { $(
        impl Value for $type {
            fn from_text(text: &str, _: &Kind) -> Option<Self> {
                let row = $choices.iter().find(|(n, _)| n.eq_ignore_ascii_case(text));
                row.map(|&(_, value)| value)
            }
            fn to_text(&self) -> String {
                let row = $choices.iter().find(|(_, value)| value == self);
                row.map_or_else(String::new, |(name, _)| (*name).to_owned())
            }
        }
    )* };
}

value_by_name! {
    bool, SWITCH;
}

impl Value for RailsPolicy {
    fn from_text(text: &str, _: &Kind) -> Option<Self> {
        RailsPolicy::parse(text)
    }
    fn to_text(&self) -> String {
        self.name()
    }
}

impl Value for MulticastScheme {
    fn from_text(text: &str, _: &Kind) -> Option<Self> {
        MulticastScheme::parse(text)
    }
    fn to_text(&self) -> String {
        self.name().to_owned()
    }
}

impl Value for PortRange {
    fn from_text(text: &str, _: &Kind) -> Option<Self> {
        PortRange::parse(text)
    }
    fn to_text(&self) -> String {
        self.text()
    }
}

impl Value for GidIndex {
    fn from_text(text: &str, _: &Kind) -> Option<Self> {
        GidIndex::parse(text)
    }
    fn to_text(&self) -> String {
        self.text()
    }
}

impl Value for Partition {
    fn from_text(text: &str, _: &Kind) -> Option<Self> {
        parse_partition(text)
    }
    fn to_text(&self) -> String {
        show_partition(self)
    }
}

impl Value for Auth {
    fn from_text(text: &str, _: &Kind) -> Option<Self> {
        Auth::parse(text)
    }
    fn to_text(&self) -> String {
        self.name()
    }
}

impl Value for Workers {
    fn from_text(text: &str, _: &Kind) -> Option<Self> {
        Workers::parse(text)
    }
    fn to_text(&self) -> String {
        self.name()
    }
}

impl Value for ChecksumChoice {
    fn from_text(text: &str, _: &Kind) -> Option<Self> {
        ChecksumChoice::parse(text)
    }
    fn to_text(&self) -> String {
        self.name().to_owned()
    }
}

impl Value for RailKinds {
    fn from_text(text: &str, _: &Kind) -> Option<Self> {
        RailKinds::parse(text)
    }
    fn to_text(&self) -> String {
        self.names()
    }
}

impl Value for RailChecksums {
    fn from_text(text: &str, _: &Kind) -> Option<Self> {
        let pairs = text.split(',').map(str::trim).filter(|p| !p.is_empty());
        let pair = |text: &str| {
            let (rail, algorithm) = text.split_once('=')?;
            let algorithm = parse_checksum(algorithm.trim())?;
            let rail = rail.trim();
            (!rail.is_empty()).then(|| (rail.to_owned(), algorithm))
        };
        pairs
            .map(pair)
            .collect::<Option<Vec<_>>>()
            .map(RailChecksums)
    }
    fn to_text(&self) -> String {
        let pairs = self
            .0
            .iter()
            .map(|(rail, a)| format!("{rail}={}", a.name()));
        pairs.collect::<Vec<_>>().join(",")
    }
}

macro_rules! value_by_number {
    ($($type:ty),*) => { $(
        impl Value for $type {
            fn from_text(text: &str, kind: &Kind) -> Option<Self> {
                <$type>::try_from(kind.number(text)?).ok()
            }
            fn to_text(&self) -> String {
                self.to_string()
            }
        }
    )* };
}

value_by_number!(u8, u16, u32, u64, usize);
