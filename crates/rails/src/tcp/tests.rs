//! Tests with several rails in one process.

mod joins;
mod keys;
mod moves;
mod versions;

use super::connections::{Sent, TcpLinks};
use super::frame::{Head, Kind};
use super::handshake::{Handshake, TcpAddr};
use super::shared::{Shared, TcpConfig};
use super::{TcpRail, TcpRx};
use crate::{
    choose_interfaces, DownReason, LinkId, Piece, Rail as _, RailEvent, RailRx, RemoteWrite, Write,
};
use std::io::Write as _;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, TcpStream};
use std::sync::Arc;
use std::time::{Duration, Instant};

struct Rail {
    shared: Arc<Shared>,
    links: TcpLinks,
    rx: TcpRx,
    got: Vec<Vec<u8>>,
    events: Vec<RailEvent>,
    over: Vec<u64>,
}

fn rail() -> Rail {
    rail_on(IpAddr::V4(Ipv4Addr::LOCALHOST), 0)
}

/// A rail on an address with a limit of connections.
fn rail_on(ip: IpAddr, connections_max: usize) -> Rail {
    let config = TcpConfig {
        connections_max,
        ..TcpConfig::default()
    };
    rail_with(ip, &config)
}

fn rail_with(ip: IpAddr, config: &TcpConfig) -> Rail {
    let shared = Shared::open(ip, 0, config).expect("a listener");
    let shared = Arc::new(shared);
    Rail {
        links: TcpLinks::new(shared.clone()),
        rx: TcpRx::new(shared.clone()),
        shared,
        got: Vec::new(),
        events: Vec::new(),
        over: Vec::new(),
    }
}

impl Rail {
    fn poll(&mut self) {
        let got = &mut self.got;
        self.rx.recv(&mut |received| {
            let packets = received.bytes.chunks(received.segment);
            got.extend(packets.map(<[u8]>::to_vec));
        });
        self.links.service();
        while let Some(event) = self.links.event() {
            match event {
                RailEvent::Done(token) => self.over.push(token),
                event => self.events.push(event),
            }
        }
    }

    fn is_up(&self, link: LinkId) -> bool {
        self.events.contains(&RailEvent::LinkUp(link))
    }

    fn is_down(&self, link: LinkId) -> bool {
        let mut events = self.events.iter();
        events.any(|event| matches!(event, RailEvent::LinkDown(down, _) if *down == link))
    }

    /// The link to a rail, and whether it is up.
    fn connect(&mut self, to: &Rail) -> (LinkId, bool) {
        let connected = self.links.connect(to.shared.local());
        (connected.link, connected.up)
    }
}

/// Polls both rails until the condition holds; panics after ten seconds.
fn until(a: &mut Rail, b: &mut Rail, what: &str, holds: impl Fn(&Rail, &Rail) -> bool) {
    let holds = |rails: &[&mut Rail]| holds(rails[0], rails[1]);
    until_all(&mut [a, b], what, holds);
}

/// Polls all rails until the condition holds; panics after ten seconds.
fn until_all(rails: &mut [&mut Rail], what: &str, holds: impl Fn(&[&mut Rail]) -> bool) {
    let end = Instant::now() + Duration::from_secs(10);
    while !holds(rails) {
        assert!(Instant::now() < end, "{what} does not come");
        rails.iter_mut().for_each(|rail| rail.poll());
    }
}

fn linked(a: &mut Rail, b: &mut Rail) -> LinkId {
    let (link, up) = a.connect(b);
    assert!(!up, "not before a round trip");
    until(a, b, "the link", |a, _| a.is_up(link));
    link
}

/// The links of both rails to each other, over one connection that `a` made.
fn linked_both_ways(a: &mut Rail, b: &mut Rail) -> (LinkId, LinkId) {
    let link = linked(a, b);
    assert_eq!(a.links.send(link, b"hello", 5), Sent::Taken);
    until(a, b, "the packet", |_, b| b.got == [b"hello"]);
    b.got.clear();
    let (back, up) = b.connect(a);
    assert!(up, "the connection that is there serves");
    (link, back)
}

