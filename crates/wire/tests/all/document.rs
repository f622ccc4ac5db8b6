//! The tables of `docs/design/wire.md` name all kinds of frames and all fields, at their offsets.

use marline_wire::{
    Ack, AckFlags, AckMasks, Address, Advertisement, Asked, Chunk, Data, DirectHead, Eager,
    Extension, Frame, Gaps, Grant, GroupFrame, GroupHead, GroupWriter, Have, HeadWriter, Header,
    Hello, HelloFields, MsgHead, Packet, Question, RailAddr, RailKind, RailList, RailWrites, Read,
    Rkey, Rts, Versions, Written, ACK_MASKS_MAX, DIRECT_HEAD_LEN, GROUP_HEAD_LEN, HEADER_LEN,
    PLACE_LEN, VERSION,
};

const PAGE: &str = include_str!("../../../../docs/design/wire.md");

/// The rows of the table that begins with these cells.
fn table(first: &[&str]) -> Vec<Vec<&'static str>> {
    let cells = |line: &'static str| -> Vec<&str> {
        let inside = line.trim_matches('|').split('|');
        inside.map(str::trim).collect()
    };
    let mut lines = PAGE.lines();
    let starts = |line: &&'static str| line.starts_with('|') && cells(line).starts_with(first);
    assert!(
        lines.by_ref().any(|line| starts(&line)),
        "no table {first:?}"
    );
    let rows = lines.skip(1).take_while(|line| line.starts_with('|'));
    rows.map(cells).collect()
}

/// The little-endian number of `width` bytes at `at`.
fn number_at(bytes: &[u8], at: usize, width: usize) -> u64 {
    let field = bytes[at..at + width].iter().rev();
    field.fold(0, |number, byte| number << 8 | u64::from(*byte))
}

/// Compares a table of offsets with encoded bytes that have these values in its fields.
fn compare(name: &str, bytes: &[u8], values: &[(&str, u64)]) {
    let mut named = Vec::new();
    for row in table(&["at", name]) {
        let at: usize = row[0].parse().expect("an offset");
        let (kind, field) = row[1].split_once(' ').unwrap_or((row[1], ""));
        let Some(bits) = kind
            .strip_prefix('u')
            .and_then(|bits| bits.parse::<usize>().ok())
        else {
            continue;
        };
        let value = values.iter().find(|(of, _)| *of == field);
        let (_, value) = value.unwrap_or_else(|| panic!("{name} has no field {field}"));
        assert_eq!(number_at(bytes, at, bits / 8), *value, "{field} of {name}");
        named.push(field);
    }
    let missing = values.iter().find(|(of, _)| !named.contains(of));
    assert_eq!(missing, None, "the table of {name}");
}

fn header() -> Header {
    Header {
        version: VERSION,
        algorithm: 2,
        dst_id: 0x0102_0304_0506_0708,
        dst_token: 0x1112_1314,
        dst_slot: 0x2122_2324,
        src_id: 0x3132_3334_3536_3738,
        src_epoch: 0x4142_4344,
        path: 0x5152,
        flags: 1,
        number: 0x6162_6364_6566,
    }
}

/// A packet with one frame, or none.
fn packet(frame: Option<&Frame<Hello<'_>>>) -> Vec<u8> {
    let mut bytes = vec![0; 2_000];
    let mut writer = HeadWriter::new(&mut bytes, 2_000);
    frame.iter().for_each(|frame| {
        writer.push(frame).expect("room");
    });
    let (_, len) = writer.finish(&header());
    bytes.truncate(len);
    bytes
}

