//! Allowed and refused settings, and the generated document.

use super::*;
use marline_checksum::Algorithm;

fn with(name: &'static str, value: &'static str) -> Result<Settings, String> {
    Settings::from_lookup(|n| (n == name).then(|| value.to_owned()))
}

#[test]
fn defaults_parse_and_print() {
    let settings = Settings::default();
    assert_eq!(settings.eager_max_bytes, 65_536);
    assert_eq!(settings.unexpected_bytes, 64 << 20);
    assert_eq!(settings.checksum, ChecksumChoice::Strong);
    assert!(settings.rails.is_empty() && settings.reliability);
    assert!(settings
        .show()
        .contains("FI_MARLINE_TICK_MS=10 (default)\n"));
    assert!(TABLE.len() <= 128, "`given` has 128 bits");
}

#[test]
fn shown_values_parse_back_to_themselves() {
    let settings = Settings::default();
    for row in TABLE {
        let mut again = Settings::default();
        row.apply(&mut again, &(row.get)(&settings))
            .expect(row.name);
        assert_eq!(again, settings, "{}", row.name);
    }
}

#[test]
fn values_are_taken() {
    assert_eq!(
        with("rails", " eth0, 10.0.0.1,,").unwrap().rails,
        ["eth0", "10.0.0.1"]
    );
    assert_eq!(with("log_bytes", "2m").unwrap().log_bytes, 2 << 20);
    assert_eq!(
        with("checksum", "NONE").unwrap().checksum,
        ChecksumChoice::Named(Algorithm::None)
    );
    assert_eq!(
        with("checksum", "Fast").unwrap().checksum,
        ChecksumChoice::Fast
    );
    assert!(!with("gso", "Off").unwrap().gso);
    assert_eq!(
        with("policy", "active-standby").unwrap().policy,
        RailsPolicy::ActiveStandby
    );
    let given = with("tick_ms", "25").unwrap();
    assert!(given.show().contains("FI_MARLINE_TICK_MS=25 (given)\n"));
    assert_eq!(with("tick_ms", "  ").unwrap(), Settings::default());
}

#[test]
fn rails_have_checksums_of_their_own() {
    let text = " eth0=none , eth1=CRC32C,";
    let rails = ["eth1", "eth0", "eth2"].map(str::to_owned);
    let settings = with("checksum_rails", text).unwrap();
    let found = settings.checksum_rails.by_rail(&rails);
    let (none, crc) = (Algorithm::None as u8, Algorithm::Crc32c as u8);
    assert_eq!(found[..3], [Some(crc), Some(none), None]);
    let unknown: Vec<&str> = settings.checksum_rails.unknown(&rails[..1]).collect();
    assert_eq!(unknown, ["eth0"]);
    assert!(settings.show().contains("=eth0=none,eth1=crc32c (given)"));
}

#[test]
fn malformed_values_are_refused_by_name() {
    for (name, value) in [
        ("eager_max_bytes", "65537"),
        ("eager_max_bytes", "-1"),
        ("eager_max_bytes", "+1"),
        ("eager_max_bytes", "k"),
        ("tick_ms", "1k"),
        ("log_bytes", "99999999999999999999"),
        ("log_bytes", "18446744073709551615G"),
        ("port", "65536"),
        ("gso", "maybe"),
        ("checksum", "md5"),
        ("checksum_rails", "eth0"),
        ("checksum_rails", "eth0=md5"),
        ("checksum_rails", "=none"),
        ("fragment_max_bytes", "65409"),
        ("fragment_max_bytes", "447"),
        ("mtu", "1"),
        ("mtu", "547"),
        ("mtu", "64001"),
        ("mtu", "1500é"),
        ("verbs_traffic_class", "256"),
        ("verbs_service_level", "16"),
        ("verbs_gid_index", "best"),
        ("verbs_pkey", "0x8000"),
    ] {
        let error = with(name, value).unwrap_err();
        assert!(
            error.to_lowercase().contains(name) && error.contains("FI_MARLINE_"),
            "{error}"
        );
        assert!(
            error.contains(value) && error.contains("allowed"),
            "{error}"
        );
    }
}

/// With a smaller datagram only the shortest messages would fit a packet.
#[test]
fn the_smallest_datagram_holds_a_block_and_its_headers() {
    use marline_wire::{EAGER_LEN, HEADER_LEN};
    assert!(MTU_MIN >= HEADER_LEN as u64 + EAGER_LEN as u64 + BLOCK_BYTES);
    assert_eq!(with("mtu", "0").unwrap().mtu, 0);
    assert_eq!(with("mtu", "548").unwrap().mtu as u64, MTU_MIN);
    let given = with("fragment_max_bytes", "448").unwrap();
    assert_eq!(given.fragment_max_bytes as u64, BLOCK_BYTES);
}

#[test]
fn unknown_names_are_reported_with_the_nearest() {
    let names = [
        "FI_MARLINE_RIALS",
        "FI_MARLINE_RAILS",
        "PATH",
        "FI_MARLINE_ZZZZZZ",
    ];
    let complaints = unknown_in(names);
    assert_eq!(complaints.len(), 2);
    assert!(complaints[0].ends_with("did you mean FI_MARLINE_RAILS?"));
    assert_eq!(
        complaints[1],
        "FI_MARLINE_ZZZZZZ is not a setting of Marline"
    );
}

#[test]
fn names_and_help_are_well_formed() {
    for row in TABLE {
        let name = row.name;
        assert!(
            name.bytes().all(|b| b == b'_' || b.is_ascii_lowercase()),
            "{name}"
        );
        assert!(
            !row.help.contains('\n') && !row.help.contains('|'),
            "{name}"
        );
        assert_eq!(TABLE.iter().filter(|r| r.name == name).count(), 1, "{name}");
    }
}

#[test]
fn document_is_current() {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/settings.md");
    if std::env::var_os("MARLINE_BLESS").is_some() {
        std::fs::write(path, document()).unwrap();
    }
    let stored = std::fs::read_to_string(path).unwrap_or_default();
    let same = stored == document();
    assert!(
        same,
        "run MARLINE_BLESS=1 cargo test -p marline-engine document_is_current"
    );
}
