//! Sources whose address was not inserted may speak, and change nothing for others.

use crate::face;

use face::{done, link, node_with, output, take, Anywhere, Pair};
use marline_proto::{
    Config, DropReason, Event, Node, RecvSpec, SendSpec, Source, MESSAGE_OVERHEAD,
};
use marline_wire::{Eager, Frame, MsgHead, Packet, Read, Rts, FLAG_RPC, FLAG_TAGGED};

const TIMEOUT_NS: u64 = 200_000_000;

fn config() -> Config {
    Config {
        any_source_fails: true,
        peer_timeout_ns: TIMEOUT_NS,
        ..Config::default()
    }
}

/// A packet of a source with one rail.
fn packet(to: &Node, ends: (u64, u32, u64), frames: &[Frame]) -> Vec<u8> {
    let rail = face::rail_addr(0, 9, 0, 1_472);
    face::hello_packet(to, ends, &[rail], frames)
}

fn give(to: &mut Node, now: u64, bytes: &[u8]) -> Result<(), DropReason> {
    let packet = Packet::parse(bytes, |_| 0).unwrap();
    let taken = to.handle_packet(now, &packet, bytes.len(), &mut Anywhere);
    taken.map(|_| ())
}

fn rts(number: u32) -> Frame {
    Frame::Rts(Rts {
        head: MsgHead {
            number,
            flags: 0,
            tag: 0,
            data: 0,
            total: 1 << 20,
        },
    })
}

/// The result of a packet after one with a number far ahead, and of that one.
fn after_a_jump(config: Config) -> [Result<(), DropReason>; 2] {
    let mut node = node_with(config, 1, 1);
    let mut ping = |number| {
        let bytes = packet(&node, (55, 3, number), &[Frame::Ping]);
        give(&mut node, 1_000_000, &bytes)
    };
    ping(0).unwrap();
    let jump = ping((1 << 32) - 1);
    [jump, ping(1)]
}

/// The result of a request with a number for which no credit was given.
fn beyond_credit(config: Config) -> Result<(), DropReason> {
    let mut node = node_with(config, 1, 1);
    let mut request = |at, number| {
        let bytes = packet(&node, (55, 3, at), &[rts(number)]);
        give(&mut node, 1_000_000, &bytes)
    };
    request(0, 100).unwrap();
    let few = u32::try_from(Config::default().credit_bytes / MESSAGE_OVERHEAD).unwrap();
    request(1, few + 1)
}

fn receive_from_anyone(node: &mut Node, now: u64, handle: u32) {
    let receive = RecvSpec {
        handle,
        source: Source::Any,
        tag: Some((7, 0)),
        capacity: 1_000,
        multi_min: None,
    };
    node.post_recv(&receive, now);
}

/// A step of both nodes; what the second sends to strangers is lost.
fn exchange(pair: &mut Pair) {
    assert!(pair.now < face::SETTLED_NS, "it never gets through");
    let there = pair.alone();
    pair.b.on_poll(pair.now, false);
    pair.b.handle_timeouts(pair.now);
    take(&mut pair.b, pair.now, &there);
    let mut back = output(&mut pair.b, pair.now, false);
    back.retain(|(_, bytes)| {
        let packet = Packet::parse(bytes, |_| 0).unwrap();
        packet.header.dst_id == pair.a.id()
    });
    take(&mut pair.a, pair.now, &back);
}

/// Runs the node alone for four times the timeout; returns its events.
fn alone(node: &mut Node, now: &mut u64) -> Vec<Event> {
    let (mut events, end) = (Vec::new(), *now + 4 * TIMEOUT_NS);
    while *now < end {
        *now += 200_000;
        node.on_poll(*now, false);
        node.caught_up();
        node.handle_timeouts(*now);
        output(node, *now, false);
        events.extend(std::iter::from_fn(|| node.poll_event()));
    }
    events
}

