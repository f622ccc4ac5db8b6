//! Messages that are read from the sender's memory (RDMA READ), packet by packet: the test does the
//! reads itself.

use crate::face;

use face::{link, node_of, specs};
use marline_proto::{
    AdvertisementOut, Config, Event, Landing, Memory, Node, Payload, PeerId, RecvSpec, SendSpec,
    Source, WriteCheck, WriteOut, WrittenSum,
};
use marline_wire::{Frame, Packet, RailWrites, BLOCK_BYTES};
use std::collections::{BTreeMap, BTreeSet};

const SEGMENT: u64 = 40 * BLOCK_BYTES;
const SEGMENTS: u64 = 10;
/// The last segment is shorter.
const LEN: u64 = SEGMENTS * SEGMENT - 1_000;
/// The sender's key for its memory, and the receiver's for its own.
const OFFERED: u64 = 0xabcd;
const GRANTED: u64 = 0xfeed;

/// Memory in which some segments are wrong. Segments that were read and verified are not
/// overwritten.
#[derive(Default)]
struct Segments {
    wrong: BTreeSet<u64>,
    /// Seeds and algorithms of the expected checksums, as given with the reads.
    told: BTreeMap<u64, (u64, u8)>,
    landed: Vec<(u64, u64)>,
    written: Vec<(u64, u64)>,
    closed: usize,
}

impl Memory for Segments {
    fn land(&mut self, landing: &Landing, payload: &Payload<'_>) -> bool {
        if let Landing::Posted { offset, .. } = *landing {
            self.landed.push((offset, payload.bytes.len() as u64));
        }
        true
    }
    fn written(&mut self, landing: &Landing, sum: &WrittenSum) -> WriteCheck {
        let Landing::Posted { offset, copy, .. } = *landing else {
            panic!("{landing:?}");
        };
        assert_eq!((copy, offset), (sum.len, sum.at));
        if self.closed > 0 {
            self.written.push((offset, copy as u64));
            return WriteCheck::Right;
        }
        assert_eq!(self.told[&sum.at], (sum.seed, sum.algorithm));
        match self.wrong.contains(&(offset / SEGMENT)) {
            true => WriteCheck::Wrong,
            false => WriteCheck::Right,
        }
    }
    fn deregister(&mut self, _inbound: u64) {
        self.closed += 1;
    }
}

struct Pair {
    nodes: [Node; 2],
    to_b: PeerId,
    memory: [Segments; 2],
    /// Requested reads that are not over: inbound, offset.
    asked: Vec<(u64, u64)>,
    advertisements: Vec<AdvertisementOut>,
    writes: Vec<WriteOut>,
    received: bool,
    /// The receiver's memory is registered on request.
    registers: bool,
    now: u64,
}

fn node(host: u8) -> Node {
    let mut specs = specs(host, 1, 1_472);
    specs[0].addr.writes = RailWrites::Keyed;
    (specs[0].connected, specs[0].ordered_writes) = (true, true);
    let config = Config {
        read_rails: 1,
        segment_min: SEGMENT,
        eager_max: 4_096,
        ..Config::default()
    };
    node_of(config, host, specs)
}

impl Pair {
    /// Two connected nodes, and a message to be read.
    fn new() -> Pair {
        let [mut a, b] = [1, 2].map(node);
        let to_b = a.peer(&b.address());
        let mut pair = Pair {
            nodes: [a, b],
            to_b,
            memory: Default::default(),
            asked: Vec::new(),
            advertisements: Vec::new(),
            writes: Vec::new(),
            received: false,
            registers: false,
            now: 1_000_000,
        };
        pair.message(1, 100);
        (0..100).for_each(|_| pair.step());
        assert!(pair.received, "{}", pair.nodes[0].describe());
        pair.received = false;
        pair.memory = Default::default();
        pair.message(2, LEN);
        pair
    }

    fn message(&mut self, handle: u32, len: u64) {
        let receive = RecvSpec {
            handle,
            source: Source::Any,
            tag: None,
            capacity: len,
            multi_min: None,
        };
        self.nodes[1].post_recv(&receive, self.now);
        self.nodes[0].post_send(&SendSpec {
            handle,
            peer: self.to_b,
            tag: None,
            data: None,
            len,
            urgent_ack: true,
        });
    }

