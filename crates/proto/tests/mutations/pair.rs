//! Two nodes, packet by packet: cases too specific to wait for the simulator's random choices. The
//! test chooses the order of delivery.

use crate::face;

use face::{done, narrow_node, node_of, node_with, output, specs, take, Pair};
use marline_proto::{
    Config, DropReason, Event, Landing, Memory, Node, PathState, Payload, RecvSpec, SendSpec,
    Source,
};
use marline_wire::{Frame, FrameView, Packet};

/// Acks of one path can be reordered: some travel on another rail, and each rail has its own
/// socket. Packets that the older ack does not name, because they had not arrived, are not lost.
/// (Regression: 1 to 5 % of the packets of 64 KiB messages were retransmitted, and the window that
/// a loss had shrunk stayed small for a second.)
#[test]
fn reordered_acks_declare_nothing_lost() {
    let mut pair = Pair::new(1, true);
    pair.message(2, 4 << 20);
    pair.message(3, 4 << 20);
    for _ in 0..3 {
        pair.step(); // requests, grants, and a window that has grown
    }
    let data = output(&mut pair.a, pair.now, true);
    assert!(data.len() > 1_200, "{} packets under way", data.len());
    pair.now += 50_000;
    let mut acks = Vec::new();
    for part in data.chunks(data.len().div_ceil(3)) {
        take(&mut pair.b, pair.now, part);
        acks.push(output(&mut pair.b, pair.now, true));
    }
    for index in [2, 0, 1] {
        pair.now += 1_000;
        take(&mut pair.a, pair.now, &acks[index]);
    }
    assert_eq!(pair.lost(), 0);
    pair.settle();
    assert!(done(&mut pair.a, 3));
}

/// A descheduled receiver may have more packets to acknowledge than one ACK frame can name.
#[test]
fn more_packets_than_one_ack_can_name_are_all_acknowledged() {
    let mut pair = Pair::new(2, true);
    for handle in 2..8 {
        pair.message(handle, 4 << 20);
    }
    for _ in 0..40 {
        pair.step();
    }
    let data = output(&mut pair.a, pair.now, true);
    let more = data.len();
    pair.now += 100_000;
    take(&mut pair.b, pair.now, &data);
    let acks = output(&mut pair.b, pair.now, true);
    take(&mut pair.a, pair.now, &acks);
    assert_eq!(pair.lost(), 0, "of {more} packets at once");
    pair.settle();
    assert!(pair.a.drained());
}

fn receive_from(source: Source, handle: u32) -> RecvSpec {
    RecvSpec {
        handle,
        source,
        tag: None,
        capacity: 100,
        multi_min: None,
    }
}

/// Receives that ended without a message.
fn failed(node: &mut Node) -> Vec<u32> {
    let events = std::iter::from_fn(|| node.poll_event());
    let handle = |e| match e {
        Event::RecvFailed { handle } => Some(handle),
        _ => None,
    };
    events.filter_map(handle).collect()
}

/// Receives that name a closed peer end with an error, posted before or after. Receives from any
/// source stay, and messages that had arrived are still received.
fn receives_of_a_closed_peer_end(reliable: bool) {
    let config = Config {
        reliable,
        ..Config::default()
    };
    let nodes = [1, 2].map(|host| node_with(config, host, 1));
    let mut pair = Pair::of(nodes, false);
    pair.message(1, 100);
    pair.settle();
    let to_a = pair.b.peer(&pair.a.address());
    assert_eq!(failed(&mut pair.b), []);
    // A message without a receive, a receive without a message.
    let tagged = |handle, source| RecvSpec {
        tag: Some((5, 0)),
        ..receive_from(source, handle)
    };
    pair.a.post_send(&SendSpec {
        handle: 2,
        peer: pair.to_b,
        tag: Some(5),
        data: None,
        len: 100,
        urgent_ack: true,
    });
    pair.b
        .post_recv(&receive_from(Source::Peer(to_a), 10), pair.now);
    pair.b.post_recv(&receive_from(Source::Any, 11), pair.now);
    pair.settle();
    assert_eq!(failed(&mut pair.b), []);
    pair.a.say_bye();
    pair.settle();
    assert_eq!(failed(&mut pair.b), [10], "posted before");
    pair.b
        .post_recv(&receive_from(Source::Peer(to_a), 12), pair.now);
    assert_eq!(failed(&mut pair.b), [12], "posted after");
    pair.b.post_recv(&tagged(13, Source::Peer(to_a)), pair.now);
    let got = std::iter::from_fn(|| pair.b.poll_event())
        .any(|e| matches!(e, Event::RecvDone { handle: 13, .. }));
    assert!(got, "it had arrived");
    assert!(pair.b.peer_gone(to_a));
    assert_eq!(pair.b.held().receives, 1, "the one that names nobody");
}

