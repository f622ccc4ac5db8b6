//! Two nodes whose settings differ where they must be equal: each refuses the other at first
//! contact, and every operation that names the other ends.

use crate::face;

use face::{node_with, output, Anywhere, Flying};
use marline_proto::{Config, DropReason, Event, Node, PeerId, RecvSpec, SendSpec, Source};
use marline_wire::Packet;

fn with(reliable: bool, host: u8) -> Node {
    let config = Config {
        reliable,
        ..Config::default()
    };
    node_with(config, host, 2)
}

fn send(node: &mut Node, peer: PeerId, len: u64) {
    node.post_send(&SendSpec {
        handle: 1,
        peer,
        tag: None,
        data: None,
        len,
        urgent_ack: true,
    });
}

fn receive(node: &mut Node, peer: PeerId, now: u64) {
    let spec = RecvSpec {
        handle: 2,
        source: Source::Peer(peer),
        tag: None,
        capacity: 100,
        multi_min: None,
    };
    node.post_recv(&spec, now);
}

/// Delivers packets, with any result.
fn give(node: &mut Node, now: u64, packets: &[Flying]) {
    for (_, bytes) in packets {
        let packet = Packet::parse(bytes, |_| 0).unwrap();
        let _ = node.handle_packet(now, &packet, bytes.len(), &mut Anywhere);
    }
}

/// The events of a node: its own setting where it refused a peer, and operations that failed.
fn told(node: &mut Node) -> (Vec<bool>, Vec<u32>) {
    let (mut refused, mut failed) = (Vec::new(), Vec::new());
    for event in std::iter::from_fn(|| node.poll_event()) {
        match event {
            Event::PeerMismatch { reliable, .. } => refused.push(reliable),
            Event::SendDone { handle, ok: false } | Event::RecvFailed { handle } => {
                failed.push(handle);
            }
            _ => {}
        }
    }
    (refused, failed)
}

/// A node sends, the other only receives: one packet and its answer refuse both.
fn both_sides_are_told(sender_is_reliable: bool, len: u64) {
    let mut a = with(sender_is_reliable, 1);
    let mut b = with(!sender_is_reliable, 2);
    let (to_b, to_a) = (a.peer(&b.address()), b.peer(&a.address()));
    receive(&mut b, to_a, 1_000_000);
    send(&mut a, to_b, len);
    let request = output(&mut a, 1_000_000, false);
    let native_is_done = !sender_is_reliable && len < 1_000;
    let (refused, failed) = told(&mut a);
    assert!(
        refused.is_empty() && failed.is_empty(),
        "nothing is known yet"
    );
    give(&mut b, 1_000_000, &request);
    assert_eq!(told(&mut b), (vec![!sender_is_reliable], vec![2]));
    let refusal = output(&mut b, 1_000_000, false);
    give(&mut a, 1_010_000, &refusal);
    let failed = if native_is_done { vec![] } else { vec![1] };
    assert_eq!(told(&mut a), (vec![sender_is_reliable], failed));
    // Afterwards both are silent.
    for node in [&mut a, &mut b] {
        assert!(output(node, 1_020_000, false).is_empty());
        node.handle_timeouts(60_000_000_000);
        assert!(output(node, 60_000_000_000, false).is_empty());
    }
    send(&mut a, to_b, len);
    assert!(output(&mut a, 60_000_000_000, false).is_empty());
}

#[test]
fn a_peer_without_reliability_is_refused() {
    both_sides_are_told(true, 10);
    both_sides_are_told(true, 1 << 20);
}

#[test]
fn a_peer_with_reliability_is_refused() {
    both_sides_are_told(false, 10);
    both_sides_are_told(false, 1 << 20);
}

/// The answers are lost: each retransmission is answered again.
#[test]
fn a_lost_refusal_is_repeated() {
    let (mut a, mut b) = (with(true, 1), with(false, 2));
    let to_b = a.peer(&b.address());
    send(&mut a, to_b, 10);
    let mut now = 1_000_000;
    for _ in 0..5 {
        let request = output(&mut a, now, false);
        assert!(!request.is_empty(), "it repairs");
        give(&mut b, now, &request);
        assert!(!output(&mut b, now, false).is_empty(), "it is answered");
        now += 20_000_000;
        a.handle_timeouts(now);
    }
    let request = output(&mut a, now, false);
    give(&mut b, now, &request);
    let refusal = output(&mut b, now, false);
    give(&mut a, now, &refusal);
    assert_eq!(told(&mut a), (vec![true], vec![1]));
    assert_eq!(told(&mut b).0, [false], "once");
}

/// Each packet of a peer with other settings is refused but reported only once: a flood of packets
/// must not flood a log. Refusals are not answered.
#[test]
fn a_peer_with_other_settings_is_named_once() {
    let (mut a, mut b) = (with(true, 1), with(false, 2));
    let to_b = a.peer(&b.address());
    send(&mut a, to_b, 10);
    let packets = output(&mut a, 1_000_000, false);
    for count in 0..50 {
        for (_, bytes) in &packets {
            let packet = Packet::parse(bytes, |_| 0).unwrap();
            let result = b.handle_packet(1_000_000, &packet, bytes.len(), &mut Anywhere);
            let reasons = [DropReason::Invalid, DropReason::Gone];
            assert_eq!(result, Err(reasons[(count > 0) as usize]));
        }
    }
    assert_eq!(told(&mut b).0.len(), 1);
    assert!(
        output(&mut b, 1_000_000, false).len() <= 6,
        "no flood of answers"
    );
}
