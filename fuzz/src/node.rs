//! A node among peers with arbitrary packets: correct CRC and identity, nonsensical contents.

use crate::frames::frame;
use crate::input::Input;
use crate::memory::{Granted, Memories};
use crate::packet::{seal, write};
use marline_checksum::crc32c;
use marline_engine::ByKind;
use marline_proto::{
    Claim, Config, Delivery, Event, LinkAsk, LinkEnd, Memory as _, Node, PeerId, RailPolicy,
    RailSpec, RecvSpec, SendSpec, Source, Spans,
};
use marline_rails::UdpAddr;
use marline_wire::{
    Address, Frame, Header, Hello, HelloFields, Packet, RailAddr, RailList, RailWrites, Versions,
    HELLO_RAIL_BYTES_MAX, PACKET_MAX, RAILS_MAX, VERSION,
};

const NODE_ID: u64 = 0xa1;
const NODE_TOKEN: u32 = 7;
/// Number of peers.
const PEERS: u64 = 3;
/// Most steps of one input, to keep runs short.
const STEPS_MAX: usize = 400;
/// Bound on unexpected messages of all unknown peers together, in bytes.
const UNEXPECTED_BYTES: u64 = 1 << 20;

/// A sequence of calls and hostile packets. The node must not panic, end an operation twice, write
/// a byte where none is expected, or exceed its memory bound, and the packets that it builds must
/// parse.
pub fn node(data: &[u8]) {
    let mut input = Input::new(data);
    let mut bench = Bench::new(&mut input);
    for _ in 0..STEPS_MAX {
        if input.is_empty() {
            break;
        }
        bench.step(&mut input);
        bench.drain();
        bench.check();
    }
}

struct Bench {
    node: Node,
    memory: Memories,
    now: u64,
    next_handle: u32,
    claims: Vec<Claim>,
    sends: std::collections::BTreeSet<u32>,
    asked: Vec<(PeerId, u32, u64, u64)>,
    /// Requested remote writes: their bytes, and the operation that accepted them, if any.
    puts: Vec<(Claim, u64, Option<u32>)>,
    peers: Vec<PeerId>,
}

/// Rail `index` of host `host`; one subnet per index.
pub(crate) fn rail(host: u8, index: u8) -> RailAddr {
    let addr = UdpAddr {
        ip: [10, 0, index, host].into(),
        port: 4_000,
        prefix_len: 24,
    };
    let mut rail = addr.rail();
    (rail.index, rail.datagram_max) = (index, 1_472);
    // Rail 1 can write.
    if index == 1 {
        rail.writes = RailWrites::Keyed;
    }
    rail
}

impl Bench {
    fn new(input: &mut Input<'_>) -> Bench {
        let cfg = Config {
            reliable: input.below(8) > 0,
            eager_max: input.pick(&[65_536, 1_000, 0]),
            unexpected_bytes: UNEXPECTED_BYTES,
            policy: input.pick(&[RailPolicy::Stripe, RailPolicy::Standby]),
            ..Config::default()
        };
        let spec = |i| RailSpec {
            addr: rail(1, i),
            datagram_max: 1_472,
            receive_budget: 100_000,
            connected: false,
            delivery: Delivery::DATAGRAMS,
            ordered_writes: false,
            direct_datagrams: 0,
            standby: false,
            bulk_rail: None,
        };
        let rails = (0..=input.below(2) as u8).map(spec).collect();
        let memory = Memories {
            verdict: Some(true),
            ..Memories::default()
        };
        Bench {
            node: Node::new(cfg, (NODE_ID, NODE_TOKEN, 1), rails, &ByKind),
            memory,
            now: 1,
            next_handle: 0,
            claims: Vec::new(),
            sends: Default::default(),
            asked: Vec::new(),
            puts: Vec::new(),
            peers: Vec::new(),
        }
    }

    fn handle(&mut self) -> u32 {
        self.next_handle += 1;
        self.next_handle
    }

    /// A peer, which may never have sent anything.
    fn peer(&mut self, input: &mut Input<'_>) -> PeerId {
        let n = input.below(PEERS);
        let rails = [0, 1].map(|index| rail(2 + n as u8, index));
        let address = Address::new(peer_id(n), n as u32, &rails);
        let peer = self.node.peer(&address);
        if !self.peers.contains(&peer) {
            self.peers.push(peer);
        }
        peer
    }

    fn step(&mut self, input: &mut Input<'_>) {
        match input.below(16) {
            0..=5 => self.inject(input),
            6 => self.inject_raw(input),
            7 => self.transmit(),
            8 => self.pass_time(input),
            9 => self.news(input),
            10 => self.post_send(input),
            11 | 12 => self.post_recv(input),
            13 => self.unposted(input),
            14 => self.read(input),
            _ => self.answer(input),
        }
    }