#[test]
fn receives_of_a_closed_peer_end_with_reliability() {
    receives_of_a_closed_peer_end(true);
}

#[test]
fn receives_of_a_closed_peer_end_without_reliability() {
    receives_of_a_closed_peer_end(false);
}

/// IPv4's minimum of 576 bytes leaves 548 for a datagram: HELLO and a block do not fit together. A
/// first message of any length still gets through, with any number of rails.
#[test]
fn first_messages_pass_rails_with_the_smallest_mtu() {
    for (reliable, rails) in [(true, 1), (true, 2), (true, 8), (false, 1), (false, 8)] {
        for len in [0, 200, 448, 60_000, 70_000] {
            let config = Config {
                reliable,
                ..Config::default()
            };
            let nodes = [1, 2].map(|host| narrow_node(config, host, rails, 548));
            let mut pair = Pair::of(nodes, true);
            pair.message(1, len);
            pair.settle();
            let got = std::iter::from_fn(|| pair.b.poll_event())
                .any(|e| matches!(e, Event::RecvDone { handle: 1, .. }));
            let all = got && done(&mut pair.a, 1);
            assert!(all, "{len} bytes, {rails} rails:\n{}", pair.a.describe());
        }
    }
}
/// The first flight is lost with its rail, before any path is proven: it leaves on the other rail,
/// even if that is so narrow that the message does not fit beside HELLO.
#[test]
fn a_lost_first_flight_leaves_on_the_other_rail() {
    for datagram_max in [1_472, 548] {
        let second = |host| {
            let mut specs = specs(host, 2, 1_472);
            specs[1].datagram_max = datagram_max;
            specs[1].addr.datagram_max = datagram_max as u16;
            node_of(Config::default(), host, specs)
        };
        let mut pair = Pair::of([1, 2].map(second), true);
        pair.message(1, 448);
        let lost = output(&mut pair.a, pair.now, true);
        assert_eq!(lost.len(), 1);
        pair.a.on_rail(pair.now, lost[0].0, true);
        // The retransmission timer of an unproven path: some milliseconds.
        for _ in 0..1_000 {
            pair.step();
        }
        assert!(done(&mut pair.a, 1), "{}", pair.a.describe());
    }
}

/// True if a message ends that was requeued to the last rail when that went down too, after the
/// other rail came back. (Regression: a job hung, as no timer runs on a path whose rail is down.)
fn leaves_a_dead_rail(config: Config) -> bool {
    let mut pair = Pair::with(config, 2, false);
    pair.message(2, 100);
    pair.alone();
    for rail in [0, 1] {
        pair.a.on_rail(pair.now, rail, true);
        pair.alone();
    }
    pair.a.on_rail(pair.now, 0, false);
    for _ in 0..5_000 {
        let mut there = pair.alone();
        there.retain(|p| p.0 == 0);
        pair.answer(&there, 0);
    }
    done(&mut pair.a, 2)
}

