//! First pieces of long messages, which leave with their requests: when they do, where they go, and
//! what happens to late, lost, cut and forged ones.

use crate::face;

use face::pieces::{prompt, prompt_with, receive, run, run_through, Places, FIRST, LEN, PROMPT};
use face::{done, node_of, node_with, output, specs, Anywhere, Flying, Pair};
use marline_proto::{Config, DropReason, Held, Node, RecvSpec, Source};
use marline_wire::{Data, Frame, MsgHead, Packet, RailWrites, Rts, FIRST_PIECE_MAX};

/// The bytes that a request among the packets brings.
fn first_of(packets: &[Flying]) -> Option<u16> {
    packets.iter().find_map(|(_, bytes)| {
        let packet = Packet::parse(bytes, |_| 0).unwrap();
        let first = packet.frames().find_map(|(frame, _)| match frame {
            Frame::Rts(rts) => Some(rts.first),
            _ => None,
        });
        first
    })
}

/// The bytes of messages in the packets.
fn payload(packets: &[Flying]) -> u64 {
    let bytes = |(_, bytes): &Flying| {
        let packet = Packet::parse(bytes, |_| 0).unwrap();
        let data = packet.frames().map(|(frame, payload)| match frame {
            Frame::Data(_) => payload.len() as u64,
            _ => 0,
        });
        data.sum::<u64>()
    };
    packets.iter().map(bytes).sum()
}

/// All that was sent has ended, and nothing is left.
fn over(pair: &mut Pair, places: &Places, handle: u32) {
    assert!(done(&mut pair.a, handle), "{}", pair.a.describe());
    assert_eq!([pair.a.held(), pair.b.held()], [Held::default(); 2]);
    assert!(
        places.bounced.is_empty() && places.wrong.is_empty(),
        "{:?}",
        places.wrong
    );
}

/// The request takes one way, and so do the first bytes: without a piece they take three.
#[test]
fn first_bytes_come_with_the_request() {
    for (first_pieces, ways) in [(Some(8), 1), (None, 3)] {
        let config = Config {
            first_pieces,
            ..Config::default()
        };
        let (mut pair, mut places) = (prompt_with(config), Places::default());
        pair.message(20, LEN);
        let mut found = None;
        for way in 1..4 {
            let (from, to) = match way % 2 {
                1 => (&mut pair.a, &mut pair.b),
                _ => (&mut pair.b, &mut pair.a),
            };
            let packets = output(from, pair.now, true);
            let got = payload(&packets);
            if got > 0 {
                found = found.or(Some((way, got)));
            }
            for (_, bytes) in &packets {
                let packet = Packet::parse(bytes, |_| 0).unwrap();
                to.handle_packet(pair.now, &packet, bytes.len(), &mut places)
                    .unwrap();
            }
        }
        assert_eq!(found.map(|(way, _)| way), Some(ways));
        if first_pieces.is_some() {
            assert_eq!(found.map(|(_, bytes)| bytes), Some(FIRST));
        }
        run(&mut pair, &mut places);
        over(&mut pair, &places, 20);
    }
}

/// All bytes leave once, and the grants continue behind the piece.
#[test]
fn nothing_is_sent_twice() {
    let (mut pair, mut places) = (prompt(), Places::default());
    pair.message(20, 1 << 20);
    let mut bytes = 0;
    let ended = run_through(&mut pair, &mut places, &mut |from, packet| {
        bytes += (from == 0) as u64 * payload(std::slice::from_ref(packet));
        true
    });
    assert_eq!((ended, bytes), (vec![(20, 1 << 20)], 1 << 20));
    assert_eq!(pair.a.stats().first_pieces_sent, 1);
    over(&mut pair, &places, 20);
}

/// A message without a receive waits in a bounce buffer that is as long as its piece. Its late
/// grant ends the pieces until eight requests were granted soon.
#[test]
fn an_unexpected_piece_is_held_once() {
    let (mut pair, mut places) = (prompt(), Places::default());
    pair.send(20, LEN);
    assert_eq!(run(&mut pair, &mut places), []);
    let held = pair.b.held().unexpected_bytes;
    assert_eq!((held, places.bounced.len()), (FIRST + 128, 1));
    receive(&mut pair, 20, LEN);
    assert_eq!(pair.b.held().unexpected_bytes, 128);
    assert_eq!(run(&mut pair, &mut places), [(20, LEN)]);
    over(&mut pair, &places, 20);
    for handle in 21..21 + PROMPT {
        pair.message(handle, LEN);
        pair.settle();
        assert!(done(&mut pair.a, handle));
        assert_eq!(pair.a.stats().first_pieces_sent, 1);
    }
    pair.message(40, LEN);
    let packets = output(&mut pair.a, pair.now, true);
    assert_eq!(first_of(&packets).map(u64::from), Some(FIRST));
}