    /// Writes a key into an ADVERTISEMENT frame: the word before its checksum.
    fn fill(packet: &mut [u8], advertisement: &AdvertisementOut) {
        let key = &mut packet[advertisement.sum_at - 8..advertisement.sum_at];
        key.copy_from_slice(&OFFERED.to_le_bytes());
    }

    /// Packets that a side has to send now.
    fn output(&mut self, side: usize) -> Vec<Vec<u8>> {
        let (mut out, mut spans, mut all) = (vec![0; 64_000], Vec::new(), Vec::new());
        let node = &mut self.nodes[side];
        link(node, self.now);
        while let Some(t) = node.poll_transmit(self.now, &mut out, &mut spans, None) {
            let mut packet = out[..t.len].to_vec();
            let before = self.advertisements.len();
            while let Some(advertisement) = node.take_advertisement() {
                Pair::fill(&mut packet, &advertisement);
                self.advertisements.push(advertisement);
            }
            assert!(
                self.advertisements.len() <= before + 1,
                "sums for one packet"
            );
            self.writes.extend(node.take_write());
            all.push(packet);
        }
        all
    }

    fn step(&mut self) {
        self.now += 20_000;
        for side in 0..2 {
            self.nodes[side].on_poll(self.now, false);
            self.nodes[side].handle_timeouts(self.now);
            for bytes in self.output(side) {
                let packet = Packet::parse(&bytes, |_| 0).unwrap();
                let (node, memory) = (&mut self.nodes[1 - side], &mut self.memory[1 - side]);
                let _ = node.handle_packet(self.now, &packet, bytes.len(), memory);
            }
        }
        self.take_events();
    }

    fn take_events(&mut self) {
        while let Some(event) = self.nodes[1].poll_event() {
            match event {
                Event::PullWanted {
                    inbound,
                    total,
                    at,
                    len,
                    key,
                    sum,
                    ..
                } => {
                    self.memory[1].told.insert(at, sum);
                    assert_eq!((key, total), (OFFERED, LEN));
                    assert_eq!(len, SEGMENT.min(LEN - at));
                    self.asked.push((inbound, at));
                }
                Event::RegistrationWanted { inbound, .. } if self.registers => {
                    self.nodes[1].registered_on(inbound, 0, GRANTED);
                }
                Event::RecvDone { .. } => self.received = true,
                _ => {}
            }
        }
    }

    /// Ends the oldest read; `came`: its bytes arrived.
    fn over(&mut self, came: bool) {
        let (inbound, at) = self.asked.remove(0);
        self.nodes[1].pull_over(self.now, (inbound, at), came, &mut self.memory[1]);
        self.take_events();
    }

    /// Runs until the send is done; `fails`: segments whose reads fail.
    fn finish(&mut self, fails: &[u64]) {
        for _ in 0..3_000 {
            self.step();
            assert!(self.asked.len() <= 3);
            if let Some(&(_, at)) = self.asked.first() {
                self.over(!fails.contains(&(at / SEGMENT)));
            }
            if self.received && self.nodes[0].drained() {
                return;
            }
        }
        panic!("{}{}", self.nodes[0].describe(), self.nodes[1].describe());
    }

    /// The segments with bytes that came in packets, and those that were written.
    fn sent(&self) -> [BTreeSet<u64>; 2] {
        let memory = &self.memory[1];
        let of = |spans: &[(u64, u64)]| {
            let ends = spans.iter().map(|&(at, len)| [at, at + len - 1]);
            ends.flatten().map(|at| at / SEGMENT).collect()
        };
        [of(&memory.landed), of(&memory.written)]
    }
}

