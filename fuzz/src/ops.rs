//! Two nodes over a network controlled by the input: operations of applications; loss, duplication
//! and reordering of packets. [`model`], a minimal implementation of MPI's matching, checks them.

#[path = "../../crates/sim/src/truth/credit.rs"]
mod credit;
mod model;

use crate::input::Input;
use crate::memory::{taker, Memories};
use crate::node::rail;
use crate::packet::seal;
use credit::Credits;
use marline_checksum::{crc32c, sum, Algorithm};
use marline_engine::ByKind;
use marline_proto::{
    Claim, Config, Delivery, Event, Landing, Node, PeerId, RailSpec, RecvSpec, SendSpec, Source,
    Spans, Transmit,
};
use marline_wire::{Address, Packet, RailWrites, PACKET_MAX};
use model::{contents, Message, Model, Whom, Wish, OWN};
use std::collections::{BTreeMap, VecDeque};

/// Most steps of one input.
const STEPS_MAX: usize = 300;
/// Most rounds after the last step until everything must have ended: each advances to the next
/// deadline, the longest being the retransmission timer's 10 ms.
const TURNS_MAX: usize = 20_000;
/// Longer than any silence in an input, so that peers never die here.
const PEER_TIMEOUT_NS: u64 = 1 << 50;
const SIZES: [u64; 12] = [
    0, 1, 64, 447, 448, 449, 1_344, 1_345, 9_000, 65_536, 65_537, 150_000,
];

/// A list of operations and packet faults. Afterwards the network works, and every operation must
/// end, with the right bytes in the right receive.
pub fn operations(data: &[u8]) {
    let mut input = Input::new(data);
    let mut world = World::new(&mut input);
    for _ in 0..STEPS_MAX {
        if input.is_empty() {
            break;
        }
        world.step(&mut input);
    }
    world.finish();
}

/// The contents of a send's memory.
#[derive(Clone, Copy, Debug)]
struct Origin {
    content: u64,
    len: u64,
}

struct End {
    node: Node,
    peer: PeerId,
    /// This endpoint as a peer of itself.
    own: PeerId,
    memory: Memories,
    /// Model of the messages to this endpoint.
    model: Model,
    sends: BTreeMap<u32, Origin>,
    /// Content number of each read.
    reads: BTreeMap<u32, u64>,
    claims: Vec<(Claim, usize)>,
    next_handle: u32,
}

struct World {
    ends: [End; 2],
    /// Packets in flight: destination and bytes.
    net: VecDeque<(usize, Vec<u8>)>,
    /// Bytes that each endpoint may send without a grant.
    credits: Credits,
    out: Vec<u8>,
    now: u64,
}

/// Content number of message `number` to endpoint `to`.
fn message_content(to: usize, number: usize) -> u64 {
    (to as u64) << 32 | number as u64
}

/// Content number of the region with this key.
fn region_content(key: u64) -> u64 {
    1 << 40 | key
}

impl End {
    fn new(host: u8, cfg: Config, rails: u8, datagram_max: usize) -> End {
        let spec = |i| {
            let mut addr = rail(host, i);
            addr.writes = RailWrites::None;
            RailSpec {
                addr,
                datagram_max,
                receive_budget: 100_000,
                connected: false,
                delivery: Delivery::DATAGRAMS,
                ordered_writes: false,
                direct_datagrams: 0,
                standby: false,
                bulk_rail: None,
            }
        };
        let (id, rails) = (u64::from(host), (0..rails).map(spec).collect());
        End {
            node: Node::new(cfg, (id, 77, 1), rails, &ByKind),
            peer: PeerId(0),
            own: PeerId(0),
            memory: Memories::default(),
            model: Model::default(),
            sends: BTreeMap::new(),
            reads: BTreeMap::new(),
            claims: Vec::new(),
            next_handle: 0,
        }
    }

    fn handle(&mut self) -> u32 {
        self.next_handle += 1;
        self.next_handle
    }

    /// Copies bytes of a loopback send to its receive or read.
    fn copy_loopback(&mut self, send: u32, (handle, offset): (u32, u64), len: usize) {
        let from = self.sends.get(&send).expect("copies what was posted");
        assert!(len as u64 <= from.len, "copies more than there is");
        let landing = Landing::Posted {
            handle,
            offset,
            copy: len,
        };
        let bytes = contents(from.content, 0, len);
        self.memory.write(&landing, &bytes);
    }