#[test]
fn packets_go_both_ways_over_one_connection() {
    let (mut a, mut b) = (rail(), rail());
    let link = linked(&mut a, &mut b);
    assert_eq!(a.links.send(link, &[7; 25], 10), Sent::Taken);
    until(&mut a, &mut b, "the packets", |_, b| b.got.len() == 3);
    assert_eq!(b.got, [vec![7; 10], vec![7; 10], vec![7; 5]]);
    let (back, up) = b.connect(&a);
    assert!(up, "the connection that is there serves");
    assert_eq!(b.links.send(back, b"answer", 6), Sent::Taken);
    until(&mut a, &mut b, "the answer", |a, _| a.got == [b"answer"]);
    assert_eq!(a.connect(&b), (link, true), "the same link");
}

#[test]
fn a_full_connection_reports_no_room_and_loses_nothing() {
    let (mut a, mut b) = (rail(), rail());
    let link = linked(&mut a, &mut b);
    let mut sent = 0u32;
    let batch = |number: u32| number.to_le_bytes().repeat(15_000);
    while a.links.send(link, &batch(sent), 60_000) == Sent::Taken {
        sent += 1;
        assert!(sent < 1_000_000, "there is always room");
    }
    until(&mut a, &mut b, "all batches", |_, b| {
        b.got.len() == sent as usize
    });
    for (number, got) in b.got.iter().enumerate() {
        assert!(*got == batch(number as u32), "batch {number}");
    }
    assert_eq!(
        a.links.send(link, &[1], 1),
        Sent::Taken,
        "there is room again"
    );
}

/// A peer does not read. Data for it is queued up to a bound, and the other peers are served
/// meanwhile.
#[test]
fn a_full_connection_holds_up_no_other_peer() {
    const BOUND: usize = 8 << 20;
    let (mut a, mut b, mut c) = (rail(), rail(), rail());
    let (full, free) = (linked(&mut a, &mut b), linked(&mut a, &mut c));
    let batch = |number: u32| number.to_le_bytes().repeat(15_000);
    let mut sent = 0u32;
    while a.links.send(full, &batch(sent), 60_000) == Sent::Taken {
        sent += 1;
        assert!(sent < 1_000_000, "there is always room");
        if a.links.held() > 0 && sent.is_multiple_of(32) {
            assert_eq!(a.links.send(free, &sent.to_le_bytes(), 4), Sent::Taken);
        }
        assert!(a.links.held() <= BOUND + 61_000);
    }
    assert!(a.links.held() > BOUND / 2, "{} bytes", a.links.held());
    assert_eq!(a.links.send(free, b"last", 4), Sent::Taken);
    until(&mut a, &mut c, "the last packet", |_, c| {
        c.got.last().is_some_and(|packet| packet == b"last")
    });
    until(&mut a, &mut b, "all batches", |_, b| {
        b.got.len() == sent as usize
    });
    for (number, got) in b.got.iter().enumerate() {
        assert!(*got == batch(number as u32), "batch {number}");
    }
    a.poll();
    assert_eq!(a.links.held(), 0);
}