#[test]
fn the_header_is_as_documented() {
    let bytes = packet(None);
    let Header {
        dst_id,
        src_id,
        number,
        ..
    } = header();
    compare(
        "header",
        &bytes,
        &[
            ("CRC", 0),
            ("version", VERSION.into()),
            ("algorithm", 2),
            ("head_len", HEADER_LEN as u64),
            ("destination id", dst_id),
            ("destination token", 0x1112_1314),
            ("destination slot", 0x2122_2324),
            ("source id", src_id),
            ("source epoch", 0x4142_4344),
            ("path", 0x5152),
            ("flags", 1),
            ("kind", 0),
            ("number", number),
        ],
    );
}

/// The value of a field of frames or words in the samples, by its name in the tables.
fn value(field: &str) -> u64 {
    match field {
        "" => 0,
        "flags" => 1,
        "n" => 2,
        "payload" => 0x0102,
        "length" => 0x0108,
        "filler" => 24,
        "rail" => 9,
        "segment" => 17,
        "count" => 5,
        "rails" => 1,
        "path" => 0x0203,
        "root" => 0x0405,
        "delay in us" => 0x0607,
        "missing, of" => 0x1112_1314,
        "length, piece" => 0x0007_0108,
        "message" | "read" | "arrived" | "slot" => 0x2122_2324,
        // Numbers of packets have 48 bits.
        "base" => 0x3132_3334_3536,
        "first" => 1 << 40,
        "masks" => 1,
        _ => {
            field.bytes().fold(1 << 50, |hash: u64, byte| {
                hash.wrapping_mul(31).wrapping_add(byte.into())
            }) | 1 << 60
        }
    }
}

fn u16_of(field: &str) -> u16 {
    value(field).try_into().expect("a short field")
}

fn u32_of(field: &str) -> u32 {
    value(field).try_into().expect("a field of 32 bits")
}

fn u8_of(field: &str) -> u8 {
    value(field).try_into().expect("a byte")
}

fn msg_head() -> MsgHead {
    MsgHead {
        number: u32_of("message"),
        flags: u8_of("flags"),
        tag: value("tag"),
        data: value("CQ data"),
        total: value("total"),
    }
}

/// A frame of each kind, by the kind's name.
fn frame(name: &str) -> Frame<Hello<'static>> {
    let (number, flags) = (u32_of("message"), u8_of("flags"));
    let (offset, total, sum) = (value("offset"), value("total"), value("sum"));
    let mut bits = [0; ACK_MASKS_MAX];
    bits[..2].fill(value("masks"));
    match name {
        "EAGER" => Frame::Eager(Eager {
            head: msg_head(),
            len: u16_of("payload"),
            sum,
        }),
        "DATA" => Frame::Data(Data {
            number,
            flags,
            offset,
            total,
            len: u16_of("payload"),
            sum,
        }),
        "RTS" => Frame::Rts(Rts { head: msg_head() }),
        "GRANT" => Frame::Grant(Grant {
            number,
            flags,
            upto: value("granted"),
            wanted: value("wanted"),
        }),
        "ACK" => Frame::Ack(Ack {
            path: u16_of("path"),
            delay_us: u16_of("delay in us"),
            base: value("base"),
            masks: AckMasks { count: 2, bits },
        }),
        "CREDIT" => Frame::Credit {
            bytes: value("bytes"),
        },
        "HELLO" => hello(),
        "PING" => Frame::Ping,
        "BYE" => Frame::Bye {
            arrived: u32_of("arrived"),
        },
        "READ" => Frame::Read(Read {
            number: u32_of("read"),
            flags,
            key: value("key"),
            addr: value("address"),
            len: value("length"),
            upto: value("granted"),
        }),
        "READ_FAIL" => Frame::ReadFail {
            number: u32_of("read"),
        },
        "PAD" => Frame::Pad {
            len: u16_of("payload"),
            head: u16_of("filler"),
        },
        "CORRUPT" => Frame::Corrupt {
            path: u16_of("path"),
        },
        other => memory_frame(other),
    }
}