/// Returns whether the death of a source ends a receive from any source.
fn death_is_told(config: Config, named: bool) -> bool {
    let (mut node, mut now) = (node_with(config, 1, 1), 1_000_000);
    let other = node_with(config, 9, 1);
    if named {
        node.peer(&other.address());
    }
    let mut pair = Pair::of([other, node_with(config, 1, 1)], false);
    pair.send(1, 10);
    link(&mut pair.a, now);
    let (_, hello) = output(&mut pair.a, now, false).remove(0);
    receive_from_anyone(&mut node, now, 5);
    give(&mut node, now, &hello).unwrap();
    assert_eq!(node.strangers(), usize::from(!named));
    let events = alone(&mut node, &mut now);
    events.iter().any(|e| matches!(e, Event::RecvFailed { .. }))
}

/// Regression: one HELLO of a source that then was silent ended every receive from any source, as
/// the death of a rank does.
#[test]
fn the_death_of_a_stranger_ends_no_receive() {
    assert!(death_is_told(config(), true));
    assert!(!death_is_told(config(), false));
}

#[cfg(feature = "mutation")]
#[test]
fn a_death_that_is_told_wrongly_is_noticed() {
    let mut config = config();
    config.mutation = Some(marline_proto::Mutation::MournStrangers);
    assert!(death_is_told(config, false));
}

#[cfg(feature = "mutation")]
#[test]
fn numbers_that_are_trusted_are_noticed() {
    let with = |mutation| Config {
        mutation: Some(mutation),
        ..config()
    };
    let jumped = after_a_jump(with(marline_proto::Mutation::TrustNumbers));
    assert_eq!(jumped, [Ok(()), Err(DropReason::Duplicate)]);
    let credit = with(marline_proto::Mutation::TrustCredit);
    assert_eq!(beyond_credit(credit), Ok(()));
}

/// Regression: one PING with the number 2^32 - 1 made duplicates of all packets of its path that
/// came afterwards.
#[test]
fn a_number_far_ahead_is_refused() {
    let refused = Err(DropReason::Invalid);
    assert_eq!(after_a_jump(config()), [refused, Ok(())]);
}

/// Regression: a message could be numbered a million ahead of the one expected next, and was taken
/// for the sender's own when that number came.
#[test]
fn a_message_beyond_the_credit_is_refused() {
    assert_eq!(beyond_credit(config()), Err(DropReason::Invalid));
}

/// Regression: every source made a conversation.
#[test]
fn strangers_are_bounded_and_those_who_are_named_get_in() {
    let (mut node, now) = (node_with(config(), 1, 1), 1_000_000);
    let mut admitted = 0;
    let refused = loop {
        let hello = packet(&node, (1_000 + admitted, 3, 0), &[Frame::Ping]);
        match give(&mut node, now, &hello) {
            Ok(()) => admitted += 1,
            Err(why) => break why,
        }
        assert!(admitted < 100_000, "no bound");
    };
    assert_eq!(refused, DropReason::Unadmitted);
    assert_eq!(node.stats().drop_unadmitted, 1);
    assert_eq!(node.strangers() as u64, admitted);
    let mut pair = Pair::of([node_with(config(), 2, 1), node], false);
    pair.b.peer(&pair.a.address());
    pair.message(7, 500);
    while !done(&mut pair.a, 7) {
        exchange(&mut pair);
    }
}

/// Regression: requests of a stranger took memory without bound. Half of the memory for unexpected
/// messages is left to others.
#[test]
fn requests_of_strangers_are_bounded() {
    let small = Config {
        unexpected_bytes: 1 << 20,
        ..config()
    };
    let mut pair = Pair::with(small, 1, false);
    pair.b.peer(&pair.a.address());
    let (mut number, mut held) = (0, 0);
    let refused = loop {
        let frames: Vec<Frame> = (0..100).map(|i| rts(number as u32 * 100 + i)).collect();
        let bytes = packet(&pair.b, (55, 3, number), &frames);
        if let Err(why) = give(&mut pair.b, pair.now, &bytes) {
            break why;
        }
        (number, held) = (number + 1, pair.b.held().unexpected_bytes);
        assert!(number < 10_000, "no bound");
    };
    assert_eq!(refused, DropReason::NoMemory);
    assert!(held <= 1 << 19, "{held} bytes");
    pair.send(8, 400);
    pair.send(9, 100_000);
    let before = pair.b.held().inbounds;
    while pair.b.held().inbounds < before + 2 {
        exchange(&mut pair);
    }
}

