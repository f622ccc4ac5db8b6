//! Additions of later versions are skipped by their length, and a refusal is read in every version.

use marline_wire::{
    Extension, Frame, FrameView, GroupFrame, GroupHead, GroupPacket, GroupWriter, HeadWriter,
    Header, Hello, HelloFields, Packet, ParseError, RailAddr, RailKind, RailList, Versions,
    EXTENSION_KINDS, GROUP_HEAD_LEN, HELLO_FIELDS_MAX, VERSION,
};
use proptest::prelude::*;

const LATER: Versions = Versions {
    oldest: VERSION + 4,
    newest: VERSION + 5,
};

fn header(version: u8) -> Header {
    Header {
        version,
        algorithm: 1,
        dst_id: 2,
        dst_token: 3,
        dst_slot: 4,
        src_id: 5,
        src_epoch: 6,
        path: 7,
        flags: 0,
        number: 8,
    }
}

/// A packet with these frames; the payload of each is filled with its number from 1 on.
fn packet(version: u8, frames: &[Frame<Hello<'_>>]) -> Vec<u8> {
    let mut out = vec![0; 64_000];
    let mut writer = HeadWriter::new(&mut out, 64_000);
    let slots: Vec<_> = frames.iter().map(|f| writer.push(f).unwrap()).collect();
    let (head_len, len) = writer.finish(&header(version));
    for (slot, n) in slots.iter().zip(1..) {
        let at = head_len + slot.payload_at as usize;
        out[at..at + slot.len as usize].fill(n);
    }
    out.truncate(len);
    out
}

fn parse(bytes: &[u8]) -> Result<Packet<'_>, ParseError> {
    Packet::parse(bytes, |_| 0)
}

fn hello<'a>(refused: bool, further: HelloFields<'a>, rails: RailList<'a>) -> Frame<Hello<'a>> {
    Frame::Hello(Hello {
        slot: 1,
        id: 5,
        token: 3,
        epoch: 6,
        algorithm: 1,
        algorithms: 2,
        reliable: true,
        eager_puts: true,
        refused,
        credit: 9,
        revision: 1,
        versions: LATER,
        of_destination: Some(Versions::OURS),
        rails,
        further,
    })
}

fn rails(out: &mut [u8; 64]) -> RailList<'_> {
    let mut rail = RailAddr::new(RailKind::Udp4, &[7; 7]);
    rail.datagram_max = 1_472;
    RailList::write(out, &[rail; 2])
}

proptest! {
    /// Frames of later versions, with or without payload, change nothing about their neighbours.
    #[test]
    fn unknown_frames_are_skipped(
        kind in EXTENSION_KINDS, words in 1u16..40, payload in 0u16..2_000,
        lens in proptest::collection::vec(0u16..600, 1..5), at in any::<prop::sample::Index>(),
        own in any::<(u8, u16, u8)>())
    {
        let len = 8 * words;
        let mut frames: Vec<Frame> =
            lens.iter().map(|len| Frame::Pad { len: *len, head: 0 }).collect();
        let at = at.index(frames.len() + 1);
        frames.insert(at, Frame::Extension(Extension { kind, len, payload }));
        let mut bytes = packet(VERSION, &frames);
        // Bytes of the frame that only a version which knows it can read.
        let start = 48 + 8 * at;
        bytes[start + 1] = own.0;
        bytes[start + 6..start + 8].copy_from_slice(&own.1.to_le_bytes());
        bytes[start + 8..start + len as usize].fill(own.2);
        let packet = parse(&bytes).expect("it is skipped");
        let read: Vec<_> = packet.frames().collect();
        prop_assert_eq!(read.len(), frames.len());
        for (((frame, bytes), wrote), n) in read.iter().zip(&frames).zip(1..) {
            prop_assert_eq!(frame.fields(), *wrote);
            prop_assert_eq!(bytes.len(), wrote.payload_len());
            prop_assert!(bytes.iter().all(|b| *b == n));
        }
    }

    /// Fields of later versions behind the rails are skipped, whatever they have.
    #[test]
    fn further_fields_of_hello_are_skipped(
        kind in 1u8.., own in proptest::collection::vec(any::<u8>(), 0..HELLO_FIELDS_MAX - 2))
    {
        let (mut field, mut list) = ([0; HELLO_FIELDS_MAX], [0; 64]);
        let further = HelloFields::write(&mut field, kind, &own).unwrap();
        let wrote = hello(false, further, rails(&mut list));
        let bytes = packet(VERSION, &[wrote, Frame::Ping]);
        let packet = parse(&bytes).expect("they are skipped");
        let mut frames = packet.frames().map(|(frame, _)| frame);
        let Some(FrameView::Hello(view)) = frames.next() else { unreachable!() };
        let read = view.fields();
        prop_assert_eq!(Frame::Hello(read), wrote);
        prop_assert_eq!(read.further.iter().collect::<Vec<_>>(), [(kind, &own[..])]);
        prop_assert_eq!((read.versions, read.of_destination), (LATER, Some(Versions::OURS)));
        prop_assert_eq!(frames.next(), Some(FrameView::Ping));
    }
}

