//! Parsing never panics on any input, and written packets are read back.

use marline_wire::{
    blocks, Ack, AckMasks, Address, AddressError, Advertisement, Data, Eager, Frame, FrameView,
    Grant, GroupPacket, Have, HeadWriter, Header, Hello, HelloFields, MsgHead, Packet, ParseError,
    RailAddr, RailKind, RailList, RailWrites, Read, Rkey, Rts, Versions, Written, ACK_MASKS_MAX,
    BLOCK_BYTES, HELLO_RAIL_BYTES_MAX, RAILS_MAX, RAIL_BYTES_MAX, VERSION,
};
use proptest::prelude::*;

const LIMIT: usize = 9_000;

/// A CRC that always matches: inputs that pass the real one must not panic either.
fn agree(packet: &[u8]) -> u32 {
    u32::from_le_bytes([packet[0], packet[1], packet[2], packet[3]])
}

fn parse(bytes: &[u8]) -> Option<Vec<(Frame<Hello<'_>>, Vec<u8>)>> {
    let crc = if bytes.len() < 4 { 0 } else { agree(bytes) };
    let packet = Packet::parse(bytes, |_| crc).ok()?;
    Some(
        packet
            .frames()
            .map(|(f, p)| (f.fields(), p.to_vec()))
            .collect(),
    )
}

/// CRC-32C, bit by bit.
fn crc32c(bytes: &[u8]) -> u32 {
    let step = |crc: u32| (crc >> 1) ^ (0x82f6_3b78 & (crc & 1).wrapping_neg());
    let byte = |crc: u32, &byte: &u8| (0..8).fold(crc ^ u32::from(byte), |crc, _| step(crc));
    !bytes.iter().fold(!0, byte)
}

fn seal(bytes: &mut [u8], head_len: usize) {
    let crc = crc32c(&bytes[4..head_len]);
    bytes[..4].copy_from_slice(&crc.to_le_bytes());
}

/// A damaged version, head length or other head field counts as damage: a peer must not be reported
/// as another version because of it.
#[test]
fn damage_to_any_head_byte_counts_as_damage() {
    let header = Header {
        version: VERSION,
        algorithm: 1,
        dst_id: 2,
        dst_token: 3,
        dst_slot: 4,
        src_id: 5,
        src_epoch: 6,
        path: 7,
        flags: 0,
        number: 8,
    };
    let credit = Frame::Credit { bytes: 9 };
    let (mut good, _) = write(&header, &[credit]);
    let head_len = good.len();
    seal(&mut good, head_len);
    assert!(Packet::parse(&good, crc32c).is_ok());
    for at in 0..head_len {
        for flip in [0x01, 0x55, 0x80, 0xff] {
            let mut bad = good.clone();
            bad[at] ^= flip;
            let error = Packet::parse(&bad, crc32c).map(drop);
            assert_eq!(error, Err(ParseError::HeadCrc), "byte {at} ^ {flip:#x}");
        }
    }
    let mut other = good;
    other[4] = VERSION + 2;
    seal(&mut other, head_len);
    let error = Packet::parse(&other, crc32c).map(drop);
    assert_eq!(error, Err(ParseError::Version));
}

fn head() -> impl Strategy<Value = MsgHead> {
    (
        any::<u32>(),
        0u8..8,
        any::<u64>(),
        any::<u64>(),
        0u64..3_000,
    )
        .prop_map(|(number, flags, tag, data, total)| MsgHead {
            number,
            flags,
            tag,
            data,
            total,
        })
}

fn rail() -> impl Strategy<Value = RailAddr> {
    const WRITES: [RailWrites; 3] = [RailWrites::None, RailWrites::Keyed, RailWrites::Direct];
    (
        prop::sample::select(RailKind::BY_REACH.to_vec()),
        prop::sample::select(&WRITES[..]),
        0..RAILS_MAX as u8,
        512u16..,
        proptest::collection::vec(any::<u8>(), 0..=RAIL_BYTES_MAX),
    )
        .prop_map(|(kind, writes, index, datagram_max, bytes)| {
            let mut addr = RailAddr::new(kind, &bytes);
            (addr.writes, addr.index, addr.datagram_max) = (writes, index, datagram_max);
            addr
        })
}