/// A frame about memory, or of a path.
fn memory_frame(name: &str) -> Frame<Hello<'static>> {
    let (number, flags) = (u32_of("message"), u8_of("flags"));
    let (offset, total, sum) = (value("offset"), value("total"), value("sum"));
    match name {
        "KEY" => Frame::Key(Rkey {
            number,
            flags,
            rail: u8_of("rail"),
            key: value("key"),
        }),
        "WRITTEN" => Frame::Written(Written {
            number,
            flags,
            offset,
            total,
            len: u32_of("length"),
            sum,
        }),
        "ADVERTISEMENT" => Frame::Advertisement(Advertisement {
            number,
            segment: u8_of("segment"),
            rail: u8_of("rail"),
            key: value("key"),
            sum,
        }),
        "HAVE" => Frame::Have(Have {
            number,
            segments: [value("segments"); 4],
        }),
        "PATH_CHALLENGE" => Frame::PathChallenge {
            data: value("data"),
        },
        "PATH_RESPONSE" => Frame::PathResponse {
            data: value("data"),
        },
        other => panic!("{other} is no kind of frame"),
    }
}

fn rail() -> RailAddr {
    let mut rail = RailAddr::new(RailKind::Udp4, &[1, 2, 3, 4, 5, 6, 7]);
    (rail.index, rail.backed, rail.datagram_max) = (9, true, 1_472);
    rail.writes = RailWrites::Direct;
    rail
}

/// A HELLO with one rail, of as many bytes as the samples' field `length`.
fn hello() -> Frame<Hello<'static>> {
    let theirs = Versions {
        oldest: 6,
        newest: 7,
    };
    Frame::Hello(Hello {
        slot: u32_of("slot"),
        id: value("id"),
        token: 0x1112_1314,
        epoch: 0x4142_4344,
        algorithm: 3,
        algorithms: 0x5152_5354,
        reliable: true,
        eager_puts: true,
        refused: true,
        credit: value("credit"),
        revision: 0x6162_6364,
        versions: Versions::OURS,
        of_destination: Some(theirs),
        further: HelloFields::NONE,
        rails: RailList::write(vec![0; 64].leak(), &[rail()]),
    })
}

/// Bytes of a frame by the table's second column; `None`: the frame states them.
fn len_of(text: &str) -> Option<usize> {
    let terms = text.split('+').map(str::trim).map(|term| match term {
        "8 n" => Some(8 * value("n") as usize),
        "2 n" => Some(8), // on 8 bytes
        "filler" => Some(value("filler") as usize),
        fixed => fixed.parse().ok(),
    });
    terms.sum()
}