#[test]
fn frames_without_a_stated_length_are_malformed() {
    let with = |at: usize, value: u8| {
        let extension = Extension {
            kind: 200,
            len: 16,
            payload: 0,
        };
        let mut bytes = packet(VERSION, &[Frame::Extension(extension)]);
        bytes[48 + at] = value;
        parse(&bytes).map(drop)
    };
    assert_eq!(with(0, 128), Ok(()));
    for (at, value) in [(0, 127), (0, 9), (2, 0), (2, 12), (2, 24), (3, 1)] {
        assert_eq!(with(at, value), Err(ParseError::Malformed), "{at}: {value}");
    }
    assert_eq!(
        with(4, 1),
        Err(ParseError::Truncated),
        "a payload is missing"
    );
}

#[test]
fn fields_of_hello_are_whole_and_few() {
    let mut list = [0; 64];
    let rails = rails(&mut list);
    let mut room = [0; 255];
    let cut = |len: usize, field: &mut [u8]| {
        let further = HelloFields::write(field, 7, &vec![1; len]).unwrap();
        let mut bytes = packet(VERSION, &[hello(false, further, rails)]);
        let last = 48 + 56 + rails.bytes().len() + 1;
        assert_eq!(bytes[last], len as u8);
        let whole = parse(&bytes).map(drop);
        bytes[last] = 200;
        assert_eq!(parse(&bytes).map(drop), Err(ParseError::Malformed));
        whole
    };
    assert_eq!(cut(0, &mut room), Ok(()));
    assert_eq!(cut(HELLO_FIELDS_MAX - 2, &mut room), Ok(()));
    let longer = cut(HELLO_FIELDS_MAX - 1, &mut room);
    assert_eq!(longer, Err(ParseError::Malformed));
    assert!(
        HelloFields::write(&mut room, 0, &[]).is_none(),
        "the end mark"
    );
    assert!(HelloFields::write(&mut [0; 3], 1, &[1, 2]).is_none());
}

/// A refusal is a HELLO alone. It is read in every version, and nothing else is.
#[test]
fn a_refusal_is_read_in_every_version() {
    let mut list = [0; 64];
    let rails = rails(&mut list);
    let refusal = hello(true, HelloFields::NONE, rails);
    for version in (VERSION + 2)..128 {
        let bytes = packet(version, &[refusal]);
        let read = parse(&bytes).expect("a refusal");
        assert_eq!(read.header, header(version));
        let (frame, _) = read.frames().next().unwrap();
        assert_eq!(frame.fields(), refusal);
        for frames in [
            &[][..],
            &[hello(false, HelloFields::NONE, rails)],
            &[refusal, Frame::Ping],
            &[Frame::Ping],
        ] {
            let bytes = packet(version, frames);
            assert_eq!(parse(&bytes).map(drop), Err(ParseError::Version));
        }
    }
}

#[test]
fn words_of_groups_of_later_versions_are_skipped() {
    let head = GroupHead {
        algorithm: 1,
        group: 2,
        token: 3,
        member: 4,
        src_id: 5,
        src_epoch: 6,
        network: 0,
        flags: 0,
    };
    let words = [
        GroupFrame::Probe,
        GroupFrame::Ack {
            root: 1,
            next: 2,
            flags: Default::default(),
        },
    ];
    let mut out = [0; 256];
    let mut writer = GroupWriter::new(&mut out);
    words.iter().for_each(|word| assert!(writer.push(word)));
    let len = writer.finish(&head, None).unwrap();
    let with = |at: usize, stated: u8| {
        let mut bytes = out[..at].to_vec();
        bytes.extend([130, 1, stated, 0, 9, 9, 9, 9]);
        bytes.resize(at + 24, 0xff);
        bytes.extend(&out[at..len]);
        let head_len = bytes.len() as u16;
        bytes[6..8].copy_from_slice(&head_len.to_le_bytes());
        GroupPacket::parse(&bytes, |_| 0).map(|packet| packet.frames().collect::<Vec<_>>())
    };
    for at in [GROUP_HEAD_LEN, GROUP_HEAD_LEN + 8, len] {
        assert_eq!(with(at, 24), Ok(words.to_vec()), "at {at}");
    }
    for stated in [0, 4, 200] {
        let read = with(GROUP_HEAD_LEN, stated);
        assert_eq!(read, Err(ParseError::Malformed), "{stated} bytes");
    }
}