/// The rails of a HELLO, which borrows them.
fn list(rails: &[RailAddr]) -> RailList<'static> {
    RailList::write(vec![0; HELLO_RAIL_BYTES_MAX].leak(), rails)
}

fn hello() -> impl Strategy<Value = Frame> {
    let rails = proptest::collection::vec(rail(), 0..=RAILS_MAX);
    (
        any::<(u32, u64, u32, u32)>(),
        any::<(u8, u32, bool, bool, u64)>(),
        rails,
    )
        .prop_map(|(a, b, rails)| {
            let (slot, id, token, epoch) = a;
            let (algorithm, algorithms, reliable, refused, credit) = b;
            Frame::Hello(Hello {
                slot,
                id,
                token,
                epoch,
                algorithm,
                algorithms,
                reliable,
                eager_puts: slot % 2 == 1,
                refused,
                credit,
                revision: token,
                versions: Versions::OURS,
                of_destination: None,
                further: HelloFields::NONE,
                rails: list(&rails),
            })
        })
}

fn ack() -> impl Strategy<Value = Frame> {
    let masks = proptest::collection::vec(any::<u64>(), 0..=ACK_MASKS_MAX);
    (any::<(u16, u16)>(), 0u64..1 << 48, masks).prop_map(|((path, delay_us), base, list)| {
        let mut bits = [0; ACK_MASKS_MAX];
        bits[..list.len()].copy_from_slice(&list);
        let masks = AckMasks {
            count: list.len() as u8,
            bits,
        };
        Frame::Ack(Ack {
            path,
            delay_us,
            base,
            masks,
        })
    })
}

/// A first fragment: whole blocks, or the whole message.
fn eager() -> impl Strategy<Value = Frame> {
    (head(), any::<u64>(), any::<u64>()).prop_map(|(head, cut, sum)| {
        let n = 1 + cut % blocks(head.total);
        let len = (n * BLOCK_BYTES).min(head.total) as u16;
        Frame::Eager(Eager { head, len, sum })
    })
}

fn data() -> impl Strategy<Value = Frame> {
    (head(), any::<u64>(), any::<u64>()).prop_map(|(head, cut, sum)| {
        let offset = cut % blocks(head.total) * BLOCK_BYTES;
        let len = (head.total - offset).min(2 * BLOCK_BYTES) as u16;
        let (number, flags, total) = (head.number, head.flags, head.total);
        Frame::Data(Data {
            number,
            flags,
            offset,
            total,
            len,
            sum,
        })
    })
}

/// A fragment that may be longer than any packet, of a non-empty message.
fn written() -> impl Strategy<Value = Frame> {
    let total = prop_oneof![1u64..3_000, 1u64..1 << 40];
    (any::<(u32, u8)>(), total, any::<(u64, u32)>(), any::<u64>()).prop_map(
        |((number, flags), total, (at, cut), sum)| {
            let offset = at % blocks(total) * BLOCK_BYTES;
            let most = (u32::MAX as u64 / BLOCK_BYTES).min(blocks(total - offset));
            let len = (1 + cut as u64 % most) * BLOCK_BYTES;
            Frame::Written(Written {
                number,
                flags,
                offset,
                total,
                len: len.min(total - offset) as u32,
                sum,
            })
        },
    )
}