/// Regression: a stranger that acknowledges nothing had any number of reads answered; each answer
/// waits in memory.
#[test]
fn reads_of_strangers_are_bounded() {
    let (mut node, now) = (node_with(config(), 1, 1), 1_000_000);
    let mut asked = 0;
    let refused = loop {
        let read = Frame::Read(Read {
            number: asked,
            flags: 0,
            key: 1,
            addr: 0,
            len: 1 << 20,
            upto: 1 << 20,
        });
        let bytes = packet(&node, (55, 3, asked.into()), &[read]);
        if let Err(why) = give(&mut node, now, &bytes) {
            break why;
        }
        while let Some(event) = node.poll_event() {
            if let Event::ReadAsked { peer, number, .. } = event {
                node.refuse_read(peer, number);
            }
        }
        asked += 1;
        assert!(asked < 5_000, "no bound");
    };
    assert_eq!((refused, asked), (DropReason::NoMemory, 128));
}

/// Regression: a stranger that takes no replies had any number of requests on memory executed.
#[test]
fn requests_on_memory_of_strangers_are_bounded() {
    let (mut node, now) = (node_with(config(), 1, 1), 1_000_000);
    let mut executed = 0;
    for number in 0..2_000 {
        let head = MsgHead {
            number,
            flags: FLAG_RPC,
            tag: 0,
            data: 0,
            total: 0,
        };
        let (len, sum) = (0, 0);
        let eager = Frame::Eager(Eager { head, len, sum });
        let bytes = packet(&node, (55, 3, number.into()), &[eager]);
        give(&mut node, now, &bytes).unwrap();
        while let Some(event) = node.poll_event() {
            if let Event::RpcArrived { peer, .. } = event {
                node.post_rpc(number, peer, (0, 0), 0);
                executed += 1;
            }
        }
    }
    assert_eq!(executed, 1_024);
}

/// Regression: each peer was told the same epoch, so that a source which had been greeted could
/// speak in the name of others: a BYE ended them.
#[test]
fn an_epoch_told_to_one_peer_is_none_for_another() {
    let mut pair = Pair::new(1, false);
    let (a, b) = (pair.a.id(), pair.b.address());
    let hello = packet(&pair.a, (77, 3, 0), &[Frame::Ping]);
    give(&mut pair.a, pair.now, &hello).unwrap();
    let told = output(&mut pair.a, pair.now, false);
    let told = told
        .iter()
        .map(|(_, bytes)| Packet::parse(bytes, |_| 0).unwrap().header);
    let epoch = told
        .clone()
        .find(|h| h.dst_id == 77)
        .expect("an answer")
        .src_epoch;
    assert_eq!(b.id, pair.b.id());
    let bye = packet(&pair.b, (a, epoch, 5_000), &[Frame::Bye { arrived: 0 }]);
    assert_eq!(give(&mut pair.b, pair.now, &bye), Err(DropReason::Epoch));
    assert_eq!(pair.b.stats().drop_epoch, 1);
}

/// A request to receive a message with the tag that receives from any source accept.
fn tagged_rts(number: u32) -> Frame {
    let Frame::Rts(Rts { head }) = rts(number) else {
        unreachable!("a request");
    };
    Frame::Rts(Rts {
        head: MsgHead {
            flags: FLAG_TAGGED,
            tag: 7,
            ..head
        },
    })
}

/// Two nodes of which the second knows the first, and has posted receive 5 from any source, which a
/// message of a stranger has matched.
fn with_a_matched_receive(config: Config) -> Pair {
    let mut pair = Pair::of([node_with(config, 2, 1), node_with(config, 1, 1)], false);
    pair.b.peer(&pair.a.address());
    receive_from_anyone(&mut pair.b, pair.now, 5);
    let bytes = packet(&pair.b, (55, 3, 0), &[tagged_rts(0)]);
    give(&mut pair.b, pair.now, &bytes).unwrap();
    pair
}