    /// A receive for one message, or with `multi` for many.
    fn wish(&mut self, tag: Option<(u64, u64)>, capacity: u64, multi: Option<u64>) -> Wish {
        Wish {
            handle: self.handle(),
            whom: Whom::Any,
            tag,
            capacity,
            multi,
            used: 0,
        }
    }

    /// The model's number of a message from `peer`.
    fn number(&self, peer: PeerId, number: u32) -> usize {
        let first = if peer == self.own { OWN } else { 0 };
        first + number as usize
    }

    fn spec(&self, wish: &Wish) -> RecvSpec {
        RecvSpec {
            handle: wish.handle,
            source: match wish.whom {
                Whom::Any => Source::Any,
                Whom::Other => Source::Peer(self.peer),
                Whom::Own => Source::Peer(self.own),
            },
            tag: wish.tag,
            capacity: wish.capacity,
            multi_min: wish.multi,
        }
    }
}

impl World {
    fn new(input: &mut Input<'_>) -> World {
        let cfg = Config {
            algorithm: input.pick(&[1, 2, 3]),
            eager_max: input.pick(&[65_536, 1_000, 0]),
            credit_bytes: input.pick(&[256 * 1024, 64 * 1024]),
            unexpected_bytes: input.pick(&[64 << 20, 1 << 20]),
            ack_every: input.pick(&[64, 2]),
            peer_timeout_ns: PEER_TIMEOUT_NS,
            ..Config::default()
        };
        let rails = 1 + input.below(2) as u8;
        let datagram_max = input.pick(&[1_472, 1_232]);
        let mut ends = [1, 2].map(|host| End::new(host, cfg, rails, datagram_max));
        let addresses: [Address; 2] = [ends[0].node.address(), ends[1].node.address()];
        for (end, other) in ends.iter_mut().zip([addresses[1], addresses[0]]) {
            end.peer = end.node.peer(&other);
            end.own = end.node.peer(&end.node.address());
        }
        World {
            ends,
            net: VecDeque::new(),
            credits: Credits::new(cfg.credit_bytes.max(cfg.unexpected_bytes / 4)),
            out: vec![0; PACKET_MAX],
            now: 1,
        }
    }

    fn step(&mut self, input: &mut Input<'_>) {
        let e = input.below(2) as usize;
        match input.below(16) {
            0..=2 => self.send(e, input, false),
            3..=5 => self.receive(e, input),
            6 => self.peek(e, input),
            7 => self.end_claim(e, input),
            8 => {
                let handle = input.below(u64::from(self.ends[e].next_handle) + 1) as u32;
                self.cancel(e, handle);
            }
            9 => self.read(e, input, false),
            14 => self.alone(e, input),
            15 => self.receive_many(e, input),
            10 | 11 => {
                self.now += input.pick(&[500, 30_000, 200_000, 3_000_000, 50_000_000]);
                self.turn(e, input.any());
            }
            _ => self.fate(input),
        }
    }

    /// Decides the fate of packets in flight.
    fn fate(&mut self, input: &mut Input<'_>) {
        for _ in 0..=input.below(4) {
            if self.net.is_empty() {
                return;
            }
            match input.below(8) {
                0..=3 => self.deliver(0),
                4 => drop(self.net.pop_front()),
                5 => {
                    let again = self.net[0].clone();
                    self.net.push_back(again);
                    self.deliver(0);
                }
                6 => self.deliver(input.below(self.net.len() as u64) as usize),
                _ => {
                    let bytes = &mut self.net[0].1;
                    let at = input.below(bytes.len() as u64) as usize;
                    bytes[at] ^= 1 << input.below(8);
                    self.deliver(0);
                }
            }
        }
    }

    /// Sends a message to the other endpoint, or (`own`) to itself.
    fn send(&mut self, e: usize, input: &mut Input<'_>, own: bool) {
        let message = Message {
            tag: input.pick(&[None, Some(1), Some(2)]),
            len: input.pick(&SIZES),
        };
        let end = &self.ends[e];
        let (peer, to) = if own { (end.own, e) } else { (end.peer, 1 - e) };
        if end.node.loopback_full(peer) {
            return;
        }
        let number = self.ends[to].model.send(message, own);
        let content = message_content(to, number);
        let end = &mut self.ends[e];
        let handle = end.handle();
        let len = message.len;
        end.sends.insert(handle, Origin { content, len });
        let spec = SendSpec {
            handle,
            peer,
            tag: message.tag,
            data: None,
            len,
            urgent_ack: input.any(),
        };
        assert!(end.node.post_send(&spec), "the peer lives");
        self.settle(e);
    }

