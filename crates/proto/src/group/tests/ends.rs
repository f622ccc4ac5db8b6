//! Endings: deaths, foreign packets, networks without multicast.

use super::*;

/// A root, a co-root, or a receiver dies during a broadcast: all members' operations end.
#[test]
fn a_death_ends_the_affected_operations() {
    for (dies, scheme) in [
        (0u16, Scheme::NACK),
        (6, Scheme::CO_ROOT),
        (3, Scheme::WINDOW),
        (6, Scheme::NACK),
    ] {
        let faults = Faults { lost: 100, ..CALM };
        let mut world = World::new(12, scheme, faults, 6);
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
            // Receivers have all of it; only the root knows which members do not.
            let own = |root| {
                if me == root {
                    End::Dead(dies)
                } else {
                    End::Well
                }
            };
            let first = if dies == 0 { End::Dead(0) } else { own(0) };
            assert_eq!(
                (ended[&0], ended[&1]),
                (first, own(1)),
                "member {me}, {dies} died"
            );
            world.check_returned(me);
        }
    }
}

/// A root died when some members had its broadcast. The others refuse broadcasts far behind it but
/// send their own, and no member waits.
#[test]
fn broadcasts_behind_a_dead_root_end() {
    let mut world = World::new(4, Scheme::NACK, CALM, 27);
    world.script = (0..200)
        .map(|n| (if n == 3 { 3 } else { n % 3 }, 900))
        .collect();
    // The dead root's broadcast reaches member 1 only.
    world.unreachable = vec![0, 2];
    (0..4).for_each(|_| world.post(3));
    world.run_for(ROUND_TRIP_NS);
    world.dead.push(3);
    world.unreachable.clear();
    world.post_all();
    for _ in 0..20 {
        world.run_for(10_000_000);
        for me in 0..3u16 {
            if world.members[me as usize].group.awaited().contains(&3) {
                world.members[me as usize].group.on_dead(world.now, 3);
                world.pump(me);
            }
        }
    }
    world.settle();
    for me in 0..3 {
        assert_eq!(world.members[me as usize].ended.len(), 200, "member {me}");
        world.check_returned(me);
    }
    assert_eq!(world.members[0].ended[&3], End::Dead(3));
    assert_eq!(world.members[1].ended[&3], End::Well);
}

/// A broadcast had no room, and then the death of an earlier root ended it here: its root continues
/// nevertheless (seed 5000000405).
#[test]
fn a_refused_broadcast_without_room_does_not_block_its_root() {
    let cfg = GroupConfig {
        chunk: CHUNK,
        early_max: 20_000, // less than a window
        round_trip_ns: ROUND_TRIP_NS,
        copy_max: 2_500,
        ..GroupConfig::default()
    };
    let mut world = World::with(3, cfg, CALM, 29);
    world.script = vec![(2, 900)];
    world.script.extend([(0, 0); AHEAD as usize - 1]);
    world.script.push((0, 300_000));
    world.unreachable = vec![1];
    world.post(2);
    world.run_for(ROUND_TRIP_NS);
    world.dead.push(2);
    world.unreachable.clear();
    world.post_all();
    world.run_for(1_000_000);
    assert!(world.members[1].group.stats().no_room > 0);
    assert_eq!(world.members[1].group.awaited(), [2]);
    for me in 0..2u16 {
        world.members[me as usize].group.on_dead(world.now, 2);
        world.pump(me);
    }
    world.settle();
    let last = AHEAD as u32;
    assert_eq!(world.members[0].ended[&last], End::Dead(2));
    assert_eq!(world.members[1].ended[&last], End::Dead(2));
    (0..2).for_each(|me| world.check_returned(me));
}

/// The root takes over the members of a dead co-root's part.
#[test]
fn orphans_acknowledge_to_the_root() {
    let scheme = Scheme {
        co_roots: 1,
        ..Scheme::AGGREGATE
    };
    let mut world = World::new(40, scheme, CALM, 20);
    world.script = vec![(0, 1_000); 300];
    world.dead.push(20);
    world.post_all();
    world.run_for(20_000_000);
    assert!(world.members[0].ended.len() < 300, "20 is waited for");
    assert_eq!(world.members[0].group.awaited(), [20]);
    world.members[0].group.on_dead(world.now, 20);
    world.pump(0);
    world.settle();
    for me in (0..40).filter(|&me| me != 20) {
        assert_eq!(world.members[me as usize].ended.len(), 300, "member {me}");
        world.check_returned(me);
    }
}

/// The same if the co-root died before the root sent anything.
#[test]
fn orphans_of_an_earlier_death_are_not_forgotten() {
    let scheme = Scheme {
        co_roots: 1,
        ..Scheme::NACK
    };
    let mut world = World::new(8, scheme, CALM, 28);
    world.script = vec![(1, 900), (0, 900), (0, 50_000)];
    world.dead.push(4);
    for me in (0..8u16).filter(|&me| me != 4) {
        world.members[me as usize].group.on_dead(world.now, 4);
    }
    world.count_unwanted = 1;
    world.post_all();
    world.settle();
    for me in (0..8).filter(|&me| me != 4) {
        assert_eq!(world.members[me as usize].ended.len(), 3, "member {me}");
        world.check_returned(me);
    }
}

