//! Connections of a job with a key, and those of ends with another version.

use super::*;
use crate::rail::KeyMismatch;
use crate::shm::handshake::HANDSHAKE_LEN;
use crate::shm::proof::{foreign_version, refusal_in, Prover, Step, PROOF_LEN, VERSION};
use crate::{DownReason, RailVersions};
use marline_auth::{ConnectionKeys, JobKey, JOB_KEY_LEN};
use std::time::{Duration, Instant};

fn secret(key: u8) -> Arc<ConnectionKeys> {
    Arc::new(ConnectionKeys::new(&JobKey::new([key; JOB_KEY_LEN])))
}

/// A rail of a job with this key, or none.
struct Side {
    shared: Arc<Shared>,
    tx: ShmTx,
    rx: ShmRx,
    got: Vec<Vec<u8>>,
    events: Vec<RailEvent>,
}

impl Side {
    fn new(key: Option<u8>) -> Side {
        let config = ShmConfig {
            keys: key.map(secret),
            ..ShmConfig::default()
        };
        let rail = ShmRail::open(&config).unwrap();
        Side {
            shared: rail.rx.shared(),
            tx: rail.tx,
            rx: rail.rx,
            got: Vec::new(),
            events: Vec::new(),
        }
    }

    fn poll(&mut self) {
        let got = &mut self.got;
        let mut sink = |received: crate::Received<'_>| got.push(received.bytes.to_vec());
        self.rx.recv_rest(&mut sink);
        self.rx.recv(&mut sink);
        while let Some(event) = self.tx.poll_event() {
            self.events.push(event);
        }
    }

    fn forged(&self) -> Vec<KeyMismatch> {
        let why = |event: &RailEvent| match event {
            RailEvent::Forged(None, why) => Some(*why),
            _ => None,
        };
        self.events.iter().filter_map(why).collect()
    }
}

/// Polls both ends until the condition holds; panics after ten seconds.
fn until(a: &mut Side, b: &mut Side, holds: impl Fn(&Side, &Side) -> bool) {
    let end = Instant::now() + Duration::from_secs(10);
    while !holds(a, b) {
        assert!(Instant::now() < end, "{:?} {:?}", a.events, b.events);
        a.poll();
        b.poll();
    }
}

#[test]
fn packets_go_both_ways() {
    let (mut a, mut b) = (Side::new(Some(1)), Side::new(Some(1)));
    let link = a.tx.connect(&b.tx.local_addr()).link;
    let up = RailEvent::LinkUp(link);
    until(&mut a, &mut b, |a, _| a.events.contains(&up));
    assert_eq!(a.tx.send(link, b"question", 8, 0), SendOutcome::Sent);
    until(&mut a, &mut b, |_, b| b.got == [b"question"]);
    let back = b.tx.connect(&a.tx.local_addr());
    assert!(back.up);
    assert_eq!(b.tx.send(back.link, b"answer", 6, 0), SendOutcome::Sent);
    until(&mut a, &mut b, |a, _| a.got == [b"answer"]);
    assert_eq!((a.forged(), b.forged()), (vec![], vec![]));
}

#[test]
fn both_ends_report_differing_keys() {
    use KeyMismatch::{KeyedThere, OtherKey, UnkeyedThere};
    let cases = [
        (Some(1), None, UnkeyedThere, KeyedThere),
        (None, Some(1), KeyedThere, UnkeyedThere),
        (Some(1), Some(2), OtherKey, OtherKey),
    ];
    for (key_of_a, key_of_b, at_a, at_b) in cases {
        let (mut a, mut b) = (Side::new(key_of_a), Side::new(key_of_b));
        let link = a.tx.connect(&b.tx.local_addr()).link;
        let down = RailEvent::LinkDown(link, DownReason::Broken(libc::EKEYREJECTED));
        until(&mut a, &mut b, |a, b| {
            a.events.contains(&down) && !b.forged().is_empty()
        });
        assert_eq!((a.forged(), b.forged()), (vec![at_a], vec![at_b]));
        assert!(!a.events.contains(&RailEvent::LinkUp(link)));
    }
}

/// The next message of `victim` to the other end of `socket`, and its descriptors.
fn next(victim: &mut Side, socket: &SeqPacket) -> (Vec<u8>, usize) {
    let end = Instant::now() + Duration::from_secs(10);
    loop {
        assert!(Instant::now() < end, "no message");
        victim.poll();
        let mut bytes = [0; 128];
        if let Ok(message) = socket.recv(&mut bytes) {
            return (bytes[..message.len].to_vec(), message.fds.len());
        }
    }
}

