//! Peers that come and go: the state retained after they left, and packets that still arrive from
//! them.

use crate::face;

use face::{output, specs, take, Anywhere, Flying, InOneNetwork};
use marline_proto::{Config, DropReason, Event, Node, PeerId, RecvSpec, SendSpec, Source};
use marline_wire::Packet;

const SECOND: u64 = 1_000_000_000;

/// A server, with counts of its events.
struct Server {
    node: Node,
    now: u64,
    received: usize,
    dead: usize,
}

fn node(id: u64) -> Node {
    node_with(0, id)
}

/// A node of a job with a key of this mark.
fn node_with(key_mark: u16, id: u64) -> Node {
    // The host in the rail's address is a byte; nodes differ by their ids.
    let host = 2 + (id % 200) as u8;
    let config = Config {
        key_mark,
        ..Config::default()
    };
    Node::new(
        config,
        (2 * id + 1, id as u32, 1),
        specs(host, 1, 1_472),
        &InOneNetwork,
    )
}

fn message(peer: PeerId, handle: u32) -> SendSpec {
    SendSpec {
        handle,
        peer,
        tag: None,
        data: None,
        len: 100,
        urgent_ack: true,
    }
}

fn receive(source: Source, handle: u32) -> RecvSpec {
    RecvSpec {
        handle,
        source,
        tag: None,
        capacity: 100,
        multi_min: None,
    }
}

impl Server {
    fn new() -> Server {
        Server::with(0)
    }

    fn with(key_mark: u16) -> Server {
        Server {
            node: node_with(key_mark, 1_000_000),
            now: SECOND,
            received: 0,
            dead: 0,
        }
    }

    /// Handles events as the owner does.
    fn settle(&mut self) {
        while let Some(event) = self.node.poll_event() {
            match event {
                Event::RecvDone { .. } => self.received += 1,
                Event::PeerDead { .. } => self.dead += 1,
                Event::PeerLeft { peer } => self.node.forget(peer),
                _ => {}
            }
        }
    }

    /// Advances time and polls.
    fn pass(&mut self, ns: u64) {
        self.now += ns;
        self.node.on_poll(self.now, false);
        self.node.handle_timeouts(self.now);
        self.settle();
    }

    /// Exchanges packets until both nodes are silent; returns all that the client sent.
    fn talk(&mut self, client: &mut Node) -> Vec<Flying> {
        let (mut sent, mut quiet) = (Vec::new(), 0);
        while quiet < 20 {
            assert!(sent.len() < 100_000, "they never fall silent");
            self.pass(20_000);
            client.on_poll(self.now, false);
            client.handle_timeouts(self.now);
            let there = output(client, self.now, false);
            take(&mut self.node, self.now, &there);
            self.settle();
            let back = output(&mut self.node, self.now, false);
            take(client, self.now, &back);
            quiet = if there.is_empty() && back.is_empty() {
                quiet + 1
            } else {
                0
            };
            sent.extend(there);
        }
        sent
    }

    /// A client comes, sends a message, gets one back, and leaves; returns the packets that it
    /// sent.
    fn visit(&mut self, client: &mut Node) -> Vec<Flying> {
        self.node.post_recv(&receive(Source::Any, 1), self.now);
        let server = client.peer(&self.node.address());
        assert!(client.post_send(&message(server, 2)));
        client.post_recv(&receive(Source::Peer(server), 3), self.now);
        let mut sent = self.talk(client);
        let known = self.node.peer_named(client.id()).expect("spoken to");
        assert!(self.node.post_send(&message(known, 4)));
        sent.extend(self.talk(client));
        client.say_bye();
        sent.extend(self.talk(client));
        assert!(self.node.peer_gone(known), "it closed");
        sent
    }

    /// Hands over a packet; returns why it is rejected.
    fn refuses(&mut self, packet: &Flying) -> Option<DropReason> {
        let parsed = Packet::parse(&packet.1, |_| 0).unwrap();
        let len = packet.1.len();
        let taken = self
            .node
            .handle_packet(self.now, &parsed, len, &mut Anywhere);
        self.settle();
        taken.err()
    }
}