    /// A loopback send, receive or read.
    fn alone(&mut self, e: usize, input: &mut Input<'_>) {
        match input.below(4) {
            0 => {
                let wish = self.ends[e].wish(World::tag(input), 200_000, None);
                self.post(e, wish, Whom::Own);
            }
            1 => self.read(e, input, true),
            _ => self.send(e, input, true),
        }
    }

    fn tag(input: &mut Input<'_>) -> Option<(u64, u64)> {
        input.pick(&[None, Some((1, 0)), Some((2, 0)), Some((0, 3))])
    }

    fn whom(input: &mut Input<'_>) -> Whom {
        match input.any() {
            true => Whom::Other,
            false => Whom::Any,
        }
    }

    fn receive(&mut self, e: usize, input: &mut Input<'_>) {
        let tag = World::tag(input);
        let capacity = input.pick(&[200_000, 200_000, 100, 1_000, 0]);
        let wish = self.ends[e].wish(tag, capacity, None);
        self.post(e, wish, World::whom(input));
    }

    /// Posts one buffer for many messages; the last one may be truncated.
    fn receive_many(&mut self, e: usize, input: &mut Input<'_>) {
        let capacity = input.pick(&[200_000, 1_000, 100, 4_001]);
        let min = input.pick(&[0, 64, 900]);
        let wish = self.ends[e].wish(None, capacity, Some(min));
        self.post(e, wish, World::whom(input));
    }

    fn post(&mut self, e: usize, mut wish: Wish, whom: Whom) {
        let now = self.now;
        wish.whom = whom;
        let end = &mut self.ends[e];
        end.memory.add(wish.handle, wish.capacity);
        end.model.post(wish);
        end.node.post_recv(&end.spec(&wish), now);
        self.settle(e);
    }

    fn peek(&mut self, e: usize, input: &mut Input<'_>) {
        let (tag, claim) = (World::tag(input), input.any());
        let end = &mut self.ends[e];
        let mut wish = end.wish(tag, 0, None);
        wish.whom = World::whom(input);
        let spec = end.spec(&wish);
        let found = end.node.peek(&spec, claim);
        let number = found
            .as_ref()
            .map(|(peeked, _)| end.number(peeked.peer, peeked.head.number));
        assert_eq!(
            number,
            end.model.find(&wish),
            "a peek sees the first that fits"
        );
        if let Some((_, Some(claim))) = found {
            let number = end.model.take(&wish).expect("just found");
            end.claims.push((claim, number));
        }
    }

    fn end_claim(&mut self, e: usize, input: &mut Input<'_>) {
        let (now, capacity) = (self.now, input.pick(&[200_000, 10]));
        let end = &mut self.ends[e];
        let Some((claim, number)) = end.claims.pop() else {
            return;
        };
        if input.any() {
            end.node.discard_claimed(claim);
        } else {
            let handle = end.handle();
            end.memory.add(handle, capacity);
            end.model.matched.insert((handle, number), 0);
            assert!((end.node).recv_claimed(claim, &taker(handle, capacity), now));
        }
        self.settle(e);
    }

    fn cancel(&mut self, e: usize, handle: u32) {
        let end = &mut self.ends[e];
        let got = end.node.cancel_recv(handle);
        assert_eq!(got, end.model.cancel(handle), "cancel of {handle}");
        // Messages in flight into a multi-receive still arrive.
        if got && !end.node.still_receives(handle) {
            end.memory.end(handle);
        }
    }

    fn read(&mut self, e: usize, input: &mut Input<'_>, own: bool) {
        let (len, key) = (input.pick(&SIZES), u64::from(input.any::<u8>()));
        let end = &mut self.ends[e];
        let handle = end.handle();
        end.memory.add(handle, len);
        end.reads.insert(handle, region_content(key));
        let peer = if own { end.own } else { end.peer };
        assert!(end.node.post_read(handle, peer, (key, 0, len), 0));
        self.settle(e);
    }

