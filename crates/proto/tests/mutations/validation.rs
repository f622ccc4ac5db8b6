//! Addresses of strangers are validated: until they are, at most three times the bytes that came
//! are sent there, and strangers that prove none are forgotten.

use crate::face;

use face::{done, hello_packet, node_in_one, node_with, output, Anywhere, Pair};
use marline_proto::{Config, DropReason, Event, Node, RecvSpec, SendSpec, Source};
use marline_wire::{Ack, AckMasks, Address, Frame, Packet, RailAddr, ACK_MASKS_MAX, RAILS_MAX};

const MS: u64 = 1_000_000;
const STRANGER: u64 = 55;

/// Rails in the network of the node's rail.
fn many_rails() -> Vec<RailAddr> {
    let rails = 0..RAILS_MAX as u8;
    rails.map(|i| face::rail_addr(0, 9, i, 1_472)).collect()
}

fn give(node: &mut Node, now: u64, bytes: &[u8]) {
    let packet = Packet::parse(bytes, |_| 0).unwrap();
    let taken = node.handle_packet(now, &packet, bytes.len(), &mut Anywhere);
    taken.unwrap();
}

/// An ack of the first 64 packets on a path, which a stranger can guess.
fn guessed_ack(path: u16) -> Frame {
    let mut bits = [0; ACK_MASKS_MAX];
    bits[0] = !0;
    Frame::Ack(Ack {
        path,
        delay_us: 0,
        base: 0,
        masks: AckMasks { count: 1, bits },
    })
}

/// Runs a node alone until its next deadlines, for so long. Returns the lengths of its packets, how
/// often its timers were served, and its events; the owner forgets peers that left.
fn alone(node: &mut Node, now: &mut u64, for_ns: u64) -> (Vec<usize>, usize, Vec<Event>) {
    let (mut sent, mut served, mut events) = (Vec::new(), 0, Vec::new());
    let end = *now + for_ns;
    while *now < end {
        node.on_poll(*now, false);
        node.caught_up();
        node.handle_timeouts(*now);
        sent.extend(output(node, *now, false).iter().map(|(_, b)| b.len()));
        while let Some(event) = node.poll_event() {
            if let Event::PeerLeft { peer } = event {
                node.forget(peer);
            }
            events.push(event);
        }
        *now = node.next_deadline().unwrap_or(end).clamp(*now + 1, end);
        served += 1;
        assert!(served < 10_000, "timers spin: {}", node.describe());
    }
    (sent, served, events)
}

/// Bytes that a node sends because of a stranger with these rails, which sends HELLO and then acks
/// that it guesses; and the bytes of the stranger.
fn drawn(config: Config, rails: &[RailAddr], packets: u64) -> (usize, usize) {
    let (mut node, mut now) = (node_in_one(config, 1, 1), MS);
    let (mut came, mut drawn) = (0, 0);
    for number in 0..packets {
        let frame = match number {
            0 => Frame::Ping,
            _ => guessed_ack(0),
        };
        let bytes = hello_packet(&node, (STRANGER, 3, number), rails, &[frame]);
        came += bytes.len();
        give(&mut node, now, &bytes);
        let (sent, _, _) = alone(&mut node, &mut now, 50 * MS);
        drawn += sent.iter().sum::<usize>();
    }
    (drawn, came)
}

/// Regression: a HELLO with 32 addresses drew a thousand times its bytes.
#[test]
fn a_stranger_draws_at_most_three_times_its_bytes() {
    for (rails, packets) in [(2, 2), (2, 10), (32, 1), (32, 10)] {
        let (drawn, came) = drawn(Config::default(), &many_rails()[..rails], packets);
        assert!(drawn > 0, "it is answered");
        assert!(drawn <= 3 * came, "{drawn} bytes for {came}");
    }
}

/// Events after a stranger has said HELLO once, in so many ns.
fn after_one_hello(config: Config, for_ns: u64) -> (Node, usize, Vec<Event>) {
    let (mut node, mut now) = (node_in_one(config, 1, 1), MS);
    let bytes = hello_packet(&node, (STRANGER, 3, 0), &many_rails(), &[Frame::Ping]);
    node.on_poll(now, false);
    give(&mut node, now, &bytes);
    let (_, served, events) = alone(&mut node, &mut now, for_ns);
    (node, served, events)
}

