//! Group packets: parsing never panics on any input, and written packets are read back.

use marline_wire::{
    AckFlags, Asked, Chunk, Gaps, GroupFrame, GroupHead, GroupPacket, GroupSeal, GroupWriter,
    Packet, ParseError, GROUP_HEAD_LEN, PARITY_MAX, PIECE_LEN, TAG_LEN, VERSION,
};
use proptest::prelude::*;

/// CRC-32C, bit by bit.
fn crc32c(bytes: &[u8]) -> u32 {
    let step = |crc: u32| (crc >> 1) ^ (0x82f6_3b78 & (crc & 1).wrapping_neg());
    let byte = |crc: u32, &byte: &u8| (0..8).fold(crc ^ u32::from(byte), |crc, _| step(crc));
    !bytes.iter().fold(!0, byte)
}

fn write(head: &GroupHead, frames: &[GroupFrame], chunk: Option<(Chunk, u64)>) -> Vec<u8> {
    write_sealed(head, None, frames, chunk)
}

/// The tag of packets with a seal.
const TAG: u64 = 0x0123_4567_89ab_cdef;

fn write_sealed(
    head: &GroupHead,
    seal: Option<GroupSeal>,
    frames: &[GroupFrame],
    chunk: Option<(Chunk, u64)>,
) -> Vec<u8> {
    let mut bytes = vec![0xee; 2_000];
    let mut writer = GroupWriter::with_seal(&mut bytes, seal);
    assert!(frames.iter().all(|frame| writer.push(frame)));
    let chunk_ref = chunk.as_ref().map(|(chunk, sum)| (chunk, *sum));
    let head_len = writer.finish(head, chunk_ref).unwrap();
    assert_eq!(head_len % 8, 0);
    bytes.truncate(head_len);
    let crc = crc32c(&bytes[4..]);
    bytes[..4].copy_from_slice(&crc.to_le_bytes());
    let len = chunk.map_or(0, |(chunk, _)| chunk.len as usize);
    bytes.extend((0..len).map(|n| n as u8));
    bytes.extend(seal.iter().flat_map(|_| TAG.to_le_bytes()));
    bytes
}

fn frame() -> impl Strategy<Value = GroupFrame> {
    let gaps = (
        0..u64::MAX - 200,
        proptest::collection::vec(0u64..140, 0..30),
        any::<[u16; 2]>(),
    );
    let gaps = gaps.prop_map(|(first, more, [missing, of])| {
        let mut gaps = Gaps::default();
        (gaps.missing, gaps.of) = (missing, of);
        assert!(gaps.is_empty() && gaps.push(first));
        for at in more {
            assert_eq!(gaps.push(first + at), at < 128);
        }
        gaps
    });
    prop_oneof![
        (any::<u16>(), any::<u64>(), 0u8..4).prop_map(|(root, next, bits)| {
            let flags = AckFlags::of(bits);
            GroupFrame::Ack { root, next, flags }
        }),
        (any::<u16>(), gaps).prop_map(|(root, gaps)| GroupFrame::Nack { root, gaps }),
        (
            any::<u16>(),
            any::<u64>(),
            proptest::collection::vec(any::<u16>(), 0..9)
        )
            .prop_map(|(root, next, asked)| {
                let asked = Asked::of(&asked);
                GroupFrame::Tail { root, next, asked }
            }),
        Just(GroupFrame::Probe),
    ]
}

fn head() -> impl Strategy<Value = GroupHead> {
    let ids = (any::<[u64; 2]>(), any::<[u32; 2]>());
    (ids, any::<u16>(), any::<[u8; 3]>()).prop_map(
        |(([group, src_id], [token, src_epoch]), member, [algorithm, network, flags])| GroupHead {
            algorithm,
            group,
            token,
            member,
            src_id,
            src_epoch,
            network,
            // The writer sets the flag of tags.
            flags: flags & !GroupHead::FLAG_TAGGED,
        },
    )
}

fn chunk() -> impl Strategy<Value = (Chunk, u64)> {
    let place = (1u32..1_500, 0u64..1 << 40, 0u64..1 << 40);
    let parity = prop_oneof![Just(0u8), 2..=PARITY_MAX];
    (place, any::<(u16, u64, u64, u64)>(), parity, 0u8..4).prop_map(
        |((len, offset, more), (root, number, broadcast, sum), parity, flags)| {
            let pieces = parity == 0 && len <= PIECE_LEN;
            let chunk = Chunk {
                root,
                number,
                broadcast,
                offset,
                len,
                total: offset + len as u64 + more,
                parity,
                piece: if pieces { number as u8 } else { 0 },
                asks: flags & 1 != 0 && parity == 0,
                leaves: flags & 2 != 0 && parity == 0,
            };
            (chunk, sum)
        },
    )
}