/// The offsets of a table's columns from the third on, and the columns' cells in a row.
fn columns(row: &[&'static str]) -> impl Iterator<Item = (usize, usize, &'static str)> {
    let places = [(1, 1), (2, 2), (4, 4)].into_iter();
    let places = places.chain((8..).step_by(8).map(|at| (at, 8)));
    let cells: Vec<_> = row[2..].to_vec();
    places
        .zip(cells)
        .map(|((at, width), cell)| (at, width, cell))
}

/// Compares an encoded frame or word with its row.
fn compare_row(row: &[&'static str], bytes: &[u8]) {
    let (kind, name) = row[0].split_once(' ').expect("kind and name");
    assert_eq!(bytes[0], kind.parse::<u8>().expect("a kind"), "{name}");
    if let Some(len) = len_of(row[1]) {
        assert_eq!(bytes.len(), len, "bytes of {name}");
    }
    for (at, width, cell) in columns(row) {
        // A HELLO's length is that of the frame, and more of it has a table of its own.
        let wanted = match cell {
            "below" => continue,
            "length" if name == "HELLO" => bytes.len() as u64,
            _ if at >= bytes.len() => {
                assert!(cell.is_empty() || row[1].contains('n'), "{cell} of {name}");
                continue;
            }
            "asked" => number_at(&[5, 4, 5, 4, 0, 0, 0, 0], 0, 8),
            cell => value(cell),
        };
        assert_eq!(number_at(bytes, at, width), wanted, "{cell} of {name}");
    }
}

#[test]
fn frames_are_as_documented() {
    let mut kinds = Vec::new();
    for row in table(&["kind", "bytes", "1", "2", "4", "8", "16", "24", "32"]) {
        let (kind, name) = row[0].split_once(' ').expect("kind and name");
        if name == "to 255" {
            let later = Frame::<Hello<'_>, AckMasks>::Extension(Extension {
                kind: 128,
                len: u16_of("length"),
                payload: u16_of("payload"),
            });
            let mut bytes = vec![0; later.head_len()];
            later.write(&mut bytes);
            let of_row: Vec<_> = columns(&row)
                .filter(|(.., cell)| !cell.is_empty())
                .collect();
            assert_eq!(of_row, [(2, 2, "length"), (4, 4, "payload")]);
            assert_eq!(number_at(&bytes, 2, 2), value("length"));
            assert_eq!(number_at(&bytes, 4, 4), value("payload"));
            continue;
        }
        kinds.push(kind.parse::<u8>().expect("a kind"));
        let sample = frame(name);
        let mut bytes = vec![0; sample.head_len()];
        sample.write(&mut bytes);
        compare_row(&row, &bytes);
    }
    // Kinds below 128 that the table does not name are refused, whatever their length.
    for kind in (0..128).filter(|kind| !kinds.contains(kind)) {
        let mut bytes = packet(Some(&Frame::Ping));
        bytes[HEADER_LEN] = kind;
        assert!(Packet::parse(&bytes, |_| 0).is_err(), "kind {kind}");
    }
}

#[test]
fn hello_rails_and_addresses_are_as_documented() {
    let sample = hello();
    let mut bytes = vec![0; sample.head_len()];
    sample.write(&mut bytes);
    compare(
        "HELLO",
        &bytes,
        &[
            ("rails", 1),
            ("length", bytes.len() as u64),
            ("slot", value("slot")),
            ("id", value("id")),
            ("token", 0x1112_1314),
            ("epoch", 0x4142_4344),
            ("algorithm", 3),
            ("reliable", 3),
            ("refused", 1),
            ("algorithms", 0x5152_5354),
            ("credit", value("credit")),
            ("revision", 0x6162_6364),
            ("oldest", Versions::OURS.oldest.into()),
            ("newest", Versions::OURS.newest.into()),
            ("oldest there", 6),
            ("newest there", 7),
        ],
    );
    let rail_fields = [
        ("kind", 1),
        ("length", 3 + 7),
        ("index", 9 | 32 | 2 << 6),
        ("datagram", 1_472),
    ];
    compare("rail", &bytes[56..], &rail_fields);
    assert_eq!(bytes[56 + 5..][..7], [1, 2, 3, 4, 5, 6, 7]);

    let mut address = Address::new(value("id"), 0x1112_1314, &[rail()]);
    (address.key_mark, address.has_more) = (0x7a5, true);
    let (bytes, _) = address.encode();
    let (oldest, newest) = (Versions::OURS.oldest, Versions::OURS.newest);
    compare(
        "address",
        &bytes,
        &[
            ("id", value("id")),
            ("token", 0x1112_1314),
            ("versions", (128 | (newest - oldest) << 5 | newest).into()),
            ("magic", b'M'.into()),
            ("count", 1 | 0xf << 4),
            ("more", 1 | 0x25 << 1),
        ],
    );
    compare("rail", &bytes[16..], &rail_fields);
}

#[test]
fn questions_are_as_documented() {
    let question = Question {
        number: value("number"),
        from: rail(),
    };
    let mut bytes = question.encode(|_| 0);
    Question::add_tag(&mut bytes, |_| value("tag"), |_| 0x5152_5354);
    assert_eq!(bytes.len(), PLACE_LEN);
    compare(
        "question",
        &bytes,
        &[
            ("CRC", 0x5152_5354),
            ("version", VERSION.into()),
            ("length", 128),
            ("number", value("number")),
            ("kind", 2),
            ("tag", value("tag")),
        ],
    );
}

