//! Strangers before a node: the parsers of all that they can send, and a node that hears them in
//! their own names and in that of its peer.

use crate::frames::frame;
use crate::input::Input;
use crate::memory::Memories;
use crate::node::rail;
use crate::packet::{seal, write};
use marline_checksum::crc32c;
use marline_engine::ByKind;
use marline_proto::{
    Config, Delivery, Event, LinkAsk, Node, PeerId, RailSpec, RecvSpec, SendSpec, Source, Spans,
};
use marline_wire::{
    Address, Answer, DirectHead, Frame, GroupPacket, Header, Hello, HelloFields, Packet, Question,
    RailList, Versions, FIRST_ALGORITHM, HEADER_LEN, PACKET_MAX, SLOT_UNKNOWN, TAG_LEN, VERSION,
};

const NODE: (u64, u32) = (0xa1, 7);
const PEER: (u64, u32) = (0xb0, 9);
/// Strangers die within an input. The peer answers.
const TIMEOUT_NS: u64 = 200_000_000;
/// Most packets that a node sends at once.
const PACKETS_MAX: usize = 64;
/// Ids of strangers begin here.
const STRANGERS: u64 = 1_000;
/// Most steps of one input, to keep runs short.
const STEPS_MAX: usize = 300;
const UNEXPECTED_BYTES: u64 = 1 << 20;
/// The receive from the peer alone.
const RECEIVE: u32 = 1;

/// The bytes as each kind of datagram, then as a sequence of strangers' packets. No parser may
/// panic; strangers may neither end a receive of their victim nor exceed their bounds.
pub fn admission(data: &[u8]) {
    parse(data);
    let mut input = Input::new(data);
    let mut victim = Victim::new();
    for _ in 0..STEPS_MAX {
        if input.is_empty() {
            break;
        }
        victim.step(&mut input);
        victim.check();
    }
}

fn parse(data: &[u8]) {
    for sum in [crc32c(data.get(4..).unwrap_or(&[])), 0] {
        let crc = |_: &[u8]| sum;
        if let Ok(packet) = Packet::parse(data, crc) {
            let tag_len = packet.tag().map_or(0, |_| TAG_LEN);
            assert!(packet.tagged_head().frames.len() + HEADER_LEN + tag_len <= packet.wire_len());
        }
        let _ = GroupPacket::parse(data, crc);
        let answer = Answer::parse(data, crc);
        if let Some(question) = Question::parse(data, crc) {
            assert!(answer.is_none() && question.from.is_some());
            assert!(Question::tagged(data).is_some());
        }
        answer.map(|answer| Address::decode(&answer.blob));
    }
    if let Some(head) = DirectHead::parse(data) {
        assert!(head.packet(data).len() <= data.len() && head.lead() <= head.total());
    }
}

struct Victim {
    node: Node,
    memory: Memories,
    /// The peer, and its index at the node.
    other: (Node, PeerId),
    now: u64,
}

/// A node at this host.
fn node_at(host: u8, (id, token): (u64, u32)) -> Node {
    let cfg = Config {
        unexpected_bytes: UNEXPECTED_BYTES,
        any_source_fails: true,
        peer_timeout_ns: TIMEOUT_NS,
        ..Config::default()
    };
    let spec = RailSpec {
        addr: rail(host, 0),
        datagram_max: 1_472,
        receive_budget: 100_000,
        connected: false,
        delivery: Delivery::DATAGRAMS,
        ordered_writes: false,
        direct_datagrams: 0,
        standby: false,
        bulk_rail: None,
    };
    Node::new(cfg, (id, token, 1), vec![spec], &ByKind)
}

/// The packets that a node has to send; links are up when they are asked for.
fn output(node: &mut Node, now: u64) -> Vec<Vec<u8>> {
    while let Some(ask) = node.poll_link() {
        if let LinkAsk::Open { peer, path, .. } = ask {
            node.on_linked(now, peer, path, peer.0, true);
        }
    }
    let (mut out, mut spans, mut packets) = (vec![0; 2_048], Spans::new(), Vec::new());
    while let Some(sent) = node.poll_transmit(now, &mut out, &mut spans, None) {
        seal(&mut out);
        packets.push(out[..sent.len].to_vec());
        if packets.len() == PACKETS_MAX {
            break;
        }
    }
    packets
}

impl Victim {
    /// A node that received HELLO of its peer, and a receive from that peer.
    fn new() -> Victim {
        let memory = Memories {
            verdict: Some(true),
            ..Memories::default()
        };
        let (mut node, mut other) = (node_at(1, NODE), node_at(2, PEER));
        let peer = node.peer(&other.address());
        let to = other.peer(&node.address());
        let send = SendSpec {
            handle: 1,
            peer: to,
            tag: Some(1),
            data: None,
            len: 0,
            urgent_ack: true,
        };
        assert!(other.post_send(&send));
        let (other, now) = ((other, peer), 1);
        let mut victim = Victim {
            node,
            memory,
            other,
            now,
        };
        for _ in 0..4 {
            victim.exchange();
        }
        victim.post(RECEIVE, Source::Peer(peer));
        victim.post(RECEIVE + 1, Source::Any);
        victim
    }

    /// The packets of both nodes arrive; those to strangers are lost.
    fn exchange(&mut self) {
        for bytes in output(&mut self.other.0, self.now) {
            self.receive(&bytes);
        }
        let (now, other) = (self.now, &mut self.other.0);
        for bytes in output(&mut self.node, now) {
            let packet = Packet::parse(&bytes, crc32c).expect("what a node builds parses");
            if packet.header.dst_id == PEER.0 {
                let _ = other.handle_packet(now, &packet, bytes.len(), &mut self.memory);
            }
        }
        while other.poll_event().is_some() {}
    }