/// A process of this user without the key, or with recorded messages, gets no descriptor and has
/// none received.
#[test]
fn no_descriptor_passes_before_the_proof() {
    let mut b = Side::new(Some(1));
    let rail = ShmRail::open(&ShmConfig::default()).unwrap();
    let shared = rail.rx.shared();
    // A handshake with descriptors at once.
    let socket = SeqPacket::connect(b.shared.local.name).unwrap();
    let (_memory, file) = LinkMemory::create().unwrap();
    shared.send_handshake(&socket, 0, Some(file)).unwrap();
    assert_eq!(next(&mut b, &socket).1, 0, "the challenge");
    let (bytes, fds) = next(&mut b, &socket);
    assert_eq!(
        (refusal_in(&bytes), fds),
        (Some(KeyMismatch::KeyedThere), 0)
    );
    assert_eq!(b.forged(), [KeyMismatch::UnkeyedThere]);
    // Messages that were right on another connection.
    let (first, again) = (
        SeqPacket::connect(b.shared.local.name).unwrap(),
        SeqPacket::connect(b.shared.local.name).unwrap(),
    );
    let mut prover = Prover::new(b.shared.local, false).unwrap();
    let challenge = prover.challenge();
    first.send(&challenge, &[]).unwrap();
    let (theirs, _) = next(&mut b, &first);
    let Ok(Step::Send(proof)) = prover.hear(&secret(1), &theirs) else {
        panic!("no proof");
    };
    first.send(&proof, &[]).unwrap();
    let (answer, _) = next(&mut b, &first);
    assert!(matches!(
        prover.hear(&secret(1), &answer),
        Ok(Step::Proven(None))
    ));
    again.send(&challenge, &[]).unwrap();
    again.send(&proof, &[]).unwrap();
    next(&mut b, &again);
    let (bytes, _) = next(&mut b, &again);
    assert_eq!(refusal_in(&bytes), Some(KeyMismatch::OtherKey));
    assert_eq!(b.forged().len(), 2);
}

/// A listener that took the name of a peer and has not the key gets no memory.
#[test]
fn an_acceptor_without_the_key_gets_no_memory() {
    let mut a = Side::new(Some(1));
    let to = ShmAddr {
        name: !a.shared.local.name,
        ..a.shared.local
    };
    let listener = SeqPacket::listen(to.name).unwrap();
    let link = a.tx.connect(&to.rail()).link;
    let socket = listener.accept().unwrap();
    let mut prover = Prover::new(to, true).unwrap();
    socket.send(&prover.challenge(), &[]).unwrap();
    let (challenge, fds) = next(&mut a, &socket);
    assert_eq!(fds, 0);
    assert!(matches!(
        prover.hear(&secret(2), &challenge),
        Ok(Step::Wait)
    ));
    let (proof, fds) = next(&mut a, &socket);
    assert_eq!(fds, 0);
    assert!(prover.hear(&secret(2), &proof).is_err(), "of another key");
    // The proof sent back is none.
    socket.send(&proof, &[]).unwrap();
    let (end, fds) = next(&mut a, &socket);
    assert_eq!((end.len(), fds), (0, 0), "the end of the connection");
    a.poll();
    assert!(!a.events.contains(&RailEvent::LinkUp(link)));
}

#[test]
fn silent_strangers_are_bounded() {
    let (mut a, mut b) = (Side::new(Some(1)), Side::new(Some(1)));
    let silent: Vec<_> = (0..300)
        .map(|_| {
            let socket = SeqPacket::connect(b.shared.local.name).unwrap();
            b.poll();
            socket
        })
        .collect();
    assert!(b.shared.refused.load(Relaxed) >= 300 - 256);
    let link = a.tx.connect(&b.tx.local_addr()).link;
    let up = RailEvent::LinkUp(link);
    until(&mut a, &mut b, |a, _| a.events.contains(&up));
    drop(silent);
}

/// A version that no library speaks yet.
const OTHER: u8 = VERSION + 6;

/// First messages of the other version: of the proof, and the handshake, which may be longer.
fn foreign_messages() -> [Vec<u8>; 2] {
    let message = |kind: u8, len| {
        let mut message = vec![0; len];
        message[..4].copy_from_slice(&[OTHER, kind, 0x72, 0x6d]);
        message
    };
    [message(0x6b, PROOF_LEN), message(0x6c, HANDSHAKE_LEN + 40)]
}

fn names_both(side: &Side) -> bool {
    let versions = RailVersions {
        theirs: OTHER,
        ours: VERSION,
    };
    (side.events).contains(&RailEvent::OtherVersion(None, versions))
}

#[test]
fn a_connection_of_another_version_is_refused_by_name() {
    for key in [None, Some(1)] {
        for message in foreign_messages() {
            let mut b = Side::new(key);
            let socket = SeqPacket::connect(b.shared.local.name).unwrap();
            socket.send(&message, &[]).unwrap();
            if key.is_some() {
                next(&mut b, &socket); // the challenge
            }
            let (answer, fds) = next(&mut b, &socket);
            assert_eq!((&answer[..4], fds), (&[VERSION, 0x6b, 0x72, 0x6d][..], 0));
            while !names_both(&b) {
                b.poll();
            }
            assert_eq!(foreign_version(&answer), None, "its own version");
        }
    }
}

#[test]
fn a_link_to_an_end_of_another_version_ends_by_name() {
    for key in [None, Some(1)] {
        for message in foreign_messages() {
            let mut a = Side::new(key);
            let to = ShmAddr {
                name: !a.shared.local.name,
                ..a.shared.local
            };
            let listener = SeqPacket::listen(to.name).unwrap();
            let link = a.tx.connect(&to.rail()).link;
            let socket = listener.accept().unwrap();
            socket.send(&message, &[]).unwrap();
            let why = DownReason::Broken(libc::EPROTONOSUPPORT);
            let end = Instant::now() + Duration::from_secs(10);
            while !names_both(&a) || !a.events.contains(&RailEvent::LinkDown(link, why)) {
                assert!(Instant::now() < end, "{:?}", a.events);
                a.poll();
            }
        }
    }
}
