//! Messages that are written into registered memory (RDMA WRITE), packet by packet: the test does
//! the writes itself.

use crate::face;

use face::{node_of, node_with, specs};
use marline_proto::{
    Config, DropReason, Event, Landing, Memory, Node, Payload, PeerId, RecvSpec, SendSpec, Source,
    WriteCheck, WriteOut, WrittenSum, DIRECT_PACKET_MAX,
};
use marline_wire::{Frame, Packet, RailWrites, FIRST_ALGORITHM, FLAG_DEREGISTER};

const LEN: u64 = 100_000;
/// The receiver's key for the memory.
const KEY: u64 = 0xfeed;
/// The handle of a served read.
const SERVED: u32 = 7;

/// Memory that gives the test's result for writes, and records the calls.
#[derive(Default)]
struct Noted {
    lies: WriteCheck,
    written: Vec<(u64, usize)>,
    revoked: Vec<u64>,
    /// Payloads placed while keys were valid.
    landed_under_keys: usize,
    /// Bytes of payloads.
    landed: usize,
}

impl Memory for Noted {
    fn land(&mut self, _: &Landing, payload: &Payload<'_>) -> bool {
        self.landed += payload.bytes.len();
        self.landed_under_keys += self.revoked.is_empty() as usize;
        true
    }
    fn written(&mut self, landing: &Landing, sum: &WrittenSum) -> WriteCheck {
        let Landing::Posted { offset, copy, .. } = *landing else {
            panic!("{landing:?}");
        };
        assert_eq!(copy, sum.len);
        self.written.push((offset, sum.len));
        self.lies
    }
    fn deregister(&mut self, inbound: u64) {
        self.revoked.push(inbound);
    }
}

/// A packet, and the write that it announces.
type Flight = (Vec<u8>, Option<WriteOut>);

struct Pair {
    nodes: [Node; 2],
    to_b: PeerId,
    memory: [Noted; 2],
    events: [Vec<Event>; 2],
    now: u64,
}

fn writing(config: Config, host: u8) -> Node {
    let mut specs = specs(host, 1, 1_472);
    specs[0].addr.writes = RailWrites::Keyed;
    node_of(config, host, specs)
}

impl Pair {
    /// A receive with room for `capacity` bytes, and a message for it that is not granted yet.
    fn new(config: Config, capacity: u64) -> Pair {
        Pair::of([writing(config, 1), writing(config, 2)], capacity)
    }

    fn of(nodes: [Node; 2], capacity: u64) -> Pair {
        Pair::with_message(nodes, capacity, LEN)
    }

    fn with_message([mut a, mut b]: [Node; 2], capacity: u64, len: u64) -> Pair {
        let to_b = a.peer(&b.address());
        let receive = RecvSpec {
            handle: 5,
            source: Source::Any,
            tag: None,
            capacity,
            multi_min: None,
        };
        b.post_recv(&receive, 1);
        let mut pair = Pair {
            nodes: [a, b],
            to_b,
            memory: Default::default(),
            events: Default::default(),
            now: 1_000_000,
        };
        pair.post(3, len);
        pair
    }

    fn post(&mut self, handle: u32, len: u64) {
        let peer = self.to_b;
        self.nodes[0].post_send(&SendSpec {
            handle,
            peer,
            tag: None,
            data: None,
            len,
            urgent_ack: true,
        });
    }

    /// All packets that a side has to send now.
    fn output(&mut self, side: usize) -> Vec<Flight> {
        let node = &mut self.nodes[side];
        let (mut out, mut spans, mut all) = (vec![0; 64_000], Vec::new(), Vec::new());
        let mut batch = None;
        loop {
            let Some(t) = node.poll_transmit(self.now, &mut out, &mut spans, batch.as_ref()) else {
                match batch.take() {
                    Some(_) => continue,
                    None => return all,
                }
            };
            let write = node.take_write();
            assert_eq!(t.written, write.is_some());
            all.push((out[..t.len].to_vec(), write));
            batch = t.batch.bulk.then_some(t.batch).filter(|_| !t.written);
        }
    }

    fn deliver(&mut self, side: usize, packet: &[u8]) -> Result<PeerId, DropReason> {
        let packet = Packet::parse(packet, |_| 0).unwrap();
        let (node, memory) = (&mut self.nodes[side], &mut self.memory[side]);
        let taken = node.handle_packet(self.now, &packet, packet.wire_len(), memory);
        while let Some(event) = node.poll_event() {
            match event {
                Event::RegistrationWanted { inbound, rails, .. } => {
                    assert_eq!(rails, 1);
                    node.registered_on(inbound, 0, KEY);
                }
                Event::ReadAsked {
                    peer,
                    number,
                    len,
                    upto,
                    ..
                } => node.serve_read(SERVED, peer, number, len, upto),
                _ => {}
            }
            self.events[side].push(event);
        }
        taken
    }