/// True if rail 0 goes down because a peer, after a silence, reads the socket of rail 1 first and
/// nothing else for `for_steps`. `unreachable`: rail 0 stays silent.
fn falls(config: Config, for_steps: u32, unreachable: bool) -> bool {
    let mut pair = Pair::with(config, 2, false);
    pair.message(2, 100);
    let mut unread = Vec::new();
    for _ in 0..250 {
        unread.extend(pair.alone());
    }
    let (first, mut later): (Vec<_>, Vec<_>) = unread.into_iter().partition(|p| p.0 == 1);
    assert!(!first.is_empty() && !later.is_empty(), "no comparison");
    pair.answer(&first, 1);
    for _ in 0..for_steps {
        let mut packets = pair.alone();
        if unreachable {
            packets.retain(|p| p.0 == 1);
            pair.answer(&packets, 1);
        } else {
            later.extend(packets);
        }
    }
    let down = |e: Event| {
        matches!(
            e,
            Event::PathChanged {
                rail: 0,
                state: PathState::Down,
                ..
            }
        )
    };
    let fell = std::iter::from_fn(|| pair.a.poll_event()).any(down);
    take(&mut pair.b, pair.now, &later);
    pair.settle();
    assert!(pair.a.drained());
    fell
}

/// A peer falls silent, and `steps` later all our rails go down, of which one comes back. True if
/// the peer is found dead within twice its timeout.
fn finds_the_dead(steps: u32) -> bool {
    let config = Config {
        peer_timeout_ns: 200_000_000,
        ..Config::default()
    };
    let mut pair = Pair::with(config, 2, false);
    pair.message(2, 100);
    pair.settle();
    pair.message(3, 300_000);
    let end = pair.now + 2 * config.peer_timeout_ns;
    for step in 0.. {
        if step == steps {
            pair.a.on_rail(pair.now, 0, true);
            pair.a.on_rail(pair.now, 1, true);
        } else if step == steps + 1 {
            pair.a.on_rail(pair.now, 0, false);
        }
        pair.alone();
        pair.now += 180_000;
        let mut events = std::iter::from_fn(|| pair.a.poll_event());
        if events.any(|e| matches!(e, Event::PeerDead { .. })) {
            return true;
        }
        if pair.now > end {
            return false;
        }
    }
    false
}

/// The last path is never given up, even with its rail down. Regression: while it counted as
/// carrying, packets in flight on others were not owed an answer, and a dead peer was waited for
/// until that rail was back (seed 198 of `swarm`).
#[test]
fn a_dead_peer_is_detected_while_a_rail_stays_down() {
    for steps in (0..800).step_by(8) {
        assert!(finds_the_dead(steps), "after {steps} steps");
    }
}

/// Packets in flight on a failed rail are requeued to another.
#[test]
fn nothing_stays_on_a_rail_that_is_down() {
    assert!(leaves_a_dead_rail(Config::default()));
}

/// A single answer shows that the peer runs, not that the silent path is broken: there is a second
/// round. If the path is silent in that too, it goes down.
#[test]
fn a_path_goes_down_in_the_second_round() {
    // 2 ms: longer than a round.
    assert!(!falls(Config::default(), 100, false));
    assert!(falls(Config::default(), 1_000, true));
}

/// Both tests detect the mutations that they are for.
#[cfg(feature = "mutation")]
#[test]
fn mutations_of_failing_paths_are_detected() {
    let erring = |mutation| Config {
        mutation: Some(mutation),
        ..Config::default()
    };
    assert!(!leaves_a_dead_rail(erring(marline_proto::Mutation::Strand)));
    assert!(falls(erring(marline_proto::Mutation::Hasty), 100, false));
}

/// A closing peer repeats its BYE until it is acknowledged, and a repeated BYE is answered again.
/// Here the ack of a message is lost as well: its sender learns of the arrival from the BYE.
/// (Regression: a job whose other rank was through MPI_Finalize ended with "No route to host".)
#[test]
fn a_lost_bye_is_repeated() {
    let mut pair = Pair::new(2, false);
    pair.message(2, 100);
    let message = output(&mut pair.a, pair.now, false);
    take(&mut pair.b, pair.now, &message);
    let lost = output(&mut pair.b, pair.now, false);
    pair.b.say_bye();
    let lost_too = output(&mut pair.b, pair.now, false);
    assert!(!lost.is_empty() && lost_too.len() == 2);
    let (mut told, mut answers) = (false, 0);
    for _ in 0..1_000 {
        pair.now += 20_000;
        pair.b.handle_timeouts(pair.now);
        let byes = output(&mut pair.b, pair.now, false);
        take(&mut pair.a, pair.now, &byes);
        told |= done(&mut pair.a, 2);
        let answer = output(&mut pair.a, pair.now, false);
        answers += answer.len();
        // The first answers are lost.
        if answers > 3 {
            take(&mut pair.b, pair.now, &answer);
        }
    }
    assert!(told, "its message was delivered");
    assert!(pair.b.all_acked_bye(), "{} answers", answers);
}

