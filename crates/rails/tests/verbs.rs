//! Verbs rails on a real stack: two rails on the device rxe0, in one process; the end-to-end tests
//! run them in the guest. By hand:
//! ```text
//! cargo test -p marline-rails --test verbs --no-run
//! scripts/guest target/debug/deps/verbs-... --ignored --test-threads 1
//! ```

mod keyed;
mod limited;

use marline_rails::{
    choose_rails, group_addr, open_rail, AnyRx, AnyTx, GroupError, GroupLink, Groups, LinkId,
    Links, Piece, Rail, RailEvent, RailRx, RailTx, RailsConfig, Read, RemoteRead, RemoteWrite,
    SendOutcome, TxBuffers, VerbsConfig, Write,
};
use std::collections::VecDeque;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// Longer than any awaited event takes.
const LONG: Duration = Duration::from_secs(30);

/// A rail and its events.
struct End {
    tx: AnyTx,
    rx: AnyRx,
    events: VecDeque<RailEvent>,
    packets: VecDeque<Vec<u8>>,
}

impl End {
    fn open(kind: &str) -> End {
        End::with(kind, VerbsConfig::default())
    }

    fn with(kind: &str, verbs: VerbsConfig) -> End {
        let choices = choose_rails(&[format!("{kind}:rxe0")]).unwrap();
        let clock: marline_rails::Clock = Arc::new(|| 0);
        let config = RailsConfig {
            verbs,
            ..RailsConfig::default()
        };
        let rail = open_rail(0, &choices[0], &config, &clock).unwrap();
        let (tx, rx) = rail.split();
        End {
            tx,
            rx,
            events: VecDeque::new(),
            packets: VecDeque::new(),
        }
    }

    fn poll(&mut self) {
        let packets = &mut self.packets;
        self.rx
            .recv_rest(&mut |received| packets.push_back(received.bytes.to_vec()));
        while let Some(event) = self.tx.poll_event() {
            self.events.push_back(event);
        }
    }
}

/// Polls both ends until `done` returns `Some`.
fn wait<T>(a: &mut End, b: &mut End, mut done: impl FnMut(&mut End, &mut End) -> Option<T>) -> T {
    let since = Instant::now();
    loop {
        a.poll();
        b.poll();
        if let Some(it) = done(a, b) {
            return it;
        }
        assert!(since.elapsed() < LONG, "{:?} {:?}", a.events, b.events);
    }
}

/// A link from `a` to `b` that is up.
fn link(a: &mut End, b: &mut End) -> LinkId {
    a.events.clear(); // numbers of links are reused
    let connected = a.tx.connect(&b.tx.local_addr());
    if !connected.up {
        let up = RailEvent::LinkUp(connected.link);
        wait(a, b, |a, _| {
            a.events.iter().any(|event| *event == up).then_some(())
        });
    }
    connected.link
}

/// Sends by any flow; `ud` has several.
fn send(end: &mut End, link: LinkId, bytes: &[u8]) {
    let (since, flow) = (Instant::now(), (bytes.len() % 5) as u8);
    while end.tx.send(link, bytes, bytes.len(), flow) == SendOutcome::Busy {
        end.poll();
        assert!(since.elapsed() < LONG);
    }
}

/// A write of these pieces to the start of the memory under a key.
fn whole(key: u64, pieces: &[Piece], token: u64) -> Write<'_> {
    Write {
        key,
        offset: 0,
        pieces,
        token,
        source: None,
    }
}

