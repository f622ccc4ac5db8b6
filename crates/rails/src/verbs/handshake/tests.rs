//! Handshake messages are read as written, and are laid out as `docs/design/wire.md` says.

use super::super::addr::Node;
use super::*;
use std::net::Ipv4Addr;

const PAGE: &str = include_str!("../../../../../docs/design/wire.md");

fn handshake() -> Handshake {
    Handshake {
        say: Say::Answer,
        kind: QueueType::Uc,
        from: VerbsAddr {
            node: Node::V4 {
                ip: Ipv4Addr::new(10, 0, 0, 1),
                prefix_len: 24,
            },
            number: 17,
        },
        challenge: [0x5a; CHALLENGE_LEN],
        known: 0x1112_1314_1516_1718,
        end: End {
            name: 0x0102_0304_0506_0708,
            number: 18,
            psn: 0x12_3456,
            mtu: 3,
        },
        to: 9,
    }
}

#[test]
fn handshakes_are_read_as_written() {
    let said = handshake();
    let mut bytes = said.encode();
    assert_eq!(Handshake::read(&bytes), Some((said, 0)));
    add_tag(&mut bytes, 0x2122_2324_2526_2728);
    assert_eq!(Handshake::read(&bytes), Some((said, 0x2122_2324_2526_2728)));
    let challenge = Handshake {
        say: Say::Challenge,
        end: End::NONE,
        ..said
    };
    assert_eq!(Handshake::read(&challenge.encode()), Some((challenge, 0)));
}

#[test]
fn no_byte_makes_one_that_cannot_be() {
    let bytes = handshake().encode();
    for at in 0..HANDSHAKE_LEN {
        for value in [0, 1, 0x7f, 0xff] {
            let mut other = bytes;
            other[at] = value;
            if let Some((read, _)) = Handshake::read(&other) {
                assert_eq!(read.encode()[..6], other[..6], "{at}");
                assert!(read.end.mtu <= 5 && read.end.psn < 1 << 24);
            }
        }
    }
    assert_eq!(Handshake::read(&bytes[1..]), None);
    assert_eq!(Handshake::read(&[]), None);
    assert_eq!(Foreign::read(&bytes), None);
    assert_eq!(Foreign::read(&bytes[..REFUSAL_LEN - 1]), None);
}

#[test]
fn messages_of_other_versions_tell_version_and_sender() {
    let said = handshake();
    let mut later = said.encode().to_vec();
    later[0] = VERSION + 1;
    add_tag(&mut later, 7);
    later.extend_from_slice(&[0; 40]);
    assert_eq!(Handshake::read(&later), None);
    let read = Foreign::read(&later).unwrap();
    assert_eq!((read.version, read.tag), (VERSION + 1, 7));
    assert_eq!((read.kind, read.from), (said.kind, said.from));
    assert_eq!(read.challenge, said.challenge);
    assert!(!read.is_refusal && read.covered.len() == later.len());
    let mut first = refusal(said.kind, &said.from, &said.challenge);
    first[0] = 1 + VERSION;
    assert!(Foreign::read(&first).unwrap().is_refusal);
    // Earlier versions had neither challenge nor tag in these places.
    first[0] = 2;
    let read = Foreign::read(&first).unwrap();
    assert_eq!((read.challenge, read.tag), (NO_CHALLENGE, 0));
    assert!(read.covered.is_empty());
    // A packet that begins in the same way by chance.
    first[5] = 1;
    assert_eq!(Foreign::read(&first), None);
    later.resize(FOREIGN_MAX + 1, 0);
    assert_eq!(Foreign::read(&later), None);
}

/// Offset, bytes and text of each field of the page's table.
fn fields() -> Vec<(usize, &'static str, &'static str)> {
    let lines = PAGE
        .lines()
        .skip_while(|line| !line.starts_with("| at | verbs |"));
    let rows = lines.skip(2).take_while(|line| line.starts_with('|'));
    rows.map(|row| {
        let mut cells = row.trim_matches('|').split('|').map(str::trim);
        let (at, field, text) = (cells.next(), cells.next(), cells.next());
        let at = at.unwrap().parse().expect("an offset");
        (at, field.unwrap(), text.unwrap_or_default())
    })
    .collect()
}

#[test]
fn messages_are_as_documented() {
    let said = handshake();
    let mut bytes = said.encode();
    add_tag(&mut bytes, 0x2122_2324_2526_2728);
    let addr = said.from.rail(said.kind);
    let address: Vec<u8> = (addr.bytes().iter().copied())
        .chain(std::iter::repeat(0))
        .take(ADDR_MAX)
        .collect();
    let le = |value: u64, len: usize| value.to_le_bytes()[..len].to_vec();
    let values = [
        ("u32 magic", le(MAGIC.into(), 4)),
        ("u8 type", le(2, 1)),
        ("u8 kind", le(addr.kind as u64, 1)),
        ("u8 length", le(addr.bytes().len() as u64, 1)),
        ("u8 path MTU", le(3, 1)),
        ("address", address),
        ("challenge", said.challenge.to_vec()),
        ("u64 tag", le(0x2122_2324_2526_2728, 8)),
        ("u64 mark", le(said.known, 8)),
        ("u32 queue pair", le(said.end.number.into(), 4)),
        ("u32 PSN", le(said.end.psn.into(), 4)),
        ("u64 name", le(said.end.name, 8)),
        ("u64 to", le(said.to, 8)),
    ];
    let rows = fields();
    let mut end = 0;
    for ((name, value), (at, field, _)) in values.iter().zip(&rows) {
        assert_eq!((*at, *field), (end, *name));
        end = at + value.len();
        assert_eq!(bytes[*at..end], value[..], "{name}");
    }
    assert_eq!((rows.len(), end), (values.len(), HANDSHAKE_LEN));
    let text = |of: &str| rows.iter().find(|row| row.1 == of).unwrap().2;
    assert!(text("u32 magic").contains(&format!("{MAGIC:#x}")));
    // All types are named, with their numbers.
    let types = [
        "ask",
        "answer",
        "ready",
        "over",
        "eviction",
        "closed",
        "challenge",
        "refusal",
    ];
    for (number, name) in (1..).zip(types) {
        assert!(
            text("u8 type").contains(&format!("{number} {name}")),
            "{name}"
        );
    }
    assert_eq!((Say::Ask as u8, Say::Challenge as u8, REFUSAL), (1, 7, 8));
    assert!(PAGE.contains(&format!("of {HANDSHAKE_LEN} bytes")));
    assert!(PAGE.contains(&format!("first {REFUSAL_LEN} bytes")));
}
