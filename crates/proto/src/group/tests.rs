//! Groups on a network that loses, doubles and reorders: everything arrives once and right,
//! whatever the scheme, and few speak at once.

use super::*;
use proptest::prelude::*;
use std::collections::BTreeMap as Map;
use std::vec;
use std::vec::Vec;

const CHUNK: u32 = 1_000;
const ROUND_TRIP_NS: u64 = 50_000;

fn byte(broadcast: u64, offset: u64) -> u8 {
    (broadcast.wrapping_mul(31) ^ offset.wrapping_mul(7)) as u8
}

/// One member with its memory.
struct Member {
    group: Group,
    /// Received so far, by operation; and the broadcast of each.
    posted: Map<u32, (u64, Vec<u8>)>,
    early: Map<u64, Vec<u8>>,
    /// Chunks kept as a co-root.
    kept: Map<(u16, u64), (Chunk, Vec<u8>)>,
    ended: Map<u32, End>,
    next_handle: u32,
}

/// What the network does.
#[derive(Clone, Copy, Debug)]
struct Weather {
    /// Packets lost of 1,000; of one member's, which hears badly.
    lost: u64,
    lost_by_last: u64,
    doubled: u64,
    /// Delay differs by up to this, so that packets overtake each other.
    jitter_ns: u64,
}

const CALM: Weather = Weather {
    lost: 0,
    lost_by_last: 0,
    doubled: 0,
    jitter_ns: 0,
};

/// A packet under way: from, to, what, and the bytes of a chunk.
type Flying = (u16, u16, Content, Vec<u8>);

struct World {
    members: Vec<Member>,
    now: u64,
    /// Packets under way by arrival.
    flying: Map<(u64, u64), Flying>,
    count: u64,
    draw: delay::Draw,
    weather: Weather,
    /// The broadcasts in order: root and bytes.
    script: Vec<(u16, u64)>,
    /// Multicasts of chunks that nobody hears, counted down.
    swallow: u64,
    dead: Vec<u16>,
}

impl World {
    fn new(members: u16, scheme: Scheme, weather: Weather, seed: u64) -> World {
        let member = |me| Member {
            group: Group::new(GroupConfig {
                members,
                me,
                chunk: CHUNK,
                early_max: 200_000,
                round_trip_ns: ROUND_TRIP_NS,
                scheme,
                seed: seed ^ (me as u64) << 32,
            }),
            posted: Map::new(),
            early: Map::new(),
            kept: Map::new(),
            ended: Map::new(),
            next_handle: 0,
        };
        World {
            members: (0..members).map(member).collect(),
            now: 1,
            flying: Map::new(),
            count: 0,
            draw: delay::Draw::new(seed, 2),
            weather,
            script: Vec::new(),
            swallow: 0,
            dead: Vec::new(),
        }
    }

    fn chance(&mut self, of_1000: u64) -> bool {
        self.draw.next() % 1_000 < of_1000
    }

    /// Member `me` posts its next broadcast.
    fn post(&mut self, me: u16) {
        let member = &mut self.members[me as usize];
        let handle = member.next_handle;
        let (root, len) = self.script[handle as usize];
        member.next_handle += 1;
        let memory = match root == me {
            true => (0..len).map(|o| byte(handle as u64, o)).collect(),
            false => vec![0; len as usize],
        };
        member.posted.insert(handle, (handle as u64, memory));
        member.group.post(self.now, root, handle, len);
        self.pump(me);
    }

    /// Events to memory, packets to the network.
    fn pump(&mut self, me: u16) {
        let member = &mut self.members[me as usize];
        while let Some(event) = member.group.poll_event() {
            match event {
                GroupEvent::Done { handle, end } => {
                    assert_eq!(member.ended.insert(handle, end), None, "ends once");
                }
                GroupEvent::Adopt { broadcast, handle } => {
                    let early = member.early.remove(&broadcast).unwrap();
                    member.posted.get_mut(&handle).unwrap().1 = early;
                }
                GroupEvent::Drop { broadcast } => drop(member.early.remove(&broadcast)),
                GroupEvent::Forget { root, next } => {
                    member
                        .kept
                        .retain(|&(r, number), _| r != root || number >= next);
                }
            }
        }
        while let Some(packet) = self.members[me as usize].group.poll_transmit(self.now) {
            self.send(me, packet);
        }
    }

