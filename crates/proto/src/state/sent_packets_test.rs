//! The ring compared with a plain list of packets.

use super::*;
use proptest::prelude::*;
use std::vec;
use std::vec::Vec;

/// Number of the first packet; soon after it the low halves in the ring wrap.
const START: u64 = u32::MAX as u64 - 40;

/// A packet of the plain list.
#[derive(Clone, Debug)]
struct Plain {
    frames: Vec<FrameRef>,
    bytes: u64,
    sent_ns: u64,
    state: SentState,
}

fn late_ring() -> SendRing {
    SendRing {
        base: START,
        first: START,
        next: START,
        frames_first: START as u32,
        ..SendRing::default()
    }
}

/// A step.
#[derive(Clone, Debug)]
enum Step {
    Push(u16, usize),
    Fragments(usize, usize),
    Settle(prop::sample::Index, bool),
    Acknowledge(prop::sample::Index, u64),
    Retire,
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        3 => (0u16..5, 0usize..2_000).prop_map(|(frames, bytes)| Step::Push(frames, bytes)),
        1 => (0usize..70, 1usize..2_000).prop_map(|(n, bytes)| Step::Fragments(n, bytes)),
        4 => (any::<prop::sample::Index>(), any::<bool>())
            .prop_map(|(at, done)| Step::Settle(at, done)),
        2 => (any::<prop::sample::Index>(), any::<u64>(), any::<bool>()).prop_map(
            |(at, mask, all)| Step::Acknowledge(at, if all { u64::MAX } else { mask })),
        1 => Just(Step::Retire),
    ]
}

/// Compares all queries with the list of all packets ever pushed.
fn agree(ring: &SendRing, plain: &[Plain]) {
    let waits = |p: &&Plain| p.state == SentState::Waiting;
    let waiting: Vec<&Plain> = plain.iter().filter(waits).collect();
    assert_eq!(ring.next_number(), START + plain.len() as u64);
    assert_eq!(ring.waiting() as usize, waiting.len());
    assert_eq!(ring.in_flight(), waiting.iter().map(|p| p.bytes).sum());
    let numbered = || (START..).zip(plain);
    let oldest = numbered().find(|(_, p)| p.state == SentState::Waiting);
    let found = ring.oldest_waiting().map(|(number, _)| number);
    assert_eq!(found, oldest.map(|(number, _)| number));
    for (number, packet) in numbered() {
        let Some(sent) = ring.get(number) else {
            assert_ne!(packet.state, SentState::Waiting, "{number} was forgotten");
            assert!(number < ring.first());
            continue;
        };
        let frames: Vec<FrameRef> = ring.frames_of(&sent).collect();
        assert_eq!((sent.state, &frames), (packet.state, &packet.frames));
        same(&sent, packet);
    }
}

fn same(sent: &Sent, packet: &Plain) {
    let found = (sent.bytes as u64, sent.sent_ns);
    assert_eq!(found, (packet.bytes, packet.sent_ns));
}

/// Acknowledges in ring and list all packets that `named` names from `number` on.
fn acknowledge(ring: &mut SendRing, plain: &mut [Plain], number: u64, named: u64) {
    let (mut covered, mut new) = (0, Vec::new());
    while covered < 64 {
        let mut bytes = 0;
        let before = ring.in_flight();
        let acked = ring.acknowledge(number + covered, named >> covered, |frame| {
            new.extend(bytes_of(frame));
        });
        let range = covered..(covered + acked.covered as u64).min(64);
        let mut expected = (0, None);
        for at in range.filter(|at| named >> at & 1 == 1) {
            let there = ring.get(number + at).is_some();
            let index = (number - START + at) as usize;
            let Some(packet) = plain.get_mut(index).filter(|_| there) else {
                continue;
            };
            if packet.state == SentState::Done {
                continue;
            }
            bytes += packet.bytes * (packet.state == SentState::Waiting) as u64;
            expected.0 += 1;
            expected.1 = Some(number + at);
            for frame in &packet.frames {
                let carried = bytes_of(*frame);
                assert!(new.len() >= carried.len());
                assert_eq!(new.drain(..carried.len()).collect::<Vec<_>>(), carried);
            }
            packet.state = SentState::Done;
        }
        if let Some((number, sent)) = &acked.newest {
            same(sent, &plain[(number - START) as usize]);
        }
        let newest = acked.newest.map(|(number, _)| number);
        assert_eq!((acked.packets, newest), expected);
        assert_eq!(before - ring.in_flight(), bytes);
        covered += acked.covered as u64;
    }
    assert!(new.is_empty(), "{new:?}");
}

