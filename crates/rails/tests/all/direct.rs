//! Direct writes: the kernel places bytes into registered memory.

use crate::common;

use common::{open, open_default, receive, SendTo};
use marline_auth::{DirectKey, JobKey, JOB_KEY_LEN};
use marline_rails::{
    DirectWrite, Links, Piece, RailRx, RailTx, Received, RemoteWrite, RemoteWrites, SendOutcome,
    UdpConfig, UdpRx, UdpTx, Write,
};
use marline_wire::RailAddr;
use std::sync::Arc;

const V4: &str = "127.0.0.1";
const V6: &str = "::1";
const SEGMENT: usize = 1_472;
const LEN: usize = 63_000;

/// A sender, and a receiver whose kernel is known to deliver super-packets whole.
fn pair(net: &str) -> (UdpTx, RailAddr, UdpTx, UdpRx) {
    pair_with(net, [None, None])
}

/// The same in jobs with keys of these bytes.
fn pair_with(net: &str, keys: [Option<u8>; 2]) -> (UdpTx, RailAddr, UdpTx, UdpRx) {
    let [ours, theirs] = keys.map(|key| UdpConfig {
        direct_key: key.map(|key| Arc::new(DirectKey::new(&JobKey::new([key; JOB_KEY_LEN])))),
        ..UdpConfig::default()
    });
    let (mut tx, _) = open(net, &ours);
    let (peer, mut rx) = open(net, &theirs);
    let to = peer.local_addr();
    assert_eq!(
        (tx.caps().remote_write, peer.caps().remote_write),
        (RemoteWrites::Direct, RemoteWrites::Direct)
    );
    for _ in 0..20 {
        assert_eq!(tx.send_to(&to, &[7; 60_000], 1_000, 0), SendOutcome::Sent);
        receive(&mut rx, 60);
    }
    (tx, to, peer, rx)
}

fn filled(len: usize) -> Vec<u8> {
    (0..len).map(|i| (i / 7) as u8).collect()
}

/// Writes `bytes` as two pieces at `offset`, behind a packet.
fn write(tx: &mut UdpTx, to: &RailAddr, (key, offset): (u64, u64), bytes: &[u8], packet: &[u8]) {
    let (a, b) = bytes.split_at(bytes.len() / 3);
    let pieces = [a, b].map(|part| Piece {
        base: part.as_ptr(),
        len: part.len(),
    });
    let write = Write {
        key,
        offset,
        pieces: &pieces,
        token: 0,
        source: None,
    };
    let link = tx.connect(to).link;
    let sent = tx.write_direct(link, &write, packet, SEGMENT, 0);
    assert_eq!(sent, SendOutcome::Sent);
}

/// Receives until `count` datagrams or writes arrived: packets, and bytes that landed.
fn take(rx: &mut UdpRx, count: usize) -> (Vec<Vec<u8>>, usize) {
    let (mut packets, mut beside, mut came) = (Vec::new(), 0, 0);
    let start = std::time::Instant::now();
    while came < count {
        came += rx.recv(&mut |received: Received<'_>| {
            beside += received.beside;
            if !received.bytes.is_empty() {
                packets.push(received.bytes.to_vec());
            }
        });
        assert!(start.elapsed().as_secs() < 20, "{came} of {count} came");
    }
    (packets, beside)
}

#[test]
fn bytes_land_in_registered_memory_and_packets_are_handed_over() {
    for net in [V4, V6] {
        let (mut tx, to, mut peer, mut rx) = pair(net);
        let (bytes, mut memory) = (filled(2 * LEN), vec![0u8; 2 * LEN + 10]);
        let key = peer.register(memory[5..].as_mut_ptr(), 2 * LEN).unwrap();
        write(&mut tx, &to, (key, 0), &bytes[..LEN], b"");
        assert_eq!(tx.send_to(&to, b"between", 7, 0), SendOutcome::Sent);
        write(&mut tx, &to, (key, LEN as u64), &bytes[LEN..], b"told");
        let (packets, beside) = take(&mut rx, 3);
        assert_eq!(packets, [&b"between"[..], b"told"]);
        assert_eq!(beside, 2 * LEN);
        assert!(peer.landed(key, 0, 2 * LEN as u64));
        peer.deregister(key);
        assert!(memory[5..2 * LEN + 5] == bytes && memory[..5] == [0; 5]);
        assert_eq!(memory[2 * LEN + 5..], [0; 5]);
    }
}