#[test]
fn writes_land_in_registered_memory_before_their_packet() {
    let (mut a, mut b) = (rail(), rail());
    let link = linked(&mut a, &mut b);
    let mut target = vec![0u8; 3 << 20];
    b.shared.memory.add(5, target.as_mut_ptr(), target.len());
    let source: Vec<u8> = (0..target.len()).map(|at| (at * 7 % 251) as u8).collect();
    let (mut offset, mut token) = (0, 0);
    while offset < source.len() {
        let len = (source.len() - offset).min(60_000);
        let (first, second) = source[offset..offset + len].split_at(len / 3);
        let pieces = [first, second].map(|part| Piece {
            base: part.as_ptr(),
            len: part.len(),
        });
        let write = Write {
            key: 5,
            offset: offset as u64,
            pieces: &pieces,
            token,
            source: None,
        };
        match a.links.write(link, &write, &token.to_le_bytes()) {
            Sent::Taken => (offset, token) = (offset + len, token + 1),
            Sent::NoRoom => {}
        }
        a.poll();
        b.poll();
    }
    until(&mut a, &mut b, "all packets", |a, b| {
        b.got.len() == token as usize && a.over.len() == token as usize
    });
    assert!(target == source);
    // A write under a deregistered key does not land, and its notification must not arrive.
    b.shared.memory.remove(5);
    target.fill(9);
    let before = b.got.len();
    let pieces = [Piece {
        base: source.as_ptr(),
        len: 60_000,
    }];
    let write = Write {
        key: 5,
        offset: 0,
        pieces: &pieces,
        token,
        source: None,
    };
    assert_eq!(a.links.write(link, &write, b"told"), Sent::Taken);
    until(&mut a, &mut b, "the break", |a, _| a.is_down(link));
    assert_eq!(b.got.len(), before);
    assert!(target.iter().all(|byte| *byte == 9));
}

#[test]
fn a_broken_link_is_reported_and_reconnects() {
    let (mut a, mut b) = (rail(), rail());
    let link = linked(&mut a, &mut b);
    assert_eq!(a.links.send(link, b"first", 5), Sent::Taken);
    until(&mut a, &mut b, "a packet", |_, b| b.got.len() == 1);
    let (back, up) = b.connect(&a);
    assert!(up);
    a.links.cut(link);
    until(&mut a, &mut b, "the break", |a, b| {
        a.is_down(link) && b.is_down(back)
    });
    // Packets on a link that is down are lost; another link must be made.
    assert_eq!(a.links.send(link, b"lost", 4), Sent::Taken);
    let (anew, up) = a.connect(&b);
    assert!(anew != link && !up);
    a.links.close(link);
    b.links.close(back);
    until(&mut a, &mut b, "another link", |a, _| a.is_up(anew));
    assert_eq!(a.links.send(anew, b"again", 5), Sent::Taken);
    until(&mut a, &mut b, "the packet", |_, b| b.got.len() == 2);
    assert_eq!(b.got[1], b"again");
}

#[test]
fn no_event_names_a_closed_link() {
    let (mut a, mut b, mut c) = (rail(), rail(), rail());
    let link = linked(&mut a, &mut b);
    a.links.cut(link);
    let _ = a.links.send(link, b"lost", 4); // notices the end, but no event has been read
    a.links.close(link);
    a.events.clear();
    let (other, up) = a.connect(&c);
    assert!(other == link && !up, "its number is free");
    until(&mut a, &mut c, "the other link", |a, _| a.is_up(other));
    assert!(!a.is_down(other), "it has not fallen: {:?}", a.events);
}

#[test]
fn an_unused_port_is_a_refusal() {
    let (mut a, mut b) = (rail(), rail());
    let gone = {
        let other = rail();
        other.shared.local()
    };
    let link = a.links.connect(gone).link;
    let refused = RailEvent::LinkDown(link, DownReason::Refused);
    until(&mut a, &mut b, "a refusal", |a, _| {
        a.events.contains(&refused)
    });
}

/// The handshake of a connection that replaces another one.
fn handshake(from: TcpAddr, replaces: u64) -> Vec<u8> {
    let handshake = Handshake {
        from,
        token: 1,
        replaces,
    };
    let (bytes, len) = handshake.write();
    let head = Head {
        kind: Kind::Handshake,
        len,
        segment: 0,
    };
    [&head.write()[..], &bytes[..len]].concat()
}

