//! Two rails of one process, face to face.

use super::links::{Sent, TcpLinks};
use super::shared::{Shared, TcpConfig};
use super::TcpRx;
use crate::{DownReason, LinkId, Piece, RailEvent, RailRx, Write};
use std::io::Write as _;
use std::net::{IpAddr, Ipv4Addr, TcpStream};
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
    let config = TcpConfig {
        port: 0,
        rcvbuf_bytes: 0,
        sndbuf_bytes: 0,
        user_timeout_ms: 5_000,
        standby: false,
    };
    let shared = Shared::open(IpAddr::V4(Ipv4Addr::LOCALHOST), 0, &config).expect("a listener");
    let shared = Arc::new(shared);
    Rail {
        links: TcpLinks::new(shared.clone()),
        rx: TcpRx::new(shared.clone()).expect("epoll"),
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
        let connected = self.links.connect(to.shared.local);
        (connected.link, connected.up)
    }
}

/// Polls both until something holds; a panic after ten seconds.
fn until(a: &mut Rail, b: &mut Rail, what: &str, holds: impl Fn(&Rail, &Rail) -> bool) {
    let end = Instant::now() + Duration::from_secs(10);
    while !holds(a, b) {
        assert!(Instant::now() < end, "{what} does not come");
        a.poll();
        b.poll();
    }
}

fn linked(a: &mut Rail, b: &mut Rail) -> LinkId {
    let (link, up) = a.connect(b);
    assert!(!up, "not before a round trip");
    until(a, b, "the link", |a, _| a.is_up(link));
    link
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
}

#[test]
fn what_finds_no_room_is_told_and_nothing_is_lost() {
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
    // A write for a key that has ended lands nowhere, and its packet must not arrive without it.
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
    };
    assert_eq!(a.links.write(link, &write, b"told"), Sent::Taken);
    until(&mut a, &mut b, "the break", |a, _| a.is_down(link));
    assert_eq!(b.got.len(), before);
    assert!(target.iter().all(|byte| *byte == 9));
}

#[test]
fn a_link_that_breaks_says_so_and_is_made_anew() {
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
    // Packets for a link that is down are lost; who wants to go on makes another.
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
fn nobody_there_is_a_refusal() {
    let (mut a, mut b) = (rail(), rail());
    let gone = {
        let other = rail();
        other.shared.local
    };
    let link = a.links.connect(gone).link;
    let refused = RailEvent::LinkDown(link, DownReason::Refused);
    until(&mut a, &mut b, "a refusal", |a, _| {
        a.events.contains(&refused)
    });
}

#[test]
fn strangers_who_speak_nonsense_are_cut_off_and_disturb_nobody() {
    let (mut a, mut b) = (rail(), rail());
    let link = linked(&mut a, &mut b);
    let local = b.shared.local;
    let mut strangers: Vec<_> = (0..300)
        .map(|_| TcpStream::connect((local.ip, local.port)).expect("a connection"))
        .collect();
    let mut greeting = super::frame::Head {
        kind: super::frame::Kind::Greeting,
        len: 6,
        segment: 0,
    }
    .write()
    .to_vec();
    greeting.extend_from_slice(&[1, 2, 10, 0, 0, 1]); // another host's rail
    for (at, stranger) in strangers.iter_mut().enumerate() {
        let words: &[u8] = match at % 3 {
            0 => b"GET / HTTP/1.1\r\nHost: somebody\r\n\r\n",
            1 => &greeting,
            _ => &[],
        };
        let _ = stranger.write_all(words); // it may be cut off already
        if at % 10 == 0 {
            b.poll();
        }
    }
    assert_eq!(a.links.send(link, b"still", 5), Sent::Taken);
    until(&mut a, &mut b, "the packet", |_, b| b.got == [b"still"]);
    assert!(b.rx.nameless() <= 257);
}
