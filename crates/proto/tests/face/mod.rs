//! Two nodes whose packets a test delivers itself. Not every test uses every function here, hence
//! `dead_code`.
#![allow(dead_code)]

use marline_proto::{
    Config, Delivery, DropReason, Event, Landing, LinkAsk, Memory, Node, Pairing, Payload, PeerId,
    RailSpec, RecvSpec, SendSpec, Source, WriteCheck, WrittenSum,
};
use marline_wire::{
    FragmentHead, Frame, HeadWriter, Header, Hello, HelloFields, Packet, RailAddr, RailKind,
    RailList, RailWrites, Versions, FIRST_ALGORITHM, HELLO_RAIL_BYTES_MAX, SLOT_UNKNOWN, VERSION,
};

/// Memory that accepts everything.
pub struct Anywhere;

impl Memory for Anywhere {
    fn land(&mut self, _: &Landing, _: &Payload<'_>) -> bool {
        true
    }
    fn written(&mut self, _: &Landing, _: &WrittenSum) -> WriteCheck {
        WriteCheck::Right
    }
}

pub fn node(host: u8, rails: u8) -> Node {
    node_with(Config::default(), host, rails)
}

pub fn node_with(config: Config, host: u8, rails: u8) -> Node {
    narrow_node(config, host, rails, 1_472)
}

/// A node whose datagrams have at most `datagram_max` bytes.
pub fn narrow_node(config: Config, host: u8, rails: u8, datagram_max: usize) -> Node {
    node_of(config, host, specs(host, rails, datagram_max))
}

/// The node of a host with these rails.
pub fn node_of(config: Config, host: u8, specs: Vec<RailSpec>) -> Node {
    Node::new(config, (100 + host as u64, 7, 1), specs, &InOneNetwork)
}

/// Rails of one network reach each other. It is the first byte of their addresses; the second is
/// their host, the third tells its rails apart, a fourth, where there is one, its processes.
pub struct InOneNetwork;

impl Pairing for InOneNetwork {
    fn pairs(&self, locals: &[RailAddr], remotes: &[RailAddr]) -> Vec<(usize, usize)> {
        let all = (0..remotes.len()).flat_map(|to| (0..locals.len()).map(move |from| (from, to)));
        let near = |&(from, to): &(usize, usize)| {
            let (local, remote) = (&locals[from], &remotes[to]);
            self.reaches(local, remote) && self.same_network(local, remote)
        };
        all.filter(near).collect()
    }
    fn reaches(&self, local: &RailAddr, remote: &RailAddr) -> bool {
        let keyed = |addr: &RailAddr| addr.writes == RailWrites::Keyed;
        local.kind == remote.kind && keyed(local) == keyed(remote)
    }
    fn same_network(&self, a: &RailAddr, b: &RailAddr) -> bool {
        a.bytes()[0] == b.bytes()[0]
    }
    fn same_host(&self, a: &RailAddr, b: &RailAddr) -> bool {
        a.bytes().get(..3) == b.bytes().get(..3)
    }
    fn host_hash(&self, addr: &RailAddr) -> u64 {
        let host = addr.bytes().iter().take(3);
        host.fold(0, |hash, &byte| hash << 8 | u64::from(byte))
    }
    fn same_end(&self, a: &RailAddr, b: &RailAddr) -> bool {
        a.bytes() == b.bytes()
    }
}

/// The address of rail `index` of a host.
pub fn rail_addr(network: u8, host: u8, index: u8, datagram_max: usize) -> RailAddr {
    let mut addr = RailAddr::new(RailKind::Loopback, &[network, host, index]);
    (addr.index, addr.datagram_max) = (index, datagram_max as u16);
    addr
}

/// A node whose rails are all in one network.
pub fn node_in_one(config: Config, host: u8, rails: u8) -> Node {
    let mut specs = specs(host, rails, 1_472);
    for (spec, index) in specs.iter_mut().zip(0..) {
        spec.addr = rail_addr(0, host, index, 1_472);
    }
    node_of(config, host, specs)
}

/// Rails each in a network of its own.
pub fn specs(host: u8, rails: u8, datagram_max: usize) -> Vec<RailSpec> {
    let rail = |index: u8| RailSpec {
        addr: rail_addr(index, host, index, datagram_max),
        datagram_max,
        receive_budget: 2 << 20,
        connected: false,
        delivery: Delivery::DATAGRAMS,
        ordered_writes: false,
        direct_datagrams: 0,
        standby: false,
        bulk_rail: None,
    };
    (0..rails).map(rail).collect()
}

/// A rail, and its standby rail.
pub fn backed(host: u8) -> Vec<RailSpec> {
    let mut rails = specs(host, 2, 1_472);
    rails[0].addr.backed = true;
    let (first, behind) = (rails[0].addr, &mut rails[1]);
    behind.addr = first;
    (behind.addr.index, behind.addr.backed, behind.standby) = (1, false, true);
    rails
}

/// A packet in flight: the rail of its sender, and its bytes.
pub type Flying = (usize, Vec<u8>);

