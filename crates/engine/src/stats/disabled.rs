//! Protection that an engine's settings disable.

use crate::config::choice::ChecksumChoice;
use crate::config::settings::Settings;
use marline_checksum::Algorithm;

/// Message protection that an engine's settings disable, and injected faults.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Disabled {
    /// Software reliability is off: lost packets are not retransmitted.
    pub reliability: bool,
    /// Some messages or rails have no payload checksum, by size, rail or time.
    pub some_sums: bool,
    /// Faults are injected (`FI_MARLINE_FAULTS`).
    pub faults: bool,
}

impl Disabled {
    /// Encodes the flags as a page's word.
    pub fn word(self) -> u64 {
        u64::from(self.reliability) | u64::from(self.some_sums) << 1 | u64::from(self.faults) << 2
    }

    /// Decodes a page's word; ignores unknown bits.
    pub fn from_word(word: u64) -> Disabled {
        let bit = |n: u32| word >> n & 1 == 1;
        Disabled {
            reliability: bit(0),
            some_sums: bit(1),
            faults: bit(2),
        }
    }
}

impl From<&Settings> for Disabled {
    fn from(settings: &Settings) -> Disabled {
        let none = |algorithm: &Algorithm| *algorithm == Algorithm::None;
        let by_size = settings.checksum_min_bytes > 0 || settings.checksum_max_bytes > 0;
        let by_rail = settings.checksum_rails.0.iter().any(|(_, a)| none(a));
        let wanted = settings.checksum != ChecksumChoice::Named(Algorithm::None);
        Disabled {
            reliability: !settings.reliability || settings.native != Default::default(),
            some_sums: wanted && (by_size || by_rail || settings.checksum_slices_ms > 0),
            faults: !settings.faults.is_empty(),
        }
    }
}

#[cfg(test)]
mod test {
    use super::*;

    #[test]
    fn disabled_protection_is_decoded_from_its_word() {
        let set = |rows: &[(&str, &str)]| {
            let row = |name: &str| rows.iter().find(|(n, _)| *n == name);
            let settings = Settings::from_lookup(|name| Some(row(name)?.1.to_owned()));
            Disabled::from(&settings.unwrap())
        };
        assert_eq!(set(&[]), Disabled::default());
        let none = set(&[("checksum", "none"), ("checksum_min_bytes", "512")]);
        assert_eq!(
            none,
            Disabled::default(),
            "peers agree on none, which their rows say"
        );
        for (name, value) in [
            ("reliability", "off"),
            ("checksum_min_bytes", "512"),
            ("checksum_max_bytes", "1M"),
            ("checksum_rails", "eth0=crc32c,eth1=none"),
            ("checksum_slices_ms", "5"),
            ("faults", "tx:drop=0.1"),
        ] {
            let disabled = set(&[(name, value)]);
            assert_ne!(disabled, Disabled::default(), "{name}");
            assert_eq!(Disabled::from_word(disabled.word()), disabled, "{name}");
        }
    }
}
