//! Two nodes between which requests bring first pieces, and what becomes of the pieces.

use super::{done, output, Flying, Pair};
use marline_proto::{
    Config, DropReason, Event, Landing, Memory, Node, Payload, RecvSpec, Source, WriteCheck,
    WrittenSum,
};
use marline_wire::{Packet, BLOCK_BYTES};
use std::collections::{BTreeMap, BTreeSet};

pub const LEN: u64 = 128 << 10;
/// 44 packets with three blocks.
pub const FIRST: u64 = 44 * 3 * BLOCK_BYTES;
/// Grants in time before a first piece leaves.
pub const PROMPT: u32 = 8;

/// Blocks that landed, by receive and in bounce buffers.
#[derive(Default)]
pub struct Places {
    posted: BTreeMap<u32, BTreeSet<u64>>,
    /// By inbound message.
    pub bounced: BTreeMap<u64, BTreeSet<u64>>,
    /// Errors seen.
    pub wrong: Vec<&'static str>,
}

fn blocks_of(offset: u64, len: u64) -> impl Iterator<Item = u64> {
    offset / BLOCK_BYTES..(offset + len).div_ceil(BLOCK_BYTES)
}

impl Memory for Places {
    fn land(&mut self, landing: &Landing, payload: &Payload<'_>) -> bool {
        let len = payload.bytes.len() as u64;
        match *landing {
            Landing::Posted { handle, offset, .. } => {
                let to = self.posted.entry(handle).or_default();
                to.extend(blocks_of(offset, len));
            }
            Landing::Bounce {
                inbound,
                total,
                offset,
            } => {
                self.check(offset + len <= total, "beyond the bounce buffer");
                let to = self.bounced.entry(inbound).or_default();
                to.extend(blocks_of(offset, len));
            }
            Landing::Discard => {}
        }
        true
    }
    fn written(&mut self, _: &Landing, _: &WrittenSum) -> WriteCheck {
        WriteCheck::Right
    }
}

impl Places {
    fn check(&mut self, right: bool, otherwise: &'static str) {
        self.wrong.extend((!right).then_some(otherwise));
    }

    /// Handles the events of a node. Returns the handles of the receives that ended, each with the
    /// bytes that it got.
    pub fn follow(&mut self, node: &mut Node) -> Vec<(u32, u64)> {
        let mut ended = Vec::new();
        while let Some(event) = node.poll_event() {
            match event {
                Event::BounceCopy {
                    inbound,
                    handle,
                    from,
                    offset,
                    len,
                } => {
                    let buffer = self.bounced.get(&inbound).cloned().unwrap_or_default();
                    let there = blocks_of(from, len).all(|block| buffer.contains(&block));
                    self.check(there, "copies what has not come");
                    let to = self.posted.entry(handle).or_default();
                    to.extend(blocks_of(offset, len));
                }
                Event::BounceFree { inbound } => drop(self.bounced.remove(&inbound)),
                Event::RecvDone {
                    handle,
                    len,
                    bounce,
                    ..
                } => {
                    self.check(bounce.is_none(), "a long message ends in a bounce buffer");
                    let to = self.posted.remove(&handle).unwrap_or_default();
                    let there = blocks_of(0, len).all(|block| to.contains(&block));
                    self.check(there, "a receive ends before its message");
                    ended.push((handle, len));
                }
                _ => {}
            }
        }
        ended
    }
}

/// Two nodes of which the second granted the last requests of the first at once.
pub fn prompt() -> Pair {
    prompt_with(Config::default())
}

pub fn prompt_with(config: Config) -> Pair {
    let mut pair = Pair::with(config, 1, true);
    for handle in 0..PROMPT {
        pair.message(handle, LEN);
        pair.settle();
        assert!(done(&mut pair.a, handle));
    }
    while pair.b.poll_event().is_some() {}
    assert_eq!(pair.a.stats().first_pieces_sent, 0);
    pair
}

pub fn receive(pair: &mut Pair, handle: u32, capacity: u64) {
    let receive = RecvSpec {
        handle,
        source: Source::Any,
        tag: None,
        capacity,
        multi_min: None,
    };
    pair.b.post_recv(&receive, pair.now);
}

/// Runs both nodes over a network that loses the packets for which `passes` is false; returns the
/// receives that ended.
pub fn run_through(
    pair: &mut Pair,
    places: &mut Places,
    passes: &mut impl FnMut(usize, &Flying) -> bool,
) -> Vec<(u32, u64)> {
    let (mut ended, mut idle) = (Vec::new(), 0);
    while idle < 40 {
        let deadlines = [&pair.a, &pair.b].map(|node| node.next_deadline().unwrap_or(u64::MAX));
        let next = deadlines.into_iter().min().unwrap_or(0);
        pair.now = (pair.now + 20_000).max(next.min(pair.now + 1_000_000));
        let mut packets = 0;
        for from in [0, 1] {
            let (sender, taker) = match from {
                0 => (&mut pair.a, &mut pair.b),
                _ => (&mut pair.b, &mut pair.a),
            };
            sender.on_poll(pair.now, false);
            sender.handle_timeouts(pair.now);
            for packet in output(sender, pair.now, true) {
                packets += 1;
                if passes(from, &packet) {
                    let parsed = Packet::parse(&packet.1, |_| 0).unwrap();
                    let taken = taker.handle_packet(pair.now, &parsed, packet.1.len(), places);
                    assert!(matches!(taken, Ok(_) | Err(DropReason::Early)), "{taken:?}");
                }
            }
        }
        ended.extend(places.follow(&mut pair.b));
        idle = if packets == 0 { idle + 1 } else { 0 };
    }
    ended
}

pub fn run(pair: &mut Pair, places: &mut Places) -> Vec<(u32, u64)> {
    run_through(pair, places, &mut |_, _| true)
}
