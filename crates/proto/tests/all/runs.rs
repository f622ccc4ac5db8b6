//! Long messages leave and arrive in runs of packets, with the same result as packet by packet.

use crate::face;

use face::{output, take, Flying, Pair};
use marline_proto::{Config, Event, Landing, Memory, Node, Payload};
use marline_wire::{Packet, FRAGMENT_HEAD_LEN};

/// A run of fragments has the same bytes as packets built one by one.
#[test]
fn a_run_of_fragments_equals_packets_made_one_by_one() {
    let sent = |runs: bool| {
        let mut pair = Pair::new(1, runs);
        pair.message(2, 300_000);
        let request = output(&mut pair.a, pair.now, runs);
        take(&mut pair.b, pair.now, &request);
        let grant = output(&mut pair.b, pair.now, runs);
        take(&mut pair.a, pair.now, &grant);
        output(&mut pair.a, pair.now, runs)
    };
    let (runs, single) = (sent(true), sent(false));
    assert!(runs.len() > 100);
    // Not `assert_eq`, which would print 300 kB.
    assert!(runs == single);
}

/// Memory that records its calls and rejects payloads that begin with [`BAD`].
#[derive(Default, Debug, PartialEq)]
struct Noted(Vec<(String, u64, usize)>);

const BAD: u8 = 0xbd;

impl Memory for Noted {
    fn land(&mut self, landing: &Landing, payload: &Payload<'_>) -> bool {
        let good = payload.bytes.first() != Some(&BAD);
        if good {
            let landing = format!("{landing:?}");
            self.0.push((landing, payload.seed, payload.bytes.len()));
        }
        good
    }
}

/// Takes a batch as the engine does; returns the number of packets taken in runs.
fn take_batch(
    node: &mut Node,
    now: u64,
    batch: &[u8],
    segment: usize,
    memory: &mut Noted,
    runs: bool,
) -> usize {
    let (mut rest, mut in_runs) = (batch, 0);
    while !rest.is_empty() {
        let (datagram, after) = rest.split_at(segment.min(rest.len()));
        rest = after;
        let Ok(packet) = Packet::parse(datagram, |_| 0) else {
            continue;
        };
        let taken = node.handle_packet(now, &packet, datagram.len(), memory);
        let more = match taken {
            Ok(peer) if runs => node.handle_run(now, peer, &packet, after, |_, _| true, memory),
            _ => 0,
        };
        in_runs += more;
        rest = &after[more * datagram.len()..];
    }
    in_runs
}

/// Changes packets as a network and a hostile memory do: a few lost, doubled, swapped, corrupted.
fn mistreat(packets: &mut Vec<Vec<u8>>, seed: u64) {
    let mut state = seed * 2 + 1;
    let mut draw = |below: usize| {
        state = state.wrapping_mul(0x5851_f42d_4c95_7f2d).wrapping_add(1);
        (state >> 33) as usize % below
    };
    for _ in 0..draw(8) {
        let (at, other) = (draw(packets.len()), draw(packets.len()));
        match draw(5) {
            0 => drop(packets.remove(at)),
            1 => packets.insert(at, packets[at].clone()),
            2 => packets.swap(at, other),
            3 => packets[at][FRAGMENT_HEAD_LEN] = BAD,
            // Another offset, another number, another flag: heads are not sealed here.
            _ => packets[at][4 + draw(FRAGMENT_HEAD_LEN - 12)] ^= 1 << draw(8),
        }
    }
}

/// The events and state of the receiver of a long message after these packets, and how many of them
/// were taken in runs.
fn received(seed: u64, reliable: bool, runs: bool) -> (String, usize) {
    let config = Config {
        reliable,
        ..Config::default()
    };
    let mut pair = Pair::with(config, 1, false);
    // Into a buffer that is long enough, or too short, or unexpected (then eager).
    match seed % 3 {
        0 => pair.message_into(2, 300_000, 300_000),
        1 => pair.message_into(2, 300_000, 100_000),
        _ => pair.send(2, 60_000),
    }
    let mut data = output(&mut pair.a, pair.now, false);
    if data.len() == 1 {
        take(&mut pair.b, pair.now, &data);
        let grant = output(&mut pair.b, pair.now, false);
        take(&mut pair.a, pair.now, &grant);
        data = output(&mut pair.a, pair.now, false);
    }
    let segment = data[0].1.len();
    let mut packets: Vec<_> = data.into_iter().map(|p| p.1).collect();
    packets.retain(|p| p.len() == segment);
    mistreat(&mut packets, seed);
    let (mut memory, mut in_runs) = (Noted::default(), 0);
    let mut said = Vec::new();
    for batch in packets.chunks(40) {
        pair.now += 1_000;
        let bytes = batch.concat();
        in_runs += take_batch(&mut pair.b, pair.now, &bytes, segment, &mut memory, runs);
        said.push(output(&mut pair.b, pair.now, false));
        said.last_mut().unwrap().retain(|p| !p.1.is_empty());
    }
    let mut state = format!("{memory:?} {said:?} {}", pair.b.describe());
    pair.b.for_each_peer(|_, _, stats, paths| {
        state += &format!("{stats:?}");
        for (_, _, _, stats) in paths {
            state += &format!("{stats:?}");
        }
    });
    (state, in_runs)
}