/// A client comes each second, for an hour and a half: only the state of the last minutes is
/// retained.
#[test]
fn clients_that_come_and_go_leave_nothing() {
    let mut server = Server::new();
    let (mut kept_max, mut bytes_max) = (0, 0);
    for n in 0..5_000 {
        server.visit(&mut node(n));
        server.pass(SECOND);
        if n >= 1_000 {
            kept_max = kept_max.max(server.node.kept().peers);
            bytes_max = bytes_max.max(server.node.peer_bytes().0);
        }
    }
    assert_eq!(server.received, 5_000);
    // Peers for four minutes, connections for seconds.
    assert!(kept_max < 300, "{kept_max} peers are known");
    assert!(bytes_max < 60_000, "{bytes_max} bytes of conversations");
    assert!(server.node.kept().deadlines < 1_000);
    server.pass(300 * SECOND);
    server.pass(300 * SECOND);
    assert_eq!(
        (server.node.kept().peers, server.node.peer_bytes()),
        (0, (0, 0))
    );
    assert_eq!(server.node.held(), Default::default());
}

/// A packet that the network delayed does not open a new connection: its message would arrive
/// twice.
#[test]
fn a_late_packet_of_a_departed_peer_is_rejected() {
    let mut server = Server::new();
    let sent = server.visit(&mut node(1));
    let first = &sent[0];
    for _ in 0..200 {
        server.node.post_recv(&receive(Source::Any, 5), server.now);
        assert!(server.refuses(first).is_some());
        server.pass(SECOND);
    }
    assert_eq!(
        server.node.peer_bytes().1,
        0,
        "the conversation is forgotten"
    );
    assert_eq!(server.received, 1);
}

/// Packets that were recorded are sent again an hour later, when the peer is forgotten: without a
/// key they are a first contact. With a key they change nothing, at any time.
#[test]
fn recorded_packets_of_a_forgotten_peer_are_refused_with_a_key() {
    for (key_mark, taken) in [(0, 2), (7, 1)] {
        let mut server = Server::with(key_mark);
        let sent = server.visit(&mut node_with(key_mark, 1));
        assert_eq!(server.refuses(&sent[0]), Some(DropReason::Gone));
        for _ in 0..12 {
            server.pass(300 * SECOND);
        }
        assert_eq!(server.node.kept().peers, 0, "the peer is forgotten");
        server.node.post_recv(&receive(Source::Any, 5), server.now);
        for packet in &sent {
            let refused = server.refuses(packet);
            assert!(refused.is_some() || key_mark == 0);
        }
        assert_eq!(server.received, taken);
    }
}

/// A recorded packet of a living peer is no sign of life: the peer's death is noticed all the same.
#[test]
fn a_replayed_packet_is_no_sign_of_life() {
    let mut server = Server::with(7);
    let mut client = node_with(7, 1);
    let first = {
        let peer = client.peer(&server.node.address());
        assert!(client.post_send(&message(peer, 1)));
        output(&mut client, server.now, false)
    };
    take(&mut server.node, server.now, &first);
    server.settle();
    let peer = server.node.peer_named(3).unwrap();
    assert!(server.node.post_send(&message(peer, 9)));
    for _ in 0..200 {
        output(&mut server.node, server.now, false);
        assert_eq!(
            server.dead > 0,
            server.refuses(&first[0]) == Some(DropReason::Gone)
        );
        server.pass(SECOND / 10);
    }
    assert_eq!(server.dead, 1);
}

/// A departed peer's slot is reused; late packets that name the slot are not taken for the new
/// peer's.
#[test]
fn a_reused_slot_gets_no_packets_of_the_previous_peer() {
    let mut server = Server::new();
    let old = server.visit(&mut node(1));
    let slot = server.node.peer_named(3).unwrap();
    for _ in 0..30 {
        server.pass(10 * SECOND);
    }
    assert_eq!(server.node.peer_named(3), None);
    let mut second = node(2);
    let to_server = second.peer(&server.node.address());
    assert!(second.post_send(&message(to_server, 1)));
    server.node.post_recv(&receive(Source::Any, 1), server.now);
    server.talk(&mut second);
    assert_eq!(
        server.node.peer_named(5),
        Some(slot),
        "the slot is used again"
    );
    assert_eq!(server.received, 2);
    // The last packet has no HELLO: its sender is unknown.
    let last = old.last().unwrap();
    assert_eq!(server.refuses(last), Some(DropReason::Stranger));
    assert!(!server.node.peer_gone(slot));
}