/// Packets of every length arrive in both directions, from copies and from lent buffers.
#[test]
#[ignore = "needs a verbs device: scripts/guest"]
fn packets_arrive_as_they_were_sent() {
    for kind in ["ud", "rc", "uc"] {
        let (mut a, mut b) = (End::open(kind), End::open(kind));
        let to_b = link(&mut a, &mut b);
        let to_a = link(&mut b, &mut a);
        for len in [1, 100, 256, 257, 1000, 1024, a.tx.caps().datagram_max] {
            let bytes: Vec<u8> = (0..len).map(|at| (at * 7 + len) as u8).collect();
            send(&mut a, to_b, &bytes);
            assert_eq!(
                wait(&mut a, &mut b, |_, b| b.packets.pop_front()),
                bytes,
                "{kind} {len}"
            );
            send(&mut b, to_a, &bytes);
            assert_eq!(
                wait(&mut a, &mut b, |a, _| a.packets.pop_front()),
                bytes,
                "{kind} {len}"
            );
        }
        let segment = 500;
        for round in 0..100u8 {
            let buffer = a.tx.lend().unwrap();
            a.tx.buffer(buffer)[..4 * segment].fill(round);
            let sent = a.tx.send_buffer(to_b, buffer, 4 * segment, segment, 0);
            assert_eq!(sent, SendOutcome::Sent);
            for _ in 0..4 {
                let packet = wait(&mut a, &mut b, |_, b| b.packets.pop_front());
                assert_eq!(packet, [round; 500], "{kind}");
            }
        }
    }
}

/// A write lands in its place before its packet, reports when its memory is free, and does not land
/// after deregistration; then the link goes down and a new one comes up.
#[test]
#[ignore = "needs a verbs device: scripts/guest"]
fn writes_land_while_memory_is_registered() {
    for kind in ["rc", "uc"] {
        let (mut a, mut b) = (End::open(kind), End::open(kind));
        let to_b = link(&mut a, &mut b);
        let source: Vec<u8> = (0..100_000u32).map(|at| (at * 13) as u8).collect();
        let mut place = vec![0u8; 120_000];
        let key =
            b.tx.register(place[10_001..].as_mut_ptr(), 100_050)
                .unwrap();
        let pieces = [0..30_000, 30_000..100_000].map(|range: std::ops::Range<usize>| Piece {
            base: source[range.clone()].as_ptr(),
            len: range.len(),
        });
        let mut write = Write {
            key,
            offset: 49,
            pieces: &pieces,
            token: 5,
            source: None,
        };
        assert_eq!(a.tx.write(to_b, &write, b"written"), SendOutcome::Sent);
        assert_eq!(
            wait(&mut a, &mut b, |_, b| b.packets.pop_front()),
            b"written"
        );
        assert_eq!(place[10_050..110_050], source, "{kind}");
        assert!(place[..10_050]
            .iter()
            .chain(&place[110_050..])
            .all(|byte| *byte == 0));
        let done = |a: &mut End, token| a.events.iter().any(|e| *e == RailEvent::Done(token));
        wait(&mut a, &mut b, |a, _| done(a, 5).then_some(()));

        b.tx.deregister(key);
        place.fill(9);
        write.token = 6;
        assert_eq!(a.tx.write(to_b, &write, b"late"), SendOutcome::Sent);
        wait(&mut a, &mut b, |a, _| done(a, 6).then_some(()));
        assert!(
            place.iter().all(|byte| *byte == 9),
            "{kind}: it landed late"
        );
        if kind == "rc" {
            let down = |e: &RailEvent| matches!(e, RailEvent::LinkDown(link, _) if *link == to_b);
            wait(&mut a, &mut b, |a, _| {
                a.events.iter().any(down).then_some(())
            });
            assert!(b.packets.iter().all(|packet| packet != b"late"));
            a.tx.close(to_b);
            b.packets.clear();
            let again = link(&mut a, &mut b);
            send(&mut a, again, b"again");
            assert_eq!(wait(&mut a, &mut b, |_, b| b.packets.pop_front()), b"again");
        }
    }
}