    /// An exchange; returns the writes of both sides.
    fn step(&mut self) -> Vec<WriteOut> {
        self.now += 20_000;
        let mut writes = Vec::new();
        for side in 0..2 {
            self.nodes[side].on_poll(self.now, false);
            self.nodes[side].handle_timeouts(self.now);
            for (packet, write) in self.output(side) {
                writes.extend(write);
                let _ = self.deliver(1 - side, &packet);
            }
        }
        writes
    }

    /// Exchanges packets until a write leaves, which is lost with its packet.
    fn write_into_the_void(&mut self) {
        let end = self.now + 2_000 * 20_000;
        while self.now < end {
            self.now += 20_000;
            for side in 0..2 {
                self.nodes[side].on_poll(self.now, false);
                self.nodes[side].handle_timeouts(self.now);
                let output = self.output(side);
                if output.iter().any(|(_, write)| write.is_some()) {
                    return;
                }
                for (packet, _) in output {
                    let _ = self.deliver(1 - side, &packet);
                }
            }
        }
        panic!("nothing is written: {}", self.nodes[0].describe());
    }

    /// Runs until the send is done; returns all writes.
    fn finish(&mut self) -> Vec<WriteOut> {
        let mut writes = Vec::new();
        for _ in 0..2_000 {
            writes.extend(self.step());
            if self.nodes[0].drained() {
                return writes;
            }
        }
        panic!("{}", self.nodes[0].describe());
    }

    fn position(&self, side: usize, which: impl Fn(&Event) -> bool) -> usize {
        let found = self.events[side].iter().position(which);
        found.expect("an event that must come")
    }
}

fn is_data(packet: &[u8]) -> Option<u8> {
    let packet = Packet::parse(packet, |_| 0).unwrap();
    let mut frames = packet.frames();
    frames.find_map(|(frame, _)| match frame {
        Frame::Data(data) => Some(data.flags),
        _ => None,
    })
}

#[test]
fn room_after_a_written_message_stays_unused() {
    const END: u64 = 128; // too short for a write
    let nodes = [writing(Config::default(), 1), writing(Config::default(), 2)];
    let len = 146 * 448 + END;
    let mut pair = Pair::with_message(nodes, len, len);
    let receive = RecvSpec {
        handle: 6,
        source: Source::Any,
        tag: None,
        capacity: len,
        multi_min: None,
    };
    pair.nodes[1].post_recv(&receive, 1);
    pair.post(4, len);
    pair.memory[1].lies = WriteCheck::Right;
    let writes = pair.finish();
    let bytes: u64 = writes.iter().map(|w| w.len as u64).sum();
    assert_eq!(bytes, 2 * (len - END));
    assert_eq!(pair.memory[1].landed as u64, 2 * END);
}

#[test]
fn a_granted_message_is_written_and_its_key_ends_first() {
    let mut pair = Pair::new(Config::default(), LEN);
    pair.memory[1].lies = WriteCheck::Right;
    let writes = pair.finish();
    let bytes: u64 = writes.iter().map(|w| w.len as u64).sum();
    assert_eq!(bytes, LEN);
    assert!(writes.iter().all(|w| w.key == KEY && w.handle == 3));
    assert_eq!(pair.memory[1].landed_under_keys, 0);
    let revoked = pair.position(1, |e| matches!(e, Event::Deregister { .. }));
    let done = pair.position(1, |e| matches!(e, Event::RecvDone { .. }));
    assert!(revoked < done);
}

/// A write whose bytes are wrong in memory is retransmitted in packets; the key is revoked before
/// the first of them is placed.
#[test]
fn wrong_writes_are_retransmitted_after_the_key_is_revoked() {
    let mut pair = Pair::new(Config::default(), LEN);
    let writes = pair.finish();
    assert!(!writes.is_empty() && !pair.memory[1].written.is_empty());
    assert_eq!(pair.memory[1].revoked.len(), 1);
    assert_eq!(pair.memory[1].landed_under_keys, 0);
    // No byte was written twice.
    let mut from: Vec<u64> = writes.iter().map(|w| w.offset).collect();
    from.dedup();
    assert_eq!(from.len(), writes.len());
}