/// Makes the links that a node asks for; a link's number is the remote rail's.
pub fn link(node: &mut Node, now: u64) {
    while let Some(ask) = node.poll_link() {
        match ask {
            LinkAsk::Open { peer, path, to, .. } => {
                node.on_linked(now, peer, path, to.index.into(), true);
            }
            LinkAsk::Reroute { rail, link } => node.on_rerouted(now, rail, link),
            LinkAsk::Works { .. } | LinkAsk::Silent { .. } | LinkAsk::Close { .. } => {}
        }
    }
}

/// All packets that a node has to send now. `runs`: with `continue_bulk` where possible.
pub fn output(node: &mut Node, now: u64, runs: bool) -> Vec<Flying> {
    link(node, now);
    let (mut out, mut spans, mut packets) = (vec![0; 64_000], Vec::new(), Vec::new());
    while let Some(first) = node.poll_transmit(now, &mut out, &mut spans, None) {
        packets.push((first.rail, out[..first.len].to_vec()));
        let model = FragmentHead::of(&out, first.head_len).filter(|_| runs && first.batch.bulk);
        let Some(model) = model else { continue };
        let run = node.continue_bulk(now, &first.batch, &model, &mut out, 40);
        for packet in out
            .chunks_exact(first.len)
            .take(run.map_or(0, |r| r.packets))
        {
            packets.push((first.rail, packet.to_vec()));
        }
    }
    packets
}

pub fn take(node: &mut Node, now: u64, packets: &[Flying]) {
    for (_, bytes) in packets {
        // Heads are not sealed here: their CRC is zero, and so is the value it is compared with.
        let packet = Packet::parse(bytes, |_| 0).unwrap();
        let taken = node.handle_packet(now, &packet, bytes.len(), &mut Anywhere);
        // BYE is sent three times; packets that find no memory are retransmitted.
        let fine = matches!(taken, Ok(_) | Err(DropReason::Gone | DropReason::NoMemory));
        assert!(fine, "{taken:?}");
    }
}

/// Virtual time in nanoseconds after which two nodes that still exchange packets never stop.
pub const SETTLED_NS: u64 = 20_000_000_000;

/// Two connected nodes with proven paths; `a` has probed the packet sizes.
pub struct Pair {
    pub a: Node,
    pub b: Node,
    pub to_b: PeerId,
    pub now: u64,
    pub runs: bool,
}

impl Pair {
    pub fn new(rails: u8, runs: bool) -> Pair {
        Pair::with(Config::default(), rails, runs)
    }

    pub fn with(config: Config, rails: u8, runs: bool) -> Pair {
        let nodes = [1, 2].map(|host| node_with(config, host, rails));
        let mut pair = Pair::of(nodes, runs);
        pair.message(1, 2_000);
        pair.settle();
        pair
    }

    /// Two connected nodes whose rails have these delivery guarantees.
    pub fn of_rails(config: Config, deliveries: &[Delivery]) -> Pair {
        let nodes = [1, 2].map(|host| {
            let mut specs = specs(host, deliveries.len() as u8, 1_472);
            let rails = specs.iter_mut().zip(deliveries);
            rails.for_each(|(spec, delivery)| spec.delivery = *delivery);
            node_of(config, host, specs)
        });
        let mut pair = Pair::of(nodes, false);
        pair.b.peer(&pair.a.address());
        pair.message(1, 2_000);
        pair.settle();
        pair
    }

    /// Two nodes of which the first knows the other's address.
    pub fn of([mut a, b]: [Node; 2], runs: bool) -> Pair {
        let to_b = a.peer(&b.address());
        Pair {
            a,
            b,
            to_b,
            now: 1_000_000,
            runs,
        }
    }

    /// Sends a message of `len` bytes, with a receive for it.
    pub fn message(&mut self, handle: u32, len: u64) {
        self.message_into(handle, len, len);
    }

    /// The same, with a receive that may be too short.
    pub fn message_into(&mut self, handle: u32, len: u64, capacity: u64) {
        let receive = RecvSpec {
            handle,
            source: Source::Any,
            tag: None,
            capacity,
            multi_min: None,
        };
        self.b.post_recv(&receive, self.now);
        self.send(handle, len);
    }

    /// Sends a message without a receive.
    pub fn send(&mut self, handle: u32, len: u64) {
        self.a.post_send(&SendSpec {
            handle,
            peer: self.to_b,
            tag: None,
            data: None,
            len,
            urgent_ack: true,
        });
    }

    pub fn step(&mut self) -> bool {
        self.now += 20_000;
        self.a.on_poll(self.now, false);
        self.a.caught_up();
        self.b.on_poll(self.now, false);
        self.b.caught_up();
        self.a.handle_timeouts(self.now);
        self.b.handle_timeouts(self.now);
        let there = output(&mut self.a, self.now, self.runs);
        take(&mut self.b, self.now, &there);
        let back = output(&mut self.b, self.now, self.runs);
        take(&mut self.a, self.now, &back);
        !there.is_empty() || !back.is_empty()
    }