fn send_tagged(pair: &mut Pair, handle: u32) {
    pair.a.post_send(&SendSpec {
        handle,
        peer: pair.to_b,
        tag: Some(7),
        data: None,
        len: 10,
        urgent_ack: true,
    });
}

/// Runs both nodes until the stranger is dead, and its receive has come back; returns the handles
/// of receives that were done and of those that failed until then.
fn until_death(pair: &mut Pair) -> (Vec<u32>, Vec<u32>) {
    let (mut done, mut failed, mut dead) = (Vec::new(), Vec::new(), false);
    while !dead {
        exchange(pair);
        while let Some(event) = pair.b.poll_event() {
            match event {
                Event::RecvDone { handle, .. } => done.push(handle),
                Event::RecvFailed { handle } | Event::RecvReleased { handle } => {
                    failed.push(handle);
                }
                Event::PeerDead { .. } => dead = true,
                _ => {}
            }
        }
    }
    (done, failed)
}

/// Regression: a request that was never followed by data ended the receive that it matched when its
/// sender was dead. The receive is posted again, before those posted after it.
#[test]
fn a_receive_that_a_stranger_matched_is_posted_again_in_its_place() {
    let mut pair = with_a_matched_receive(config());
    receive_from_anyone(&mut pair.b, pair.now, 6);
    assert_eq!(until_death(&mut pair), (vec![], vec![]));
    for handle in [5, 6] {
        send_tagged(&mut pair, handle);
        let mut received = None;
        while received.is_none() {
            exchange(&mut pair);
            received = std::iter::from_fn(|| pair.b.poll_event()).find_map(|event| match event {
                Event::RecvDone { handle, .. } => Some(handle),
                _ => None,
            });
        }
        assert_eq!(received, Some(handle));
    }
}

/// A message that came meanwhile, and found no receive, gets it.
#[test]
fn a_receive_that_a_stranger_matched_takes_what_came_meanwhile() {
    let mut pair = with_a_matched_receive(config());
    send_tagged(&mut pair, 8);
    assert_eq!(until_death(&mut pair), (vec![5], vec![]));
}

#[cfg(feature = "mutation")]
#[test]
fn a_receive_that_ends_with_a_stranger_is_noticed() {
    let mut config = config();
    config.mutation = Some(marline_proto::Mutation::MournStrangers);
    let mut pair = with_a_matched_receive(config);
    assert_eq!(until_death(&mut pair), (vec![], vec![5]));
}

/// A buffer for several messages that a stranger's request used up takes messages again from where
/// the request was to go; one in which others lie behind it is given back without a message.
#[test]
fn a_buffer_for_several_messages_outlives_a_strangers_request() {
    for (total, second, released) in [(1 << 20, 700, vec![]), (100, 500, vec![5])] {
        let mut pair = Pair::of(
            [node_with(config(), 2, 1), node_with(config(), 1, 1)],
            false,
        );
        pair.b.peer(&pair.a.address());
        let buffer = RecvSpec {
            handle: 5,
            source: Source::Any,
            tag: None,
            capacity: 1_000,
            multi_min: Some(200),
        };
        pair.b.post_recv(&buffer, pair.now);
        let Frame::Rts(Rts { head }) = rts(0) else {
            unreachable!("a request");
        };
        let request = Frame::Rts(Rts {
            head: MsgHead { total, ..head },
        });
        let bytes = packet(&pair.b, (55, 3, 0), &[request]);
        give(&mut pair.b, pair.now, &bytes).unwrap();
        pair.send(1, 300);
        pair.send(2, second);
        let found = until_death(&mut pair);
        assert_eq!(found, (vec![5, 5], released), "{total} bytes announced");
    }
}

