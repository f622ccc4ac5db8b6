//! Connections of a job with a key.

use super::*;
use crate::rail::KeyMismatch;
use crate::tcp::broken::Break;
use crate::tcp::frame::HEAD_LEN;
use crate::tcp::proof::Ours;
use crate::tcp::shared::Notification;
use marline_auth::{Challenge, ConnectionKeys, FrameKey, JobKey, CHALLENGE_LEN, JOB_KEY_LEN};
use std::io::{ErrorKind, Read as _};
use std::net::TcpListener;

fn keyed(key: u8, connections_max: usize) -> Rail {
    let job = JobKey::new([key; JOB_KEY_LEN]);
    let config = TcpConfig {
        connections_max,
        keys: Some(Arc::new(ConnectionKeys::new(&job))),
        ..TcpConfig::default()
    };
    rail_with(IpAddr::V4(Ipv4Addr::LOCALHOST), &config)
}

impl Rail {
    fn forged(&self) -> Vec<KeyMismatch> {
        let why = |event: &RailEvent| match event {
            RailEvent::Forged(_, why) => Some(*why),
            _ => None,
        };
        self.events.iter().filter_map(why).collect()
    }
}

#[test]
fn packets_go_both_ways() {
    let (mut a, mut b) = (keyed(1, 0), keyed(1, 0));
    let (link, back) = linked_both_ways(&mut a, &mut b);
    for number in 0..100u8 {
        assert_eq!(a.links.send(link, &[number], 1), Sent::Taken);
        assert_eq!(b.links.send(back, &[number], 1), Sent::Taken);
    }
    until(&mut a, &mut b, "all packets", |a, b| {
        a.got.len() == 100 && b.got.len() == 100
    });
    assert_eq!((a.forged(), b.forged()), (vec![], vec![]));
}

/// Both ends of each pair report the difference, by name, and nothing else arrives.
#[test]
fn both_ends_report_differing_keys() {
    use KeyMismatch::{KeyedThere, OtherKey, UnkeyedThere};
    let cases = [
        (keyed(1, 0), rail(), UnkeyedThere, KeyedThere),
        (rail(), keyed(1, 0), KeyedThere, UnkeyedThere),
        (keyed(1, 0), keyed(2, 0), OtherKey, OtherKey),
    ];
    for (mut a, mut b, at_a, at_b) in cases {
        let (link, up) = a.connect(&b);
        assert!(!up);
        let mut sent = false;
        let end = Instant::now() + Duration::from_secs(10);
        while a.forged().is_empty() || b.forged().is_empty() || !a.is_down(link) {
            assert!(Instant::now() < end, "{:?} {:?}", a.events, b.events);
            a.poll();
            b.poll();
            if a.is_up(link) && !sent {
                sent = true; // without a key it is up before the other end has said anything
                let _ = a.links.send(link, b"forged", 6);
            }
        }
        assert_eq!((a.forged(), b.forged()), (vec![at_a], vec![at_b]));
        assert!(a.got.is_empty() && b.got.is_empty());
        let broken = DownReason::Broken(libc::EKEYREJECTED);
        assert!(a.events.contains(&RailEvent::LinkDown(link, broken)));
    }
}

/// A connection to a rail, byte by byte: `read` returns frames as they come.
struct Wire(TcpStream);

impl Wire {
    fn to(rail: &mut Rail) -> Wire {
        let to = rail.shared.local();
        let wire = TcpStream::connect((to.ip, to.port)).expect("a connection");
        wire.set_nonblocking(true).expect("a socket");
        Wire(wire)
    }

    /// The next `len` bytes; `None` at the end of the connection.
    fn read(&mut self, rail: &mut Rail, len: usize) -> Option<Vec<u8>> {
        let end = Instant::now() + Duration::from_secs(10);
        let mut bytes = Vec::new();
        while bytes.len() < len {
            assert!(Instant::now() < end, "no bytes come");
            rail.poll();
            let mut more = vec![0; len - bytes.len()];
            match self.0.read(&mut more) {
                Ok(0) => return None,
                Ok(got) => bytes.extend_from_slice(&more[..got]),
                Err(e) if e.kind() == ErrorKind::WouldBlock => {}
                Err(_) => return None,
            }
        }
        Some(bytes)
    }
}

fn challenge_frame(challenge: &Challenge) -> Vec<u8> {
    let head = Head {
        kind: Kind::Challenge,
        len: CHALLENGE_LEN,
        segment: 0,
    };
    [&head.write()[..], challenge].concat()
}