/// Messages that follow each other wait for their grants.
#[test]
fn windows_have_no_pieces() {
    let (mut pair, mut places) = (prompt(), Places::default());
    (20..23).for_each(|handle| pair.message(handle, LEN));
    assert_eq!(run(&mut pair, &mut places).len(), 3);
    assert_eq!(pair.a.stats().first_pieces_sent, 0);
    pair.send(30, 40_000);
    pair.message(31, LEN);
    let packets = output(&mut pair.a, pair.now, true);
    assert_eq!(first_of(&packets), Some(0), "behind another message");
}

/// A receive that is shorter than the piece, or than the message, ends with what it has room for;
/// posted before the message or after it.
#[test]
fn cut_messages_end() {
    let lengths = [0, 1, 447, 448, 10_000, FIRST - 1, FIRST, FIRST + 1, LEN - 1];
    for capacity in lengths {
        for late in [false, true] {
            let (mut pair, mut places) = (prompt(), Places::default());
            if !late {
                receive(&mut pair, 20, capacity);
            }
            pair.send(20, LEN);
            let mut ended = run(&mut pair, &mut places);
            if late {
                receive(&mut pair, 20, capacity);
                ended.extend(places.follow(&mut pair.b));
                ended.extend(run(&mut pair, &mut places));
            }
            assert_eq!(ended, [(20, capacity)], "{capacity} {late}");
            over(&mut pair, &places, 20);
        }
    }
}

/// The request is lost, or any other packet, in either direction: the message comes once.
#[test]
fn a_lost_packet_comes_again() {
    for late in [false, true] {
        for lost in 0..60 {
            for way in [0, 1] {
                let (mut pair, mut places) = (prompt(), Places::default());
                if !late {
                    receive(&mut pair, 20, LEN);
                }
                pair.send(20, LEN);
                let mut count = 0;
                let mut passes = |from: usize, _: &Flying| {
                    count += (from == way) as u32;
                    from != way || count != lost + 1
                };
                let mut ended = run_through(&mut pair, &mut places, &mut passes);
                if late {
                    receive(&mut pair, 20, LEN);
                    ended.extend(run_through(&mut pair, &mut places, &mut passes));
                }
                assert_eq!(ended, [(20, LEN)], "{late} {lost} {way}");
                over(&mut pair, &places, 20);
            }
        }
    }
}

/// Fragments that overtake their request are dropped and come again; copies of the request and of
/// fragments, before and after the message's end, change nothing.
#[test]
fn late_and_repeated_requests_change_nothing() {
    let (mut pair, mut places) = (prompt(), Places::default());
    pair.message(20, LEN);
    let packets = output(&mut pair.a, pair.now, true);
    let mut give = |pair: &mut Pair, (_, bytes): &Flying| {
        let packet = Packet::parse(bytes, |_| 0).unwrap();
        let taken = pair
            .b
            .handle_packet(pair.now, &packet, bytes.len(), &mut places);
        taken.map(|_| ())
    };
    let request = packets
        .iter()
        .position(|p| first_of(std::slice::from_ref(p)).is_some());
    let request = request.expect("a request");
    for packet in &packets[request + 1..] {
        if payload(std::slice::from_ref(packet)) > 0 {
            assert_eq!(give(&mut pair, packet), Err(DropReason::Early));
        }
    }
    assert_eq!(give(&mut pair, &packets[request]), Ok(()));
    for packet in &packets[request + 1..] {
        assert_eq!(give(&mut pair, packet), Ok(()), "new: it was not stored");
    }
    for packet in &packets {
        let again = give(&mut pair, packet);
        assert!(matches!(again, Ok(()) | Err(DropReason::Duplicate)));
    }
    assert_eq!(run(&mut pair, &mut places), [(20, LEN)]);
    over(&mut pair, &places, 20);
}

/// A claimed message that is discarded, and one whose sender leaves, free their bounce buffers.
#[test]
fn an_unreceived_piece_is_freed() {
    let claims = RecvSpec {
        handle: 0,
        source: Source::Any,
        tag: None,
        capacity: LEN,
        multi_min: None,
    };
    let (mut pair, mut places) = (prompt(), Places::default());
    pair.send(20, LEN);
    assert_eq!(run(&mut pair, &mut places), []);
    let (_, claim) = pair.b.peek(&claims, true).expect("unexpected");
    assert!(pair.b.discard_claimed(claim.expect("claimed")).is_some());
    assert_eq!(run(&mut pair, &mut places), []);
    over(&mut pair, &places, 20);

    let (mut pair, mut places) = (prompt(), Places::default());
    pair.send(20, LEN);
    assert_eq!(run(&mut pair, &mut places), []);
    assert_eq!(places.bounced.len(), 1);
    pair.a.say_bye();
    run(&mut pair, &mut places);
    assert!(places.bounced.is_empty());
    assert_eq!(pair.b.held(), Held::default());
}