/// Regression: packets in a peer's name with numbers that its own packets had not reached made
/// duplicates of these. Their HELLO names an endpoint that the peer is not.
fn after_forged_hellos(config: Config) -> (Result<(), DropReason>, bool) {
    let mut pair = Pair::with(config, 1, false);
    let (a, mut epoch, mut newest) = (pair.a.id(), 0, 0);
    pair.message(2, 100);
    for (_, bytes) in pair.alone() {
        let header = Packet::parse(&bytes, |_| 0).unwrap().header;
        (epoch, newest) = (header.src_epoch, header.number);
        give(&mut pair.b, pair.now, &bytes).unwrap();
    }
    let mut taken = Ok(());
    for number in newest + 1..newest + 41 {
        let bytes = packet(&pair.b, (a, epoch, number), &[Frame::Ping]);
        taken = give(&mut pair.b, pair.now, &bytes);
    }
    pair.message(3, 100);
    let lost = pair.alone().iter().any(|(_, bytes)| {
        let taken = give(&mut pair.b, pair.now, bytes);
        taken == Err(DropReason::Duplicate)
    });
    (taken, lost)
}

#[test]
fn a_hello_that_names_another_endpoint_marks_no_number() {
    assert_eq!(
        after_forged_hellos(config()),
        (Err(DropReason::Token), false)
    );
}

#[cfg(feature = "mutation")]
#[test]
fn a_hello_that_is_believed_is_noticed() {
    let config = Config {
        mutation: Some(marline_proto::Mutation::TrustNames),
        ..config()
    };
    assert_eq!(after_forged_hellos(config), (Ok(()), true));
}

/// A node whose share for strangers is full of requests of one that left out its first.
fn with_a_full_share(config: Config) -> (Node, u64) {
    let small = Config {
        unexpected_bytes: 1 << 20,
        ..config
    };
    let (mut node, mut number) = (node_with(small, 1, 1), 0);
    loop {
        let frames: Vec<Frame> = (1..=100).map(|i| rts(number as u32 * 100 + i)).collect();
        let bytes = packet(&node, (55, 3, number), &frames);
        number += 1;
        assert!(number < 60, "no bound");
        if let Err(why) = give(&mut node, 1_000_000, &bytes) {
            assert_eq!(why, DropReason::NoMemory);
            return (node, number);
        }
    }
}

/// The next message in order of a stranger is held beyond the share of strangers if messages behind
/// it wait for it, or a receive does: otherwise it could never come, and nothing would make room.
#[test]
fn an_awaited_message_is_held_beyond_the_strangers_share() {
    let (mut node, number) = with_a_full_share(config());
    let mut request = |id, at, frame| {
        let bytes = packet(&node, (id, 3, at), &[frame]);
        give(&mut node, 1_000_000, &bytes)
    };
    assert_eq!(request(56, 0, rts(0)), Err(DropReason::NoMemory));
    assert_eq!(request(55, number, rts(0)), Ok(()), "others wait for it");
    receive_from_anyone(&mut node, 1_000_000, 5);
    let mut request = |id, at, frame| {
        let bytes = packet(&node, (id, 3, at), &[frame]);
        give(&mut node, 1_000_000, &bytes)
    };
    assert_eq!(request(57, 0, tagged_rts(1)), Err(DropReason::NoMemory));
    assert_eq!(request(57, 1, tagged_rts(0)), Ok(()), "a receive waits");
}

/// Sources that proved the job's key are no strangers.
#[test]
fn the_share_of_strangers_is_no_bound_for_peers_with_the_key() {
    let keyed = Config {
        key_mark: 5,
        unexpected_bytes: 1 << 20,
        ..config()
    };
    let mut node = node_with(keyed, 1, 1);
    for number in 0..50_u64 {
        let frames: Vec<Frame> = (0..100).map(|i| rts(number as u32 * 100 + i)).collect();
        let bytes = packet(&node, (55, 3, number), &frames);
        give(&mut node, 1_000_000, &bytes).unwrap();
    }
    let held = node.held().unexpected_bytes;
    assert!(held > 1 << 19, "{held} bytes");
}