/// A write that did not land counts as lost, not as corruption of the path.
#[test]
fn a_missing_write_is_no_corruption() {
    for (lies, why, corrupt) in [
        (WriteCheck::Missing, DropReason::Unwritten, 0),
        (WriteCheck::Wrong, DropReason::CorruptPayload, 1),
    ] {
        let mut pair = Pair::new(Config::default(), LEN);
        pair.memory[1].lies = lies;
        pair.step();
        let flights = pair.output(0);
        let (packet, _) = flights.iter().find(|f| f.1.is_some()).expect("a write");
        assert_eq!(pair.deliver(1, &packet.clone()), Err(why));
        let stats = pair.nodes[1].stats();
        assert_eq!(
            (stats.written_lost, stats.written_wrong),
            (1 - corrupt, corrupt)
        );
        pair.finish();
    }
}

/// An owner may store into memory while a peer reads it, so that written bytes and their sum
/// differ: that is no corruption of the path. The bytes come again in packets, which are summed as
/// they are copied.
#[test]
fn memory_that_changes_under_a_read_is_no_corruption() {
    let mut pair = Pair::new(Config::default(), LEN);
    pair.memory[1].lies = WriteCheck::Right;
    pair.memory[0].lies = WriteCheck::Wrong;
    let peer = pair.to_b;
    assert!(pair.nodes[0].post_read(9, peer, (1, 0, LEN), 0));
    let (mut refused, mut rounds) = (Vec::new(), 0);
    let is_done = |event: &Event| matches!(event, Event::ReadDone { ok: true, .. });
    while !pair.events[0].iter().any(is_done) {
        rounds += 1;
        assert!(rounds < 2_000, "{}", pair.nodes[1].describe());
        pair.now += 20_000;
        for side in 0..2 {
            pair.nodes[side].on_poll(pair.now, false);
            pair.nodes[side].handle_timeouts(pair.now);
            for (packet, _) in pair.output(side) {
                refused.extend(pair.deliver(1 - side, &packet).err());
            }
        }
    }
    assert!(pair.nodes[0].stats().written_wrong > 0);
    let only = |why| refused.iter().all(|&refused| refused == why);
    assert!(only(DropReason::Unwritten), "{refused:?}");
    assert!(pair.memory[0].landed as u64 >= LEN);
}

/// On a rail with direct writes, each write and its head fit a super-packet, whatever the path's
/// MTU.
#[test]
fn direct_writes_fit_a_super_packet() {
    for (datagrams, datagram, most) in [(64, 1_472, 63_616), (64, 512, 32_256), (43, 1_472, 62_720)]
    {
        let node = |host: u8| {
            let mut specs = specs(host, 1, datagram);
            specs[0].addr.writes = RailWrites::Direct;
            specs[0].direct_datagrams = datagrams;
            node_of(Config::default(), host, specs)
        };
        let mut pair = Pair::of([1, 2].map(node), LEN);
        pair.memory[1].lies = WriteCheck::Right;
        let writes = pair.finish();
        assert!(!writes.is_empty());
        assert!(writes.iter().all(|w| w.segment <= datagram), "{writes:?}");
        let longest = writes.iter().map(|w| u64::from(w.len)).max();
        // A path begins with smaller packets than its rail takes.
        assert!(
            longest.is_some_and(|l| l <= most && l > most / 2),
            "{writes:?}"
        );
    }
}

/// A message that takes many grants, on a rail with direct writes.
fn long(config: Config) -> Pair {
    let node = |host: u8| {
        let mut specs = specs(host, 1, 1_472);
        specs[0].addr.writes = RailWrites::Direct;
        specs[0].direct_datagrams = 64;
        node_of(config, host, specs)
    };
    let mut pair = Pair::with_message([1, 2].map(node), 32 << 20, 32 << 20);
    pair.memory[1].lies = WriteCheck::Right;
    pair
}

/// A grant ends where a write ends: a short write costs nearly as much as a long one. (Regression:
/// one of nine was short.)
#[test]
fn grants_are_whole_writes() {
    let lens: Vec<_> = long(Config::default())
        .finish()
        .iter()
        .map(|w| w.len)
        .collect();
    let longest = lens.iter().max().copied();
    assert_eq!(longest, Some(63_616));
    let short = lens.iter().filter(|&&len| Some(len) < longest).count();
    // The first, as the path's size is not known yet; the last of the message.
    assert!(lens.len() > 500 && short <= 3, "{short} of {}", lens.len());
}

