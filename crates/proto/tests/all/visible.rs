//! Remote writes into memory that its program polls: which bytes are stored, how often, and when.

use crate::face;

use face::{done, node_of, output, specs, take, Flying, Pair};
use marline_proto::{
    Claim, Config, Delivery, DropReason, Event, Held, Landing, Memory, Node, Payload,
};
use marline_wire::{Packet, RailWrites, BLOCK_BYTES};

/// Longer than an eager message: the put is granted.
const LEN: u64 = 70_000;
const HANDLE: u32 = 77;

/// Memory of a remote write that records its calls.
struct Polled {
    /// How often each byte was stored.
    stored: Vec<u32>,
    /// The last byte was stored before others.
    early: bool,
    /// Payloads count as corrupted.
    damaged: bool,
    /// Bytes in bounce buffers.
    held: usize,
}

impl Polled {
    fn new() -> Polled {
        Polled {
            stored: vec![0; LEN as usize],
            early: false,
            damaged: false,
            held: 0,
        }
    }

    fn store(&mut self, offset: u64, len: usize) {
        let (from, to) = (offset as usize, offset as usize + len);
        self.stored[from..to].iter_mut().for_each(|n| *n += 1);
        let others = &self.stored[..LEN as usize - 1];
        self.early |= to == LEN as usize && others.contains(&0);
    }
}

impl Memory for Polled {
    fn land(&mut self, landing: &Landing, payload: &Payload<'_>) -> bool {
        match landing {
            Landing::Discard => return !self.damaged,
            Landing::Bounce { total, .. } => self.held += *total as usize,
            Landing::Posted { .. } => panic!("stored before it was summed: {payload:?}"),
        }
        true
    }

    fn show(&mut self, handle: u32, offset: u64, bytes: &[u8], _: bool) {
        assert_eq!(handle, HANDLE);
        self.store(offset, bytes.len());
    }
}

/// Delivers packets to `b`, and stores a write's end when its node asks for that.
fn deliver(pair: &mut Pair, packets: &[Flying], memory: &mut Polled) -> Vec<Event> {
    let mut events = Vec::new();
    for (_, bytes) in packets {
        let packet = Packet::parse(bytes, |_| 0).unwrap();
        let taken = pair.b.handle_packet(pair.now, &packet, bytes.len(), memory);
        let damaged = memory.damaged.then_some(Err(DropReason::CorruptPayload));
        assert!(taken.is_ok() || Some(taken) == damaged, "{taken:?}");
        while let Some(event) = pair.b.poll_event() {
            if let Event::PutEnd(end) = event {
                memory.store(end.offset, end.len as usize);
            }
            events.push(event);
        }
    }
    events
}

/// A put granted by its target; returns the packets with its data.
fn granted(pair: &mut Pair) -> Vec<Flying> {
    assert!(pair.a.post_put(2, pair.to_b, (7, 64, LEN), 0));
    pair.step();
    let claim = |event: Event| match event {
        Event::PutAsked { claim, .. } => Some(claim),
        _ => None,
    };
    let found: Option<Claim> = std::iter::from_fn(|| pair.b.poll_event()).find_map(claim);
    assert!(pair
        .b
        .accept_put(found.expect("no place was asked for"), HANDLE));
    let asks = |e: Event| matches!(e, Event::RegistrationWanted { .. });
    assert!(!std::iter::from_fn(|| pair.b.poll_event()).any(asks));
    let grant = output(&mut pair.b, pair.now, false);
    take(&mut pair.a, pair.now, &grant);
    output(&mut pair.a, pair.now, false)
}

/// Delivers `b`'s acks to `a`, where the put ends.
fn over(pair: &mut Pair) {
    let acks = output(&mut pair.b, pair.now, false);
    take(&mut pair.a, pair.now, &acks);
    pair.settle();
    assert!(done(&mut pair.a, 2), "{}", pair.a.describe());
    assert_eq!([pair.a.held(), pair.b.held()], [Held::default(); 2]);
}

