//! Two nodes that are descheduled most of the time: each polls once and is descheduled again, while
//! arriving packets wait in its sockets. A poll that finds packets does not show that no more wait,
//! so elapsed time alone must not decide that a peer is late.

use crate::face;

use face::{output, Flying, Pair};
use marline_proto::{Config, Event, Node, PeerId, RecvSpec, SendSpec, Source};

const MS: u64 = 1_000_000;
const TIMEOUT_NS: u64 = 5_000 * MS;

/// SplitMix64.
struct Dice(u64);

impl Dice {
    fn below(&mut self, n: u64) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mixed = (self.0 ^ self.0 >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let mixed = (mixed ^ mixed >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
        (mixed ^ mixed >> 31) % n
    }
}

/// One of the two nodes, and the packets in its sockets.
struct Host {
    node: Node,
    peer: PeerId,
    back_at: u64,
    inbox: Vec<Flying>,
    /// The last message that it sent, and the last that ended.
    sent: u32,
    over: u32,
}

impl Host {
    /// Sends a message, for which the other node has a receive.
    fn send(&mut self, len: u64) {
        self.sent += 1;
        self.node.post_send(&SendSpec {
            handle: self.sent,
            peer: self.peer,
            tag: None,
            data: None,
            len,
            urgent_ack: true,
        });
    }

    fn receive(&mut self, handle: u32, len: u64, now: u64) {
        let receive = RecvSpec {
            handle: 1_000_000 + handle,
            source: Source::Peer(self.peer),
            tag: None,
            capacity: len,
            multi_min: None,
        };
        self.node.post_recv(&receive, now);
    }

    /// A poll; returns the packets it sends.
    fn poll(&mut self, now: u64) -> Vec<Flying> {
        let came = std::mem::take(&mut self.inbox);
        self.node.on_poll(now, false);
        if came.is_empty() {
            self.node.caught_up();
        }
        for packet in came {
            // A retransmitted packet may arrive twice.
            let parsed = marline_wire::Packet::parse(&packet.1, |_| 0).unwrap();
            let len = packet.1.len();
            _ = self
                .node
                .handle_packet(now, &parsed, len, &mut face::Anywhere);
        }
        self.node.handle_timeouts(now);
        output(&mut self.node, now, true)
    }

    fn events(&mut self) -> Result<(), String> {
        while let Some(event) = self.node.poll_event() {
            match event {
                Event::PeerDead { heard, .. } => return Err(format!("dead, heard: {heard}")),
                Event::SendDone { handle, .. } => self.over = self.over.max(handle),
                _ => {}
            }
        }
        Ok(())
    }
}

/// Sends messages each way for `run_ns`; from 10 ms on each rail carries one direction only.
/// Returns how many messages ended.
fn starve(
    seed: u64,
    rails: u8,
    away_ns: [(u64, u64); 2],
    len: u64,
    run_ns: u64,
) -> Result<u32, String> {
    let mut dice = Dice(seed);
    let config = Config {
        peer_timeout_ns: TIMEOUT_NS,
        ..Config::default()
    };
    let mut pair = Pair::with(config, rails, true);
    let start = pair.now;
    let to_a = pair.b.peer(&pair.a.address());
    let host = |node, peer| Host {
        node,
        peer,
        back_at: start,
        inbox: Vec::new(),
        sent: 10,
        over: 10,
    };
    while pair.a.poll_event().is_some() {}
    while pair.b.poll_event().is_some() {}
    let mut hosts = [host(pair.a, pair.to_b), host(pair.b, to_a)];
    let (mut now, cut) = (start, start + 10 * MS);
    while now < start + run_ns {
        let turn = usize::from(hosts[1].back_at < hosts[0].back_at);
        now = now.max(hosts[turn].back_at);
        if hosts[turn].over == hosts[turn].sent {
            hosts[turn].send(len);
            let handle = hosts[turn].sent;
            hosts[1 - turn].receive(handle, len, now);
        }
        let out = hosts[turn].poll(now);
        let carries = |packet: &&Flying| now < cut || packet.0 % 2 != turn;
        let carried: Vec<_> = out.iter().filter(carries).cloned().collect();
        hosts[1 - turn].inbox.extend(carried);
        for (at, host) in hosts.iter_mut().enumerate() {
            host.events().map_err(|what| {
                let ms = (now - start) / MS;
                format!(
                    "seed {seed}: {what} for {at} after {ms} ms\n{}",
                    host.node.describe()
                )
            })?;
        }
        // Before the network is cut no node is descheduled.
        let away = match now < cut {
            true => 20_000,
            false => away_ns[turn].0 + dice.below(away_ns[turn].1 - away_ns[turn].0),
        };
        hosts[turn].back_at = now + away;
    }
    Ok(hosts[0].over.min(hosts[1].over) - 10)
}

/// Histories with messages of several lengths.
fn histories(away_ns: [(u64, u64); 2], run_ns: u64, least: u32) {
    for len in [100, 20_000, 200_000] {
        for seed in 0..5 {
            let over = starve(seed, 2, away_ns, len, run_ns).unwrap();
            println!("{len} bytes, seed {seed}: {over} messages");
            assert!(over > least, "{len} bytes, seed {seed}: {over} messages");
        }
    }
}

#[test]
fn both_poll_once_in_20_to_300_ms() {
    histories([(20 * MS, 300 * MS); 2], 60_000 * MS, 3);
}

#[test]
fn both_poll_once_in_2_to_40_ms() {
    histories([(2 * MS, 40 * MS); 2], 20_000 * MS, 20);
}

#[test]
fn the_first_polls_once_in_20_to_300_ms() {
    histories([(20 * MS, 300 * MS), (MS / 10, 2 * MS)], 30_000 * MS, 3);
}

#[test]
fn the_second_polls_once_in_5_to_40_ms() {
    histories([(MS / 10, 2 * MS), (5 * MS, 40 * MS)], 20_000 * MS, 20);
}