fn sealed(key: &mut FrameKey, kind: Kind, body: &[u8]) -> Vec<u8> {
    let head = Head {
        kind,
        len: body.len(),
        segment: if kind == Kind::Packets { body.len() } else { 0 },
    };
    let head = head.seal(key, &body[..head.covered()]);
    key.advance();
    [&head[..], body].concat()
}

/// A connection to `rail` by a program that has the key `job`, proven; and the key of its frames.
fn proven(rail: &mut Rail, job: u8, far: TcpAddr) -> (Wire, FrameKey) {
    let secret = ConnectionKeys::new(&JobKey::new([job; JOB_KEY_LEN]));
    let mut wire = Wire::to(rail);
    let theirs = wire
        .read(rail, HEAD_LEN + CHALLENGE_LEN)
        .expect("a challenge");
    let theirs = theirs[HEAD_LEN..].try_into().unwrap();
    let mut ours = Ours::new(rail.shared.local(), false).unwrap();
    ours.challenge = [5; CHALLENGE_LEN];
    let mut keys = ours.keys(&secret, &theirs);
    let handshake = Handshake {
        from: far,
        token: 1,
        replaces: 0,
    };
    let (bytes, len) = handshake.write();
    wire.0.write_all(&challenge_frame(&ours.challenge)).unwrap();
    let handshake = sealed(&mut keys.sending, Kind::Handshake, &bytes[..len]);
    wire.0.write_all(&handshake).unwrap();
    (wire, keys.sending)
}

/// Frames that are repeated, left out, swapped or changed end the connection.
#[test]
fn a_frame_out_of_its_turn_ends_the_connection() {
    type Tamper = fn(&mut Vec<Vec<u8>>);
    let tampers: [(Tamper, usize); 5] = [
        (|_| {}, 3),
        (|frames| frames[1] = frames[0].clone(), 1),
        (|frames| _ = frames.remove(0), 0),
        (|frames| frames.swap(1, 2), 1),
        (|frames| frames[2][9] ^= 1, 2),
    ];
    for (at, (tamper, good)) in tampers.into_iter().enumerate() {
        let mut b = keyed(1, 0);
        let far = TcpAddr {
            port: 20_000,
            ..b.shared.local()
        };
        let (mut wire, mut key) = proven(&mut b, 1, far);
        assert!(wire.read(&mut b, HEAD_LEN).is_some(), "the answer");
        let packets = [b"one", b"two", b"six"];
        let mut frames: Vec<_> = packets
            .iter()
            .map(|packet| sealed(&mut key, Kind::Packets, *packet))
            .collect();
        tamper(&mut frames);
        wire.0.write_all(&frames.concat()).unwrap();
        let end = Instant::now() + Duration::from_secs(10);
        while b.got.len() < 3 && b.forged().is_empty() && b.rx.open() > 0 {
            assert!(Instant::now() < end, "tamper {at}: {:?}", b.got);
            b.poll();
        }
        b.poll();
        let good: Vec<_> = packets[..good]
            .iter()
            .map(|packet| packet.to_vec())
            .collect();
        assert_eq!(b.got, good, "tamper {at}");
        assert_eq!(b.forged().is_empty(), at == 0, "tamper {at}");
        assert_eq!(b.rx.open(), usize::from(at == 0), "tamper {at}");
    }
}

/// A handshake of another connection, that is one under another challenge, proves nothing.
#[test]
fn a_recorded_handshake_proves_nothing() {
    let mut b = keyed(1, 0);
    let far = TcpAddr {
        port: 20_000,
        ..b.shared.local()
    };
    let (mut wire, _) = proven(&mut b, 2, far);
    let refusal = wire.read(&mut b, HEAD_LEN + 8).expect("a refusal");
    assert_eq!(
        Head::claimed(&refusal).map(|head| head.kind),
        Some(Kind::Refusal)
    );
    assert_eq!(b.forged(), [KeyMismatch::OtherKey]);
    // Recorded: the bytes of a right handshake, sent again on another connection.
    let secret = ConnectionKeys::new(&JobKey::new([1; JOB_KEY_LEN]));
    let (mut first, mut again) = (Wire::to(&mut b), Wire::to(&mut b));
    let len = HEAD_LEN + CHALLENGE_LEN;
    let theirs = first.read(&mut b, len).unwrap()[HEAD_LEN..]
        .try_into()
        .unwrap();
    again.read(&mut b, len).unwrap();
    let ours = Ours::new(b.shared.local(), false).unwrap();
    let mut key = ours.keys(&secret, &theirs).sending;
    let handshake = Handshake {
        from: far,
        token: 1,
        replaces: 0,
    };
    let (bytes, len) = handshake.write();
    let body = sealed(&mut key, Kind::Handshake, &bytes[..len]);
    let recorded = [challenge_frame(&ours.challenge), body].concat();
    first.0.write_all(&recorded).unwrap();
    let answer = first.read(&mut b, HEAD_LEN).expect("an answer");
    assert_eq!(
        Head::claimed(&answer).map(|head| head.kind),
        Some(Kind::Answer)
    );
    again.0.write_all(&recorded).unwrap();
    assert!(again.read(&mut b, HEAD_LEN + 8).is_some(), "a refusal");
    assert_eq!(b.forged(), [KeyMismatch::OtherKey; 2]);
}