#[test]
fn all_segments_are_read_and_nothing_is_sent() {
    let mut pair = Pair::new();
    pair.finish(&[]);
    assert_eq!(pair.sent(), [BTreeSet::new(), BTreeSet::new()]);
    let seeds = pair.advertisements.iter();
    let seeds = seeds.map(|advertisement| {
        (
            advertisement.at,
            advertisement.seed_of(advertisement.at, advertisement.len as usize),
        )
    });
    let wanted = pair.memory[1].told.iter().map(|(at, sum)| (*at, sum.0));
    assert_eq!(seeds.collect::<BTreeMap<_, _>>(), wanted.collect());
    assert_eq!(pair.memory[1].told.len() as u64, SEGMENTS);
    let stats = pair.nodes[1].stats();
    assert_eq!((stats.pulled, stats.pulls_failed), (1, 0));
}

/// No segment counts before its checksum is known.
#[test]
fn a_segment_waits_for_its_sum() {
    let mut pair = Pair::new();
    while pair.asked.is_empty() {
        pair.step();
    }
    // All segments are read before any further checksum arrives.
    (0..SEGMENTS).for_each(|_| pair.over(true));
    assert!(pair.asked.is_empty() && !pair.received);
    pair.finish(&[]);
    assert_eq!(pair.sent()[0], BTreeSet::new());
}

#[test]
fn only_corrupted_segments_are_granted() {
    let mut pair = Pair::new();
    pair.memory[1].wrong = [0, 3, 9].into();
    pair.finish(&[]);
    assert_eq!(pair.sent(), [[0, 3, 9].into(), BTreeSet::new()]);
    let bytes: u64 = pair.memory[1].landed.iter().map(|(_, len)| len).sum();
    assert_eq!(bytes, 3 * SEGMENT - 1_000);
    let stats = pair.nodes[1].stats();
    assert_eq!((stats.pulled, stats.pulls_failed), (0, 1));
}

/// After a failed read no other begins; segments that were read before are not sent.
#[test]
fn segments_that_could_not_be_read_are_granted() {
    let mut pair = Pair::new();
    pair.finish(&[4]);
    // Two other reads were in flight.
    assert_eq!(pair.sent()[0], [4, 7, 8, 9].into());
}

/// The same with writes: none covers a segment that was read.
#[test]
fn segments_that_could_not_be_read_are_written() {
    let mut pair = Pair::new();
    pair.registers = true;
    pair.memory[1].wrong = [1, 2].into();
    pair.finish(&[6]);
    let [landed, written] = pair.sent();
    let missing: BTreeSet<u64> = [1, 2, 6, 9].into();
    assert_eq!(&landed | &written, missing);
    assert!(!written.is_empty());
    assert!(pair.writes.iter().all(|w| w.key == GRANTED));
    let covers = |w: &WriteOut| missing.contains(&(w.offset / SEGMENT));
    assert!(pair.writes.iter().all(covers));
}

/// A read or a checksum that comes after its message was granted changes nothing.
#[test]
fn reads_that_end_after_the_grant_change_nothing() {
    let mut pair = Pair::new();
    while pair.asked.is_empty() {
        pair.step();
    }
    let (inbound, _) = pair.asked[0];
    (0..3).for_each(|_| pair.over(false));
    pair.nodes[1].pull_over(pair.now, (inbound, 0), true, &mut pair.memory[1]);
    pair.finish(&[]);
    assert_eq!(pair.sent()[0], (0..SEGMENTS).collect());
}

/// ADVERTISEMENT frames name their segment.
#[test]
fn checksums_follow_the_request_in_order() {
    let mut pair = Pair::new();
    let mut told = Vec::new();
    for _ in 0..40 {
        pair.now += 20_000;
        for side in 0..2 {
            pair.nodes[side].on_poll(pair.now, false);
            pair.nodes[side].handle_timeouts(pair.now);
            for bytes in pair.output(side) {
                let packet = Packet::parse(&bytes, |_| 0).unwrap();
                told.extend(packet.frames().filter_map(|(frame, _)| match frame {
                    Frame::Advertisement(advertisement) => {
                        Some((advertisement.segment, advertisement.key))
                    }
                    _ => None,
                }));
                let (node, memory) = (&mut pair.nodes[1 - side], &mut pair.memory[1 - side]);
                let _ = node.handle_packet(pair.now, &packet, bytes.len(), memory);
            }
        }
    }
    let want: Vec<(u8, u64)> = (0..SEGMENTS as u8).map(|n| (n, OFFERED)).collect();
    assert_eq!(told, want);
}