/// Reads are in place when they are reported; closed memory is neither read nor written.
#[test]
#[ignore = "needs a verbs device: scripts/guest"]
fn reads_land_in_open_memory_from_open_memory() {
    let (mut a, mut b) = (End::open("rc"), End::open("rc"));
    let source: Vec<u8> = (0..700_001u32).map(|i| (i % 251) as u8).collect();
    let mut place = vec![0u8; 800_000];
    let over = |a: &mut End, b: &mut End, token| {
        let is = |e: &RailEvent, came| *e == RailEvent::Pulled(token, came);
        let of = |e: &RailEvent| [false, true].into_iter().find(|&came| is(e, came));
        wait(a, b, |a, _| a.events.iter().find_map(of))
    };
    for closed in [false, true] {
        let to_b = link(&mut a, &mut b);
        let key = b.tx.advertise(source.as_ptr(), source.len()).unwrap();
        let all = source.len();
        let into = a.tx.register(place[7..].as_mut_ptr(), all).unwrap();
        if closed {
            b.tx.deregister(key);
        }
        #[rustfmt::skip]
        let read = |at, to, token| Read { key, into, at, len: to - at, token };
        let halves = [(300_003, all), (0, 300_003)];
        for (token, (at, to)) in (5..).zip(halves).take(2 - closed as usize) {
            let token = 2 * token + closed as u64;
            assert_eq!(a.tx.read(to_b, &read(at, to, token)), SendOutcome::Sent);
            assert_eq!(over(&mut a, &mut b, token), !closed);
        }
        if !closed {
            assert_eq!(place[7..][..all], source);
            assert!(place[..7].iter().chain(&place[700_008..]).all(|b| *b == 0));
        }
        a.tx.deregister(into);
        assert_eq!(a.tx.read(to_b, &read(0, all, 9)), SendOutcome::Busy);
        b.tx.deregister(key);
        a.tx.close(to_b);
    }
}

/// After a drain no request is in flight, all buffers are free, and the rail continues to work.
#[test]
#[ignore = "needs a verbs device: scripts/guest"]
fn a_rail_goes_on_after_it_was_drained() {
    for kind in ["ud", "rc", "uc"] {
        let (mut a, mut b) = (End::open(kind), End::open(kind));
        let mut to_b = link(&mut a, &mut b);
        for _ in 0..8 {
            let buffer = a.tx.lend().unwrap();
            assert_eq!(
                a.tx.send_buffer(to_b, buffer, 900, 900, 0),
                SendOutcome::Sent
            );
        }
        a.tx.drain();
        let lent: Vec<_> = std::iter::from_fn(|| a.tx.lend()).collect();
        assert_eq!(lent.len(), 16, "{kind}");
        lent.into_iter().for_each(|buffer| a.tx.give_back(buffer));
        a.poll();
        let down = |e: &RailEvent| matches!(e, RailEvent::LinkDown(link, _) if *link == to_b);
        if a.events.iter().any(down) {
            a.tx.close(to_b);
            to_b = link(&mut a, &mut b);
        }
        send(&mut a, to_b, b"after");
        wait(&mut a, &mut b, |_, b| {
            b.packets.iter().any(|p| p == b"after").then_some(())
        });
    }
}

/// Waits until a write is done, overwrites its memory at once, and returns whether the link is
/// still up.
fn reuse(a: &mut End, b: &mut End, link: LinkId, token: u64, source: &mut [u8]) -> bool {
    let done = RailEvent::Done(token);
    wait(a, b, |a, _| a.events.contains(&done).then_some(()));
    source.fill(9);
    let down = |e: &RailEvent| matches!(e, RailEvent::LinkDown(it, _) if *it == link);
    !a.events.iter().any(down)
}

/// Sends a packet on a new link: packets of earlier links have then arrived or are lost.
fn settle(a: &mut End, b: &mut End, old: LinkId) {
    a.tx.close(old);
    let new = link(a, b);
    send(a, new, b"settled");
    wait(a, b, |_, b| {
        b.packets.iter().any(|p| p == b"settled").then_some(())
    });
}