#[test]
fn invalid_strangers_are_disconnected_and_disturb_no_link() {
    let (mut a, mut b) = (rail(), rail());
    let link = linked(&mut a, &mut b);
    let local = b.shared.local();
    let mut strangers: Vec<_> = (0..300)
        .map(|_| TcpStream::connect((local.ip, local.port)).expect("a connection"))
        .collect();
    let nowhere = TcpAddr {
        ip: IpAddr::V4(Ipv4Addr::new(10, 0, 0, 1)), // another host's rail
        port: 513,
    };
    let handshake = handshake(nowhere, 0);
    for (at, stranger) in strangers.iter_mut().enumerate() {
        let words: &[u8] = match at % 3 {
            0 => b"GET / HTTP/1.1\r\nHost: somebody\r\n\r\n",
            1 => &handshake,
            _ => &[],
        };
        let _ = stranger.write_all(words); // it may already be cut off
        if at % 10 == 0 {
            b.poll();
        }
    }
    assert_eq!(a.links.send(link, b"still", 5), Sent::Taken);
    until(&mut a, &mut b, "the packet", |_, b| b.got == [b"still"]);
    assert!(b.rx.handshaking() <= 257);
}

/// Regression: connections of strangers that had sent a handshake and never closed theirs stayed
/// open without bound.
#[test]
fn strangers_with_a_handshake_leave_descriptors_to_others() {
    let mut b = rail_on(IpAddr::V4(Ipv4Addr::LOCALHOST), 8);
    let local = b.shared.local();
    let strangers: Vec<_> = (0..200)
        .map(|at| {
            let port = 20_000 + at;
            let from = TcpAddr { port, ..local };
            let mut stranger = TcpStream::connect((local.ip, local.port)).expect("a connection");
            stranger.write_all(&handshake(from, 0)).expect("room");
            (0..4).for_each(|_| b.poll());
            stranger
        })
        .collect();
    let mut a = rail();
    let link = linked(&mut a, &mut b);
    assert_eq!(a.links.send(link, b"still", 5), Sent::Taken);
    until(&mut a, &mut b, "the packet", |_, b| b.got == [b"still"]);
    until(&mut a, &mut b, "their end", |_, b| {
        b.rx.open() <= 8 + 8 + 64 + 1
    });
    drop(strangers);
}

/// Regression: keys for writes into registered memory counted up from the first.
#[test]
fn keys_do_not_follow_each_other() {
    let interfaces = choose_interfaces(&["lo".to_owned()]).expect("an interface");
    let opened = TcpRail::open(&interfaces[0], &TcpConfig::default());
    let (mut tx, _) = opened.expect("a rail").split();
    let mut bytes = [0u8; 64];
    let keys: Vec<_> = (0..8)
        .map(|_| tx.register(bytes.as_mut_ptr(), 64).unwrap())
        .collect();
    assert!(
        keys.windows(2).all(|two| two[0].abs_diff(two[1]) > 1 << 32),
        "{keys:x?}"
    );
}

#[test]
fn packets_go_both_ways_over_ipv6() {
    let v6 = || rail_on(IpAddr::V6(Ipv6Addr::LOCALHOST), 0);
    let (mut a, mut b) = (v6(), v6());
    let link = linked(&mut a, &mut b);
    assert_eq!(a.links.send(link, b"question", 8), Sent::Taken);
    until(&mut a, &mut b, "the packet", |_, b| b.got == [b"question"]);
    let (back, up) = b.connect(&a);
    assert!(up, "the handshake names the peer");
    assert_eq!(b.links.send(back, b"answer", 6), Sent::Taken);
    until(&mut a, &mut b, "the answer", |a, _| a.got == [b"answer"]);
}

/// Sends a packet, polling until there is room.
fn send(rails: &mut [&mut Rail], from: usize, link: LinkId, packet: &[u8]) {
    let end = Instant::now() + Duration::from_secs(10);
    while rails[from].links.send(link, packet, packet.len()) == Sent::NoRoom {
        assert!(Instant::now() < end, "there is never room");
        rails.iter_mut().for_each(|rail| rail.poll());
    }
}

