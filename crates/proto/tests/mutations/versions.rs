//! Two nodes with ranges of versions: they agree on the newest that both speak, skip what is newer,
//! and refuse each other by name where there is none or an address was altered on the way.

use crate::face;

use face::{node_with, output, Anywhere, Flying, Pair};
use marline_proto::{Config, DropReason, Event, Node, PeerId, RecvSpec, SendSpec, Source};
use marline_wire::{Address, Packet, Versions, VERSION};

const NEXT: u8 = VERSION + 1;
const OURS: Versions = Versions::OURS;
/// A library of the next version, which speaks this one, too.
const NEWER: Versions = Versions {
    oldest: VERSION,
    newest: NEXT,
};

fn speaking(versions: Versions, host: u8) -> Node {
    let config = Config {
        versions,
        ..Config::default()
    };
    node_with(config, host, 2)
}

/// Returns whether the message is on its way.
fn send(node: &mut Node, peer: PeerId) -> bool {
    node.post_send(&SendSpec {
        handle: 1,
        peer,
        tag: None,
        data: None,
        len: 10,
        urgent_ack: true,
    })
}

fn receive(node: &mut Node, peer: PeerId) {
    let spec = RecvSpec {
        handle: 2,
        source: Source::Peer(peer),
        tag: None,
        capacity: 100,
        multi_min: None,
    };
    node.post_recv(&spec, 1_000_000);
}

/// Delivers packets, with any result, as far as they can be read.
fn give(node: &mut Node, packets: &[Flying]) {
    for (_, bytes) in packets {
        if let Ok(packet) = Packet::parse(bytes, |_| 0) {
            let _ = node.handle_packet(1_000_000, &packet, bytes.len(), &mut Anywhere);
        }
    }
}

/// The versions that a node names (its own first), and the operations that failed.
fn told(node: &mut Node) -> (Vec<(Versions, Versions)>, Vec<u32>) {
    let (mut named, mut failed) = (Vec::new(), Vec::new());
    for event in std::iter::from_fn(|| node.poll_event()) {
        match event {
            Event::PeerVersions { ours, theirs, .. } => named.push((ours, theirs)),
            Event::SendDone { handle, ok: false } | Event::RecvFailed { handle } => {
                failed.push(handle);
            }
            Event::RecvDone { .. } => panic!("a message of a refused peer"),
            _ => {}
        }
    }
    (named, failed)
}

/// Both sides are refused, name both ranges and are silent afterwards.
fn both_name_both(a: (&mut Node, Versions, &[u32]), b: (&mut Node, Versions, &[u32])) {
    assert_eq!(told(a.0), (vec![(a.1, b.1)], a.2.to_vec()));
    assert_eq!(told(b.0), (vec![(b.1, a.1)], b.2.to_vec()));
    for node in [a.0, b.0] {
        assert!(output(node, 1_020_000, false).is_empty());
        node.handle_timeouts(60_000_000_000);
        assert!(output(node, 60_000_000_000, false).is_empty());
    }
}

#[test]
fn neighbours_agree_and_skip_what_is_newer() {
    let later = Versions {
        oldest: NEXT,
        newest: NEXT,
    };
    for (mine, theirs, agreed) in [
        (OURS, OURS, VERSION),
        (OURS, NEWER, VERSION),
        (NEWER, OURS, VERSION),
        (NEWER, NEWER, NEXT),
        (NEWER, later, NEXT),
    ] {
        let mut pair = Pair::of([speaking(mine, 1), speaking(theirs, 2)], false);
        for handle in 0..20 {
            pair.message(handle, if handle % 2 == 0 { 3_000 } else { 200_000 });
        }
        let mut versions = Vec::new();
        for _ in 0..2_000 {
            pair.step_where(&mut |_, (_, bytes)| {
                versions.push(bytes[4]);
                true
            });
        }
        assert!(pair.a.drained() && pair.b.drained(), "{mine} and {theirs}");
        assert!(versions.iter().all(|version| *version == agreed));
        let newer = |versions: Versions| versions.newest > VERSION;
        for (node, own, other) in [(&pair.a, mine, theirs), (&pair.b, theirs, mine)] {
            let stats = node.stats();
            let got = (stats.skipped > 0, stats.pretended > 0);
            let wanted = (newer(other) && !newer(own), newer(other) && newer(own));
            assert_eq!(got, wanted, "{own} with {other}");
            assert_eq!(stats.drop_version, 0);
        }
    }
}

