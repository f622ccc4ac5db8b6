//! Remote writes that leave without a grant: round trips, answers, refusals, peers that take none.

use crate::face;

use face::{done, node, output, take, Flying, Pair};
use marline_proto::{Claim, Config, DropReason, Event, Held, Node};
use marline_wire::{Frame, Packet, HEADER_LEN};

/// Bytes between a put in one RPC and the longest eager message.
const LENGTHS: [u64; 4] = [8_192, 20_000, 32_768, 65_536];

/// All remaining events of a node.
fn events(node: &mut Node) -> Vec<Event> {
    std::iter::from_fn(|| node.poll_event()).collect()
}

/// The claim of the remote write for which a node wants a place.
fn asked(events: &[Event]) -> Option<Claim> {
    events.iter().find_map(|event| match event {
        Event::PutAsked { claim, .. } => Some(*claim),
        _ => None,
    })
}

fn is_received(events: &[Event], handle: u32) -> bool {
    let received = |e: &Event| matches!(e, Event::RecvDone { handle: h, .. } if *h == handle);
    events.iter().any(received)
}

fn refused(node: &mut Node, handle: u32) -> bool {
    let refused = |e: &Event| matches!(e, Event::PutRefused { handle: h } if *h == handle);
    events(node).iter().any(refused)
}

fn put(pair: &mut Pair, handle: u32, len: u64) {
    assert!(pair.a.post_put(handle, pair.to_b, (7, 64, len), 0));
}

/// The packets that leave now, without those of probes of the path's size.
fn leaving(node: &mut Node, now: u64) -> Vec<Flying> {
    let mut packets = output(node, now, true);
    packets.retain(|(_, bytes)| {
        let packet = Packet::parse(bytes, |_| 0).unwrap();
        let found = packet.frames().any(|(f, _)| matches!(f, Frame::Ping));
        !found
    });
    packets
}

/// Round trips until the writer's or reader's operation ends; the other side serves it at once.
fn round_trips(pair: &mut Pair, is_over: impl Fn(&Event) -> bool) -> usize {
    for trips in 1..10 {
        let there = leaving(&mut pair.a, pair.now);
        take(&mut pair.b, pair.now, &there);
        for event in events(&mut pair.b) {
            match event {
                Event::PutAsked { claim, .. } => assert!(pair.b.accept_put(claim, 77)),
                Event::ReadAsked {
                    peer,
                    number,
                    len,
                    upto,
                    ..
                } => pair.b.serve_read(78, peer, number, len, upto),
                _ => {}
            }
        }
        let back = leaving(&mut pair.b, pair.now);
        take(&mut pair.a, pair.now, &back);
        if events(&mut pair.a).iter().any(&is_over) {
            return trips;
        }
    }
    panic!("{}", pair.a.describe());
}

#[test]
fn a_put_as_short_as_an_eager_message_takes_one_round_trip() {
    let ends = |e: &Event| {
        matches!(
            e,
            Event::SendDone {
                handle: 2,
                ok: true
            }
        )
    };
    for len in LENGTHS {
        for (eager_max, trips) in [(65_536, 1), (0, 2)] {
            let config = Config {
                eager_max,
                ..Config::default()
            };
            let mut pair = Pair::with(config, 1, true);
            put(&mut pair, 2, len);
            assert_eq!(round_trips(&mut pair, ends), trips, "{len} {eager_max}");
            pair.settle();
            assert_eq!([pair.a.held(), pair.b.held()], [Held::default(); 2]);
        }
    }
}

#[test]
fn a_read_is_answered_with_its_bytes() {
    let ends = |e: &Event| {
        matches!(
            e,
            Event::ReadDone {
                handle: 2,
                ok: true
            }
        )
    };
    for len in LENGTHS {
        let mut pair = Pair::new(1, true);
        assert!(pair.a.post_read(2, pair.to_b, (7, 64, len), 0));
        assert_eq!(round_trips(&mut pair, ends), 1, "{len}");
    }
}

/// The credit that messages leave bounds the bytes that come unasked: further puts wait for grants.
#[test]
fn puts_beyond_the_credit_ask_first() {
    let mut pair = Pair::new(1, true);
    events(&mut pair.a);
    (0..40).for_each(|handle| put(&mut pair, handle, 65_536));
    let there = output(&mut pair.a, pair.now, true);
    let eager_in = |(_, bytes): &Flying| {
        let packet = Packet::parse(bytes, |_| 0).unwrap();
        let eager = packet
            .frames()
            .filter(|(f, _)| matches!(f, Frame::Eager(_)));
        eager.count()
    };
    // One mebibyte of credit, a message of overhead each, and the reserve for requests.
    let eager: usize = there.iter().map(eager_in).sum();
    assert!((1..16).contains(&eager), "{eager}");
    take(&mut pair.b, pair.now, &there);
    let mut ended = 0;
    for _ in 0..2_000 {
        pair.step();
        for event in events(&mut pair.b) {
            if let Event::PutAsked { claim, .. } = event {
                assert!(pair.b.accept_put(claim, 77));
            }
        }
        let is_end = |e: &&Event| matches!(e, Event::SendDone { ok: true, .. });
        ended += events(&mut pair.a).iter().filter(is_end).count();
    }
    assert_eq!(ended, 40, "{}", pair.a.describe());
    assert_eq!([pair.a.held(), pair.b.held()], [Held::default(); 2]);
}