/// A root without any other member left ends its broadcasts.
#[test]
fn a_root_without_other_members_ends() {
    let mut world = World::new(3, Scheme::NACK, CALM, 21);
    world.script = vec![(0, 200_000); 2];
    world.dead = vec![1, 2];
    world.post_all();
    world.run_for(1_000_000);
    for member in [1, 2] {
        world.members[0].group.on_dead(world.now, member);
        world.pump(0);
    }
    let ended: Vec<End> = world.members[0].ended.values().copied().collect();
    assert_eq!(ended, [End::Dead(2); 2]);
    world.check_returned(0);
}

/// Root and receiver disagree on the length: only that receiver's operation ends with a mismatch,
/// and no other member waits.
#[test]
fn a_mismatch_ends_one_receiver_only() {
    for late in [false, true] {
        let mut world = World::new(3, Scheme::NACK, CALM, 22);
        world.script = vec![(0, 20_000), (0, 500)];
        (0..2).for_each(|me| (0..2).for_each(|_| world.post(me)));
        if late {
            world.run_for(1_000_000);
        }
        world.script[0].1 = 10_000;
        (0..2).for_each(|_| world.post(2));
        world.settle();
        assert_eq!(world.members[2].ended[&0], End::Mismatch);
        assert!((0..2).all(|me| world.members[me].ended[&0] == End::Well));
        (0..3).for_each(|me| world.check_returned(me));
    }
}

/// Multicast reaches no member, from the beginning or from some time on: begun broadcasts arrive by
/// unicast, and all members abandon the group at the same broadcast.
#[test]
fn all_members_abandon_multicast_at_the_same_broadcast() {
    for (after, scheme) in [
        (0, Scheme::NACK),
        (20, Scheme::NACK),
        (20, Scheme::WINDOW),
        (
            20,
            Scheme {
                co_roots: 2,
                ..Scheme::NACK
            },
        ),
    ] {
        let mut world = World::new(9, scheme, CALM, 23);
        world.script = (0..2_000).map(|n| (n % 3, 1_500)).collect();
        for n in 0..2_000 {
            if n == after {
                world.mute = 1;
            }
            (0..9).for_each(|me| world.post(me));
            // Each broadcast begins when all members have the previous one, as in a blocking
            // program.
            let mut reminder_backoff_ns = 0;
            while world.members.iter().any(|m| m.ended.len() <= n) {
                world.run_for(ROUND_TRIP_NS);
                reminder_backoff_ns += 1;
                assert!(reminder_backoff_ns < 1_000, "broadcast {n} after {after}");
            }
        }
        world.settle();
        let from = world.members[0].left_from;
        assert!(
            (after as u64..1_999).contains(&from),
            "{from} after {after}"
        );
        for me in 0..9 {
            let member = &world.members[me as usize];
            assert_eq!(member.left_from, from, "member {me}");
            for (&handle, &end) in &member.ended {
                let left = handle as u64 >= from;
                assert_eq!(end, if left { End::NotCarried } else { End::Well });
            }
            world.check_returned(me);
        }
    }
}

/// A single member without multicast suffices to abandon the group; a momentary fault does not.
#[test]
fn one_member_without_multicast_is_enough() {
    for (ms, leaves) in [(20, false), (400, true)] {
        let mut world = World::new(5, Scheme::NACK, CALM, 24);
        world.script = vec![(0, 700); 3_000];
        world.unreachable = vec![3];
        let mut n = 0;
        while n < 3_000 {
            (0..5).for_each(|me| world.post(me));
            n += 1;
            while world.members.iter().any(|m| m.ended.len() < n) {
                world.run_for(ROUND_TRIP_NS);
            }
            if world.now > ms * 1_000_000 {
                world.unreachable.clear();
            }
        }
        world.settle();
        assert_eq!(world.members.iter().all(|m| m.left_from < 3_000), leaves);
        assert_eq!(world.members.iter().any(|m| m.left_from < 3_000), leaves);
    }
}

/// Probes show which rails carry multicast.
#[test]
fn probes_are_heard_where_multicast_is_carried() {
    let cfg = GroupConfig {
        networks: 3,
        ..GroupConfig::default()
    };
    let mut world = World::with(3, cfg, CALM, 25);
    world.mute = 0b010;
    world.members[0].group.probe();
    world.pump(0);
    world.settle();
    assert_eq!(world.members[0].group.heard_networks(), 0);
    assert!((1..3).all(|me| world.members[me].group.heard_networks() == 0b101));
}