fn group_packet(words: &[GroupFrame], chunk: Option<&Chunk>) -> Vec<u8> {
    let head = GroupHead {
        algorithm: 2,
        group: value("group"),
        token: 0x1112_1314,
        member: 0x0102,
        src_id: value("source id"),
        src_epoch: 0x4142_4344,
        network: 3,
        flags: GroupHead::FLAG_MULTICAST,
    };
    let mut bytes = vec![0; 2_000];
    let mut writer = GroupWriter::new(&mut bytes);
    assert!(words.iter().all(|word| writer.push(word)));
    let chunk = chunk.map(|chunk| (chunk, value("sum")));
    let len = writer.finish(&head, chunk).expect("room");
    bytes.truncate(len);
    bytes
}

fn chunk(name: &str) -> Chunk {
    Chunk {
        root: u16_of("root"),
        number: value("number"),
        broadcast: value("broadcast"),
        offset: value("offset"),
        len: u32_of("length"),
        total: value("total"),
        parity: if name == "PARITY" { u8_of("count") } else { 0 },
        piece: if name == "PIECE" { 7 } else { 0 },
        asks: name != "PARITY",
        leaves: false,
    }
}

fn word(name: &str) -> GroupFrame {
    let (root, next) = (u16_of("root"), value("next"));
    match name {
        "ACK" => GroupFrame::Ack {
            root,
            next,
            flags: AckFlags::of(u8_of("flags")),
        },
        "NACK" => {
            let mut gaps = Gaps::default();
            assert!(gaps.push(value("first")) && gaps.push(value("first") + 64));
            (gaps.missing, gaps.of) = (0x1314, 0x1112);
            GroupFrame::Nack { root, gaps }
        }
        "TAIL" => GroupFrame::Tail {
            root,
            next,
            asked: Asked::of(&[0x0405, 0x0405]),
        },
        "PROBE" => GroupFrame::Probe,
        other => panic!("{other} is no kind of word"),
    }
}

#[test]
fn group_packets_are_as_documented() {
    compare(
        "group",
        &group_packet(&[], None),
        &[
            ("CRC", 0),
            ("version", 4),
            ("algorithm", 2),
            ("head_len", GROUP_HEAD_LEN as u64),
            ("group", value("group")),
            ("token", 0x1112_1314),
            ("member", 0x0102),
            ("source id", value("source id")),
            ("source epoch", 0x4142_4344),
            ("network", 3),
            ("flags", 1),
            ("kind", 1),
        ],
    );
    for row in table(&["kind", "bytes", "1", "2", "4", "8", "16", "24", "32", "40"]) {
        let (_, name) = row[0].split_once(' ').expect("kind and name");
        let bytes = match name {
            "to 255" => continue,
            "CHUNK" | "PARITY" | "PIECE" => group_packet(&[], Some(&chunk(name))),
            name => group_packet(&[word(name)], None),
        };
        compare_row(&row, &bytes[GROUP_HEAD_LEN..]);
    }
}

#[test]
fn direct_writes_are_as_documented() {
    let head = DirectHead {
        key: value("key"),
        offset: value("offset"),
        len: 0x2122_2324,
        packet_len: 0x0102,
        spare: 3,
    };
    let bytes = head.write_tagged(|_| 0x3132_3334_3536_3738);
    assert_eq!(bytes.len(), DIRECT_HEAD_LEN);
    compare(
        "direct write",
        &bytes,
        &[
            ("check", 0x3536_3738),
            ("version", 0x84),
            ("lines", 3),
            ("packet", 0x0102),
            ("key", value("key")),
            ("offset", value("offset")),
            ("length", 0x2122_2324),
            ("tag", 0x3132_3334),
        ],
    );
}