fn frame() -> impl Strategy<Value = Frame> {
    prop_oneof![
        eager(),
        data(),
        hello(),
        ack(),
        head().prop_map(|head| Frame::Rts(Rts { head })),
        any::<(u32, u8, u64, u64)>().prop_map(|(number, flags, upto, wanted)| Frame::Grant(
            Grant {
                number,
                flags,
                upto,
                wanted
            }
        )),
        any::<(u32, u8, u64, u64, u64, u64)>().prop_map(|(number, flags, key, addr, len, upto)| {
            Frame::Read(Read {
                number,
                flags,
                key,
                addr,
                len,
                upto,
            })
        }),
        (any::<(u32, u8, u64)>(), 0u8..RAILS_MAX as u8).prop_map(|((number, flags, key), rail)| {
            Frame::Key(Rkey {
                number,
                flags,
                rail,
                key,
            })
        }),
        written(),
        (any::<(u32, u8, u64, u64)>(), 0u8..RAILS_MAX as u8).prop_map(
            |((number, segment, key, sum), rail)| {
                Frame::Advertisement(Advertisement {
                    number,
                    segment,
                    rail,
                    key,
                    sum,
                })
            }
        ),
        any::<(u32, [u64; 4])>()
            .prop_map(|(number, segments)| Frame::Have(Have { number, segments })),
        any::<u64>().prop_map(|bytes| Frame::Credit { bytes }),
        any::<u32>().prop_map(|number| Frame::ReadFail { number }),
        any::<u32>().prop_map(|arrived| Frame::Bye { arrived }),
        (0u16..2_000, 0u16..40).prop_map(|(len, head)| Frame::Pad {
            len,
            head: 8 * head
        }),
        Just(Frame::Ping),
        any::<u64>().prop_map(|data| Frame::PathChallenge { data }),
        any::<u64>().prop_map(|data| Frame::PathResponse { data }),
    ]
}

fn header() -> impl Strategy<Value = Header> {
    (
        any::<(u8, u64, u32, u32, u64, u32)>(),
        any::<(u16, u8)>(),
        0u64..1 << 48,
    )
        .prop_map(
            |(
                (algorithm, dst_id, dst_token, dst_slot, src_id, src_epoch),
                (path, flags),
                number,
            )| Header {
                version: VERSION,
                algorithm,
                dst_id,
                dst_token,
                dst_slot,
                src_id,
                src_epoch,
                path,
                // Only seals write the tag that this flag announces.
                flags: flags & !Header::FLAG_TAGGED,
                number,
            },
        )
}

/// Writes as many frames as fit, with payloads filled with each frame's index.
fn write(header: &Header, frames: &[Frame]) -> (Vec<u8>, Vec<Frame>) {
    let mut out = vec![0; LIMIT];
    let mut writer = HeadWriter::new(&mut out, LIMIT);
    let mut slots = Vec::new();
    let mut written = Vec::new();
    for frame in frames {
        if let Some(slot) = writer.push(frame) {
            slots.push(slot);
            written.push(*frame);
        }
    }
    let (head_len, len) = writer.finish(header);
    for (i, slot) in slots.iter().enumerate() {
        let at = head_len + slot.payload_at as usize;
        out[at..at + slot.len as usize].fill(i as u8);
    }
    out.truncate(len);
    (out, written)
}