/// A message arrived but its ack was lost; it was retransmitted on the other rail, and its receiver
/// closed before that copy arrived. The BYE acks the first packet, whose frames the sender no
/// longer retains, and also says that the message arrived. (Regression, found by the model of a
/// wait beside a polling thread, one order in 1,500: a send ended with "No route to host".)
#[test]
fn a_requeued_message_that_arrived_ends_well_when_its_receiver_closes() {
    for (len, rails) in [(100, 2), (20_000, 2), (100, 4)] {
        let mut pair = Pair::new(rails, false);
        pair.message(2, len);
        let message = output(&mut pair.a, pair.now, false);
        take(&mut pair.b, pair.now, &message);
        let _lost = output(&mut pair.b, pair.now, false);
        let rail = message[0].0;
        pair.a.on_rail(pair.now, rail, true);
        let copy = output(&mut pair.a, pair.now, false);
        assert!(!copy.is_empty(), "lost, too");
        pair.b.say_bye();
        let mut byes = output(&mut pair.b, pair.now, false);
        byes.retain(|p| p.0 != rail);
        take(&mut pair.a, pair.now, &byes);
        assert!(done(&mut pair.a, 2), "{len} bytes: {}", pair.a.describe());
    }
}

/// Without the message: its send fails, and so does the next.
#[test]
fn a_message_that_never_came_fails_when_its_receiver_closes() {
    let mut pair = Pair::new(2, false);
    pair.message(2, 100);
    let _lost = output(&mut pair.a, pair.now, false);
    pair.message(3, 100);
    let arrives = output(&mut pair.a, pair.now, false);
    take(&mut pair.b, pair.now, &arrives);
    pair.b.say_bye();
    let byes = output(&mut pair.b, pair.now, false);
    take(&mut pair.a, pair.now, &byes);
    let ends: Vec<_> = std::iter::from_fn(|| pair.a.poll_event())
        .filter_map(|e| match e {
            Event::SendDone { handle, ok } => Some((handle, ok)),
            _ => None,
        })
        .collect();
    assert_eq!(ends, [(1, true), (3, true), (2, false)]);
}