/// The datagrams of a direct write may be joined in another order. So no write uses a checksum that
/// cannot detect that, and a write that a peer makes all the same is retransmitted in packets.
#[test]
fn direct_writes_go_under_sums_that_see_order() {
    const BLIND: u8 = 13;
    let both: &[u8] = &[FIRST_ALGORITHM, BLIND];
    for (trusting, written) in [
        ([false; 2], false),
        ([true, false], true),
        ([true; 2], true),
    ] {
        let node = |host: u8| {
            let mut specs = specs(host, 1, 1_472);
            specs[0].addr.writes = RailWrites::Direct;
            specs[0].direct_datagrams = 64;
            let mut config = Config {
                algorithm: BLIND,
                algorithms: both,
                ..Config::default()
            };
            if trusting[host as usize - 1] {
                config.seeing_order = both;
            }
            node_of(config, host, specs)
        };
        let mut pair = Pair::of([1, 2].map(node), LEN);
        pair.memory[1].lies = WriteCheck::Right;
        assert_eq!(!pair.finish().is_empty(), written, "{trusting:?}");
        let taken = !pair.memory[1].written.is_empty();
        assert_eq!(taken, trusting[1], "{trusting:?}");
    }
}

/// With few and short datagrams a write has no room: no writes are made. (Regression, seed
/// 21001298: a division by their length.)
#[test]
fn writes_without_room_are_not_made() {
    let node = |host: u8| {
        let mut specs = specs(host, 1, 576);
        specs[0].addr.writes = RailWrites::Direct;
        specs[0].direct_datagrams = 1;
        node_of(Config::default(), host, specs)
    };
    let mut pair = Pair::with_message([1, 2].map(node), 8 << 20, 8 << 20);
    assert!(pair.finish().is_empty());
}

/// Acks of grants leave with the writes that the grants allow, not in packets before them.
#[test]
fn acks_ride_with_writes() {
    let mut pair = long(Config {
        ack_every: 1,
        ..Config::default()
    });
    let (mut riding, mut writes) = (0, 0);
    let end = pair.now + 2_000 * 20_000;
    while !pair.nodes[0].drained() {
        assert!(pair.now < end, "{}", pair.nodes[0].describe());
        pair.now += 20_000;
        for side in 0..2 {
            pair.nodes[side].on_poll(pair.now, false);
            pair.nodes[side].handle_timeouts(pair.now);
            let output = pair.output(side);
            let writing = output.iter().any(|(_, write)| write.is_some());
            for (bytes, write) in output {
                let packet = Packet::parse(&bytes, |_| 0).unwrap();
                let frames = packet.frames();
                let acks = frames.filter(|(f, _)| matches!(f, Frame::Ack(_))).count();
                let alone = acks == packet.frames().count();
                assert!(!(writing && alone), "{} writes later", writes);
                writes += write.is_some() as usize;
                riding += acks * write.is_some() as usize;
                assert!(write.is_none() || bytes.len() <= DIRECT_PACKET_MAX);
                let _ = pair.deliver(1 - side, &bytes);
            }
        }
    }
    assert!(riding > 20, "{riding} acks with {writes} writes");
}

/// A rail that turns out to lack direct writes makes none, although the peer's rail supports them,
/// on paths of any MTU; nor does a rail that never supported them.
#[test]
fn a_rail_without_direct_writes_makes_none() {
    for (datagram, had) in [(1_472, true), (8_972, true), (1_472, false)] {
        let node = |host: u8| {
            let mut specs = specs(host, 1, datagram);
            if had || host == 2 {
                specs[0].addr.writes = RailWrites::Direct;
                specs[0].direct_datagrams = 64;
            }
            node_of(Config::default(), host, specs)
        };
        let mut pair = Pair::of([1, 2].map(node), LEN);
        pair.step(); // the peer has the key
        pair.nodes[0].limit_direct(0, 0);
        assert!(pair.finish().is_empty(), "{datagram} {had}");
    }
}