/// While the owner has a name for a peer, operations that use it fail at once, however long the
/// peer has been gone.
#[test]
fn operations_on_a_departed_peer_fail_until_it_is_unnamed() {
    let mut server = Server::new();
    let mut client = node(1);
    let named = server.node.peer(&client.address());
    server.visit(&mut client);
    for _ in 0..100 {
        server.pass(10 * SECOND);
        assert!(server.node.peer_gone(named));
        assert!(!server.node.post_send(&message(named, 7)));
    }
    assert_eq!(
        server.node.peer_bytes().1,
        0,
        "the conversation is forgotten"
    );
    assert_eq!(server.node.kept().peers, 1);
    server
        .node
        .post_recv(&receive(Source::Peer(named), 8), server.now);
    let ended = std::iter::from_fn(|| server.node.poll_event());
    let failed = |e: Event| matches!(e, Event::RecvFailed { handle: 8 });
    assert_eq!(ended.filter(|e| failed(*e)).count(), 1);
    server.node.av_removed(named);
    for _ in 0..30 {
        server.pass(10 * SECOND);
    }
    assert_eq!(server.node.kept().peers, 0);
}

/// An unexpected message of a closed peer can still be received, so its sender is retained.
#[test]
fn a_message_outlives_its_sender() {
    let mut server = Server::new();
    let mut client = node(1);
    let to_server = client.peer(&server.node.address());
    assert!(client.post_send(&message(to_server, 1)));
    server.talk(&mut client);
    client.say_bye();
    server.talk(&mut client);
    for _ in 0..100 {
        server.pass(10 * SECOND);
    }
    let sender = server.node.peer_named(client.id()).expect("not forgotten");
    server
        .node
        .post_recv(&receive(Source::Peer(sender), 1), server.now);
    server.settle();
    assert_eq!(server.received, 1);
    for _ in 0..60 {
        server.pass(10 * SECOND);
    }
    assert_eq!(server.node.kept().peers, 0);
}

/// Dead peers are forgotten like closed ones.
#[test]
fn dead_peers_are_forgotten() {
    let mut server = Server::new();
    let mut client = node(1);
    let to_server = client.peer(&server.node.address());
    assert!(client.post_send(&message(to_server, 1)));
    server.node.post_recv(&receive(Source::Any, 1), server.now);
    server.talk(&mut client);
    let known = server.node.peer_named(client.id()).unwrap();
    assert!(server.node.post_send(&message(known, 4)));
    for _ in 0..4_000 {
        server.pass(SECOND / 100);
        output(&mut server.node, server.now, false);
    }
    assert_eq!(server.dead, 1);
    assert_eq!(
        server.node.peer_bytes().1,
        0,
        "the conversation is forgotten"
    );
    for _ in 0..30 {
        server.pass(10 * SECOND);
    }
    assert_eq!(server.node.kept().peers, 0);
}

/// No operation waits for the client, so its silence must be noticed by probes.
#[test]
fn a_client_that_was_killed_is_noticed_and_forgotten() {
    let mut server = Server::new();
    let (mut lives, mut killed) = (node(1), node(2));
    for client in [&mut lives, &mut killed] {
        let to_server = client.peer(&server.node.address());
        assert!(client.post_send(&message(to_server, 1)));
        server.node.post_recv(&receive(Source::Any, 1), server.now);
        server.talk(client);
    }
    // For five minutes one of them answers.
    for _ in 0..30_000 {
        server.pass(SECOND / 100);
        let asked = output(&mut server.node, server.now, false);
        let id = |p: &Flying| Packet::parse(&p.1, |_| 0).unwrap().header.dst_id;
        let asked: Vec<Flying> = asked.into_iter().filter(|p| id(p) == lives.id()).collect();
        take(&mut lives, server.now, &asked);
        lives.on_poll(server.now, false);
        let answers = output(&mut lives, server.now, false);
        take(&mut server.node, server.now, &answers);
    }
    assert_eq!(server.dead, 1);
    let gone = |n: &Node, id| n.peer_named(id).is_none_or(|p| n.peer_gone(p));
    assert!(gone(&server.node, killed.id()) && !gone(&server.node, lives.id()));
    assert_eq!(server.node.peer_bytes().1, 1);
}