#[test]
fn more_peers_than_connections_lose_nothing() {
    const PEERS: usize = 16;
    const CONNECTIONS: usize = 4;
    const ROUNDS: u8 = 5;
    let mut all = vec![rail_on(IpAddr::V4(Ipv4Addr::LOCALHOST), CONNECTIONS)];
    all.extend((0..PEERS).map(|_| rail()));
    let mut rails: Vec<&mut Rail> = all.iter_mut().collect();
    let to: Vec<_> = (0..PEERS)
        .map(|at| {
            let local = rails[at + 1].shared.local();
            rails[0].links.connect(local).link
        })
        .collect();
    until_all(&mut rails, "all links", |rails| {
        to.iter().all(|link| rails[0].is_up(*link))
    });
    // The accepting side answers on the same connection, unless it was closed meanwhile.
    let hub = rails[0].shared.local();
    let back: Vec<_> = rails[1..]
        .iter_mut()
        .map(|rail| rail.links.connect(hub))
        .collect();
    until_all(&mut rails, "all links back", |rails| {
        let mut all = back.iter().zip(&rails[1..]);
        all.all(|(back, rail)| back.up || rail.is_up(back.link))
    });
    for round in 0..ROUNDS {
        for at in 0..PEERS {
            send(&mut rails, 0, to[at], &[at as u8, round]);
            if (at + round as usize).is_multiple_of(3) {
                send(&mut rails, at + 1, back[at].link, &[at as u8, round]);
            }
        }
    }
    let wanted = (0..ROUNDS as usize).flat_map(|r| (0..PEERS).map(move |at| at + r));
    let wanted = wanted.filter(|sum| sum.is_multiple_of(3)).count();
    until_all(&mut rails, "all packets", |rails| {
        let peers = rails[1..].iter();
        rails[0].got.len() == wanted && peers.map(|r| r.got.len()).sum::<usize>() == 80
    });
    for (at, peer) in rails[1..].iter_mut().enumerate() {
        peer.got.sort(); // another connection may be read first
        let sent: Vec<_> = (0..ROUNDS).map(|round| vec![at as u8, round]).collect();
        assert_eq!(peer.got, sent);
    }
    until_all(&mut rails, "few connections", |rails| {
        rails[0].rx.open() <= CONNECTIONS
    });
    let down = |event: &RailEvent| matches!(event, RailEvent::LinkDown(..));
    let fell = rails.iter().any(|rail| rail.events.iter().any(down));
    assert!(!fell, "a link that rests is not down");
}

#[test]
fn an_evicted_connection_completes_its_frames() {
    let mut a = rail_on(IpAddr::V4(Ipv4Addr::LOCALHOST), 1);
    let (mut b, mut c) = (rail(), rail());
    let (link, back) = linked_both_ways(&mut a, &mut b);
    let batch = |number: u32| number.to_le_bytes().repeat(15_000);
    let mut sent = 0;
    while b.links.send(back, &batch(sent), 60_000) == Sent::Taken {
        sent += 1;
        assert!(sent < 10_000, "there is always room");
    }
    let other = linked(&mut a, &mut c);
    until(&mut a, &mut b, "all batches", |a, _| {
        a.got.len() == sent as usize
    });
    for (number, got) in a.got.iter().enumerate() {
        assert!(*got == batch(number as u32), "batch {number}");
    }
    until(&mut a, &mut b, "the close", |a, b| {
        a.rx.open() == 1 && b.rx.open() == 0
    });
    assert!(a.is_up(other) && !a.is_down(link) && !b.is_down(back));
    // Both ends reconnect at the same time.
    assert_eq!(a.links.send(link, b"from a", 6), Sent::Taken);
    assert_eq!(b.links.send(back, b"from b", 6), Sent::Taken);
    a.got.clear();
    until(&mut a, &mut b, "both packets", |a, b| {
        a.got == [b"from b"] && b.got == [b"from a"]
    });
}