/// The packet that announces a write is lost: the write may still be in flight.
#[test]
fn a_lost_write_notification_revokes_the_key() {
    let mut pair = Pair::new(Config::default(), LEN);
    pair.memory[1].lies = WriteCheck::Right;
    let mut flags = Vec::new();
    for _ in 0..2_000 {
        pair.now += 20_000;
        for side in 0..2 {
            pair.nodes[side].on_poll(pair.now, false);
            pair.nodes[side].handle_timeouts(pair.now);
            for (packet, write) in pair.output(side) {
                flags.extend(is_data(&packet));
                if write.is_none() {
                    let _ = pair.deliver(1 - side, &packet);
                }
            }
        }
    }
    assert!(pair.nodes[0].drained());
    assert!(!flags.is_empty() && flags.iter().all(|f| f & FLAG_DEREGISTER != 0));
    assert_eq!(pair.memory[1].revoked.len(), 1);
    assert_eq!(pair.memory[1].landed_under_keys, 0);
}

#[test]
fn messages_that_may_not_be_written_come_in_packets() {
    let unsummed = Config {
        summed: (u64::MAX, u64::MAX),
        ..Config::default()
    };
    let native = Config {
        reliable: false,
        ..Config::default()
    };
    let long = Config {
        write_min: LEN + 1,
        ..Config::default()
    };
    let plain = Config::default();
    for (config, capacity) in [
        (unsummed, LEN),
        (native, LEN),
        (long, LEN),
        (plain, LEN - 1),
    ] {
        let mut pair = Pair::new(config, capacity);
        assert!(pair.finish().is_empty());
        assert!(pair.memory[1].landed_under_keys > 0);
    }
    // Rails without writes are not asked to register memory.
    let mut pair = Pair::of([1, 2].map(|h| node_with(plain, h, 1)), LEN);
    assert!(pair.finish().is_empty());
    let asked = |e: &Event| {
        matches!(
            e,
            Event::RegistrationWanted { .. } | Event::Deregister { .. }
        )
    };
    assert!(!pair.events[1].iter().any(asked));
    let _ = pair.to_b;
}

/// A write notification without a key for the memory is rejected.
#[test]
fn write_notifications_without_keys_are_rejected() {
    let mut granted = Pair::new(Config::default(), LEN);
    granted.step();
    let flights = granted.output(0);
    let told = flights.iter().find(|f| f.1.is_some());
    let (packet, _) = told.expect("a write").clone();
    // The same message, whose receive is too short to be granted.
    let mut short = Pair::new(Config::default(), LEN - 1);
    short.step();
    short.memory[1].lies = WriteCheck::Right;
    assert_eq!(short.deliver(1, &packet), Err(DropReason::Invalid));
    assert!(short.memory[1].written.is_empty());
}

/// The peer is silent: each expiry of the retransmission timer sends one packet, except the first,
/// which repeats everything that may be lost. (Regression: 48 packets every 10 ms, whatever the
/// window.)
#[test]
fn a_written_fragment_is_retransmitted_to_a_silent_peer_in_single_packets() {
    let mut pair = Pair::new(Config::default(), LEN);
    pair.memory[1].lies = WriteCheck::Right;
    pair.write_into_the_void();
    let (mut packets, mut bytes) = (0, 0);
    let until = pair.now + 1_000_000_000;
    while pair.now < until {
        pair.now += 100_000;
        pair.nodes[0].on_poll(pair.now, false);
        pair.nodes[0].handle_timeouts(pair.now);
        let output = pair.output(0);
        packets += output.len();
        bytes += output.iter().map(|(packet, _)| packet.len()).sum::<usize>();
    }
    // First a whole fragment; then a packet each 10 ms, and ever more rarely, at least each 100 ms.
    assert!((20..100).contains(&packets), "{packets} packets");
    assert!(bytes < 400_000, "{bytes} bytes");
    // When the peer is back, all data arrives.
    pair.finish();
}

/// Regression: the mask had eight bits only.
#[test]
fn rails_above_the_eighth_are_asked_to_register() {
    let nodes = [1, 2].map(|host| {
        let mut specs = specs(host, 10, 1_472);
        let addrs = specs.iter_mut().map(|spec| &mut spec.addr);
        addrs.for_each(|addr| addr.writes = RailWrites::Keyed);
        node_of(Config::default(), host, specs)
    });
    let mut pair = Pair::of(nodes, LEN);
    for (packet, _) in pair.output(0) {
        let packet = Packet::parse(&packet, |_| 0).unwrap();
        let (b, memory) = (&mut pair.nodes[1], &mut pair.memory[1]);
        let _ = b.handle_packet(pair.now, &packet, packet.wire_len(), memory);
    }
    let wanted = std::iter::from_fn(|| pair.nodes[1].poll_event()).find_map(|event| match event {
        Event::RegistrationWanted { rails, .. } => Some(rails),
        _ => None,
    });
    assert_eq!(wanted, Some(0x3ff));
}