/// The sender knows from the address that there is no common version: it ends at once, and its
/// refusal, which every version can read, tells the other side, whether it knows the sender or not.
#[test]
fn two_without_a_common_version_name_both() {
    let far = Versions::only(VERSION + 7);
    for theirs in [Versions::only(NEXT), far] {
        for known in [false, true] {
            let (mut a, mut b) = (speaking(OURS, 1), speaking(theirs, 2));
            let to_b = a.peer(&b.address());
            if known {
                let to_a = b.peer(&a.address());
                receive(&mut b, to_a);
            }
            assert!(!send(&mut a, to_b), "it fails at once");
            let mut refusal = output(&mut a, 1_000_000, false);
            refusal.truncate(1);
            assert_eq!(refusal.len(), 1, "it tells the other side");
            give(&mut b, &refusal);
            let failed: &[u32] = if known { &[2] } else { &[] };
            let mut rest = output(&mut a, 1_000_000, false);
            rest.extend(output(&mut b, 1_000_000, false));
            both_name_both((&mut a, OURS, &[]), (&mut b, theirs, failed));
        }
    }
}

/// Two nodes of the next version, of which one reads an address of the other that was altered on
/// the way so that it names this version only; after their first packets.
fn talked_down(config: Config, reader_is_altered: bool) -> (Node, Node) {
    let config = Config {
        versions: NEWER,
        ..config
    };
    let (mut a, mut b) = (node_with(config, 1, 2), node_with(config, 2, 2));
    let altered = |mut address: Address| {
        address.set_versions(OURS);
        address
    };
    let to_b = match reader_is_altered {
        true => a.peer(&b.address()),
        false => a.peer(&altered(b.address())),
    };
    let to_a = match reader_is_altered {
        true => b.peer(&altered(a.address())),
        false => b.peer(&a.address()),
    };
    receive(&mut b, to_a);
    assert!(send(&mut a, to_b));
    let request = output(&mut a, 1_000_000, false);
    give(&mut b, &request);
    let refusal = output(&mut b, 1_000_000, false);
    give(&mut a, &refusal);
    (a, b)
}

/// The peers would agree on an older version than they can; HELLO tells both.
#[test]
fn an_altered_address_talks_no_side_down() {
    for reader_is_altered in [false, true] {
        let (mut a, mut b) = talked_down(Config::default(), reader_is_altered);
        both_name_both((&mut a, NEWER, &[1]), (&mut b, NEWER, &[2]));
    }
}

#[cfg(feature = "mutation")]
#[test]
fn an_altered_address_that_is_believed_is_noticed() {
    let believing = Config {
        mutation: Some(marline_proto::Mutation::TalkedDown),
        ..Config::default()
    };
    let (mut a, mut b) = talked_down(believing, false);
    assert_eq!(told(&mut a), (vec![], vec![]), "no side is refused");
    let delivered = |event: Event| matches!(event, Event::RecvDone { .. });
    assert!(std::iter::from_fn(|| b.poll_event()).any(delivered));
}

/// After the handshake packets of another version than the agreed one change nothing.
#[test]
fn packets_of_another_version_are_dropped() {
    let mut pair = Pair::of([speaking(NEWER, 1), speaking(NEWER, 2)], false);
    pair.message(1, 2_000);
    pair.settle();
    pair.message(2, 2_000);
    let packets = pair.alone();
    assert!(!packets.is_empty());
    for (_, bytes) in &packets {
        let mut older = bytes.clone();
        older[4] = VERSION;
        let packet = Packet::parse(&older, |_| 0).unwrap();
        let taken = pair
            .b
            .handle_packet(pair.now, &packet, older.len(), &mut Anywhere);
        assert_eq!(taken, Err(DropReason::Version));
    }
    assert_eq!(pair.b.stats().drop_version, packets.len() as u64);
    face::take(&mut pair.b, pair.now, &packets);
    pair.settle();
    assert!(pair.a.drained());
}
