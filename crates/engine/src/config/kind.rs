//! Syntax of the values of settings.

use crate::config::auth::Auth;
use crate::config::checksum_choice::ChecksumChoice;
use crate::config::experiments::scheme::MulticastScheme;
use crate::config::policy::{RailKinds, RailsPolicy};
use crate::config::ports::PortRange;
use crate::config::verbs_marks::{partitions, GidIndex};
use crate::config::workers::Workers;

/// The syntax of a setting's value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// Comma-separated names.
    List,
    /// Any text.
    Text,
    /// A key: 64 hexadecimal digits.
    Secret,
    /// `on` or `off`.
    Switch,
    /// An [`Auth`].
    Auth,
    /// A [`ChecksumChoice`].
    Checksum,
    /// [`RailChecksums`].
    RailChecksums,
    /// A [`RailsPolicy`].
    Policy,
    /// [`RailKinds`].
    RailKinds,
    /// A [`MulticastScheme`].
    Scheme,
    /// A [`PortRange`].
    Ports,
    /// [`Workers`].
    Workers,
    /// A [`GidIndex`].
    GidIndex,
    /// A [`marline_rails::Partition`].
    Partition,
    /// A whole number within bounds.
    Number {
        /// Smallest value allowed.
        min: u64,
        /// Largest value allowed.
        max: u64,
    },
    /// Bytes within bounds; the suffixes `K`, `M`, `G` mean KiB, MiB, GiB.
    Bytes {
        /// Smallest value allowed.
        min: u64,
        /// Largest value allowed.
        max: u64,
    },
    /// Like [`Kind::Bytes`], or 0, which each such setting defines for itself.
    BytesOrZero {
        /// Smallest value allowed except 0.
        min: u64,
        /// Largest value allowed.
        max: u64,
    },
}

/// Suffixes of numbers of bytes, as part of their description.
pub(crate) const SUFFIXES: &str = ", with K, M or G for KiB, MiB, GiB";

impl Kind {
    /// Describes the allowed values in words.
    pub fn allowed(&self) -> String {
        match *self {
            Kind::List => "names separated by commas".to_owned(),
            Kind::Text => "any text".to_owned(),
            Kind::Secret => "64 hexadecimal digits".to_owned(),
            Kind::Switch => "on or off".to_owned(),
            Kind::Auth => Auth::allowed(),
            Kind::Checksum => ChecksumChoice::names(),
            Kind::RailChecksums => "rail=algorithm pairs separated by commas".to_owned(),
            Kind::Policy => RailsPolicy::names(),
            Kind::RailKinds => RailKinds::all(),
            Kind::Scheme => MulticastScheme::names(),
            Kind::Ports => PortRange::allowed(),
            Kind::Workers => Workers::allowed(),
            Kind::GidIndex => GidIndex::allowed(),
            Kind::Partition => partitions(),
            Kind::Number { min, max } => format!("a whole number from {min} to {max}"),
            Kind::Bytes { min, max } => {
                format!("bytes from {min} to {max}{SUFFIXES}")
            }
            Kind::BytesOrZero { min, max } => {
                format!("0, or {}", Kind::Bytes { min, max }.allowed())
            }
        }
    }

    pub(crate) fn number(&self, text: &str) -> Option<u64> {
        let (least, min, max) = match *self {
            Kind::Number { min, max } | Kind::Bytes { min, max } => (min, min, max),
            Kind::BytesOrZero { min, max } => (0, min, max),
            _ => return None,
        };
        let shift = match text.as_bytes().last()?.to_ascii_lowercase() {
            b'k' => 10,
            b'm' => 20,
            b'g' => 30,
            _ => 0,
        };
        let scaled = shift != 0;
        if scaled && matches!(self, Kind::Number { .. }) {
            return None;
        }
        let digits = if scaled {
            &text[..text.len() - 1]
        } else {
            text
        };
        if !digits.bytes().all(|b| b.is_ascii_digit()) {
            return None; // `parse` would take a sign
        }
        let value = digits.parse::<u64>().ok()?.checked_mul(1 << shift)?;
        (value == least || (min..=max).contains(&value)).then_some(value)
    }
}