/// Regression: a silent stranger was probed and rerouted until the peer timeout, two minutes.
#[test]
fn a_stranger_that_proves_no_address_is_forgotten_soon() {
    let (mut node, served, events) = after_one_hello(Config::default(), 1_100 * MS);
    assert!(served < 20, "timers were served {served} times");
    assert_eq!((node.strangers(), node.stats().strangers_forgotten), (0, 1));
    let dead = |e: &Event| matches!(e, Event::PeerDead { .. });
    assert!(!events.iter().any(dead), "{events:?}");
    assert!(node.is_idle());
    // The stranger may come again.
    let bytes = hello_packet(&node, (STRANGER, 3, 1), &many_rails(), &[Frame::Ping]);
    give(&mut node, 1_200 * MS, &bytes);
    assert_eq!(node.strangers(), 1);
}

/// A stranger that says the id of a peer before the application inserts the peer's address has
/// another token, which no packet to the peer may have.
#[test]
fn an_inserted_address_displaces_a_stranger_with_its_id() {
    let (mut node, _, _) = after_one_hello(Config::default(), MS);
    let stranger = node.peer_named(STRANGER).unwrap();
    let token = node.peer_address(stranger).unwrap().token + 1;
    let address = Address::new(STRANGER, token, &many_rails()[..1]);
    let peer = node.peer(&address);
    assert_ne!(peer, stranger);
    assert_eq!(node.peer_address(peer).unwrap().token, token);
    let mut now = 2 * MS;
    let (_, _, events) = alone(&mut node, &mut now, 200_000 * MS);
    let left = |e: &Event| matches!(e, Event::PeerLeft { peer } if *peer == stranger);
    assert!(events.iter().any(left), "{events:?}");
    assert_eq!(
        (node.peer_named(STRANGER), node.strangers()),
        (Some(peer), 0)
    );
    assert_eq!(node.peer(&address), peer);
}

/// A client with these rails, whose address the server does not insert.
fn client_and_server(rails: u8) -> Pair {
    let nodes = [1, 2].map(|host| node_with(Config::default(), host, rails));
    Pair::of(nodes, false)
}

/// A step of both, in which only those packets arrive that `passes` accepts, given their sender
/// (0 is the client) and bytes. The numbers of a server that forgot the client begin anew, so that
/// some of its packets count as duplicates.
fn step(pair: &mut Pair, passes: &mut impl FnMut(usize, &[u8]) -> bool) {
    pair.now += MS / 2;
    for from in [0, 1] {
        let (sender, taker) = match from {
            0 => (&mut pair.a, &mut pair.b),
            _ => (&mut pair.b, &mut pair.a),
        };
        sender.on_poll(pair.now, false);
        sender.caught_up();
        sender.handle_timeouts(pair.now);
        for (_, bytes) in output(sender, pair.now, false) {
            if passes(from, &bytes) {
                let packet = Packet::parse(&bytes, |_| 0).unwrap();
                let taken = taker.handle_packet(pair.now, &packet, bytes.len(), &mut Anywhere);
                assert!(
                    matches!(taken, Ok(_) | Err(DropReason::Duplicate)),
                    "{taken:?}"
                );
            }
        }
    }
}

/// Steps until the client's message is delivered; the server forgets peers that left.
fn delivers(pair: &mut Pair, handle: u32, passes: &mut impl FnMut(u64, usize) -> bool) {
    while !done(&mut pair.a, handle) {
        assert!(pair.now < face::SETTLED_NS, "it never gets through");
        let now = pair.now;
        step(pair, &mut |from, _| passes(now, from));
        while let Some(event) = pair.b.poll_event() {
            if let Event::PeerLeft { peer } = event {
                pair.b.forget(peer);
            }
        }
    }
}