proptest! {
    #[test]
    fn what_is_written_is_read_back(
        head in head(),
        frames in proptest::collection::vec(frame(), 0..5),
        chunk in proptest::option::of(chunk()),
        seal in proptest::option::of((0u64..1 << 48, any::<u16>())),
    ) {
        let seal = seal.map(|(number, to)| GroupSeal { number, to });
        let bytes = write_sealed(&head, seal, &frames, chunk);
        prop_assert!(GroupPacket::claimed(&bytes));
        let packet = GroupPacket::parse(&bytes, crc32c).unwrap();
        let tagged = GroupHead::FLAG_TAGGED * u8::from(seal.is_some());
        let head = GroupHead { flags: head.flags | tagged, ..head };
        prop_assert_eq!(packet.head, head);
        prop_assert_eq!(packet.seal(), seal);
        prop_assert_eq!(packet.tag(), seal.map(|_| TAG));
        prop_assert_eq!(packet.wire_len(), bytes.len());
        let tail = if seal.is_some() { TAG_LEN } else { 0 };
        let payload = chunk.map_or(0, |(chunk, _)| chunk.len as usize);
        prop_assert_eq!(packet.checked_head(), &bytes[4..bytes.len() - payload - tail]);
        prop_assert!(packet.frames().eq(frames.iter().copied()));
        let read = packet.chunk();
        prop_assert_eq!(read.map(|(chunk, sum, _)| (chunk, sum)), chunk);
        if let Some((chunk, _, payload)) = read {
            prop_assert_eq!(payload.len(), chunk.len as usize);
            prop_assert!(payload.iter().enumerate().all(|(n, &b)| b == n as u8));
        }
        if chunk.is_some() || seal.is_some() {
            // A truncated payload or tag is rejected.
            let cut = GroupPacket::parse(&bytes[..bytes.len() - 1], crc32c);
            prop_assert_eq!(cut.err(), Some(ParseError::Truncated));
        }
        // An endpoint would treat it as a packet for another endpoint.
        if let Ok(packet) = Packet::parse(&bytes, crc32c) {
            prop_assert_eq!(packet.header.dst_id, head.group);
        }
    }

    #[test]
    fn damage_is_found(
        head in head(),
        frames in proptest::collection::vec(frame(), 0..5),
        at: prop::sample::Index,
        bit in 0u8..8,
    ) {
        let mut bytes = write(&head, &frames, None);
        let at = at.index(bytes.len());
        bytes[at] ^= 1 << bit;
        prop_assert!(GroupPacket::parse(&bytes, crc32c).is_err());
    }

    #[test]
    fn random_bytes_do_not_panic(mut bytes in proptest::collection::vec(any::<u8>(), 0..300)) {
        let _ = GroupPacket::parse(&bytes, crc32c);
        // Again with all early checks satisfied.
        if bytes.len() >= GROUP_HEAD_LEN {
            let head_len = bytes.len() as u16;
            bytes[4] = VERSION;
            bytes[6..8].copy_from_slice(&head_len.to_le_bytes());
            bytes[39] = 1;
            let crc = u32::from_le_bytes([bytes[0], bytes[1], bytes[2], bytes[3]]);
            if let Ok(packet) = GroupPacket::parse(&bytes, |_| crc) {
                packet.frames().for_each(drop);
            }
        }
    }
}

/// Impossible fields with a correct CRC.
#[test]
fn impossible_fields_are_malformed() {
    let head = GroupHead {
        algorithm: 1,
        group: 1,
        token: 2,
        member: 3,
        src_id: 4,
        src_epoch: 5,
        network: 0,
        flags: 0,
    };
    let chunk = Chunk {
        root: 0,
        number: 0,
        broadcast: 0,
        offset: 0,
        len: 8,
        total: 8,
        parity: 0,
        piece: 0,
        asks: false,
        leaves: false,
    };
    let bad = [
        Chunk { len: 0, ..chunk },
        Chunk { offset: 1, ..chunk },
        Chunk {
            offset: u64::MAX,
            ..chunk
        },
        Chunk { parity: 1, ..chunk },
        Chunk {
            parity: PARITY_MAX + 1,
            ..chunk
        },
        Chunk {
            piece: 1,
            len: PIECE_LEN + 1,
            total: 1_000,
            ..chunk
        },
    ];
    for chunk in bad {
        let bytes = write(&head, &[], Some((chunk, 0)));
        let parsed = GroupPacket::parse(&bytes, crc32c);
        assert_eq!(parsed.err(), Some(ParseError::Malformed), "{chunk:?}");
    }
    let mut other = write(&head, &[], None);
    other[39] = 0;
    let crc = crc32c(&other[4..]);
    other[..4].copy_from_slice(&crc.to_le_bytes());
    assert!(!GroupPacket::claimed(&other));
    assert_eq!(
        GroupPacket::parse(&other, crc32c).err(),
        Some(ParseError::Malformed)
    );
    let mut small = [0; 50];
    assert!(!GroupWriter::new(&mut small).push(&GroupFrame::Ack {
        root: 0,
        next: 0,
        flags: AckFlags::default()
    }));
    assert_eq!(
        GroupWriter::new(&mut small).finish(&head, Some((&chunk, 0))),
        None
    );
}