/// An acceptor without the key gets no packets: the link does not come up.
#[test]
fn an_acceptor_has_to_prove_itself() {
    let mut a = keyed(1, 0);
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let at = TcpAddr {
        ip: IpAddr::V4(Ipv4Addr::LOCALHOST),
        port: listener.local_addr().unwrap().port(),
    };
    let link = a.links.connect(at).link;
    let mut wire = Wire(listener.accept().unwrap().0);
    wire.0.set_nonblocking(true).unwrap();
    wire.0
        .write_all(&challenge_frame(&[7; CHALLENGE_LEN]))
        .unwrap();
    let len = 2 * HEAD_LEN + CHALLENGE_LEN + 22;
    let frames = wire.read(&mut a, len).expect("challenge and handshake");
    let handshake = Head::claimed(&frames[HEAD_LEN + CHALLENGE_LEN..]);
    assert_eq!(handshake.map(|head| head.kind), Some(Kind::Handshake));
    assert_eq!(a.links.send(link, b"secret", 6), Sent::Taken, "it is lost");
    let answer = Head {
        kind: Kind::Answer,
        len: 0,
        segment: 0,
    };
    wire.0.write_all(&answer.write()).unwrap();
    let refusal = wire.read(&mut a, HEAD_LEN + 8).expect("a refusal");
    assert_eq!(
        Head::claimed(&refusal).map(|head| head.kind),
        Some(Kind::Refusal)
    );
    assert!(!a.is_up(link));
    assert_eq!(a.forged(), [KeyMismatch::OtherKey]);
}

/// Connections that are evicted, made again from both ends, and replaced, with keys.
#[test]
fn evicted_connections_are_made_again() {
    let mut a = keyed(1, 1);
    let (mut b, mut c) = (keyed(1, 0), keyed(1, 0));
    let (link, back) = linked_both_ways(&mut a, &mut b);
    for round in 0..3u8 {
        linked(&mut a, &mut c);
        until(&mut a, &mut b, "the close", |_, b| b.rx.open() == 0);
        a.got.clear();
        b.got.clear();
        assert_eq!(a.links.send(link, &[round, 1], 2), Sent::Taken);
        assert_eq!(b.links.send(back, &[round, 2], 2), Sent::Taken);
        // A write waits for the key, too.
        let mut target = [0u8; 3];
        b.shared.memory.add(5, target.as_mut_ptr(), target.len());
        let pieces = [Piece {
            base: b"abc".as_ptr(),
            len: 3,
        }];
        let write = Write {
            key: 5,
            offset: 0,
            pieces: &pieces,
            token: 1,
            source: None,
        };
        assert_eq!(a.links.write(link, &write, b"told"), Sent::Taken);
        until(&mut a, &mut b, "all packets", |a, b| {
            a.got == [vec![round, 2]] && b.got == [vec![round, 1], b"told".to_vec()]
        });
        assert_eq!(&target, b"abc");
        b.shared.memory.remove(5);
        let to_c = a.links.connect(c.shared.local()).link;
        a.links.close(to_c);
        a.links.close(to_c);
        a.events.clear();
    }
    assert_eq!((a.forged(), b.forged()), (vec![], vec![]));
}

