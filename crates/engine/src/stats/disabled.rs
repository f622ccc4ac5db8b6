//! Protection that an engine's settings disable.

use super::words::record;
use crate::config::checksum_choice::ChecksumChoice;
use crate::config::settings::Settings;
use marline_checksum::Algorithm;

record! {
    /// Message protection that an engine's settings disable, and injected faults.
    #[derive(Copy, Eq)]
    Disabled {
        /// Software reliability is off: lost packets are not retransmitted.
        reliability: bool,
        /// Some messages or rails have no payload checksum, by size, rail or time.
        some_sums: bool,
        /// Faults are injected (`FI_MARLINE_FAULTS`).
        faults: bool,
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
    fn disabled_protection_follows_from_settings() {
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
        }
    }
}