/// Without credit for the piece, or where the peer or this side takes none, the request leaves
/// alone.
#[test]
fn pieces_need_credit_and_a_peer_that_takes_them() {
    let config = Config {
        credit_bytes: 128 << 10,
        unexpected_bytes: 512 << 10,
        ..Config::default()
    };
    let (mut pair, mut places) = (prompt_with(config), Places::default());
    for handle in 20..22 {
        pair.send(handle, 60_000);
        run(&mut pair, &mut places);
    }
    pair.send(50, LEN);
    let packets = output(&mut pair.a, pair.now, true);
    assert_eq!(first_of(&packets), Some(0));

    let off = Config {
        first_pieces: None,
        ..Config::default()
    };
    let nodes = |configs: [Config; 2]| {
        let [a, b] = configs;
        Pair::of([node_with(a, 1, 1), node_with(b, 2, 1)], true)
    };
    for configs in [[off, Config::default()], [Config::default(), off]] {
        let mut pair = nodes(configs);
        for handle in 0..2 * PROMPT {
            pair.message(handle, LEN);
            pair.settle();
        }
        assert_eq!(pair.a.stats().first_pieces_sent, 0);
    }
}

/// A request and the first fragment of its piece, of a stranger.
fn forged(to: &Node, number: u32, first: u16, total: u64) -> Vec<u8> {
    let head = MsgHead {
        number,
        flags: 0,
        tag: 0,
        data: 0,
        total,
    };
    let rail = face::rail_addr(0, 9, 0, 1_472);
    let request = Frame::Rts(Rts { head, first });
    let ends = (55, 3, u64::from(number) + 1);
    face::hello_packet(to, ends, &[rail], &[request])
}

/// Strangers' pieces take no more memory than strangers may have, however many requests come; a
/// piece beyond the limit, or of a message that needs no grant, is no request.
#[test]
fn forged_pieces_stay_within_the_bound() {
    let config = Config {
        unexpected_bytes: 256 << 10,
        ..Config::default()
    };
    let mut node = node_with(config, 1, 1);
    let mut give = |bytes: &[u8]| {
        let packet = Packet::parse(bytes, |_| 0).map_err(|_| None)?;
        let taken = node.handle_packet(1_000_000, &packet, bytes.len(), &mut Anywhere);
        let held = node.held().unexpected_bytes;
        assert!(held <= 128 << 10, "{held}");
        taken.map(|_| ()).map_err(Some)
    };
    let target = node_with(config, 1, 1);
    let short = forged(&target, 0, 448, 65_536);
    assert_eq!(give(&short), Err(Some(DropReason::Invalid)));
    for first in [FIRST_PIECE_MAX + 448, 447, u16::MAX] {
        assert_eq!(give(&forged(&target, 0, first, LEN)), Err(None));
    }
    assert_eq!(give(&forged(&target, 0, 448, 448)), Err(None));
    let forge = |number| forged(&target, number, FIRST_PIECE_MAX, LEN);
    let taken = (1..100).filter(|&number| give(&forge(number)).is_ok());
    assert!(taken.count() > 2);
}

/// A fragment of a message beyond the credit did not overtake its request: it is forged.
#[test]
fn a_fragment_beyond_the_credit_is_not_early() {
    for (number, why) in [(1, DropReason::Early), (1 << 30, DropReason::Invalid)] {
        let mut node = node_with(Config::default(), 1, 1);
        let data = Frame::Data(Data {
            number,
            flags: 0,
            offset: 0,
            total: LEN,
            len: 448,
            sum: 0,
        });
        let rail = face::rail_addr(0, 9, 0, 1_472);
        let bytes = face::hello_packet(&node, (55, 3, 0), &[rail], &[data]);
        let packet = Packet::parse(&bytes, |_| 0).unwrap();
        let taken = node.handle_packet(1_000_000, &packet, bytes.len(), &mut Anywhere);
        assert_eq!(taken, Err(why));
    }
}

/// Rails that write by key get memory whose bytes were changed first: no piece may be there.
#[test]
fn rails_that_write_by_key_get_no_pieces() {
    let nodes = [1, 2].map(|host| {
        let mut rails = specs(host, 1, 1_472);
        rails[0].addr.writes = RailWrites::Keyed;
        node_of(Config::default(), host, rails)
    });
    let mut pair = Pair::of(nodes, true);
    for handle in 0..2 * PROMPT {
        pair.message(handle, LEN);
        pair.settle();
        assert!(done(&mut pair.a, handle));
    }
    assert_eq!(pair.a.stats().first_pieces_sent, 0);
}