    fn post(&mut self, handle: u32, source: Source) {
        // No stranger's message has this tag, which `frame` never makes.
        let tag = Some((1 << 40, 0));
        let spec = RecvSpec {
            handle,
            source,
            tag,
            capacity: 1_000,
            multi_min: None,
        };
        self.memory.add(handle, spec.capacity);
        self.node.post_recv(&spec, self.now);
    }

    /// Returns whether the node takes these bytes.
    fn receive(&mut self, bytes: &[u8]) -> bool {
        // Malformed frames never reach the node.
        let Ok(packet) = Packet::parse(bytes, crc32c) else {
            return false;
        };
        let (node, memory) = (&mut self.node, &mut self.memory);
        let taken = node.handle_packet(self.now, &packet, bytes.len(), memory);
        taken.is_ok()
    }

    fn step(&mut self, input: &mut Input<'_>) {
        match input.below(8) {
            0 => self.pass_time(input),
            1 => self.as_peer(input),
            _ => self.as_stranger(input),
        }
        self.exchange();
        while let Some(event) = self.node.poll_event() {
            self.take(event);
        }
    }

    fn take(&mut self, event: Event) {
        match event {
            Event::RecvDone { handle, .. }
            | Event::RecvFailed { handle }
            | Event::RecvReleased { handle } => {
                panic!("a stranger ends receive {handle}: {event:?}")
            }
            Event::PeerDead { peer, .. } => assert_ne!(peer, self.other.1, "{event:?}"),
            Event::PeerLeft { peer } => {
                assert_ne!(peer, self.other.1, "by a stranger's BYE");
                self.node.forget(peer);
            }
            Event::BounceFree { inbound } => drop(self.memory.bounces.remove(&inbound)),
            Event::RpcArrived { bounce, .. } => self.memory.free_bounce(Some(bounce), 0),
            Event::ReadAsked { peer, number, .. } => self.node.refuse_read(peer, number),
            Event::PutAsked { claim, .. } => self.node.refuse_put(claim, self.now),
            _ => {}
        }
    }

    fn pass_time(&mut self, input: &mut Input<'_>) {
        for _ in 0..input.pick(&[1, 4, 60]) {
            self.now += 5_000_000;
            for node in [&mut self.node, &mut self.other.0] {
                node.on_poll(self.now, true);
                node.handle_timeouts(self.now);
            }
            self.exchange();
        }
    }

    /// A packet in the peer's name by a stranger that was not told the peer's epoch.
    fn as_peer(&mut self, input: &mut Input<'_>) {
        // (The peer's own is one of 2^32.)
        let epoch = input.below(3) as u32;
        let token = input.pick(&[PEER.1, 5]);
        let bytes = packet((PEER.0, token, epoch), number(input), &frames(input), &[2]);
        assert!(
            !self.receive(&bytes),
            "a packet in the peer's name is taken"
        );
    }

    fn as_stranger(&mut self, input: &mut Input<'_>) {
        let id = STRANGERS + input.below(300);
        let rails = [input.below(250) as u8, 3];
        let rails = &rails[..input.below(3) as usize];
        let bytes = packet((id, 5, 1), number(input), &frames(input), rails);
        self.receive(&bytes);
    }

    fn check(&self) {
        let held = self.node.held();
        assert!(held.unexpected_bytes <= UNEXPECTED_BYTES / 2, "{held:?}");
        assert!(self.node.strangers() <= 300);
    }
}

fn number(input: &mut Input<'_>) -> u64 {
    match input.below(8) {
        0 => input.any::<u64>() >> 16,
        _ => input.below(500),
    }
}

fn frames(input: &mut Input<'_>) -> Vec<Frame> {
    (0..input.below(4)).map(|_| frame(input)).collect()
}

/// A packet with a HELLO, whose rails are on these hosts, and these frames.
fn packet(
    (id, token, epoch): (u64, u32, u32),
    number: u64,
    frames: &[Frame],
    hosts: &[u8],
) -> Vec<u8> {
    let header = Header {
        version: VERSION,
        algorithm: FIRST_ALGORITHM,
        dst_id: NODE.0,
        dst_token: NODE.1,
        dst_slot: SLOT_UNKNOWN,
        src_id: id,
        src_epoch: epoch,
        path: 0,
        flags: Header::FLAG_ACK_NOW,
        number,
    };
    let hosts = if hosts.is_empty() { &[2][..] } else { hosts };
    let rails: Vec<_> = hosts.iter().map(|host| rail(*host, 0)).collect();
    let mut room = [0; 64];
    let hello = Frame::Hello(Hello {
        slot: 0,
        id,
        token,
        epoch,
        algorithm: FIRST_ALGORITHM,
        algorithms: 1 << FIRST_ALGORITHM,
        reliable: true,
        eager_puts: true,
        refused: false,
        credit: 1 << 18,
        revision: 0,
        versions: Versions::OURS,
        of_destination: None,
        further: HelloFields::NONE,
        rails: RailList::write(&mut room, &rails),
    });
    let zeros = [0; PACKET_MAX];
    let mut left = PACKET_MAX - 1_000;
    let mut all: Vec<(Frame<Hello<'_>>, &[u8])> = vec![(hello, &[])];
    for frame in frames {
        let len = frame.payload_len();
        if left > len + 64 {
            left -= len + 64;
            all.push((*frame, &zeros[..len]));
        }
    }
    write(&header, &all)
}
