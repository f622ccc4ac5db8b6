//! Two nodes with different payload checksum algorithms: the algorithm that each sends, and packets
//! in an algorithm that the receiver does not know.

use crate::face;

use marline_proto::{
    Config, Delivery, DropReason, Event, Landing, Memory, Node, Payload, PeerId, RailSpec,
    RecvSpec, SendSpec, Source, Spans,
};
use marline_wire::{Packet, FIRST_ALGORITHM, PACKET_MAX};

const KNOWN: &[u8] = &[1, 2, 3, 4, 0];
const SECOND: u64 = 1_000_000_000;

/// Stands for CRC-32C, which `proto` does not know.
fn head_sum(bytes: &[u8]) -> u32 {
    bytes
        .iter()
        .fold(7, |sum, b| u32::wrapping_mul(sum, 31) ^ *b as u32)
}

/// Accepts every payload and records its algorithm.
#[derive(Default)]
struct Seen(Vec<u8>);

impl Memory for Seen {
    fn land(&mut self, _: &Landing, payload: &Payload<'_>) -> bool {
        self.0.push(payload.algorithm);
        true
    }
}

fn rail(host: u8) -> RailSpec {
    RailSpec {
        addr: face::rail_addr(0, host, 0, 1_472),
        datagram_max: 1_472,
        receive_budget: 1 << 20,
        connected: false,
        delivery: Delivery::DATAGRAMS,
        ordered_writes: false,
        direct_datagrams: 0,
        standby: false,
        bulk_rail: None,
    }
}

fn node(host: u8, algorithm: u8, algorithms: &'static [u8]) -> Node {
    let config = Config {
        algorithm,
        algorithms,
        ..Config::default()
    };
    Node::new(
        config,
        (host as u64, 9, 1),
        vec![rail(host)],
        &face::InOneNetwork,
    )
}

/// Two nodes with an algorithm each, and a clock.
struct Pair {
    nodes: [Node; 2],
    now: u64,
    /// Algorithms of the payloads that each node received.
    seen: [Seen; 2],
}

impl Pair {
    fn new(a: Node, b: Node) -> Pair {
        Pair {
            nodes: [a, b],
            now: SECOND,
            seen: Default::default(),
        }
    }

    fn send(&mut self, from: usize, handle: u32) {
        let address = self.nodes[1 - from].address();
        let peer = self.nodes[from].peer(&address);
        let spec = SendSpec {
            handle,
            peer,
            tag: Some(handle as u64),
            data: None,
            len: 100,
            urgent_ack: true,
        };
        assert!(self.nodes[from].post_send(&spec));
    }

    /// All packets that `from` has to send now.
    fn packets(&mut self, from: usize) -> Vec<Vec<u8>> {
        let mut packets = Vec::new();
        let (mut out, mut spans) = (vec![0; PACKET_MAX], Spans::new());
        while let Some(t) = self.nodes[from].poll_transmit(self.now, &mut out, &mut spans, None) {
            seal(&mut out, t.head_len);
            packets.push(out[..t.len].to_vec());
        }
        packets
    }

    fn deliver(&mut self, to: usize, bytes: &[u8]) -> Result<PeerId, DropReason> {
        let packet = Packet::parse(bytes, head_sum).expect("a packet that was just built");
        self.nodes[to].handle_packet(self.now, &packet, bytes.len(), &mut self.seen[to])
    }

    /// Delivers packets both ways until none is left, with pauses in which acks become due.
    fn settle(&mut self) {
        for _ in 0..8 {
            self.now += 1_000_000;
            for from in [0, 1] {
                self.nodes[from].on_poll(self.now, false);
                self.nodes[from].handle_timeouts(self.now);
                for packet in self.packets(from) {
                    self.deliver(1 - from, &packet).unwrap();
                }
            }
        }
    }

    fn events(&mut self, of: usize) -> Vec<Event> {
        std::iter::from_fn(|| self.nodes[of].poll_event()).collect()
    }
}

/// Writes the head's checksum.
fn seal(packet: &mut [u8], head_len: usize) {
    let sum = head_sum(&packet[4..head_len]);
    packet[..4].copy_from_slice(&sum.to_le_bytes());
}

/// The same packet with another algorithm in its header.
fn speaking(packet: &[u8], algorithm: u8) -> Vec<u8> {
    let mut packet = packet.to_vec();
    packet[5] = algorithm;
    let head_len = u16::from_le_bytes([packet[6], packet[7]]) as usize;
    seal(&mut packet, head_len);
    packet
}