#[test]
fn a_client_that_was_not_inserted_gets_what_the_server_sends() {
    for rails in [1, 4] {
        let mut pair = client_and_server(rails);
        pair.message(7, 3_000);
        delivers(&mut pair, 7, &mut |_, _| true);
        let peer = pair.b.peer_named(pair.a.id()).unwrap();
        let (handle, len) = (8, 1 << 20);
        let receive = RecvSpec {
            handle,
            source: Source::Any,
            tag: None,
            capacity: len,
            multi_min: None,
        };
        pair.a.post_recv(&receive, pair.now);
        pair.b.post_send(&SendSpec {
            handle,
            peer,
            tag: None,
            data: None,
            len,
            urgent_ack: true,
        });
        let mut sent = 0;
        while !done(&mut pair.b, handle) {
            assert!(pair.now < face::SETTLED_NS, "it never gets through");
            step(&mut pair, &mut |from, bytes| {
                sent += from * bytes.len();
                true
            });
        }
        assert!(sent > 1 << 20 && pair.b.strangers() == 1, "{sent} bytes");
    }
}

#[test]
fn a_client_that_was_not_inserted_connects_through_loss() {
    for lost in 1..200_u64 {
        let (mut pair, mut nth) = (client_and_server(1), 0_u64);
        pair.message(7, 3_000);
        delivers(&mut pair, 7, &mut |_, _| {
            nth += 1;
            nth > 8 || lost >> (nth - 1) & 1 == 0
        });
    }
}

/// Regression (simulator, swarm 45276229404875): packets of the client arrive on one rail, those of
/// the server on the other, whose address no packet of the client proves or pays for.
#[test]
fn a_client_whose_rails_carry_one_direction_each_connects() {
    let mut pair = client_and_server(2);
    pair.message(7, 3_000);
    while !done(&mut pair.a, 7) {
        assert!(pair.now < face::SETTLED_NS, "it never gets through");
        step(&mut pair, &mut |from, bytes| {
            let header = Packet::parse(bytes, |_| 0).unwrap().header;
            header.path as u8 as usize == from
        });
    }
}

/// The client hears the server, whose packet has a challenge; no packet of the client arrives for
/// two seconds, in which the server forgets it. The client repeats HELLO with its response.
#[test]
fn a_client_that_was_forgotten_begins_anew() {
    let mut pair = client_and_server(1);
    // The client waits for a message of the server, and probes it: HELLO comes without a message.
    let receive = RecvSpec {
        handle: 5,
        source: Source::Peer(pair.to_b),
        tag: None,
        capacity: 1_000,
        multi_min: None,
    };
    pair.a.post_recv(&receive, pair.now);
    let mut passed = false;
    while !passed {
        step(&mut pair, &mut |from, _| {
            from == 1 || !std::mem::replace(&mut passed, true)
        });
    }
    assert_eq!(
        (pair.b.strangers(), pair.b.stats().strangers_forgotten),
        (1, 0)
    );
    let end = pair.now + 2_000 * MS;
    pair.message(6, 50_000);
    delivers(&mut pair, 6, &mut |now, from| from == 1 || now > end);
    assert_eq!(
        (pair.b.strangers(), pair.b.stats().strangers_forgotten),
        (1, 1)
    );
}

#[cfg(feature = "mutation")]
mod mistakes {
    use super::*;
    use marline_proto::Mutation;

    fn with(mutation: Mutation) -> Config {
        Config {
            mutation: Some(mutation),
            ..Config::default()
        }
    }

    #[test]
    fn addresses_that_are_trusted_are_noticed() {
        let (drawn, came) = drawn(with(Mutation::TrustAddresses), &many_rails(), 10);
        assert!(drawn > 20 * came, "{drawn} bytes for {came}");
    }

    #[test]
    fn acks_that_are_proof_are_noticed() {
        let (drawn, came) = drawn(with(Mutation::TrustAcks), &many_rails()[..2], 2);
        assert!(drawn > 3 * came, "{drawn} bytes for {came}");
    }

    #[test]
    fn strangers_that_are_kept_are_noticed() {
        let config = with(Mutation::KeepUnvalidated);
        assert_eq!(after_one_hello(config, 1_100 * MS).0.strangers(), 1);
    }
}