/// A run of fragments has the same effect as its packets one by one, whatever happened to them on
/// the way; without reliability too, which was slower than with it when it had no runs.
#[test]
fn a_run_is_taken_like_its_packets() {
    for reliable in [true, false] {
        let mut in_runs = 0;
        for seed in 0..300 {
            let (run, more) = received(seed, reliable, true);
            let (single, _) = received(seed, reliable, false);
            assert!(run == single, "seed {seed}:\n{run}\n{single}");
            in_runs += more;
        }
        assert!(in_runs > 20_000, "only {in_runs} in runs");
    }
}

/// Lengths of the packets of each batch that a node sends now, made as the engine makes them: until
/// a packet is shorter.
fn batches(node: &mut Node, now: u64, bytes: &mut Vec<Flying>) -> Vec<Vec<usize>> {
    let (mut out, mut spans, mut all) = (vec![0; 64_000], Vec::new(), Vec::new());
    while let Some(first) = node.poll_transmit(now, &mut out, &mut spans, None) {
        let mut batch = vec![first.len];
        bytes.push((first.rail, out[..first.len].to_vec()));
        let mut more = first.batch.bulk;
        while more && batch.len() < 40 {
            let room = &mut out[..first.len];
            let Some(next) = node.poll_transmit(now, room, &mut spans, Some(&first.batch)) else {
                break;
            };
            batch.push(next.len);
            bytes.push((next.rail, out[..next.len].to_vec()));
            more = next.len == first.len;
        }
        all.push(batch);
    }
    all
}

/// Regression, found by counting send calls of 64 KiB messages: 2.4 per message, most of them
/// short, because a message's last packet ended the batch or made the next message's packets as
/// short as itself.
#[test]
fn batches_continue_across_messages() {
    let mut pair = Pair::new(1, false);
    const MESSAGES: u32 = 8;
    for handle in 2..2 + MESSAGES {
        pair.message(handle, 65_536);
    }
    let (mut seen, mut round) = (Vec::new(), 0);
    let mut finished = 0;
    while finished < MESSAGES {
        pair.now += 20_000;
        pair.a.handle_timeouts(pair.now);
        let mut bytes = Vec::new();
        let bulk = batches(&mut pair.a, pair.now, &mut bytes);
        seen.extend(bulk.into_iter().filter(|b| b.len() > 1));
        take(&mut pair.b, pair.now, &bytes);
        let back = output(&mut pair.b, pair.now, false);
        take(&mut pair.a, pair.now, &back);
        while let Some(event) = pair.b.poll_event() {
            finished += matches!(event, Event::RecvDone { len: 65_536, .. }) as u32;
        }
        round += 1;
        assert!(round < 100, "stuck");
    }
    let packets: usize = seen.iter().map(Vec::len).sum();
    let short = seen.iter().filter(|b| b.len() < 40).count();
    assert!(short <= 3, "{short} of {} batches are short", seen.len());
    let full = *seen.iter().flatten().max().expect("nothing was sent");
    let others = seen.iter().flatten().filter(|&&len| len != full).count();
    assert!(others <= 3, "{others} of {packets} packets are not full");
}

/// Without acks no size probe is answered. Regression: while native mode waited for an answer, its
/// packets stayed at the minimum size, and a long message took half as long again.
#[test]
fn native_packets_are_as_long_as_others() {
    let longest = [true, false].map(|reliable| {
        let config = Config {
            reliable,
            ..Config::default()
        };
        let mut pair = Pair::with(config, 2, false);
        pair.message(2, 300_000);
        let mut lengths = Vec::new();
        for _ in 0..100 {
            let sent = pair.alone();
            lengths.extend(sent.iter().map(|p| p.1.len()));
            pair.answer(&sent, 0);
        }
        assert!(lengths.iter().sum::<usize>() > 300_000);
        lengths.into_iter().max()
    });
    assert_eq!(longest[0], longest[1]);
}