    fn send(&mut self, from: u16, packet: Packet) {
        let member = &self.members[from as usize];
        let bytes = match &packet.content {
            Content::Own { handle, chunk } => {
                let (offset, len) = (chunk.offset as usize, chunk.len as usize);
                member.posted[handle].1[offset..offset + len].to_vec()
            }
            Content::Kept(chunk) => member.kept[&(chunk.root, chunk.number)].1.clone(),
            Content::Word(_) => Vec::new(),
        };
        let chunk = !matches!(packet.content, Content::Word(_));
        if chunk && packet.to == To::All && self.swallow > 0 {
            self.swallow -= 1;
            return;
        }
        let all = 0..self.members.len() as u16;
        for to in
            all.filter(|&to| to != from && (packet.to == To::All || packet.to == To::Member(to)))
        {
            let last = to as usize + 1 == self.members.len();
            let lost = if last {
                self.weather.lost + self.weather.lost_by_last
            } else {
                self.weather.lost
            };
            let times = 1 + self.chance(self.weather.doubled) as u64;
            for _ in 0..times {
                if self.chance(lost) || self.dead.contains(&to) {
                    continue;
                }
                let jitter = self.draw.next() % (self.weather.jitter_ns + 1);
                let at = self.now + ROUND_TRIP_NS / 2 + jitter;
                self.count += 1;
                let packet = (from, to, packet.content.clone(), bytes.clone());
                self.flying.insert((at, self.count), packet);
            }
        }
    }

    fn deliver(&mut self, from: u16, to: u16, content: Content, bytes: &[u8]) {
        let now = self.now;
        let member = &mut self.members[to as usize];
        let chunk = match content {
            Content::Word(word) => return member.group.handle_word(now, from, &word),
            Content::Own { chunk, .. } | Content::Kept(chunk) => chunk,
        };
        let place = member.group.place(now, &chunk);
        let memory = match place {
            Place::Posted { handle, .. } => &mut member.posted.get_mut(&handle).unwrap().1,
            Place::Early { .. } => {
                let new = || vec![0; chunk.total as usize];
                member.early.entry(chunk.broadcast).or_insert_with(new)
            }
            _ => return,
        };
        let offset = chunk.offset as usize;
        memory[offset..offset + bytes.len()].copy_from_slice(bytes);
        if matches!(
            place,
            Place::Posted { keep: true, .. } | Place::Early { keep: true }
        ) {
            let kept = (chunk, bytes.to_vec());
            member.kept.insert((chunk.root, chunk.number), kept);
        }
        member.group.commit(now, &chunk, true);
    }

    /// The next thing happens; `false`: nothing will.
    fn step(&mut self, until: u64) -> bool {
        let arrival = self.flying.keys().next().map(|&(at, _)| at);
        let alive = |&(me, _): &(usize, &Member)| !self.dead.contains(&(me as u16));
        let members = self.members.iter().enumerate().filter(alive);
        let timer = members.filter_map(|(_, m)| m.group.next_deadline()).min();
        let Some(at) = arrival
            .into_iter()
            .chain(timer)
            .min()
            .filter(|&at| at <= until)
        else {
            self.now = self.now.max(until.min(u64::MAX / 2));
            return false;
        };
        self.now = self.now.max(at);
        if arrival == Some(at) {
            if let Some((_, (from, to, content, bytes))) = self.flying.pop_first() {
                if !self.dead.contains(&to) {
                    self.deliver(from, to, content, &bytes);
                    self.pump(to);
                }
            }
            return true;
        }
        for me in 0..self.members.len() as u16 {
            let group = &mut self.members[me as usize].group;
            if !self.dead.contains(&me) && group.next_deadline().is_some_and(|d| d <= at) {
                group.handle_timeouts(at);
                self.pump(me);
            }
        }
        true
    }

    /// Until nothing happens any more, within ten seconds.
    fn settle(&mut self) {
        let end = self.now + 10_000_000_000;
        while self.step(end) {}
        assert!(self.flying.is_empty(), "it goes on and on");
    }

    /// Everybody has everything, byte for byte, and nothing is kept.
    fn check(&self) {
        for (me, member) in self.members.iter().enumerate() {
            if self.dead.contains(&(me as u16)) {
                continue;
            }
            for (handle, (broadcast, memory)) in &member.posted {
                let end = member.ended.get(handle);
                assert_eq!(end, Some(&End::Well), "member {me} operation {handle}");
                let right = memory
                    .iter()
                    .enumerate()
                    .all(|(o, &b)| b == byte(*broadcast, o as u64));
                assert!(right, "member {me} broadcast {broadcast}");
            }
            assert_eq!(
                (member.early.len(), member.kept.len()),
                (0, 0),
                "member {me}"
            );
            assert_eq!(member.group.awaited(), Vec::<u16>::new());
        }
    }