    /// A progress call: timers, outgoing packets, events.
    fn turn(&mut self, e: usize, polls: bool) {
        let end = &mut self.ends[e];
        if polls {
            end.node.on_poll(self.now, false);
            end.node.caught_up();
        }
        end.node.handle_timeouts(self.now);
        self.settle(e);
        let (out, mut spans) = (&mut self.out, Spans::new());
        for _ in 0..500 {
            let end = &mut self.ends[e];
            let Some(t) = end.node.poll_transmit(self.now, out, &mut spans, None) else {
                break;
            };
            fill(&end.sends, &t, &spans, out);
            let packet = Packet::parse(&out[..t.len], crc32c).expect("ours");
            let leaves = self.credits.leaves(e as u32, 1 - e as u32, &packet);
            assert_eq!(leaves, Ok(()));
            self.net.push_back((1 - e, out[..t.len].to_vec()));
        }
        self.settle(e);
    }

    fn deliver(&mut self, at: usize) {
        let Some((e, bytes)) = self.net.remove(at) else {
            return;
        };
        let end = &mut self.ends[e];
        if let Ok(packet) = Packet::parse(&bytes, crc32c) {
            let _ = end
                .node
                .handle_packet(self.now, &packet, bytes.len(), &mut end.memory);
        }
        end.model.arrive(end.node.matched_upto(end.peer));
        self.settle(e);
    }

    /// Handles an endpoint's events and compares them with the model.
    fn settle(&mut self, e: usize) {
        while let Some(event) = self.ends[e].node.poll_event() {
            let end = &mut self.ends[e];
            match event {
                Event::SendDone { handle, ok } => {
                    assert!(ok && end.sends.remove(&handle).is_some(), "{event:?}");
                }
                Event::RecvDone {
                    handle,
                    peer,
                    head,
                    offset,
                    len,
                    bounce,
                    last,
                } => {
                    let number = end.number(peer, head.number);
                    let base = end.model.matched.remove(&(handle, number));
                    assert_eq!(base, Some(offset), "matching order: {event:?}");
                    assert_eq!(last, end.model.is_over(handle), "{event:?}");
                    self.arrived(e, (handle, number), (offset, len), bounce);
                    if last {
                        self.ends[e].memory.end(handle);
                    }
                }
                Event::ReadDone { handle, ok } => {
                    assert!(ok, "{event:?}");
                    let content = end.reads.remove(&handle).expect("a read ends once");
                    let buffer = &end.memory.buffers[&handle];
                    let right = contents(content, 0, buffer.capacity as usize);
                    assert!(buffer.bytes == right, "wrong bytes in a read");
                    end.memory.end(handle);
                }
                Event::ReadAsked {
                    peer,
                    number,
                    key,
                    len,
                    upto,
                    ..
                } => {
                    let (handle, content) = (end.handle(), region_content(key));
                    end.sends.insert(handle, Origin { content, len });
                    end.node.serve_read(handle, peer, number, len, upto);
                }
                Event::Copy {
                    send,
                    recv,
                    offset,
                    len,
                } => end.copy_loopback(send, (recv, offset), len as usize),
                Event::BounceFree { inbound } => drop(end.memory.bounces.remove(&inbound)),
                #[rustfmt::skip]
                Event::PathChanged { .. } | Event::PathSuspect { .. } | Event::Resumed { .. }
                | Event::AlgorithmAgreed { .. } | Event::PathCorrupts { .. }
                | Event::PathShrank { .. } | Event::PathRerouted { .. } => {}
                #[rustfmt::skip]
                Event::RegistrationWanted { .. } | Event::Deregister { .. } | Event::Pulled { .. }
                | Event::RpcArrived { .. } | Event::PullWanted { .. } | Event::PutAsked { .. }
                | Event::PutRefused { .. } | Event::PutEnd(_) => panic!("{event:?}, no write"),
                Event::PeerLeft { peer } => self.ends[e].node.forget(peer),
                #[rustfmt::skip]
                Event::RecvFailed { .. } | Event::ReadLost { .. } | Event::PeerDead { .. }
                | Event::PeerOver { .. } | Event::PeerMet { .. } | Event::UnknownRailKind { .. }
                | Event::PeerUnreachable { .. } | Event::PeerMismatch { .. }
                | Event::PeerVersions { .. } | Event::RecvReleased { .. } =>
                    panic!("{event:?} though both live, and speak to each other"),
            }
        }
    }