#[test]
fn a_silent_connection_is_replaced_with_keys() {
    let (mut a, mut b) = (keyed(1, 0), keyed(1, 0));
    let (link, back) = linked_both_ways(&mut a, &mut b);
    let mut sent = 0;
    while a.links.send(link, &[7; 60_000], 60_000) == Sent::Taken {
        sent += 1;
        assert!(sent < 10_000, "there is always room");
    }
    let was = a.links.token(link);
    assert!(a.links.reroute(link));
    until(&mut a, &mut b, "another connection", |a, b| {
        a.links.token(link) != was && b.links.token(back) == a.links.token(link)
    });
    assert_eq!(a.links.send(link, b"again", 5), Sent::Taken);
    assert_eq!(b.links.send(back, b"answer", 6), Sent::Taken);
    until(&mut a, &mut b, "both packets", |a, b| {
        b.got.iter().any(|packet| packet == b"again") && a.got == [b"answer"]
    });
    assert!(!a.is_down(link) && !b.is_down(back), "nothing broke");
}

/// The other end closes the silent connection as soon as it has our handshake on the next one; its
/// answer may be read after that end. Regression: the link was down then.
#[test]
fn the_end_of_a_silent_connection_may_come_before_the_answer() {
    let (mut a, mut b) = (keyed(1, 0), keyed(1, 0));
    let (link, back) = linked_both_ways(&mut a, &mut b);
    while a.links.send(link, &[7; 60_000], 60_000) == Sent::Taken {}
    let was = a.links.token(link);
    assert!(a.links.reroute(link));
    let end = Instant::now() + Duration::from_secs(10);
    while b.links.token(back) == was {
        assert!(Instant::now() < end, "no handshake");
        if a.links.is_replacing(link) {
            a.poll();
        }
        b.poll();
    }
    if a.links.is_replacing(link) {
        let name = a.links.name(link);
        let broken = Break::Closed;
        a.shared.note(Notification::Broken { name, broken });
        a.links.service();
    }
    assert_eq!(a.links.send(link, b"again", 5), Sent::Taken);
    until(&mut a, &mut b, "the packet", |_, b| {
        b.got.iter().any(|packet| packet == b"again")
    });
    assert!(!a.is_down(link), "{:?}", a.events);
}

/// Both ends connect at once, and the lower one asks the other to give its connection up before
/// that one's answer has come. Regression: two connections stayed.
#[test]
fn both_may_connect_at_once() {
    for _ in 0..20 {
        let (mut a, mut b) = (keyed(1, 0), keyed(1, 0));
        let (ab, _) = a.connect(&b);
        let (ba, _) = b.connect(&a);
        until(&mut a, &mut b, "both links", |a, b| {
            a.is_up(ab) && b.is_up(ba)
        });
        for number in 0..10u8 {
            assert_eq!(a.links.send(ab, &[number], 1), Sent::Taken);
            assert_eq!(b.links.send(ba, &[number], 1), Sent::Taken);
        }
        until(
            &mut a,
            &mut b,
            "all packets, over one connection",
            |a, b| (a.got.len(), b.got.len(), a.rx.open(), b.rx.open()) == (10, 10, 1, 1),
        );
        assert!(!a.is_down(ab) && !b.is_down(ba));
    }
}

/// Strangers that say nothing, or too little, are bounded and take no turn of others.
#[test]
fn strangers_without_proof_are_bounded() {
    let (mut a, mut b) = (keyed(1, 0), keyed(1, 0));
    let link = linked(&mut a, &mut b);
    let local = b.shared.local();
    let challenge = challenge_frame(&[1; CHALLENGE_LEN]);
    let mut strangers = Vec::new();
    for at in 0..300usize {
        let mut stranger = TcpStream::connect((local.ip, local.port)).expect("a connection");
        let words: &[u8] = match at % 4 {
            0 => &challenge,
            1 => &challenge[..20],
            2 => b"GET / HTTP/1.1\r\nHost: somebody\r\n\r\n",
            _ => &[],
        };
        let _ = stranger.write_all(words); // it may already be cut off
        strangers.push(stranger);
        if at % 10 == 0 {
            b.poll();
        }
    }
    assert_eq!(a.links.send(link, b"still", 5), Sent::Taken);
    until(&mut a, &mut b, "the packet", |_, b| b.got == [b"still"]);
    assert!((1..=257).contains(&b.rx.handshaking()));
    // Time passes.
    let later = Instant::now() + Duration::from_secs(60);
    b.rx.drop_late(later);
    assert_eq!(b.rx.handshaking(), 0);
    assert_eq!(a.links.send(link, b"again", 5), Sent::Taken);
    until(&mut a, &mut b, "the packet", |_, b| b.got.len() == 2);
}