/// The most frames per packet that `says` accepts, when all packets with such frames are lost
/// except one in `one_in`.
fn said_at_once(pair: &mut Pair, one_in: u32, says: impl Fn(&FrameView<'_>) -> bool) -> usize {
    let (mut most, mut lost) = (0, 0);
    for _ in 0..2_000 {
        pair.now += 1_000_000;
        for node in [&mut pair.a, &mut pair.b] {
            node.on_poll(pair.now, false);
            node.handle_timeouts(pair.now);
        }
        let mut back = output(&mut pair.b, pair.now, false);
        back.retain(|(_, bytes)| {
            let packet = Packet::parse(bytes, |_| 0).unwrap();
            let times = packet.frames().filter(|(frame, _)| says(frame)).count();
            most = most.max(times);
            lost += (times > 0) as u32;
            times == 0 || lost % one_in == 0
        });
        take(&mut pair.a, pair.now, &back);
        let there = output(&mut pair.a, pair.now, false);
        take(&mut pair.b, pair.now, &there);
    }
    assert!(lost > 5, "said {lost} times only");
    most
}

/// Regression: each retransmission repeated the oldest packet's frames while it still waited, and
/// each loss repeated all copies: thousands of frames, in packets that kept a slow rail busy all
/// the time, so that other packets found its queue full and a live peer was given up (swarm seed
/// 259835 of the simulator).
#[test]
fn repeated_losses_do_not_multiply_a_frame() {
    let mut pair = Pair::new(1, false);
    assert!(pair.a.post_read(9, pair.to_b, (5, 0, 4_096), 0));
    pair.step();
    let asked = std::iter::from_fn(|| pair.b.poll_event()).find_map(|e| match e {
        Event::ReadAsked { peer, number, .. } => Some((peer, number)),
        _ => None,
    });
    let (peer, number) = asked.expect("nothing was asked");
    pair.b.refuse_read(peer, number);
    let most = said_at_once(&mut pair, 8, |f| matches!(f, Frame::ReadFail { .. }));
    assert_eq!(most, 1, "refusals in one packet");

    let mut pair = Pair::new(1, false);
    pair.message(2, 300_000);
    let most = said_at_once(&mut pair, u32::MAX, |f| matches!(f, Frame::Grant(_)));
    assert_eq!(most, 1, "grants in one packet");
}

/// Memory that rejects every payload.
struct Nowhere;

impl Memory for Nowhere {
    fn land(&mut self, _: &Landing, _: &Payload<'_>) -> bool {
        false
    }
}

/// A silent peer begins a message whose payload is corrupted, and dies. Its receiver waits for the
/// message, so it has to probe the sender now and then. (Regression, seed 813104: a rejected packet
/// set no timer.)
#[test]
fn a_peer_that_dies_after_a_corrupted_packet_is_detected() {
    let mut pair = Pair::new(1, false);
    pair.b.peer(&pair.a.address());
    pair.send(5, 64);
    let sent = pair.alone();
    let b = &mut pair.b;
    let packet = Packet::parse(&sent[0].1, |_| 0).unwrap();
    let taken = b.handle_packet(pair.now, &packet, sent[0].1.len(), &mut Nowhere);
    assert_eq!(taken, Err(DropReason::CorruptPayload));
    let receive = RecvSpec {
        handle: 5,
        source: Source::Any,
        tag: None,
        capacity: 64,
        multi_min: None,
    };
    b.post_recv(&receive, pair.now);
    let mut events = Vec::new();
    // Twice the timeout, in steps of 50 ms.
    for _ in 0..200 {
        pair.now += 50_000_000;
        b.on_poll(pair.now, false);
        b.handle_timeouts(pair.now);
        output(b, pair.now, false);
        events.extend(std::iter::from_fn(|| b.poll_event()));
    }
    assert!(events.iter().any(|e| matches!(e, Event::PeerDead { .. })));
    let failed = |e: &Event| matches!(e, Event::RecvFailed { handle: 5 });
    assert!(events.iter().any(failed), "{events:?}");
}

/// A peer closes without our last packet; then there is a poll gap longer than the silence timeout.
/// A closed peer is not dead as well, and its credit is not returned twice.
#[test]
fn a_closed_peer_is_not_dead() {
    let config = Config {
        peer_timeout_ns: 50_000_000,
        ..Config::default()
    };
    let mut pair = Pair::with(config, 1, false);
    pair.send(5, 64);
    let _lost = pair.alone();
    pair.b.say_bye();
    let byes = output(&mut pair.b, pair.now, false);
    take(&mut pair.a, pair.now, &byes);
    let mut events = Vec::new();
    for _ in 0..10 {
        pair.now += 60_000_000;
        pair.a.on_poll(pair.now, false);
        pair.a.handle_timeouts(pair.now);
        events.extend(std::iter::from_fn(|| pair.a.poll_event()));
    }
    let failed = |e: &&Event| {
        matches!(
            e,
            Event::SendDone {
                handle: 5,
                ok: false
            }
        )
    };
    assert_eq!(events.iter().filter(failed).count(), 1, "{events:?}");
    let dead = |e: &Event| matches!(e, Event::PeerDead { .. });
    assert!(!events.iter().any(dead), "{events:?}");
    assert_eq!(pair.a.stats().peers_dead, 0);
    assert!(pair.a.peer_gone(pair.to_b));
}