    /// Checks a message completed in a receive, `len` bytes from `offset` on: they must be those of
    /// the message that the model matched.
    fn arrived(
        &mut self,
        e: usize,
        (handle, number): (u32, usize),
        (offset, len): (u64, u64),
        bounce: Option<u64>,
    ) {
        let end = &mut self.ends[e];
        let message = end.model.message(number);
        let buffer = &end.memory.buffers[&handle];
        let room = buffer.capacity - offset;
        assert_eq!(len, message.len.min(room), "length of message {number}");
        let bounced = bounce.map(|b| end.memory.bounces.remove(&b).expect("a bounce buffer"));
        let (bytes, at) = match &bounced {
            Some(bounced) => (bounced, 0),
            None => (&buffer.bytes, offset as usize),
        };
        let right = contents(message_content(e, number), 0, len as usize);
        let there = len == 0 || bytes[at..at + len as usize] == right;
        assert!(there, "wrong bytes in message {number}");
    }

    /// Ends the faults and posts a receive for every message: every operation must end.
    fn finish(&mut self) {
        for turn in 0..TURNS_MAX {
            for e in 0..2 {
                self.turn(e, true);
                self.match_all(e);
            }
            if self.ended() {
                return self.check_returned();
            }
            if self.net.is_empty() {
                let next = self.ends.iter().filter_map(|end| end.node.next_deadline());
                self.now = next
                    .min()
                    .unwrap_or(self.now + 1_000_000)
                    .max(self.now + 1_000);
            }
            for _ in 0..self.net.len() {
                self.deliver(0);
            }
            self.now += 2_000 + turn as u64 % 7;
        }
        panic!(
            "stuck:\n{}{}",
            self.ends[0].node.describe(),
            self.ends[1].node.describe()
        );
    }

    /// Posts receives for all unmatched messages.
    fn match_all(&mut self, e: usize) {
        while let Some((claim, _)) = self.ends[e].claims.pop() {
            self.ends[e].node.discard_claimed(claim);
        }
        for tag in [None, Some((0, u64::MAX))] {
            loop {
                let wish = self.ends[e].wish(tag, 200_000, None);
                if self.ends[e].model.find(&wish).is_none() {
                    break;
                }
                self.post(e, wish, Whom::Any);
            }
        }
    }

    fn ended(&self) -> bool {
        self.ends.iter().all(|end| {
            let all = end.node.matched_upto(end.peer) == end.model.messages.len() as u64;
            let none = end.model.matched.is_empty() && end.model.waiting() == 0;
            all && none && end.sends.is_empty() && end.reads.is_empty()
        })
    }

    /// Checks that nothing is retained.
    fn check_returned(&mut self) {
        for e in 0..2 {
            while let Some(wish) = self.ends[e].model.posted.first().copied() {
                self.cancel(e, wish.handle);
            }
            let end = &self.ends[e];
            let held = end.node.held();
            let counts = (held.sends, held.inbounds, held.receives);
            let bytes = (held.granted_bytes, held.unexpected_bytes);
            assert_eq!((counts, bytes), ((0, 0, 0), (0, 0)), "kept at end {e}");
            assert!(end.memory.bounces.is_empty(), "bounce buffers of end {e}");
        }
    }
}

/// Fills payloads, sums and the head's CRC into a packet.
fn fill(sends: &BTreeMap<u32, Origin>, t: &Transmit, spans: &Spans, out: &mut [u8]) {
    let algorithm = Algorithm::from_u8(t.algorithm).expect("one of ours");
    for span in spans {
        let from = sends.get(&span.handle).expect("sends what was posted");
        let (at, n) = (span.payload_at as usize, span.len as usize);
        let end = span.offset + n as u64;
        assert!(end <= from.len, "sends more than there is");
        let bytes = contents(from.content, span.offset, n);
        out[at..at + n].copy_from_slice(&bytes);
        let value = sum(algorithm, span.seed, &bytes);
        out[span.sum_at as usize..][..8].copy_from_slice(&value.to_le_bytes());
    }
    seal(out);
}