/// Acks do not end a put: its owner may still refuse it, and its bytes are not in their place.
#[test]
fn a_put_waits_for_its_answer() {
    for good in [true, false] {
        let mut pair = Pair::new(1, false);
        put(&mut pair, 2, 20_000);
        pair.settle();
        assert!(!done(&mut pair.a, 2), "acknowledged only");
        let claim = asked(&events(&mut pair.b)).expect("a place is wanted");
        match good {
            true => assert!(pair.b.accept_put(claim, 77)),
            false => pair.b.refuse_put(claim, pair.now),
        }
        let bounced = |e: &Event| match e {
            Event::RecvDone { bounce, .. } => bounce.is_some(),
            Event::BounceFree { .. } => !good,
            _ => false,
        };
        assert!(events(&mut pair.b).iter().any(bounced), "{good}");
        let _lost = output(&mut pair.b, pair.now, false);
        pair.settle();
        let ended = match good {
            true => done(&mut pair.a, 2),
            false => refused(&mut pair.a, 2),
        };
        assert!(ended, "{good}: {}", pair.a.describe());
        assert_eq!([pair.a.held(), pair.b.held()], [Held::default(); 2]);
    }
}

/// The owner closes its memory while bytes are missing, and the refusal is lost: the late bytes
/// find no place and are not acknowledged.
#[test]
fn an_eager_put_into_closed_memory_does_not_end_well() {
    let mut pair = Pair::new(1, false);
    put(&mut pair, 2, 20_000);
    let mut first = output(&mut pair.a, pair.now, false);
    let late = first.split_off(first.len() / 2);
    take(&mut pair.b, pair.now, &first);
    let claim = asked(&events(&mut pair.b)).expect("a place is wanted");
    assert!(pair.b.accept_put(claim, 77));
    pair.b.refuse_put(claim, pair.now);
    let _lost = output(&mut pair.b, pair.now, false);
    for (_, bytes) in &late {
        let packet = Packet::parse(bytes, |_| 0).unwrap();
        let taken = (pair.b).handle_packet(pair.now, &packet, bytes.len(), &mut face::Anywhere);
        assert_eq!(taken, Err(DropReason::NoMemory));
    }
    let said = output(&mut pair.b, pair.now, false);
    take(&mut pair.a, pair.now, &said);
    assert_eq!(pair.a.held().sends, 1, "{}", pair.a.describe());
    pair.settle();
    assert!(refused(&mut pair.a, 2), "{}", pair.a.describe());
    assert!(!is_received(&events(&mut pair.b), 77));
    assert_eq!([pair.a.held(), pair.b.held()], [Held::default(); 2]);
}

/// A refused put of which all bytes came, whose writer closes before it hears of the refusal,
/// leaves nothing; nor does one that is refused after its writer has closed.
#[test]
fn a_refused_put_of_a_closed_peer_leaves_no_state() {
    for refused_first in [true, false] {
        let mut pair = Pair::new(1, false);
        put(&mut pair, 2, 20_000);
        pair.step();
        let claim = asked(&events(&mut pair.b)).expect("a place is wanted");
        if refused_first {
            pair.b.refuse_put(claim, pair.now);
        }
        let _lost = output(&mut pair.b, pair.now, false);
        pair.a.say_bye();
        let byes = output(&mut pair.a, pair.now, false);
        take(&mut pair.b, pair.now, &byes);
        if !refused_first {
            pair.b.refuse_put(claim, pair.now);
        }
        assert_eq!(pair.b.held(), Held::default(), "{refused_first}");
    }
}

/// The posted receive of an untagged message does not get a put, in one packet or in several.
#[test]
fn an_eager_put_matches_no_receive() {
    for len in [100, 20_000] {
        let mut pair = Pair::new(1, false);
        put(&mut pair, 2, len);
        pair.message(5, 10);
        pair.step();
        let came = events(&mut pair.b);
        assert!(is_received(&came, 5), "{came:?}");
        let claim = asked(&came).expect("a place is wanted");
        assert!(pair.b.accept_put(claim, 77));
        assert!(is_received(&events(&mut pair.b), 77));
        pair.settle();
        assert!(done(&mut pair.a, 2), "{}", pair.a.describe());
    }
}

/// A peer whose HELLO does not allow eager puts gets requests.
#[test]
fn an_earlier_library_is_asked_first() {
    let mut pair = Pair::of([node(1, 1), node(2, 1)], false);
    pair.message(1, 2_000);
    for _ in 0..40 {
        pair.now += 20_000;
        for node in [&mut pair.a, &mut pair.b] {
            node.on_poll(pair.now, false);
            node.handle_timeouts(pair.now);
        }
        let there = output(&mut pair.a, pair.now, false);
        take(&mut pair.b, pair.now, &there);
        let mut back = output(&mut pair.b, pair.now, false);
        back.iter_mut()
            .for_each(|(_, bytes)| clear_eager_puts(bytes));
        take(&mut pair.a, pair.now, &back);
    }
    assert!(done(&mut pair.a, 1), "{}", pair.a.describe());
    put(&mut pair, 2, 20_000);
    let sent = output(&mut pair.a, pair.now, false);
    let packet = Packet::parse(&sent[0].1, |_| 0).unwrap();
    let asks = |(frame, _)| matches!(frame, Frame::Rts(_));
    assert!(packet.frames().any(asks));
}

/// Clears the bit of a HELLO at the beginning of a packet.
fn clear_eager_puts(bytes: &mut [u8]) {
    let packet = Packet::parse(bytes, |_| 0).unwrap();
    let first = packet.frames().next();
    if matches!(first, Some((Frame::Hello(_), _))) {
        assert_eq!(bytes[HEADER_LEN + 25], 3);
        bytes[HEADER_LEN + 25] = 1;
    }
}