/// A queue pair that is reset during a write, or is in error, does not read the write's memory
/// after the write is reported as done: the owner's next contents never land.
#[test]
#[ignore = "needs a verbs device: scripts/guest"]
fn a_queue_pair_in_error_reads_no_reused_memory() {
    const LEN: usize = 4 << 20;
    for kind in ["rc", "uc"] {
        for refused in [false, true] {
            let (mut a, mut b) = (End::open(kind), End::open(kind));
            let to_b = link(&mut a, &mut b);
            let (mut source, mut place) = (vec![5u8; LEN], vec![0u8; LEN]);
            let key = b.tx.register(place.as_mut_ptr(), LEN).unwrap();
            let mut gone = vec![0u8; 4096];
            let closed = b.tx.register(gone.as_mut_ptr(), gone.len()).unwrap();
            b.tx.deregister(closed);
            let pieces = [Piece {
                base: source.as_ptr(),
                len: LEN,
            }];
            let first = [Piece {
                base: gone.as_ptr(),
                len: gone.len(),
            }];
            if refused {
                // A reliable connection breaks with this write, and the next one does not start.
                let write = whole(closed, &first, 1);
                assert_eq!(a.tx.write(to_b, &write, b"refused"), SendOutcome::Sent);
            }
            let write = whole(key, &pieces, 2);
            assert_eq!(a.tx.write(to_b, &write, b"written"), SendOutcome::Sent);
            if !refused {
                a.tx.drain();
            }
            let up = reuse(&mut a, &mut b, to_b, 2, &mut source);
            assert!(!(up && refused && kind == "rc"), "it is broken");
            settle(&mut a, &mut b, to_b);
            let told = b.packets.iter().any(|packet| packet == b"written");
            assert!(!place.contains(&9), "{kind} {refused}: read again");
            let landed = place.iter().filter(|byte| **byte == 5).count();
            assert!(!told || landed == LEN, "{kind} {refused}: {landed}");
            println!("{kind}, refused {refused}: {landed} of {LEN} bytes landed");
            b.tx.deregister(key);
        }
    }
}

/// A link to an address without a rail goes down; it is never up.
#[test]
#[ignore = "needs a verbs device: scripts/guest"]
fn a_link_to_a_closed_rail_goes_down() {
    let (mut a, mut b) = (End::open("rc"), End::open("rc"));
    let gone = b.tx.local_addr();
    let one = link(&mut a, &mut b);
    a.events.clear();
    b = End::open("rc");
    let down = |e: &RailEvent| matches!(e, RailEvent::LinkDown(link, _) if *link == one);
    send(&mut a, one, b"to nobody");
    wait(&mut a, &mut b, |a, _| {
        a.events.iter().any(down).then_some(())
    });
    a.tx.close(one);
    a.events.clear();
    let connected = a.tx.connect(&gone);
    assert!(!connected.up);
    let up = RailEvent::LinkUp(connected.link);
    wait(&mut a, &mut b, |a, _| {
        let fate = |e: &&RailEvent| matches!(e, RailEvent::LinkDown(l, _) if *l == connected.link);
        assert!(!a.events.iter().any(|e| *e == up));
        a.events.iter().find(fate).map(|_| ())
    });
}

/// Polls all rails until `done` returns `Some`.
fn wait_all<T>(ends: &mut [End], what: &str, mut done: impl FnMut(&mut [End]) -> Option<T>) -> T {
    let since = Instant::now();
    loop {
        ends.iter_mut().for_each(End::poll);
        if let Some(it) = done(ends) {
            return it;
        }
        assert!(since.elapsed() < LONG, "{what}");
    }
}

fn count(ends: &[End], event: RailEvent) -> usize {
    let of = |end: &End| end.events.iter().filter(|e| **e == event).count();
    ends.iter().map(of).sum()
}

const RAILS: usize = 4;

/// [`RAILS`] rails, and their links to each other, all up.
fn all_linked(kind: &str, config: &VerbsConfig) -> (Vec<End>, Vec<Vec<Option<LinkId>>>) {
    let mut ends: Vec<End> = (0..RAILS)
        .map(|_| End::with(kind, config.clone()))
        .collect();
    let addresses: Vec<_> = ends.iter().map(|end| end.tx.local_addr()).collect();
    let mut links = Vec::new();
    for (at, end) in ends.iter_mut().enumerate() {
        let of = |to: usize| (to != at).then(|| end.tx.connect(&addresses[to]).link);
        links.push((0..RAILS).map(of).collect::<Vec<_>>());
    }
    let ups = RAILS * (RAILS - 1);
    wait_all(&mut ends, "up", |ends| {
        let up = |end: &End| {
            let ups = end.events.iter();
            ups.filter(|e| matches!(e, RailEvent::LinkUp(_))).count()
        };
        (ends.iter().map(up).sum::<usize>() == ups).then_some(())
    });
    (ends, links)
}

