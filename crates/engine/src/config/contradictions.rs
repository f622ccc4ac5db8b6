//! Detects settings that are valid alone but contradict each other.

use crate::config::auth::Auth;
use crate::config::checksum_choice::ChecksumChoice;
use crate::config::settings::{Settings, TABLE};
use marline_checksum::Algorithm;

/// A pair of settings with values that exclude each other.
struct Pair {
    first: &'static str,
    second: &'static str,
    is_given: fn(&Settings) -> bool,
    why: &'static str,
}

const PAIRS: &[Pair] = &[
    Pair {
        first: "port",
        second: "ports",
        is_given: |s| s.port != 0 && s.ports.0.is_some(),
        why: "say different things: leave one away",
    },
    // Without sums a bit of an encrypted payload could be flipped on the way.
    Pair {
        first: "auth",
        second: "checksum",
        is_given: |s| {
            matches!(s.auth, Auth::Payload | Auth::Encrypt)
                && s.checksum == ChecksumChoice::Named(Algorithm::None)
        },
        why: "exclude each other: the key protects payloads by their checksums",
    },
];

/// A pair of settings: the first must not exceed the second.
struct Order {
    low: &'static str,
    high: &'static str,
    is_kept: fn(&Settings) -> bool,
    why: &'static str,
}

const ORDERS: &[Order] = &[
    Order {
        low: "wire_oldest",
        high: "wire_version",
        is_kept: |s| s.versions().fit_address(),
        why: "no library speaks these versions",
    },
    Order {
        low: "checksum_min_bytes",
        high: "checksum_max_bytes",
        is_kept: |s| s.checksum_max_bytes == 0 || s.checksum_min_bytes <= s.checksum_max_bytes,
        why: "no message would travel with a checksum (FI_MARLINE_CHECKSUM=none says that)",
    },
    Order {
        low: "pto_floor_us",
        high: "pto_cap_ms",
        is_kept: |s| s.pto_floor_us <= s.pto_cap_ms.saturating_mul(1_000),
        why: "the shortest probe timeout would be longer than the longest",
    },
    Order {
        low: "pto_floor_us",
        high: "peer_timeout_ms",
        is_kept: |s| s.pto_floor_us < s.peer_timeout_ms.saturating_mul(1_000),
        why: "a peer would count as dead before anything lost is sent again",
    },
    Order {
        low: "tick_ms",
        high: "peer_timeout_ms",
        is_kept: |s| s.tick_ms < s.peer_timeout_ms,
        why: "a peer that computes would count as dead before its thread answers",
    },
    Order {
        low: "credit_bytes_per_peer",
        high: "unexpected_bytes",
        is_kept: |s| s.credit_bytes_per_peer <= s.unexpected_bytes,
        why: "one peer could fill more than the bound for all of them",
    },
];

impl Settings {
    /// Refuses contradictory settings. The error is a text for the user.
    pub fn check(&self) -> Result<(), String> {
        if let Some(pair) = PAIRS.iter().find(|pair| (pair.is_given)(self)) {
            let (first, second) = (self.shown(pair.first), self.shown(pair.second));
            return Err(format!("{first} and {second} {}", pair.why));
        }
        match ORDERS.iter().find(|order| !(order.is_kept)(self)) {
            None => Ok(()),
            Some(order) => Err(format!(
                "{} is too large for {}: {}",
                self.shown(order.low),
                self.shown(order.high),
                order.why
            )),
        }
    }

    /// Text for a setting with its value, which says if the value is a default.
    fn shown(&self, name: &str) -> String {
        let Some(row) = TABLE.iter().find(|row| row.name == name) else {
            return name.to_owned();
        };
        let default = match self.was_given(name) {
            true => "",
            false => " (the default)",
        };
        format!("{}={}{default}", row.variable(), (row.get)(self))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(given: &[(&str, &str)]) -> Result<Settings, String> {
        Settings::from_lookup(|name| {
            let found = given.iter().find(|(n, _)| *n == name);
            found.map(|(_, value)| (*value).to_owned())
        })
    }

    #[test]
    fn settings_that_contradict_each_other_are_refused_and_both_are_named() {
        for (low, high) in [
            (("checksum_min_bytes", "8192"), ("checksum_max_bytes", "4K")),
            (("pto_floor_us", "20000"), ("pto_cap_ms", "10")),
            (("tick_ms", "100"), ("peer_timeout_ms", "100")),
            (("credit_bytes_per_peer", "2M"), ("unexpected_bytes", "1M")),
        ] {
            let error = read(&[low, high]).unwrap_err();
            for (name, _) in [low, high] {
                assert!(
                    error.to_lowercase().contains(&format!("{name}=")),
                    "{error}"
                );
            }
            assert!(!error.contains("default"), "{error}");
            assert!(read(&[high]).is_ok(), "{high:?}");
        }
        let late = [
            ("pto_floor_us", "60000"),
            ("pto_cap_ms", "100"),
            ("peer_timeout_ms", "50"),
        ];
        assert!(read(&late).unwrap_err().contains("PEER_TIMEOUT_MS=50"));
    }

    #[test]
    fn a_port_and_a_range_are_refused() {
        let range = ("ports", "20000-20009");
        let error = read(&[range, ("port", "20000")]).unwrap_err();
        assert!(
            error.contains("FI_MARLINE_PORT=20000 and FI_MARLINE_PORTS="),
            "{error}"
        );
        assert!(read(&[range]).is_ok());
    }

    #[test]
    fn a_key_for_payloads_without_checksums_is_refused() {
        let none = ("checksum", "none");
        for level in ["payload", "encrypt"] {
            let error = read(&[("auth", level), none]).unwrap_err();
            let named = format!("FI_MARLINE_AUTH={level} and FI_MARLINE_CHECKSUM=none");
            assert!(error.contains(&named), "{error}");
        }
        assert!(read(&[("auth", "on"), none]).is_ok());
    }

    #[test]
    fn a_default_that_contradicts_is_called_one() {
        let error = read(&[("pto_floor_us", "1000000")]).unwrap_err();
        assert!(
            error.contains("FI_MARLINE_TEST=pto_cap_ms=10 (the default)"),
            "{error}"
        );
    }

    #[test]
    fn equal_bounds_and_no_upper_bound_are_no_contradiction() {
        for given in [
            [("checksum_min_bytes", "4K"), ("checksum_max_bytes", "4096")],
            [("checksum_min_bytes", "4K"), ("checksum_max_bytes", "0")],
            [("pto_floor_us", "10000"), ("pto_cap_ms", "10")],
            [("credit_bytes_per_peer", "1M"), ("unexpected_bytes", "1M")],
        ] {
            assert!(read(&given).is_ok(), "{given:?}");
        }
    }
}
