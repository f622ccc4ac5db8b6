//! Remote writes (puts) between two nodes.

use crate::face;

use face::{done, output, take, Pair};
use marline_proto::{Claim, Config, Event, Held, Node};

/// All remaining events of a node.
fn events(node: &mut Node) -> Vec<Event> {
    std::iter::from_fn(|| node.poll_event()).collect()
}

/// The place that a node was asked for, with key, address and length.
fn asked(node: &mut Node) -> (Claim, (u64, u64, u64)) {
    let ask = |event: Event| match event {
        Event::PutAsked {
            claim,
            key,
            addr,
            len,
            ..
        } => Some((claim, (key, addr, len))),
        _ => None,
    };
    let found = events(node).into_iter().find_map(ask);
    found.expect("nobody was asked for a place")
}

fn refused(node: &mut Node, handle: u32) -> bool {
    let refused = |e: &Event| matches!(e, Event::PutRefused { handle: h } if *h == handle);
    events(node).iter().any(refused)
}

/// `a` begins to write `len` bytes, and `b` is asked for the place.
fn begin(pair: &mut Pair, handle: u32, len: u64) -> Claim {
    assert!(pair.a.post_put(handle, pair.to_b, (7, 64, len), 0));
    pair.step();
    let (claim, range) = asked(&mut pair.b);
    assert_eq!(range, (7, 64, len));
    claim
}

#[test]
fn puts_of_any_length_reach_their_place_and_match_no_receive() {
    for len in [1, 64, 1_000, 65_536, 1 << 20] {
        let mut pair = Pair::new(2, false);
        // The next message is of the same source, and comes after the put.
        let claim = begin(&mut pair, 2, len);
        pair.message(5, 10);
        assert!(pair.b.accept_put(claim, 77));
        pair.settle();
        assert!(done(&mut pair.a, 2), "{len}: {}", pair.a.describe());
        let came: Vec<_> = events(&mut pair.b)
            .into_iter()
            .filter_map(|e| match e {
                Event::RecvDone { handle, len, .. } => Some((handle, len)),
                _ => None,
            })
            .collect();
        assert!(
            came.contains(&(77, len)) && came.contains(&(5, 10)),
            "{came:?}"
        );
        assert_eq!([pair.a.held(), pair.b.held()], [Held::default(); 2]);
    }
}

#[test]
fn a_refused_put_fails_and_leaves_no_state() {
    for len in [1_000, 20_000, 300_000] {
        let mut pair = Pair::new(2, false);
        let claim = begin(&mut pair, 2, len);
        pair.b.refuse_put(claim, pair.now);
        pair.settle();
        assert!(refused(&mut pair.a, 2), "{}", pair.a.describe());
        assert_eq!([pair.a.held(), pair.b.held()], [Held::default(); 2]);
    }
}

/// The owner closes its memory while a put is in flight, and the refusal is lost. Fragments of the
/// put that arrive afterwards have no place: if they were acknowledged, the writer would count all
/// bytes as written.
#[test]
fn a_put_into_closed_memory_does_not_end_well() {
    let mut pair = Pair::new(1, false);
    let claim = begin(&mut pair, 2, 100_000);
    assert!(pair.b.accept_put(claim, 77));
    let grant = output(&mut pair.b, pair.now, false);
    take(&mut pair.a, pair.now, &grant);
    let data = output(&mut pair.a, pair.now, false);
    pair.b.refuse_put(claim, pair.now);
    let lost = output(&mut pair.b, pair.now, false);
    assert!(!lost.is_empty());
    take(&mut pair.b, pair.now, &data);
    let said = output(&mut pair.b, pair.now, false);
    take(&mut pair.a, pair.now, &said);
    assert!(pair.a.held().sends == 1, "{}", pair.a.describe());
    pair.settle();
    assert!(refused(&mut pair.a, 2), "{}", pair.a.describe());
    assert!(!events(&mut pair.b)
        .iter()
        .any(|e| matches!(e, Event::RecvDone { .. })));
    assert_eq!([pair.a.held(), pair.b.held()], [Held::default(); 2]);
}

/// A BYE names the messages that arrived. For a put that may mean that it was refused.
#[test]
fn a_put_without_a_result_fails_when_its_owner_closes() {
    let mut pair = Pair::new(1, false);
    let claim = begin(&mut pair, 2, 1_000);
    pair.b.refuse_put(claim, pair.now);
    let _lost = output(&mut pair.b, pair.now, false);
    pair.b.say_bye();
    let byes = output(&mut pair.b, pair.now, false);
    take(&mut pair.a, pair.now, &byes);
    let failed = |e: &Event| {
        let gone = matches!(
            e,
            Event::SendDone {
                handle: 2,
                ok: false
            }
        );
        gone || matches!(e, Event::PutRefused { handle: 2 })
    };
    assert!(events(&mut pair.a).iter().any(failed));
}

#[test]
fn without_reliability_puts_are_done_or_refused_too() {
    let config = Config {
        reliable: false,
        ..Config::default()
    };
    for (good, len) in [true, false]
        .map(|good| [(good, 20_000), (good, 100_000)])
        .concat()
    {
        let mut pair = Pair::with(config, 1, false);
        let claim = begin(&mut pair, 2, len);
        match good {
            true => assert!(pair.b.accept_put(claim, 77)),
            false => pair.b.refuse_put(claim, pair.now),
        }
        pair.settle();
        let ended = match good {
            true => done(&mut pair.a, 2),
            false => refused(&mut pair.a, 2),
        };
        assert!(ended, "{good} {len}: {}", pair.a.describe());
        assert_eq!([pair.a.held(), pair.b.held()], [Held::default(); 2]);
    }
}

