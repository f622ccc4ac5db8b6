//! Both ends of a link connect at the same time.

use super::*;

/// Two rails, the first of which has the lower address.
fn lower_first() -> (Rail, Rail) {
    let (a, b) = (rail(), rail());
    match a.shared.local() < b.shared.local() {
        true => (a, b),
        false => (b, a),
    }
}

/// Sends until there is no room; returns the number of packets.
fn fill(rail: &mut Rail, link: LinkId) -> usize {
    let mut sent = 0;
    while rail.links.send(link, &[7; 60_000], 60_000) == Sent::Taken {
        sent += 1;
        assert!(sent < 10_000, "there is always room");
    }
    sent
}

/// Both ends connect, and `b`, which is up, has a full queue, so that it keeps its own connection
/// when asked to give it up.
fn two_connections(a: &mut Rail, b: &mut Rail) -> (LinkId, LinkId, usize) {
    let (ab, _) = a.connect(b);
    let (ba, _) = b.connect(a);
    while !b.is_up(ba) {
        b.poll();
    }
    let mut sent = fill(b, ba);
    while !a.is_up(ab) || a.got.is_empty() {
        a.poll();
    }
    assert_eq!(a.links.send(ab, b"hello", 5), Sent::Taken);
    while b.got.is_empty() {
        sent += fill(b, ba);
        b.poll();
    }
    assert_eq!(b.got, [b"hello"], "the packet behind the question");
    (ab, ba, sent)
}

#[test]
fn both_may_connect_at_once() {
    let (mut a, mut b) = (rail(), rail());
    let (ab, _) = a.connect(&b);
    let (ba, _) = b.connect(&a);
    until(&mut a, &mut b, "both links", |a, b| {
        a.is_up(ab) && b.is_up(ba)
    });
    for number in 0..100u8 {
        assert_eq!(a.links.send(ab, &[number], 1), Sent::Taken);
        assert_eq!(b.links.send(ba, &[number], 1), Sent::Taken);
    }
    until(&mut a, &mut b, "all packets", |a, b| {
        a.got.len() == 100 && b.got.len() == 100
    });
    let sent: Vec<_> = (0..100u8).map(|number| vec![number]).collect();
    assert!(a.got == sent && b.got == sent, "in order");
    until(&mut a, &mut b, "one connection for both", |a, b| {
        a.rx.open() == 1 && b.rx.open() == 1
    });
    assert_eq!(a.links.token(ab), b.links.token(ba));
    assert_eq!(a.links.send(ab, b"from a", 6), Sent::Taken);
    assert_eq!(b.links.send(ba, b"from b", 6), Sent::Taken);
    until(&mut a, &mut b, "both packets", |a, b| {
        a.got.last().unwrap() == b"from b" && b.got.last().unwrap() == b"from a"
    });
    assert!(!a.is_down(ab) && !b.is_down(ba), "nothing broke");
}

#[test]
fn a_rail_with_queued_data_keeps_its_own_connection() {
    let (mut a, mut b) = lower_first();
    let (ab, ba, sent) = two_connections(&mut a, &mut b);
    assert_ne!(a.links.token(ab), b.links.token(ba));
    until(&mut a, &mut b, "all packets", |a, _| a.got.len() == sent);
    assert!(!a.is_down(ab) && !b.is_down(ba), "nothing broke");
}

#[test]
fn a_silent_link_takes_the_connection_that_the_peer_has_made() {
    let (mut a, mut b) = lower_first();
    let (ab, ba, _) = two_connections(&mut a, &mut b);
    assert!(b.links.reroute(ba));
    let tokens = (a.links.token(ab), b.links.token(ba));
    assert_eq!(tokens.0, tokens.1, "nothing had to be made");
    assert_eq!(b.links.send(ba, b"again", 5), Sent::Taken);
    until(&mut a, &mut b, "the packet", |a, _| {
        a.got.iter().any(|packet| packet == b"again")
    });
    until(&mut a, &mut b, "the old one's end", |a, b| {
        a.rx.open() == 1 && b.rx.open() == 1
    });
    assert!(!a.is_down(ab) && !b.is_down(ba), "nothing broke");
}

/// Regression: a silent link took the connection that its peer was giving up at its request.
#[test]
fn a_silent_link_does_not_take_a_connection_that_it_asked_to_give_up() {
    let (mut a, mut b) = lower_first();
    let (ab, _) = a.connect(&b);
    let (ba, _) = b.connect(&a);
    while !b.is_up(ba) {
        b.poll();
    }
    assert_eq!(b.links.send(ba, b"hello", 5), Sent::Taken);
    while !a.is_up(ab) || a.got.is_empty() {
        a.poll();
    }
    let end = Instant::now() + Duration::from_secs(10);
    while b.links.token(ba) != a.links.token(ab) {
        assert!(Instant::now() < end, "b keeps its connection");
        b.poll();
    }
    fill(&mut a, ab);
    assert!(a.links.reroute(ab));
    assert!(a.links.is_replacing(ab), "another one is made");
    until(&mut a, &mut b, "another connection", |a, b| {
        !a.links.is_replacing(ab) && a.links.token(ab) == b.links.token(ba)
    });
    assert_eq!(b.links.send(ba, b"again", 5), Sent::Taken);
    until(&mut a, &mut b, "the packet", |a, _| a.got.len() == 2);
    assert!(!a.is_down(ab) && !b.is_down(ba), "nothing broke");
}

fn frame(kind: Kind, segment: usize, bytes: &[u8]) -> Vec<u8> {
    let len = bytes.len();
    let head = Head { kind, len, segment };
    [&head.write()[..], bytes].concat()
}

#[test]
fn a_join_needs_the_token() {
    let (mut a, mut b) = (rail(), rail());
    let link = linked(&mut a, &mut b);
    let token = a.links.token(link);
    // A program on the peer's host claims to be the peer's rail.
    let to = a.shared.local();
    let mut liar = TcpStream::connect((to.ip, to.port)).expect("a connection");
    let mut words = handshake(b.shared.local(), 0);
    for guess in [0, 1, token ^ 1] {
        words.extend(frame(Kind::Join, 0, &u64::to_le_bytes(guess)));
    }
    words.extend(frame(Kind::Packets, 4, b"last"));
    liar.write_all(&words).expect("room for a few frames");
    until(&mut a, &mut b, "the last frame", |a, _| a.got == [b"last"]);
    assert_eq!(a.links.token(link), token);
}