    fn pass_time(&mut self, input: &mut Input<'_>) {
        let step = input.pick(&[
            1_000,
            20_000,
            150_000,
            2_000_000,
            100_000_000,
            6_000_000_000,
        ]);
        self.now += step;
        self.node.on_poll(self.now, input.any());
        self.node.handle_timeouts(self.now);
    }

    fn news(&mut self, input: &mut Input<'_>) {
        let (now, peer) = (self.now, input.below(PEERS) as u8);
        // Links are numbered by peer and rail (see `settle_links`).
        let rail = input.below(2) as usize;
        let link = 2 * u32::from(peer) + rail as u32;
        match input.below(8) {
            0 => self.node.on_rail(now, input.below(3) as usize, input.any()),
            1 => {
                let max = input.pick(&[1_400, 548, 0, 9_000, usize::MAX]);
                self.node
                    .on_too_big(now, input.below(2) as usize, link, max);
            }
            2 => self.node.set_full(input.below(4) as u32),
            3 => self.node.on_full(now, input.below(2) as usize, input.any()),
            5 => self.node.on_link_up(now, rail, link),
            6 => self.node.on_link_down(now, rail, link, LinkEnd::Closed, 0),
            _ => self.node.on_refused(now, rail, link),
        }
    }

    /// Opens links as a rail would: each is numbered by its peer and rail, and is up at once.
    fn settle_links(&mut self) {
        while let Some(ask) = self.node.poll_link() {
            if let LinkAsk::Open {
                peer, path, rail, ..
            } = ask
            {
                let link = 2 * peer.0 + rail as u32;
                self.node.on_linked(self.now, peer, path, link, true);
            }
        }
    }

    /// Builds all packets that the node has to send; they must parse and carry only live sends.
    fn transmit(&mut self) {
        self.settle_links();
        let (mut out, mut spans) = (vec![0; 2_048], Spans::new());
        for _ in 0..64 {
            let sent = self
                .node
                .poll_transmit(self.now, &mut out, &mut spans, None);
            let Some(t) = sent else { return };
            assert!(t.len <= 1_472 && t.head_len <= t.len);
            let write = self.node.take_write();
            assert_eq!(write.is_some(), t.written);
            if let Some(write) = write {
                assert!(
                    self.sends.contains(&write.handle),
                    "writes what is not posted"
                );
            }
            for span in &spans {
                assert!(
                    self.sends.contains(&span.handle),
                    "sends what is not posted"
                );
            }
            seal(&mut out);
            let parsed = Packet::parse(&out[..t.len], crc32c);
            let head = &out[..t.head_len];
            assert!(
                parsed.is_ok(),
                "what a node builds parses: {parsed:?} {head:x?}"
            );
        }
    }

    fn post_send(&mut self, input: &mut Input<'_>) {
        let (handle, peer) = (self.handle(), self.peer(input));
        let spec = SendSpec {
            handle,
            peer,
            tag: input.pick(&[None, Some(1), Some(2)]),
            data: input.pick(&[None, Some(3)]),
            len: input.pick(&[0, 8, 448, 1_000, 65_536, 65_537, 1 << 20, 1 << 40]),
            urgent_ack: input.any(),
        };
        if self.node.post_send(&spec) {
            self.sends.insert(handle);
        }
    }

    fn post_recv(&mut self, input: &mut Input<'_>) {
        let spec = self.pattern(input, true);
        self.memory.add(spec.handle, spec.capacity);
        self.node.post_recv(&spec, self.now);
    }

    fn pattern(&mut self, input: &mut Input<'_>, multi: bool) -> RecvSpec {
        let source = match input.below(2) {
            0 => Source::Any,
            _ => Source::Peer(self.peer(input)),
        };
        let tag = input.pick(&[None, Some((1, 0)), Some((1, 3)), Some((2, 0))]);
        let min = input.pick(&[None, None, Some(64), Some(1), Some(u64::MAX)]);
        RecvSpec {
            handle: self.handle(),
            source,
            tag,
            capacity: input.pick(&[100_000, 0, 10, 448, 500, 1 << 21]),
            multi_min: min.filter(|_| multi && tag.is_none()),
        }
    }

    /// Peeks, claims, receives or discards of claims, and cancels.
    fn unposted(&mut self, input: &mut Input<'_>) {
        let spec = self.pattern(input, false);
        match input.below(4) {
            0 => self.cancel(input),
            1 if !self.claims.is_empty() => {
                let claim = self.claims.remove(0);
                self.node.discard_claimed(claim);
            }
            2 if !self.claims.is_empty() => {
                let claim = self.claims.remove(0);
                self.memory.add(spec.handle, spec.capacity);
                if !self.node.recv_claimed(claim, &spec, self.now) {
                    self.memory.end(spec.handle);
                }
            }
            _ => {
                let found = self.node.peek(&spec, input.any());
                self.claims.extend(found.and_then(|(_, claim)| claim));
            }
        }
    }