fn agreed(events: &[Event]) -> Vec<(u8, u8)> {
    let told = events.iter().filter_map(|event| match event {
        Event::AlgorithmAgreed {
            preference, agreed, ..
        } => Some((*preference, *agreed)),
        _ => None,
    });
    told.collect()
}

/// The algorithms that nodes 0 and 1 receive when each sends before it knows the other, then once
/// more.
fn talk(mut pair: Pair) -> (Pair, [Vec<u8>; 2]) {
    for handle in 0..2 {
        pair.send(0, handle);
        pair.send(1, handle);
        if handle == 0 {
            // Both HELLOs are in flight at once.
            let (a, b) = (pair.packets(0), pair.packets(1));
            for packet in a {
                pair.deliver(1, &packet).unwrap();
            }
            for packet in b {
                pair.deliver(0, &packet).unwrap();
            }
        }
        pair.settle();
    }
    let seen = [pair.seen[0].0.clone(), pair.seen[1].0.clone()];
    (pair, seen)
}

#[test]
fn the_first_flight_uses_the_common_algorithm() {
    let (mut pair, seen) = talk(Pair::new(node(1, 4, KNOWN), node(2, 4, KNOWN)));
    assert_eq!(seen, [vec![FIRST_ALGORITHM, 4], vec![FIRST_ALGORITHM, 4]]);
    for of in [0, 1] {
        assert_eq!(
            agreed(&pair.events(of)),
            [],
            "both have what they asked for"
        );
    }
}

#[test]
fn the_more_trusted_of_two_algorithms_is_used_both_ways() {
    let (mut pair, seen) = talk(Pair::new(node(1, 0, KNOWN), node(2, 3, KNOWN)));
    assert_eq!(seen, [vec![FIRST_ALGORITHM, 3], vec![FIRST_ALGORITHM, 3]]);
    assert_eq!(agreed(&pair.events(0)), [(3, 3)]);
    assert_eq!(agreed(&pair.events(1)), [(0, 3)]);
}

#[test]
fn an_algorithm_unknown_to_one_side_is_reported_and_not_used() {
    const NEWER: &[u8] = &[1, 30, 2, 3, 4, 0];
    let (mut pair, seen) = talk(Pair::new(node(1, 1, KNOWN), node(2, 30, NEWER)));
    assert_eq!(seen, [vec![1, 1], vec![1, 1]]);
    assert_eq!(agreed(&pair.events(0)), [(30, 1)]);
    assert_eq!(agreed(&pair.events(1)), [(1, 1)]);
}

#[test]
fn a_packet_in_an_unknown_algorithm_is_counted_and_changes_nothing() {
    let mut pair = Pair::new(node(1, 1, KNOWN), node(2, 1, KNOWN));
    pair.send(0, 0);
    for packet in pair.packets(0) {
        for unknown in [5, 31, 32, 255] {
            let answer = pair.deliver(1, &speaking(&packet, unknown));
            assert_eq!(answer, Err(DropReason::Algorithm));
        }
        assert_eq!(pair.nodes[1].stats().drop_algorithm, 4);
        assert!(pair.seen[1].0.is_empty() && !pair.nodes[1].wants_transmit());
        // The original packet is still accepted.
        pair.deliver(1, &packet).unwrap();
    }
    assert_eq!(pair.seen[1].0, [1]);
}

/// A peer that sends in an algorithm which was not agreed on counts as silent: operations that wait
/// for it end after the same timeout as for a dead peer.
#[test]
fn a_receive_from_a_peer_with_an_unknown_algorithm_fails() {
    let (mut pair, _) = talk(Pair::new(node(1, 1, KNOWN), node(2, 1, KNOWN)));
    let sender = pair.nodes[0].address();
    let source = Source::Peer(pair.nodes[1].peer(&sender));
    pair.events(1);
    let receive = RecvSpec {
        handle: 77,
        source,
        tag: Some((u64::MAX, 0)),
        capacity: 100,
        multi_min: None,
    };
    pair.nodes[1].post_recv(&receive, pair.now);
    let mut events = Vec::new();
    for handle in 10..800 {
        pair.now += 10_000_000;
        // No message is ever acknowledged: later the sender gives up, too.
        if handle < 400 {
            pair.send(0, handle);
        }
        for to in [1, 0] {
            pair.nodes[1 - to].on_poll(pair.now, false);
            pair.nodes[1 - to].handle_timeouts(pair.now);
            for packet in pair.packets(1 - to) {
                let packet = if to == 1 {
                    speaking(&packet, 31)
                } else {
                    packet
                };
                let _ = pair.deliver(to, &packet);
            }
        }
        events.extend(pair.events(1));
    }
    assert!(
        events.contains(&Event::RecvFailed { handle: 77 }),
        "{events:?}"
    );
}