fn is_done(events: &[Event]) -> bool {
    events.iter().any(|e| matches!(e, Event::RecvDone { .. }))
}

#[test]
fn the_last_byte_of_a_put_is_stored_last_in_any_packet_order() {
    for rotated in [0, 1, 5] {
        let (mut pair, mut memory) = (Pair::new(2, false), Polled::new());
        let mut data = granted(&mut pair);
        data.rotate_right(rotated);
        let events = deliver(&mut pair, &data, &mut memory);
        assert!(is_done(&events) && !memory.early, "{rotated}");
        assert!(memory.stored.iter().all(|&n| n == 1), "{rotated}");
        let tail = (LEN % BLOCK_BYTES) as usize;
        assert_eq!(memory.held, if rotated > 0 { tail } else { 0 });
        over(&mut pair);
    }
}

#[test]
fn retransmissions_of_a_corrupted_put_are_stored_once() {
    let (mut pair, mut memory) = (Pair::new(2, false), Polled::new());
    let data = granted(&mut pair);
    memory.damaged = true;
    deliver(&mut pair, &data, &mut memory);
    assert!(memory.stored.iter().all(|&n| n == 0));
    memory.damaged = false;
    while !is_done(&repeat(&mut pair, &mut memory)) {}
    assert!(memory.stored.iter().all(|&n| n == 1) && !memory.early);
    over(&mut pair);
}

/// Advances time and delivers `a`'s packets to `b`; returns the events of `b`.
fn repeat(pair: &mut Pair, memory: &mut Polled) -> Vec<Event> {
    pair.now += 1_000_000;
    pair.a.on_poll(pair.now, false);
    pair.a.caught_up();
    pair.a.handle_timeouts(pair.now);
    let again = output(&mut pair.a, pair.now, false);
    let events = deliver(pair, &again, memory);
    let said = output(&mut pair.b, pair.now, false);
    take(&mut pair.a, pair.now, &said);
    events
}

/// Acks are lost, the rail fails, and its data is retransmitted on the other rail in shorter
/// packets: bytes already stored are not stored again.
#[test]
fn bytes_retransmitted_on_another_rail_are_not_stored_again() {
    let nodes = [1, 2].map(|host| {
        let mut rails = specs(host, 2, 1_472);
        (rails[0].datagram_max, rails[0].delivery) = (8_000, Delivery::DATAGRAMS);
        rails[0].addr.datagram_max = 8_000;
        node_of(Config::default(), host, rails)
    });
    let (mut pair, mut memory) = (Pair::of(nodes, false), Polled::new());
    pair.message(1, 300_000);
    pair.settle();
    let data = granted(&mut pair);
    let first: Vec<Flying> = data.iter().step_by(2).cloned().collect();
    deliver(&mut pair, &first, &mut memory);
    let _lost = output(&mut pair.b, pair.now, false);
    let there = memory.stored.iter().filter(|&&n| n == 1).count();
    assert!(there > 0 && there < LEN as usize, "{there}");
    pair.a.on_rail(pair.now, 0, false);
    while !is_done(&repeat(&mut pair, &mut memory)) {}
    assert!(memory.stored.iter().all(|&n| n == 1) && !memory.early);
}

/// Rails with writes past packets do not write into polled memory.
#[test]
fn polled_memory_is_not_registered_for_writes() {
    let nodes: [Node; 2] = [1, 2].map(|host| {
        let mut rails = specs(host, 1, 1_472);
        rails[0].addr.writes = RailWrites::Keyed;
        node_of(Config::default(), host, rails)
    });
    let (mut pair, mut memory) = (Pair::of(nodes, false), Polled::new());
    pair.message(1, 2_000);
    pair.settle();
    let data = granted(&mut pair);
    assert!(is_done(&deliver(&mut pair, &data, &mut memory)));
    over(&mut pair);
}