    fn total(&self, count: impl Fn(&GroupStats) -> u64) -> u64 {
        self.members.iter().map(|m| count(m.group.stats())).sum()
    }
}

fn scheme() -> impl Strategy<Value = Scheme> {
    let co_roots = |n| Scheme {
        co_roots: n,
        ..Scheme::NACK
    };
    let narrow = Scheme {
        window: 4,
        ..Scheme::NACK
    };
    prop_oneof![
        Just(Scheme::BASIC),
        Just(Scheme::WINDOW),
        Just(Scheme::CO_ROOT),
        Just(Scheme::AGGREGATE),
        Just(Scheme::NACK),
        Just(co_roots(3)),
        Just(narrow),
    ]
}

fn weather() -> impl Strategy<Value = Weather> {
    let lost = prop_oneof![Just(0u64), Just(1), Just(10), Just(50), Just(300)];
    let by_last = prop_oneof![Just(0u64), Just(200)];
    let jitter = prop_oneof![Just(0u64), Just(10_000), Just(500_000)];
    (lost, by_last, 0u64..100, jitter).prop_map(|(lost, lost_by_last, doubled, jitter_ns)| {
        Weather {
            lost,
            lost_by_last,
            doubled,
            jitter_ns,
        }
    })
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(if cfg!(miri) { 2 } else { 400 }))]

    /// Any scheme, roots, lengths, network, and members that come late in any order.
    #[test]
    fn everything_arrives_once_and_right(
        (members, scripted) in (2u16..12).prop_flat_map(|members| {
            let lengths = prop_oneof![Just(0u64), 1u64..3_000, 3_000u64..100_000];
            (Just(members), proptest::collection::vec((0..members, lengths), 1..12))
        }),
        scheme in scheme(),
        weather in weather(),
        skew in proptest::collection::vec((any::<u16>(), 0u64..2_000_000), 0..60),
        seed in any::<u64>(),
    ) {
        let mut world = World::new(members, scheme, weather, seed);
        world.script = scripted;
        let most = world.script.len() as u32;
        for (who, pause) in skew {
            let me = who % members;
            if world.members[me as usize].next_handle < most {
                world.post(me);
            }
            let until = world.now + pause;
            while world.step(until) {}
        }
        for me in 0..members {
            while world.members[me as usize].next_handle < most {
                world.post(me);
            }
        }
        world.settle();
        world.check();
        prop_assert!(world.total(|s| s.early_bytes_max) <= 200_000 * members as u64);
    }
}

/// A calm network carries each chunk once, and the default scheme hardly any acknowledgement.
#[test]
fn a_calm_network_sees_each_chunk_once() {
    for (scheme, most) in [
        (Scheme::WINDOW, 1_100),
        (Scheme::AGGREGATE, 150),
        (Scheme::NACK, 80),
    ] {
        let mut world = World::new(12, scheme, CALM, 1);
        world.script = vec![(0, 1_000); 100];
        for _ in 0..100 {
            (0..12).for_each(|me| world.post(me));
            let until = world.now + ROUND_TRIP_NS;
            while world.step(until) {}
        }
        world.settle();
        world.check();
        assert_eq!(world.total(|s| s.chunks), 100);
        assert_eq!(world.total(|s| s.repairs + s.repairs_to_all + s.nacks), 0);
        let acks = world.total(|s| s.acks);
        assert!(acks <= most, "{acks} acknowledgements by {scheme:?}");
    }
}

/// The first chunk is lost for all of 1,000: a few ask for it, and it is sent to all again.
#[test]
fn a_loss_that_all_share_is_asked_for_by_few() {
    let mut world = World::new(1_000, Scheme::NACK, CALM, 2);
    world.script = vec![(0, 5_000)];
    world.swallow = 1;
    (0..1_000).for_each(|me| world.post(me));
    world.settle();
    world.check();
    let (nacks, repairs) = (world.total(|s| s.nacks), world.total(|s| s.repairs));
    assert!((1..=30).contains(&nacks), "{nacks} asked");
    assert!(repairs <= 5, "{repairs} repaired alone");
    assert!(world.total(|s| s.repairs_to_all) >= 1);
}

/// What one member lost is sent to it alone.
#[test]
fn a_loss_of_one_is_repaired_for_one() {
    let weather = Weather {
        lost_by_last: 200,
        ..CALM
    };
    let mut world = World::new(12, Scheme::NACK, weather, 3);
    world.script = vec![(0, 400_000)];
    (0..12).for_each(|me| world.post(me));
    world.settle();
    world.check();
    assert!(world.total(|s| s.repairs) > 40);
    assert_eq!(world.total(|s| s.repairs_to_all), 0);
}