    fn cancel(&mut self, input: &mut Input<'_>) {
        let handle = input.below(u64::from(self.next_handle) + 1) as u32;
        // Messages may still be in flight into a multi-receive; it only accepts no new ones.
        self.node.cancel_recv(handle);
    }

    fn read(&mut self, input: &mut Input<'_>) {
        let (handle, peer) = (self.handle(), self.peer(input));
        let len = input.pick(&[0, 1, 448, 1_000, 70_000]);
        if input.below(3) == 0 {
            if self.node.post_put(handle, peer, (1, 0, len), 0) {
                self.sends.insert(handle);
            }
        } else if self.node.post_read(handle, peer, (1, 0, len), 0) {
            self.memory.add(handle, len);
        }
    }

    /// Replies to a peer's read, or refuses it; sometimes the reply is aborted later.
    fn answer(&mut self, input: &mut Input<'_>) {
        let Some((peer, number, len, upto)) = self.asked.pop() else {
            return self.answer_put(input);
        };
        if input.any() {
            return self.node.refuse_read(peer, number);
        }
        let handle = self.handle();
        self.sends.insert(handle);
        self.node.serve_read(handle, peer, number, len, upto);
        if input.below(4) == 0 {
            self.node.stop_read(peer, number);
        }
    }

    /// Accepts or refuses a peer's write, or ends an accepted one.
    fn answer_put(&mut self, input: &mut Input<'_>) {
        let Some((claim, len, given)) = self.puts.pop() else {
            return;
        };
        if let Some(handle) = given {
            self.node.refuse_put(claim, self.now);
            self.drain();
            if !self.memory.buffers[&handle].done {
                self.memory.end(handle);
            }
        } else if len > 1 << 21 || input.any() {
            self.node.refuse_put(claim, self.now);
        } else {
            let handle = self.handle();
            self.memory.add(handle, len);
            match self.node.accept_put(claim, handle) {
                true => self.puts.insert(0, (claim, len, Some(handle))),
                false => self.memory.end(handle),
            }
        }
    }

    fn drain(&mut self) {
        while let Some(event) = self.node.poll_event() {
            match event {
                Event::SendDone { handle, .. } | Event::PutRefused { handle } => {
                    assert!(self.sends.remove(&handle), "send {handle} ends twice");
                }
                Event::RecvDone {
                    handle,
                    offset,
                    len,
                    bounce,
                    last,
                    ..
                } => {
                    let buffer = &self.memory.buffers[&handle];
                    assert!(!buffer.done, "completion of a finished receive");
                    assert!(offset + len <= buffer.capacity);
                    self.memory.free_bounce(bounce, len);
                    if last {
                        self.memory.end(handle);
                    }
                }
                Event::ReadLost { handle } | Event::RecvReleased { handle } => {
                    self.memory.end(handle)
                }
                Event::RecvFailed { handle } | Event::ReadDone { handle, .. } => {
                    // A read of zero bytes ends before it has memory.
                    if self.memory.buffers.contains_key(&handle) {
                        self.memory.end(handle);
                    }
                }
                Event::PutEnd(end) => self.memory.show_end(&end),
                Event::BounceFree { inbound } => drop(self.memory.bounces.remove(&inbound)),
                Event::ReadAsked {
                    peer,
                    number,
                    len,
                    upto,
                    ..
                } => self.asked.push((peer, number, len, upto)),
                Event::PutAsked { claim, len, .. } => self.puts.push((claim, len, None)),
                Event::RegistrationWanted {
                    inbound,
                    handle,
                    offset,
                    len,
                    ..
                } => {
                    #[rustfmt::skip]
                    let memory = Granted { handle, offset, len };
                    self.memory.grant(inbound, memory);
                    self.node.registered_on(inbound, 1, inbound);
                }
                Event::Deregister { inbound } => self.memory.deregister(inbound),
                Event::RpcArrived { bounce, .. } => self.memory.free_bounce(Some(bounce), 0),
                #[rustfmt::skip]
                Event::Copy { .. } | Event::PullWanted { .. } | Event::Pulled { .. }
                | Event::PeerOver { .. } | Event::PeerDead { .. } | Event::PathChanged { .. }
                | Event::PathSuspect { .. } | Event::Resumed { .. }
                | Event::AlgorithmAgreed { .. }
                | Event::PathCorrupts { .. }
                | Event::PathShrank { .. } | Event::PathRerouted { .. } | Event::PeerMet { .. }
                | Event::UnknownRailKind { .. }
                | Event::PeerMismatch { .. }
                | Event::PeerVersions { .. }
                | Event::PeerUnreachable { .. } => {}
                Event::PeerLeft { peer } => self.node.forget(peer),
            }
        }
    }