/// Packets from outside the group only change a counter.
#[test]
fn foreign_packets_are_counted() {
    let world = World::new(3, Scheme::NACK, CALM, 26);
    let mut group = world.members.into_iter().next().unwrap().group;
    let head = GroupHead {
        algorithm: 0,
        group: 26,
        token: 7,
        member: 1,
        src_id: 101,
        src_epoch: 1,
        network: 255,
        flags: 1,
    };
    let bad = [
        GroupHead { group: 27, ..head },
        GroupHead { token: 8, ..head },
        GroupHead { member: 2, ..head },
        GroupHead {
            member: 0,
            src_id: 100,
            ..head
        },
        GroupHead {
            member: 3,
            src_id: 103,
            ..head
        },
        GroupHead {
            src_id: 102,
            ..head
        },
        GroupHead {
            src_epoch: 2,
            ..head
        },
    ];
    for head in &bad {
        assert_eq!(group.admit(head), None, "{head:?}");
    }
    assert_eq!(group.stats().strangers, bad.len() as u64);
    assert_eq!(group.heard_networks(), 0);
    let heard = group.admit(&head);
    assert_eq!(
        heard,
        Some(Heard {
            from: 1,
            network: Some(255)
        })
    );
    group.on_dead(1, 1);
    assert_eq!(group.admit(&head), None);
}

/// The first chunk of a broadcast of three.
const FIRST: Chunk = Chunk {
    root: 0,
    number: 0,
    broadcast: 0,
    offset: 0,
    len: 1_000,
    total: 3_000,
    parity: 0,
    piece: 0,
    asks: false,
    leaves: false,
};

fn by(from: u16) -> Heard {
    Heard {
        from,
        network: None,
    }
}

/// Chunks at impossible places only change a counter.
#[test]
fn impossible_chunks_are_counted() {
    let mut world = World::new(3, Scheme::NACK, CALM, 7);
    let group = &mut world.members[1].group;
    let bad = [
        Chunk { root: 1, ..FIRST },
        Chunk { root: 9, ..FIRST },
        Chunk { len: 0, ..FIRST },
        Chunk { len: 999, ..FIRST },
        Chunk {
            offset: 2_001,
            ..FIRST
        },
        Chunk {
            offset: 1_000,
            ..FIRST
        },
        Chunk {
            number: 64,
            ..FIRST
        },
        Chunk {
            offset: u64::MAX,
            ..FIRST
        },
        Chunk {
            total: u64::MAX,
            offset: u64::MAX - 1_000,
            ..FIRST
        },
        Chunk { parity: 2, ..FIRST },
    ];
    for chunk in &bad {
        assert_eq!(group.place(1, by(0), chunk), Place::Invalid, "{chunk:?}");
    }
    // Only the root or a collector may send the root's chunks.
    assert_eq!(group.place(1, by(2), &FIRST), Place::Invalid);
    let parities = [
        Chunk { parity: 4, ..FIRST },
        Chunk { parity: 1, ..FIRST },
        Chunk {
            parity: 2,
            number: u64::MAX,
            ..FIRST
        },
        Chunk {
            parity: 2,
            number: 63,
            ..FIRST
        },
    ];
    for parity in &parities {
        assert_eq!(group.place_parity(1, by(0), parity), None, "{parity:?}");
    }
    let count = bad.len() + 1 + parities.len();
    assert_eq!(group.stats().nonsense, count as u64);
    assert_eq!(group.held(), GroupHeld::default());
    assert_eq!(
        (group.poll_transmit(1), group.next_deadline()),
        (None, None)
    );
}

/// Contradictory frames of members only change a counter.
#[test]
fn impossible_words_are_counted() {
    let mut world = World::new(3, Scheme::NACK, CALM, 7);
    world.script = vec![(0, 3_000)];
    let group = &mut world.members[1].group;
    let mut gaps = Gaps::default();
    gaps.push(0);
    let (flags, asked) = (AckFlags::default(), Asked::default());
    let tail = |root, next| Frame::Tail { root, next, asked };
    let frames = [
        (0, tail(0, 1_000)),
        (2, tail(0, 1)),
        (2, tail(1, 1)),
        (2, tail(700, 1)),
        (
            2,
            Frame::Ack {
                root: 700,
                next: 1,
                flags,
            },
        ),
        (2, Frame::Nack { root: 700, gaps }),
    ];
    for (from, frame) in &frames {
        group.handle_frame(1, by(*from), frame);
    }
    assert_eq!(group.stats().nonsense, frames.len() as u64);
    assert_eq!(
        (group.poll_transmit(1), group.next_deadline()),
        (None, None)
    );
    world.post_all();
    // The root has sent three chunks, not four.
    let root = &mut world.members[0].group;
    root.handle_frame(
        1,
        by(2),
        &Frame::Ack {
            root: 0,
            next: 4,
            flags,
        },
    );
    assert_eq!(root.stats().nonsense, 1);
    world.settle();
    world.check();
}