/// A frame as single bytes.
fn bytes_of(frame: FrameRef) -> Vec<(FrameRef, u64)> {
    match frame {
        FrameRef::Data { xfer, offset, len } => {
            let whole = FrameRef::Data {
                xfer,
                offset: 0,
                len: 0,
            };
            (offset..offset + len as u64)
                .map(|at| (whole, at))
                .collect()
        }
        other => vec![(other, 0)],
    }
}

proptest! {
    #[test]
    fn agrees_with_a_list_of_all_packets(
        steps in proptest::collection::vec(step(), 1..if cfg!(miri) { 20 } else { 120 }))
    {
        let (mut ring, mut plain) = (late_ring(), Vec::<Plain>::new());
        for step in steps {
            match step {
                Step::Push(count, bytes) => {
                    let number = plain.len() as u32;
                    let frame = |i| FrameRef::EmptyGrant {
                        number,
                        flags: i as u8,
                    };
                    let frames: Vec<FrameRef> = (0..count).map(frame).collect();
                    let sent_ns = plain.len() as u64;
                    ring.push(&frames, bytes, Delivered::default(), sent_ns);
                    let state = if count == 0 { SentState::Done } else { SentState::Waiting };
                    plain.push(Plain { frames, bytes: bytes as u64, sent_ns, state });
                }
                Step::Settle(at, done) => {
                    // The range includes numbers that were never assigned.
                    let index = at.index(plain.len() + 2);
                    let number = START + index as u64;
                    let to = if done { SentState::Done } else { SentState::Lost };
                    let was = plain.get(index).map(|p| p.state);
                    let settled = ring.settle(number, to);
                    prop_assert_eq!(settled, was == Some(SentState::Waiting));
                    // A packet that has left the ring is no longer tracked.
                    let there = ring.get(number).is_some();
                    if there && was != Some(SentState::Done) {
                        plain[index].state = to;
                    }
                }
                Step::Fragments(count, bytes) => {
                    let (key, len) = (Key::of(7), bytes as u32);
                    let sent_ns = plain.len() as u64;
                    let with = (Delivered::default(), sent_ns);
                    ring.push_fragments((key, 7, len), count, bytes + 9, with);
                    for at in 0..count as u64 {
                        let offset = 7 + at * bytes as u64;
                        let frames = vec![FrameRef::Data { xfer: key, offset, len }];
                        let (bytes, state) = (bytes as u64 + 9, SentState::Waiting);
                        plain.push(Plain { frames, bytes, sent_ns, state });
                    }
                }
                Step::Acknowledge(at, named) => {
                    let number = START + at.index(plain.len() + 2) as u64;
                    acknowledge(&mut ring, &mut plain, number, named);
                }
                Step::Retire => ring.retire(),
            }
            agree(&ring, &plain);
        }
    }
}

#[test]
fn settles_in_any_order_and_retires_from_the_front() {
    let mut ring = SendRing::default();
    for i in 0..5u64 {
        let n = if i == 3 { 0 } else { 2 };
        let frames: Vec<FrameRef> = (0..n).map(|_| FrameRef::ReadFail(i as u32)).collect();
        ring.push(&frames, 100, Delivered::default(), i);
    }
    assert_eq!(
        (ring.waiting(), ring.in_flight(), ring.next_number()),
        (4, 400, 5)
    );
    assert!(ring.settle(1, SentState::Done));
    assert!(!ring.settle(1, SentState::Lost));
    assert!(ring.settle(0, SentState::Lost));
    ring.retire();
    assert_eq!(ring.oldest_waiting().map(|(n, _)| n), Some(2));
    let sent = ring.get(4).unwrap();
    let frames: Vec<FrameRef> = ring.frames_of(&sent).collect();
    assert_eq!(frames, [FrameRef::ReadFail(4), FrameRef::ReadFail(4)]);
    assert!(ring.get(0).is_none());
    assert!(ring.settle(2, SentState::Done) && ring.settle(4, SentState::Done));
    ring.retire();
    assert_eq!((ring.next_number(), ring.in_flight()), (5, 0));
}