proptest! {
    #[test]
    fn random_bytes_do_not_panic(mut bytes in proptest::collection::vec(any::<u8>(), 0..400)) {
        parse(&bytes);
        if bytes.len() > 8 {
            // Passes the first checks.
            bytes[4] = marline_wire::VERSION;
            let head = (bytes.len() / 8 * 8) as u16;
            bytes[6..8].copy_from_slice(&head.to_le_bytes());
            parse(&bytes);
        }
    }

    #[test]
    fn what_is_written_is_read(h in header(), frames in proptest::collection::vec(frame(), 0..12)) {
        let (bytes, written) = write(&h, &frames);
        let packet = Packet::parse(&bytes, |_| agree(&bytes)).expect("a packet of ours parses");
        prop_assert_eq!(packet.header, h);
        prop_assert!(!GroupPacket::claimed(&bytes), "whatever its flags");
        let read: Vec<_> = packet.frames().collect();
        prop_assert_eq!(read.len(), written.len());
        for (i, ((frame, payload), wrote)) in read.iter().zip(&written).enumerate() {
            prop_assert_eq!(frame.fields(), *wrote);
            prop_assert_eq!(payload.len(), wrote.payload_len());
            prop_assert!(payload.iter().all(|&b| b == i as u8));
        }
    }

    #[test]
    fn a_written_fragment_covers_blocks_of_its_message(
        h in header(), offset in any::<u64>(), total in any::<u64>(), len in any::<u32>())
    {
        let (number, flags, sum) = (1, 0, 2);
        let frame = Frame::Written(Written { number, flags, offset, total, len, sum });
        let (bytes, _) = write(&h, &[frame]);
        let whole = offset % BLOCK_BYTES == 0 && len > 0 && total < 1 << 56;
        let inside = offset.checked_add(len as u64).is_some_and(|end| {
            end == total || (end < total && len as u64 % BLOCK_BYTES == 0)
        });
        prop_assert_eq!(parse(&bytes).is_some(), whole && inside);
    }

    #[test]
    fn damaged_packets_do_not_panic(
        h in header(),
        frames in proptest::collection::vec(frame(), 1..8),
        hits in proptest::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 1..6),
        cut in any::<prop::sample::Index>())
    {
        let (mut bytes, _) = write(&h, &frames);
        for (at, value) in hits {
            let at = at.index(bytes.len());
            bytes[at] = value;
        }
        parse(&bytes);
        bytes.truncate(cut.index(bytes.len() + 1));
        parse(&bytes);
    }

    #[test]
    fn addresses_survive(id in any::<u64>(), token in any::<u32>(), a in rail(), b in rail(),
        junk in proptest::collection::vec(any::<u8>(), 0..80))
    {
        let address = Address::new(id, token, &[a, b]);
        let (bytes, len) = address.encode();
        prop_assert_eq!(Address::decode(&bytes[..len]), Ok(address));
        prop_assert_eq!(Address::decode(&bytes), Ok(address), "with padding");
        let named: Vec<_> = address.rails().iter().collect();
        let both = a.wire_len() + b.wire_len() <= 48;
        prop_assert_eq!(named, if both { vec![a, b] } else { vec![a] });
        let _ = Address::decode(&junk);
    }

    /// An unknown kind is skipped by its length, in blob and HELLO.
    #[test]
    fn unknown_kinds_are_skipped_and_told(
        h in header(), rails in proptest::collection::vec(rail(), 1..4),
        at in any::<prop::sample::Index>(),
        kind in 40u8.., bytes in proptest::collection::vec(any::<u8>(), 0..20))
    {
        let at = at.index(rails.len() + 1);
        let mut encoded = vec![0; HELLO_RAIL_BYTES_MAX];
        let mut len = RailList::write(&mut encoded, &rails[..at]).bytes().len();
        encoded[len..len + 2].copy_from_slice(&[kind, bytes.len() as u8]);
        encoded[len + 2..][..bytes.len()].copy_from_slice(&bytes);
        len += 2 + bytes.len();
        len += RailList::write(&mut encoded[len..], &rails[at..]).bytes().len();
        let list = RailList::of(encoded[..len].to_vec().leak());
        prop_assert_eq!(list.count(), rails.len() + 1);
        let Frame::Hello(hello) = hello_with(list) else { unreachable!() };
        let (packet, _) = write(&h, &[Frame::Hello(hello)]);
        let packet = Packet::parse(&packet, |_| agree(&packet)).expect("it is skipped");
        let Some((FrameView::Hello(view), _)) = packet.frames().next() else { unreachable!() };
        prop_assert_eq!(view.fields().rails.iter().collect::<Vec<_>>(), rails.clone());
        prop_assert_eq!(view.fields().rails.unknown().collect::<Vec<_>>(), [kind]);
        if len > 48 {
            return Ok(());
        }
        let (mut blob, fixed) = Address::new(1, 2, &[]).encode();
        blob[14] = list.count() as u8;
        blob[fixed..fixed + len].copy_from_slice(&encoded[..len]);
        let address = Address::decode(&blob).expect("it is skipped");
        prop_assert_eq!(address.rails().iter().collect::<Vec<_>>(), rails);
        prop_assert_eq!(address.rails().unknown().collect::<Vec<_>>(), [kind]);
        prop_assert_eq!(address.encode().0, blob, "and goes on to others");
    }
}