    /// A step of both nodes in which only those packets arrive that `passes` accepts, given their
    /// sender (0 is `a`), rail and length. While nothing leaves, time advances to the next
    /// deadline.
    pub fn step_through(&mut self, passes: &mut impl FnMut(usize, usize, usize) -> bool) {
        self.step_where(&mut |from, (rail, bytes)| passes(from, *rail, bytes.len()));
    }

    /// The same; `passes` gets the sender and the packet.
    pub fn step_where(&mut self, passes: &mut impl FnMut(usize, &Flying) -> bool) {
        let deadlines = [&self.a, &self.b].map(|node| node.next_deadline().unwrap_or(u64::MAX));
        let next = deadlines.into_iter().min().unwrap_or(0);
        self.now = (self.now + 20_000).max(next.min(self.now + 1_000_000));
        for from in [0, 1] {
            let (sender, taker) = match from {
                0 => (&mut self.a, &mut self.b),
                _ => (&mut self.b, &mut self.a),
            };
            sender.on_poll(self.now, false);
            sender.handle_timeouts(self.now);
            let mut packets = output(sender, self.now, self.runs);
            packets.retain(|packet| passes(from, packet));
            take(taker, self.now, &packets);
        }
    }

    /// A step in which the other packets overtake the first `count`.
    pub fn step_overtaken(&mut self, count: usize) {
        self.now += 20_000;
        self.a.on_poll(self.now, false);
        self.b.on_poll(self.now, false);
        self.a.handle_timeouts(self.now);
        self.b.handle_timeouts(self.now);
        let mut there = output(&mut self.a, self.now, self.runs);
        let first = count.min(there.len() / 2);
        let late: Vec<_> = there.drain(..first).collect();
        for packets in [there, late] {
            take(&mut self.b, self.now, &packets);
            let back = output(&mut self.b, self.now, self.runs);
            take(&mut self.a, self.now, &back);
        }
    }

    /// Runs only the sender; returns its packets.
    pub fn alone(&mut self) -> Vec<Flying> {
        self.now += 20_000;
        self.a.on_poll(self.now, false);
        self.a.caught_up();
        self.a.handle_timeouts(self.now);
        output(&mut self.a, self.now, self.runs)
    }

    /// The receiver handles these packets; the sender handles the answers on `rail`.
    pub fn answer(&mut self, packets: &[Flying], rail: usize) {
        self.b.on_poll(self.now, false);
        self.b.caught_up();
        self.b.handle_timeouts(self.now);
        take(&mut self.b, self.now, packets);
        let mut back = output(&mut self.b, self.now, self.runs);
        back.retain(|p| p.0 == rail);
        take(&mut self.a, self.now, &back);
    }

    /// Runs both until nothing was sent for a while.
    pub fn settle(&mut self) {
        let (mut idle, end) = (0, self.now + SETTLED_NS);
        while idle < 20 {
            idle = if self.step() { 0 } else { idle + 1 };
            assert!(self.now < end, "they never fall silent");
        }
    }

    /// Packets that the sender declared lost.
    pub fn lost(&self) -> u64 {
        let mut lost = 0;
        self.a
            .for_each_peer(|_, _, _, paths| lost += paths.map(|(_, _, _, s)| s.lost).sum::<u64>());
        lost
    }
}

pub fn done(node: &mut Node, handle: u32) -> bool {
    std::iter::from_fn(|| node.poll_event())
        .any(|e| matches!(e, Event::SendDone { handle: h, ok: true } if h == handle))
}

/// Puts all rails of the host into one network.
pub fn in_one_network(specs: &mut [RailSpec], host: u8) {
    for spec in specs {
        spec.addr = rail_addr(0, host, spec.addr.index, spec.datagram_max);
    }
}

/// A packet of the source with this id, epoch and rails to a node: HELLO, and these frames.
pub fn hello_packet(
    to: &Node,
    (id, epoch, number): (u64, u32, u64),
    rails: &[RailAddr],
    frames: &[Frame],
) -> Vec<u8> {
    let (address, mut bytes) = (to.address(), [0; HELLO_RAIL_BYTES_MAX]);
    let hello = Hello {
        slot: 0,
        id,
        token: 5,
        epoch,
        algorithm: FIRST_ALGORITHM,
        algorithms: 1 << FIRST_ALGORITHM,
        reliable: true,
        eager_puts: true,
        refused: false,
        credit: 1 << 20,
        revision: 0,
        versions: Versions::OURS,
        of_destination: None,
        further: HelloFields::NONE,
        rails: RailList::write(&mut bytes, rails),
    };
    let header = Header {
        version: VERSION,
        algorithm: FIRST_ALGORITHM,
        dst_id: address.id,
        dst_token: address.token,
        dst_slot: SLOT_UNKNOWN,
        src_id: id,
        src_epoch: epoch,
        path: 0,
        flags: Header::FLAG_ACK_NOW,
        number,
    };
    let mut out = vec![0; 64_000];
    let mut writer = HeadWriter::new(&mut out, 64_000);
    writer.push(&Frame::Hello(hello)).unwrap();
    for frame in frames {
        writer.push(frame).unwrap();
    }
    let (_, len) = writer.finish(&header);
    out.truncate(len);
    out
}