/// Four rails, each with a link to every other one and a single connection: packets and writes
/// arrive in order on each link, and no link goes down.
#[test]
#[ignore = "needs a verbs device: scripts/guest"]
fn connections_are_evicted_while_links_stay_up() {
    for kind in ["rc", "uc"] {
        let config = VerbsConfig {
            connections_max: 1,
            ..VerbsConfig::default()
        };
        let (mut ends, links) = all_linked(kind, &config);
        let mut place = vec![0u8; 50_000];
        for round in 0..6u8 {
            for from in 0..RAILS {
                for to in (0..RAILS).filter(|to| *to != from) {
                    let link = links[from][to].unwrap();
                    for part in 0..3 {
                        send(&mut ends[from], link, &[round, from as u8, part]);
                    }
                    let bytes = vec![round + 1; 50_000];
                    place.fill(0);
                    let key = ends[to].tx.register(place.as_mut_ptr(), 50_000).unwrap();
                    let pieces = [Piece {
                        base: bytes.as_ptr(),
                        len: bytes.len(),
                    }];
                    let write = whole(key, &pieces, 1);
                    while ends[from].tx.write(link, &write, b"written") == SendOutcome::Busy {
                        ends[from].poll();
                    }
                    let what = format!("{kind} {round}: {from} to {to}");
                    for part in 0..3 {
                        let packet =
                            wait_all(&mut ends, &what, |ends| ends[to].packets.pop_front());
                        assert_eq!(packet, [round, from as u8, part], "{what}");
                    }
                    let packet = wait_all(&mut ends, &what, |ends| ends[to].packets.pop_front());
                    assert_eq!(packet, b"written", "{what}");
                    assert_eq!(place, bytes, "{what}");
                    wait_all(&mut ends, &what, |ends| {
                        let at = ends[from].events.iter();
                        let at = at.clone().position(|e| *e == RailEvent::Done(1));
                        at.and_then(|at| ends[from].events.remove(at))
                    });
                    ends[to].tx.deregister(key);
                }
            }
        }
        let down = |e: &RailEvent| matches!(e, RailEvent::LinkDown(..));
        assert!(
            !ends.iter().any(|end| end.events.iter().any(down)),
            "{kind}"
        );
        assert_eq!(count(&ends, RailEvent::FailedCompletion), 0, "{kind}");
        let (evicted, reconnected) = (
            count(&ends, RailEvent::Evicted),
            count(&ends, RailEvent::Reconnected),
        );
        assert!(
            evicted > 20 && reconnected > 20,
            "{kind}: {evicted} {reconnected}"
        );
    }
}

/// A link starts with datagrams and gets a connection after some of them, or for a write; all
/// packets arrive meanwhile.
#[test]
#[ignore = "needs a verbs device: scripts/guest"]
fn a_link_begins_with_datagrams() {
    for kind in ["rc", "uc"] {
        let config = VerbsConfig {
            datagrams_first: 10,
            ..VerbsConfig::default()
        };
        let (mut a, mut b) = (End::with(kind, config.clone()), End::with(kind, config));
        assert!(!a.tx.caps().lossless);
        let to_b = link(&mut a, &mut b);
        let to_a = link(&mut b, &mut a);
        for at in 0..10u8 {
            send(&mut a, to_b, &[at; 600]);
            let packet = wait(&mut a, &mut b, |_, b| b.packets.pop_front());
            assert_eq!(packet, [at; 600], "{kind}");
        }
        let reconnected = |end: &End| end.events.contains(&RailEvent::Reconnected);
        assert!(
            !reconnected(&a) && !reconnected(&b),
            "{kind}: still by datagrams"
        );
        for at in 0..50u8 {
            send(&mut a, to_b, &[at; 600]);
            let packet = wait(&mut a, &mut b, |_, b| b.packets.pop_front());
            assert_eq!(packet, [at; 600], "{kind}");
        }
        wait(&mut a, &mut b, |a, b| {
            (reconnected(a) && reconnected(b)).then_some(())
        });
        send(&mut b, to_a, b"back");
        assert_eq!(wait(&mut a, &mut b, |a, _| a.packets.pop_front()), b"back");

        let mut c = End::with(
            kind,
            VerbsConfig {
                datagrams_first: 10,
                ..VerbsConfig::default()
            },
        );
        let to_c = link(&mut a, &mut c);
        a.events.clear();
        let (source, mut place) = (vec![7u8; 50_000], vec![0u8; 50_000]);
        let key = c.tx.register(place.as_mut_ptr(), place.len()).unwrap();
        let pieces = [Piece {
            base: source.as_ptr(),
            len: source.len(),
        }];
        let write = whole(key, &pieces, 1);
        assert_eq!(a.tx.write(to_c, &write, b"written"), SendOutcome::Sent);
        let packet = wait(&mut a, &mut c, |_, c| c.packets.pop_front());
        assert_eq!(packet, b"written", "{kind}");
        assert_eq!(place, source, "{kind}");
        assert!(reconnected(&a), "{kind}: a write wants a connection");
        c.tx.deregister(key);
    }
}