/// The server of a read closes its memory: the read fails, whatever is in flight.
#[test]
fn a_read_from_closed_memory_fails() {
    let mut pair = Pair::new(1, false);
    assert!(pair.a.post_read(9, pair.to_b, (5, 0, 200_000), 0));
    pair.step();
    let asked = events(&mut pair.b).into_iter().find_map(|e| match e {
        Event::ReadAsked {
            peer, number, upto, ..
        } => Some((peer, number, upto)),
        _ => None,
    });
    let (peer, number, upto) = asked.expect("nothing was asked");
    pair.b.serve_read(3, peer, number, 200_000, upto);
    let some = output(&mut pair.b, pair.now, false);
    pair.b.stop_read(peer, number);
    let over = |e: &Event| {
        matches!(
            e,
            Event::SendDone {
                handle: 3,
                ok: false
            }
        )
    };
    assert!(events(&mut pair.b).iter().any(over));
    take(&mut pair.a, pair.now, &some);
    pair.settle();
    let failed = |e: &Event| {
        matches!(
            e,
            Event::ReadDone {
                handle: 9,
                ok: false
            }
        )
    };
    assert!(
        events(&mut pair.a).iter().any(failed),
        "{}",
        pair.a.describe()
    );
    assert_eq!([pair.a.held(), pair.b.held()], [Held::default(); 2]);
}

/// The bytes of a read count once, as sent by the peer whose memory is read: the summary of a
/// program that only gets names the volume that its table of rails shows.
#[test]
fn the_bytes_of_a_read_count_as_sent_by_its_target() {
    let mut pair = Pair::new(1, false);
    assert!(pair.a.post_read(9, pair.to_b, (5, 0, 200_000), 0));
    pair.step();
    for event in events(&mut pair.b) {
        if let Event::ReadAsked {
            peer, number, upto, ..
        } = event
        {
            pair.b.serve_read(3, peer, number, 200_000, upto);
        }
    }
    pair.settle();
    let done = |e: &Event| {
        matches!(
            e,
            Event::ReadDone {
                handle: 9,
                ok: true
            }
        )
    };
    assert!(events(&mut pair.a).iter().any(done));
    let mut sent = 0;
    pair.b
        .for_each_peer(|_, _, counters, _| sent += counters.bytes_sent);
    assert_eq!(sent, 200_000);
}

/// A peer that requested a read and closed before the answer gets none, and no state remains.
#[test]
fn a_read_of_a_peer_that_has_closed_ends() {
    let mut pair = Pair::new(1, false);
    assert!(pair.a.post_read(9, pair.to_b, (5, 0, 200_000), 0));
    pair.a.say_bye();
    let last = output(&mut pair.a, pair.now, false);
    take(&mut pair.b, pair.now, &last);
    for event in events(&mut pair.b) {
        if let Event::ReadAsked {
            peer, number, upto, ..
        } = event
        {
            pair.b.serve_read(3, peer, number, 200_000, upto);
            assert!(events(&mut pair.b).iter().any(|e| matches!(
                e,
                Event::SendDone {
                    handle: 3,
                    ok: false
                }
            )));
        }
    }
    assert_eq!(pair.b.held().sends, 0);
}

/// A refused put whose writer does not know it yet does not hide that later messages arrived: here
/// a message whose copy was in flight on the other rail when its receiver closed.
#[test]
fn messages_after_a_refused_put_are_known_to_have_arrived() {
    let mut pair = Pair::new(2, false);
    let claim = begin(&mut pair, 2, 1_000);
    pair.b.refuse_put(claim, pair.now);
    let _lost = output(&mut pair.b, pair.now, false);
    pair.message(5, 10);
    let sent = output(&mut pair.a, pair.now, false);
    take(&mut pair.b, pair.now, &sent);
    let _lost = output(&mut pair.b, pair.now, false);
    let rail = sent[0].0;
    pair.a.on_rail(pair.now, rail, true);
    let _copy = output(&mut pair.a, pair.now, false);
    pair.b.say_bye();
    let mut byes = output(&mut pair.b, pair.now, false);
    byes.retain(|p| p.0 != rail);
    take(&mut pair.a, pair.now, &byes);
    assert!(done(&mut pair.a, 5), "{}", pair.a.describe());
}

/// First word, second word and length of the calls that a node took.
fn calls(node: &mut Node) -> Vec<(u64, u64, u64)> {
    let call = |event| match event {
        Event::RpcArrived { head, .. } => Some((head.tag, head.data, head.total)),
        _ => None,
    };
    events(node).into_iter().filter_map(call).collect()
}

#[test]
fn a_call_grows_as_long_as_it_is_the_last_and_has_not_left() {
    let mut pair = Pair::new(2, false);
    let to_b = pair.to_b;
    assert!(pair.a.post_rpc(3, to_b, (9, 1), 100));
    let mut extend = |first, second, len| pair.a.extend_rpc(to_b, (first, second), len);
    assert_eq!(extend(8, [1, 4], 200), None, "another call");
    assert_eq!(extend(9, [2, 5], 200), None, "an answer, say: another kind");
    assert_eq!(extend(9, [1, 4], 200), Some(3));
    assert!(pair.a.post_rpc(4, to_b, (10, 1), 50));
    let mut extend = |first, second, len| pair.a.extend_rpc(to_b, (first, second), len);
    assert_eq!(extend(9, [1, 4], 300), None, "not the last");
    pair.settle();
    assert_eq!(calls(&mut pair.b), [(9, 4, 200), (10, 1, 50)]);
    let extended = pair.a.extend_rpc(to_b, (10, [1, 4]), 60);
    assert_eq!(extended, None, "it has left");
}