fn hello_with(rails: RailList<'static>) -> Frame {
    Frame::Hello(Hello {
        slot: 0,
        id: 1,
        token: 2,
        epoch: 3,
        algorithm: 1,
        algorithms: 2,
        reliable: true,
        eager_puts: true,
        refused: false,
        credit: 0,
        revision: 0,
        versions: Versions::OURS,
        of_destination: None,
        further: HelloFields::NONE,
        rails,
    })
}

/// An IPv4 address takes 12 bytes, an IPv6 address 24; the shortest full verbs address 28.
#[test]
fn the_blob_holds_two_rails_of_any_usual_kind_and_four_of_ipv4() {
    let of = |kind, len| {
        let mut addr = RailAddr::new(kind, &[7; 24][..len]);
        addr.datagram_max = 1_472;
        addr
    };
    let named = |rail: RailAddr| Address::new(1, 2, &[rail; 5]).rails().count();
    let counts = [
        (RailKind::Udp4, 7, 4),
        (RailKind::Udp6, 19, 2),
        // RoCE: GID and queue pair; InfiniBand: subnet prefix, LID, queue pair, P_Key.
        (RailKind::Ud, 19, 2),
        (RailKind::Ud, 15, 2),
        (RailKind::Ud, 23, 1),
    ];
    for (kind, len, count) in counts {
        let rail = of(kind, len);
        assert_eq!((rail.wire_len(), named(rail)), (5 + len, count));
    }
    let mixed = Address::new(1, 2, &[of(RailKind::Ud, 23), of(RailKind::Udp4, 7)]);
    assert_eq!((mixed.rails().count(), mixed.encode().1), (2, 56));
}

#[test]
fn invalid_addresses_give_a_reason() {
    let rail = |kind| {
        let mut addr = RailAddr::new(kind, &[1; 7]);
        addr.datagram_max = 1_472;
        addr
    };
    let (good, len) = Address::new(1, 2, &[rail(RailKind::Udp4)]).encode();
    let changed = |at: usize, value: u8| {
        let mut blob = good;
        blob[at] = value;
        Address::decode(&blob[..len]).unwrap_err()
    };
    assert_eq!(Address::decode(&good[..10]), Err(AddressError::Foreign));
    assert_eq!(changed(13, 0), AddressError::Foreign);
    assert_eq!(changed(12, 0), AddressError::Foreign);
    let older = changed(12, b'1');
    assert_eq!(older, AddressError::Version(b'1'));
    let text = older.to_string();
    assert!(
        text.contains("version 1 of the protocol, this one 4"),
        "{text}"
    );
    let later = Versions::only(9);
    let mut address = Address::new(1, 2, &[rail(RailKind::Udp4)]);
    address.set_versions(later);
    let read = Address::decode(&address.encode().0).map(|address| address.versions());
    assert_eq!(read, Ok(later), "its versions are told, whichever they are");
    // Count, length, largest datagram.
    for (at, value) in [(14, 0), (14, 2), (17, 1), (17, 200), (20, 0)] {
        assert_eq!(changed(at, value), AddressError::Malformed, "{at}: {value}");
    }
    let unknown = changed(16, 77);
    assert!(unknown.to_string().ends_with("kinds: 77"), "{unknown}");
}