fn send_group(end: &mut End, group: GroupLink, bytes: &[u8], segment: usize) {
    let since = Instant::now();
    while end.tx.send_group(group, bytes, segment) == SendOutcome::Busy {
        end.poll();
        assert!(since.elapsed() < LONG);
    }
}

/// Packets to a group arrive once at each member, but not at the sender, at members of another
/// group or at former members; also after the datagram queue pair was reset.
#[test]
#[ignore = "needs a verbs device: scripts/guest"]
fn groups_are_reached_by_one_send() {
    for kind in ["ud", "rc", "uc"] {
        let mut ends = [kind; 4].map(End::open);
        let caps = ends[0].tx.caps();
        let most = caps.for_groups().unwrap().datagram_max;
        let address = |end: &End, id| group_addr(end.tx.local_addr().kind, id).unwrap();
        let join = |end: &mut End, id| end.tx.join(&address(end, id)).unwrap();
        let links = [7, 7, 7, 8].map(|id| id << 40);
        let links: Vec<_> = ends
            .iter_mut()
            .zip(links)
            .map(|(e, id)| join(e, id))
            .collect();
        for (round, segment) in [1, 100, 700, most].into_iter().cycle().take(40).enumerate() {
            let from = round % 2;
            let count = round % caps.batch_segments_max.min(30) + 1;
            let bytes: Vec<u8> = (0..segment * count)
                .map(|at| (at * 7 + round) as u8)
                .collect();
            send_group(&mut ends[from], links[from], &bytes, segment);
            wait_all(&mut ends, "a batch", |ends| {
                let all = |at: usize| ends[at].packets.len() >= count;
                (all(1 - from) && all(2)).then_some(())
            });
            for at in [1 - from, 2] {
                let packets = std::mem::take(&mut ends[at].packets);
                let sent = bytes.chunks(segment);
                assert!(
                    packets.iter().eq(sent),
                    "{kind} {round} {at}: {}",
                    packets.len()
                );
            }
            if round == 20 {
                ends[1].tx.drain(); // resets the queue pair, which stays a member
            }
        }
        assert!(
            ends[0].packets.is_empty() && ends[3].packets.is_empty(),
            "{kind}"
        );
        ends[2].tx.leave(links[2]);
        assert_eq!(
            ends[2].tx.send_group(links[2], b"gone", 4),
            SendOutcome::Sent
        );
        send_group(&mut ends[0], links[0], b"last", 4);
        let heard = wait_all(&mut ends, "the last", |ends| ends[1].packets.pop_front());
        assert_eq!(heard, b"last");
        assert!(ends[2].packets.is_empty(), "{kind}");
        let udp = group_addr(marline_wire::RailKind::Udp4, 7).unwrap();
        assert_eq!(ends[0].tx.join(&udp), Err(GroupError::NoGroup));
    }
}