/// A receiver that comes two seconds late keeps nobody: the root and the others are done long
/// before, and its early memory stays within its bound.
#[test]
fn a_late_receiver_keeps_nobody() {
    let mut world = World::new(4, Scheme::NACK, CALM, 4);
    world.script = vec![(0, 50_000); 3];
    for me in 0..3 {
        (0..3).for_each(|_| world.post(me));
    }
    let until = world.now + 100_000_000;
    while world.step(until) {}
    for me in 0..3 {
        assert_eq!(world.members[me].ended.len(), 3, "member {me}");
    }
    (0..3).for_each(|_| world.post(3));
    world.settle();
    world.check();
}

/// More than the late receiver may buffer: the root waits for it, and goes on when it comes.
#[test]
fn a_root_waits_when_early_memory_is_full() {
    let mut world = World::new(3, Scheme::NACK, CALM, 5);
    world.script = vec![(0, 90_000); 5];
    for me in 0..2 {
        (0..5).for_each(|_| world.post(me));
    }
    let until = world.now + 1_000_000_000;
    while world.step(until) {}
    assert!(world.members[0].ended.len() < 5);
    assert!(world.members[2].group.stats().early_bytes_max <= 200_000);
    (0..5).for_each(|_| world.post(2));
    world.settle();
    world.check();
}

/// A root, a co-root, or a receiver dies in the middle: everybody's operations end.
#[test]
fn a_death_ends_what_it_touches() {
    for (dies, scheme) in [
        (0u16, Scheme::NACK),
        (6, Scheme::CO_ROOT),
        (3, Scheme::WINDOW),
        (6, Scheme::NACK),
    ] {
        let weather = Weather { lost: 100, ..CALM };
        let mut world = World::new(12, scheme, weather, 6);
        world.script = vec![(0, 300_000), (1, 20_000)];
        (0..12).for_each(|me| world.post(me));
        let until = world.now + 3 * ROUND_TRIP_NS;
        while world.step(until) {}
        world.dead.push(dies);
        for me in (0..12).filter(|&me| me != dies) {
            world.members[me as usize].group.on_dead(world.now, dies);
            world.pump(me);
            world.post(me);
        }
        world.settle();
        for me in (0..12).filter(|&me| me != dies) {
            let ended = &world.members[me as usize].ended;
            assert_eq!(ended.len(), 2, "member {me} after the death of {dies}");
            let own = if me == 0 { End::Dead(dies) } else { End::Well };
            let first = if dies == 0 { End::Dead(0) } else { own };
            assert_eq!((ended[&0], ended[&1].dead()), (first, me == 1 && dies == 1));
        }
    }
}

impl End {
    fn dead(&self) -> bool {
        matches!(self, End::Dead(_))
    }
}

/// Strangers' numbers change a counter and nothing else.
#[test]
fn nonsense_is_counted() {
    let mut world = World::new(3, Scheme::NACK, CALM, 7);
    world.script = vec![(0, 3_000)];
    let chunk = Chunk {
        root: 0,
        number: 0,
        broadcast: 0,
        offset: 0,
        len: 1_000,
        total: 3_000,
    };
    let group = &mut world.members[1].group;
    let bad = [
        Chunk { root: 1, ..chunk },
        Chunk { root: 9, ..chunk },
        Chunk { len: 0, ..chunk },
        Chunk {
            offset: 2_001,
            ..chunk
        },
        Chunk {
            number: 64,
            ..chunk
        },
        Chunk {
            offset: u64::MAX,
            ..chunk
        },
    ];
    for chunk in &bad {
        assert_eq!(group.place(1, chunk), Place::Nonsense, "{chunk:?}");
    }
    let words = [
        (1, Word::Ack { root: 0, next: 1 }),
        (7, Word::Ack { root: 0, next: 1 }),
        (2, Word::Ack { root: 1, next: 1 }),
        (
            2,
            Word::Nack {
                root: 1,
                gaps: vec![(0, u64::MAX)],
            },
        ),
        (
            0,
            Word::Tail {
                root: 0,
                next: 1_000,
                asked: vec![],
            },
        ),
    ];
    for (from, word) in &words {
        group.handle_word(1, *from, word);
    }
    assert_eq!(
        group.stats().nonsense,
        bad.len() as u64 + words.len() as u64
    );
    assert_eq!(group.poll_transmit(1), None);
    (0..3).for_each(|me| world.post(me));
    world.settle();
    world.check();
}
