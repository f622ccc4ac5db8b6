//! Piggybacked acks: two nodes answer each other with messages of all lengths; counts the batches,
//! which are one system call each.

use crate::face;

use face::{done, Pair};
use marline_proto::{Config, Node, PeerId, RecvSpec, SendSpec, Source};
use marline_wire::{Packet, PACKET_MAX};

/// Packets of a batch at most, as many as the kernel segments at once.
const SEGMENTS_MAX: usize = 64;

/// All packets that a node has to send now, in batches as the engine makes them.
fn batches(node: &mut Node, now: u64) -> Vec<Vec<Vec<u8>>> {
    let (mut out, mut spans, mut all) = (vec![0; PACKET_MAX], Vec::new(), Vec::new());
    while let Some(first) = node.poll_transmit(now, &mut out, &mut spans, None) {
        let mut batch = vec![out[..first.len].to_vec()];
        let most = SEGMENTS_MAX.min(PACKET_MAX / first.len);
        let mut whole = first.batch.bulk;
        while whole && batch.len() < most {
            let next = node.poll_transmit(now, &mut out, &mut spans, Some(&first.batch));
            let Some(next) = next else { break };
            whole = next.len == first.len;
            batch.push(out[..next.len].to_vec());
        }
        all.push(batch);
    }
    all
}

fn post(node: &mut Node, now: u64, peer: PeerId, (handle, len): (u32, u64)) {
    node.post_send(&SendSpec {
        handle,
        peer,
        tag: None,
        data: None,
        len,
        urgent_ack: false,
    });
    let receive = RecvSpec {
        handle: handle + 1,
        source: Source::Any,
        tag: None,
        capacity: len,
        multi_min: None,
    };
    node.post_recv(&receive, now);
}

/// An answer leaves in the least number of batches for its bytes, with the acks of the message that
/// it answers. (Regression: a packet of 72 bytes with the acks alone left before each message
/// longer than one packet, with a system call of its own at both ends.)
#[test]
fn an_answer_of_any_length_takes_the_acks_along() {
    answers(1, 5_000);
}

/// The same with acks that are due.
#[test]
fn an_answer_takes_acks_along_that_are_due() {
    answers(1, 30_000);
}

/// The same over two rails. (Regression: an answer on the rail expected to finish first left the
/// acks of the other rail behind; and acks due on a rail other than that of short messages left
/// alone.)
#[test]
fn an_answer_over_two_rails_takes_the_acks_along() {
    answers(2, 5_000);
    answers(2, 30_000);
}

fn answers(rails: u8, pause_ns: u64) {
    let mut pair = Pair::with(Config::default(), rails, false);
    let to_a = pair.b.peer(&pair.a.address());
    let lengths = [
        8, 1_000, 1_380, 1_400, 2_048, 2_688, 4_096, 5_376, 16_384, 32_768, 60_000, 65_536,
    ];
    // Both sides probe the packet sizes.
    post(&mut pair.a, pair.now, pair.to_b, (4, 2_048));
    post(&mut pair.b, pair.now, to_a, (6, 2_048));
    pair.settle();
    let (mut handle, mut alone) = (10, 0);
    // One rail has carried short messages for long, so that its measured rate is low.
    let short = std::iter::repeat_n(8, 1_000);
    for len in short.chain(lengths.into_iter().flat_map(|len| [len; 4])) {
        for side in 0..2 {
            let now = pair.now;
            let (from, peer, to) = match side {
                0 => (&mut pair.a, pair.to_b, &mut pair.b),
                _ => (&mut pair.b, to_a, &mut pair.a),
            };
            post(from, now, peer, (handle, len));
            handle += 2;
            let sent = batches(from, now);
            // Rounding to blocks leaves a little of each packet unused.
            let needed = (len as usize).div_ceil(PACKET_MAX - 6_000);
            // A probe of an idle path's round trip, and its answer, are packets of their own.
            let extra = sent.len() - needed;
            let seldom = extra < rails as usize;
            assert!(seldom, "{len} bytes, {rails} rails, {pause_ns} ns: {extra}");
            alone += extra;
            for packet in sent.iter().flatten() {
                let packet_len = packet.len();
                let packet = Packet::parse(packet, |_| 0).unwrap();
                to.on_poll(now, false);
                to.handle_packet(now, &packet, packet_len, &mut face::Anywhere)
                    .unwrap();
            }
            pair.now += pause_ns;
        }
    }
    pair.settle();
    assert!(100 * alone < handle as usize / 2, "{alone} packets alone");
    assert!(done(&mut pair.a, handle - 4));
}