/// A duplicate, a write beyond the end, under another key, over sealed bytes, and after
/// deregistration: no byte lands, but the packet arrives.
#[test]
fn what_has_no_place_does_not_land() {
    let (mut tx, to, mut peer, mut rx) = pair(V4);
    let (bytes, mut memory) = (filled(LEN), vec![0u8; LEN]);
    let key = peer.register(memory.as_mut_ptr(), LEN).unwrap();
    // Another registration, so that the receiver continues to look for direct writes.
    let mut other = vec![0u8; 64];
    let other_key = peer.register(other.as_mut_ptr(), 64).unwrap();
    peer.seal(key, 0, 500);
    let half = LEN as u64 / 2;
    write(&mut tx, &to, (key, half), &bytes[..LEN / 2], b"first");
    assert_eq!(take(&mut rx, 1), (vec![b"first".to_vec()], LEN / 2));
    let right = memory.clone();
    let wrong = vec![9u8; LEN / 2];
    for (key, offset) in [(key, half), (key, half + 1), (key, 499), (key + 1, 1_000)] {
        write(&mut tx, &to, (key, offset), &wrong, b"late");
        let (packets, beside) = take(&mut rx, 1);
        assert_eq!((packets, beside), (vec![b"late".to_vec()], 0));
    }
    peer.deregister(key);
    write(&mut tx, &to, (key, 1_000), &wrong[..2_000], b"ended");
    assert_eq!(take(&mut rx, 1), (vec![b"ended".to_vec()], 0));
    peer.deregister(other_key);
    // The receiver no longer looks for direct writes.
    write(&mut tx, &to, (key, 1_000), &wrong[..2_000], b"nobody looks");
    assert_eq!(take(&mut rx, 1), (vec![b"nobody looks".to_vec()], 0));
    assert!(memory == right && other == [0; 64]);
}

/// Small packets that wait together are received many per call, unless one after the first might be
/// a direct write.
#[test]
fn a_direct_write_among_small_packets_lands() {
    let (mut tx, to, mut peer, mut rx) = pair(V4);
    let (bytes, mut memory) = (filled(LEN), vec![0u8; LEN]);
    let key = peer.register(memory.as_mut_ptr(), LEN).unwrap();
    let small = |tx: &mut UdpTx, count| {
        for _ in 0..count {
            assert_eq!(tx.send_to(&to, b"small", 5, 0), SendOutcome::Sent);
        }
    };
    small(&mut tx, 30);
    write(&mut tx, &to, (key, 0), &bytes, b"");
    small(&mut tx, 30);
    let (packets, beside) = take(&mut rx, 61);
    assert_eq!((packets.len(), beside), (60, LEN));
    assert!(memory == bytes);
}

/// Heads that a process of another job, or one without a key, makes for a right key of memory.
#[test]
fn only_writes_with_the_tag_of_the_job_land() {
    let (bytes, mut memory) = (filled(LEN), vec![0u8; LEN]);
    for (ours, lands) in [(Some(1), true), (Some(2), false), (None, false)] {
        let (mut tx, to, mut peer, mut rx) = pair_with(V4, [ours, Some(1)]);
        memory.fill(0);
        let key = peer.register(memory.as_mut_ptr(), LEN).unwrap();
        write(&mut tx, &to, (key, 0), &bytes, b"told");
        assert_eq!(tx.send_to(&to, b"after", 5, 0), SendOutcome::Sent);
        let (mut packets, mut beside) = (Vec::new(), 0);
        while packets.last().is_none_or(|last| last != b"after") {
            let (more, landed) = take(&mut rx, 1);
            packets.extend(more);
            beside += landed;
        }
        assert_eq!(peer.landed(key, 0, LEN as u64), lands, "{ours:?}");
        assert_eq!((memory == bytes, beside == LEN), (lands, lands), "{ours:?}");
        assert_eq!(packets[0] == b"told", lands, "{ours:?}");
        peer.deregister(key);
    }
}

#[test]
fn memory_is_registered_only_where_super_packets_come_whole() {
    let mut memory = vec![0u8; LEN];
    let (mut peer, _rx) = open_default(V4);
    assert_eq!(
        peer.register(memory.as_mut_ptr(), LEN),
        None,
        "nothing is known"
    );
    let off = UdpConfig {
        gro: false,
        ..UdpConfig::default()
    };
    let (peer, _rx) = open(V4, &off);
    assert_eq!(peer.caps().remote_write, RemoteWrites::None);
    let (mut tx, to, mut peer, mut rx) = pair(V4);
    for _ in 0..1_500 {
        assert_eq!(
            tx.send_to(&to, &[1; SEGMENT], SEGMENT, 0),
            SendOutcome::Sent
        );
        receive(&mut rx, 1);
    }
    assert_eq!(peer.register(memory.as_mut_ptr(), LEN), None, "one by one");
}

/// A truncated datagram with the head of a direct write.
#[test]
fn truncated_writes_count_as_lost() {
    let (mut tx, to, mut peer, mut rx) = pair(V4);
    let mut memory = vec![0u8; LEN];
    let key = peer.register(memory.as_mut_ptr(), LEN).unwrap();
    let head = marline_wire::DirectHead {
        key,
        offset: 0,
        len: LEN as u32,
        packet_len: 4,
        spare: 0,
    };
    let torn = [&head.write()[..], b"told", &[0; 28], &[3; 1_000]].concat();
    assert_eq!(tx.send_to(&to, &torn, torn.len(), 0), SendOutcome::Sent);
    assert_eq!(take(&mut rx, 1), (vec![b"told".to_vec()], 0));
    assert!(!peer.landed(key, 0, LEN as u64));
    assert_eq!(
        peer.register(memory.as_mut_ptr(), LEN),
        None,
        "no trust any more"
    );
    peer.deregister(key);
}