    fn check(&self) {
        let held = self.node.held();
        // Twice the bound, for credit granted before memory ran short.
        assert!(held.unexpected_bytes <= 2 * UNEXPECTED_BYTES, "{held:?}");
        assert!(held.sends <= self.sends.len(), "{held:?}");
        let bounced: usize = self.memory.bounces.values().map(Vec::len).sum();
        assert!(
            bounced as u64 <= 2 * UNEXPECTED_BYTES,
            "{bounced} bounced bytes"
        );
        self.node.describe();
    }

    fn inject(&mut self, input: &mut Input<'_>) {
        let peer = input.below(PEERS);
        let header = header(input, peer);
        let (mut frames, mut rails) = (Vec::new(), [0; HELLO_RAIL_BYTES_MAX]);
        if input.below(4) == 0 {
            frames.push(hello(input, peer, &mut rails));
        }
        for _ in 0..input.below(4) {
            frames.push(frame(input));
        }
        let zeros = [0; PACKET_MAX];
        let mut room = PACKET_MAX - 1_000;
        let frames: Vec<(Frame<Hello<'_>>, &[u8])> = frames
            .iter()
            .filter(|f| {
                let fits = room > f.payload_len() + 64;
                room -= if fits { f.payload_len() + 64 } else { 0 };
                fits
            })
            .map(|f| (*f, &zeros[..f.payload_len()]))
            .collect();
        self.memory.verdict = Some(input.below(16) != 1);
        self.receive(&write(&header, &frames));
    }

    /// Injects the input's bytes unchanged after a valid header.
    fn inject_raw(&mut self, input: &mut Input<'_>) {
        let peer = input.below(PEERS);
        let mut bytes = write(&header(input, peer), &[]);
        bytes.extend(input.bytes(64));
        bytes.truncate(bytes.len() / 8 * 8);
        let head_len = bytes.len() as u16;
        bytes[4] = VERSION;
        bytes[6..8].copy_from_slice(&head_len.to_le_bytes());
        bytes.extend([0; 2_000]);
        seal(&mut bytes);
        self.receive(&bytes);
    }

    fn receive(&mut self, bytes: &[u8]) {
        if let Ok(packet) = Packet::parse(bytes, crc32c) {
            let (node, memory) = (&mut self.node, &mut self.memory);
            let _ = node.handle_packet(self.now, &packet, bytes.len(), memory);
        }
    }
}

fn peer_id(n: u64) -> u64 {
    0xb0 + n
}

fn header(input: &mut Input<'_>, peer: u64) -> Header {
    let odd = |input: &mut Input<'_>| input.below(32) == 1;
    Header {
        version: VERSION,
        algorithm: input.pick(&[1, 1, 2, 99]),
        dst_id: if odd(input) { 5 } else { NODE_ID },
        dst_token: if odd(input) { 5 } else { NODE_TOKEN },
        dst_slot: input.pick(&[u32::MAX, 0, 1, 2]),
        src_id: peer_id(peer),
        src_epoch: if odd(input) { 2 } else { 1 },
        path: input.pick(&[0, 0x101, 0, 0x100, 0x001, 0xffff, 0x200]),
        flags: input.below(4) as u8,
        number: match input.below(8) {
            0 => input.any::<u64>() >> 16,
            _ => input.below(200),
        },
    }
}

/// A HELLO whose rails are stored in `bytes`; sometimes one rail has an unknown kind.
fn hello<'a>(input: &mut Input<'_>, peer: u64, bytes: &'a mut [u8]) -> Frame<Hello<'a>> {
    let count = input.pick(&[2, 1, 0, RAILS_MAX as u8]);
    let rails: Vec<RailAddr> = (0..count).map(|i| rail(2 + peer as u8, i)).collect();
    let len = RailList::write(bytes, &rails).bytes().len();
    if input.below(8) == 1 && len > 0 {
        bytes[0] = 200;
    }
    let slot = input.below(4) as u32;
    let algorithm = input.pick(&[1, 1, 2, 99]);
    let settings = input.below(8);
    Frame::Hello(Hello {
        slot,
        id: peer_id(peer),
        token: peer as u32,
        epoch: 1,
        algorithm,
        algorithms: 0b110,
        reliable: settings > 0,
        eager_puts: settings % 2 == 1,
        refused: settings == 7,
        credit: input.pick(&[1 << 18, 0, u64::MAX, 20_000]),
        revision: input.pick(&[0, 0, 1, 2]),
        versions: Versions::OURS,
        of_destination: None,
        further: HelloFields::NONE,
        rails: RailList::of(&bytes[..len]),
    })
}