#[test]
fn an_evicted_link_goes_down_if_its_peer_is_gone() {
    let mut a = rail_on(IpAddr::V4(Ipv4Addr::LOCALHOST), 1);
    let (mut b, mut c) = (rail(), rail());
    let link = linked(&mut a, &mut b);
    linked(&mut a, &mut c);
    until(&mut a, &mut b, "the close", |a, b| {
        a.rx.open() == 1 && b.rx.open() == 0
    });
    drop(b);
    assert_eq!(a.links.send(link, b"late", 4), Sent::Taken, "it is lost");
    until(&mut a, &mut c, "the end", |a, _| a.is_down(link));
}

#[test]
fn a_silent_connection_is_replaced() {
    let (mut a, mut b) = (rail(), rail());
    let (link, back) = linked_both_ways(&mut a, &mut b);
    assert!(!a.links.reroute(link), "the network has carried all");
    assert!(!a.links.is_replacing(link));
    // The other end does not read, as if the network lost everything.
    let mut sent = 0;
    while a.links.send(link, &[7; 60_000], 60_000) == Sent::Taken {
        sent += 1;
        assert!(sent < 10_000, "there is always room");
    }
    let was = a.links.token(link);
    assert_eq!(was, b.links.token(back), "one connection");
    assert!(a.links.reroute(link));
    let end = Instant::now() + Duration::from_secs(10);
    while a.links.token(link) == was {
        assert!(Instant::now() < end, "no other connection");
        a.poll();
    }
    assert_eq!(a.links.send(link, b"again", 5), Sent::Taken);
    until(&mut a, &mut b, "the new packet", |_, b| {
        b.got.iter().any(|packet| packet == b"again")
    });
    until(&mut a, &mut b, "the other end's change", |a, b| {
        b.links.token(back) == a.links.token(link)
    });
    assert_eq!(b.links.send(back, b"answer", 6), Sent::Taken);
    until(&mut a, &mut b, "the answer", |a, _| a.got == [b"answer"]);
    assert!(!a.is_down(link) && !b.is_down(back), "nothing broke");
    let shorter = |e: &RailEvent| matches!(e, RailEvent::Segments(_, (9_000.., 500..=1_220)));
    assert!(a.events.iter().any(shorter) && b.events.iter().any(shorter));
}

#[test]
fn a_silent_link_evicted_for_room_reconnects() {
    let (mut a, mut b) = (rail_on(IpAddr::V4(Ipv4Addr::LOCALHOST), 1), rail());
    let link = linked(&mut a, &mut b);
    let mut sent = 0;
    while a.links.send(link, &[7; 60_000], 60_000) == Sent::Taken {
        sent += 1;
        assert!(sent < 10_000, "there is always room");
    }
    // All bytes are in the kernel, but the network has not carried them yet.
    until(&mut a, &mut b, "room", |a, _| a.links.held() == 0);
    assert!(a.links.reroute(link));
    assert_eq!(a.links.send(link, b"again", 5), Sent::Taken);
    until(&mut a, &mut b, "the new packet", |_, b| {
        b.got.iter().any(|packet| packet == b"again")
    });
    assert!(!a.is_down(link), "nothing broke");
}

#[test]
fn a_replacement_needs_the_token() {
    let (mut a, mut b) = (rail(), rail());
    let (_, back) = linked_both_ways(&mut a, &mut b);
    let token = b.links.token(back);
    // A program on the peer's host claims to be the peer's rail.
    let to = b.shared.local();
    let mut liars: Vec<_> = [0, 1, token ^ 1]
        .into_iter()
        .map(|guess| {
            let mut liar = TcpStream::connect((to.ip, to.port)).expect("a connection");
            let words = handshake(a.shared.local(), guess);
            liar.write_all(&words).expect("room for a handshake");
            liar
        })
        .collect();
    until(&mut a, &mut b, "all connections", |_, b| {
        b.rx.open() == 4 && b.rx.handshaking() == 0
    });
    assert_eq!(b.links.token(back), token);
    assert_eq!(b.links.send(back, b"for a", 5), Sent::Taken);
    until(&mut a, &mut b, "the packet", |a, _| a.got == [b"for a"]);
    liars.clear();
}
