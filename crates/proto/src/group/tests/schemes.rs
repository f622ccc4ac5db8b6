//! The schemes and their properties.

use super::*;

#[test]
fn schemes_have_names() {
    let with = |co_roots| Scheme {
        co_roots,
        ..Scheme::CO_ROOT
    };
    for (name, scheme) in [
        ("original", Scheme::ORIGINAL),
        ("basic", Scheme::BASIC),
        ("window", Scheme::WINDOW),
        ("co-root2", with(1)),
        ("co-root9", with(8)),
        ("aggregate10", Scheme::AGGREGATE),
        (
            "aggregate3",
            Scheme {
                ack_every: 3,
                ..Scheme::WINDOW
            },
        ),
        ("nack", Scheme::NACK),
        (
            "nack+parity8",
            Scheme {
                parity: 8,
                ..Scheme::NACK
            },
        ),
    ] {
        assert_eq!(Scheme::parse(name), Some(scheme), "{name}");
    }
    for wrong in [
        "",
        "co-root0",
        "co-root",
        "aggregate-1",
        "nack+parity1",
        "nack+parity33",
        "Nack",
    ] {
        assert_eq!(Scheme::parse(wrong), None, "{wrong}");
    }
    assert_eq!(
        (Scheme::usual(8).co_roots, Scheme::usual(1_024).co_roots),
        (0, 15)
    );
}

/// Packets that the root sends for 20 broadcasts of one chunk to 11 receivers, each posted when all
/// have the previous one.
fn root_packets(scheme: Scheme) -> (u64, World) {
    let mut world = World::new(12, scheme, CALM, 30);
    world.script = vec![(0, 900); 20];
    for _ in 0..20 {
        (0..12).for_each(|me| world.post(me));
        world.run_for(2 * ROUND_TRIP_NS);
    }
    world.settle();
    world.check();
    (world.sent[0], world)
}

/// For each chunk the root sends one packet whatever the number of receivers, or, without
/// multicast, one per receiver.
#[test]
fn a_root_sends_one_packet_for_all() {
    for scheme in [Scheme::BASIC, Scheme::WINDOW, Scheme::AGGREGATE] {
        let (sent, world) = root_packets(scheme);
        let tails = world.total(|s| s.tails);
        assert_eq!(sent - tails, 20, "{scheme:?}");
        assert!(tails <= 3, "{tails}");
    }
    let (sent, _) = root_packets(Scheme::ORIGINAL);
    assert_eq!(sent, 20 * 11);
    // One more goes to the co-root, to protect it from the loss of a multicast.
    let (sent, world) = root_packets(Scheme::CO_ROOT);
    assert_eq!(sent - world.members[0].group.stats().tails, 20 * 2);
}

/// With one co-root the root gets the acknowledgements of half of the members, the co-root those of
/// the others.
#[test]
fn co_roots_share_the_acknowledgements() {
    let (_, world) = root_packets(Scheme::CO_ROOT);
    let heard = |me: usize| world.members[me].group.stats().heard;
    assert_eq!((heard(0), heard(6)), (6 * 20, 5 * 20));
    let (_, world) = root_packets(Scheme::AGGREGATE);
    assert!(world.members[0].group.stats().heard <= 11 * 3);
}

/// Stop and wait: the next chunk leaves when all members have acknowledged the previous one.
#[test]
fn the_basic_schemes_wait_for_all() {
    for scheme in [Scheme::ORIGINAL, Scheme::BASIC] {
        let mut world = World::new(4, scheme, CALM, 31);
        world.script = vec![(0, 5_000)];
        world.post_all();
        let start = world.now;
        world.settle();
        world.check();
        assert!(world.now - start >= 5 * ROUND_TRIP_NS, "{scheme:?}");
    }
}

/// When members take turns as root, acknowledgements are piggybacked on the following broadcasts.
#[test]
fn acknowledgements_are_piggybacked_on_broadcasts() {
    let mut world = World::new(4, Scheme::WINDOW, CALM, 32);
    world.script = (0..40).map(|n| (n % 4, 800)).collect();
    for n in 0..40usize {
        let root = n as u16 % 4;
        (0..4)
            .filter(|&me| me != root)
            .for_each(|me| world.post(me));
        world.post(root);
        // The next root posts when the chunk arrives, before acknowledgements are due.
        while world.members[(n + 1) % 4].ended.len() <= n {
            assert!(world.step(u64::MAX / 2));
        }
    }
    world.settle();
    world.check();
    let (riding, acks) = (world.total(|s| s.acks_piggybacked), world.total(|s| s.acks));
    assert!(riding * 4 >= acks, "{riding} of {acks} ride");
}

/// Piggybacked acknowledgements are limited by the room beside the chunk.
#[test]
fn full_chunks_carry_fewer_acknowledgements() {
    for (len, piggybacked) in [(8, 4), (CHUNK as u64 - 20, 3), (CHUNK as u64, 2)] {
        let mut world = World::new(6, Scheme::NACK, CALM, 34);
        world.script = (0..5).map(|root| (root, 800)).collect();
        world.post_all();
        world.run_for(ROUND_TRIP_NS / 2);
        world.script.push((5, len));
        world.post_all();
        assert_eq!(world.total(|s| s.acks_piggybacked), piggybacked, "{len}");
        world.settle();
        world.check();
    }
}

/// An acknowledgement owed to a member is piggybacked on other traffic to it, once.
#[test]
fn acknowledgements_are_piggybacked_on_unicast() {
    let mut world = World::new(
        3,
        Scheme {
            ack_every: 10,
            ..Scheme::WINDOW
        },
        CALM,
        33,
    );
    world.script = vec![(0, 800)];
    world.post_all();
    world.run_for(ROUND_TRIP_NS / 2);
    let member = &mut world.members[1].group;
    assert_eq!(member.piggyback(world.now, 2), None);
    let (root, next, flags) = (0, 1, AckFlags::default());
    assert_eq!(
        member.piggyback(world.now, 0),
        Some(Frame::Ack { root, next, flags })
    );
    assert_eq!(member.piggyback(world.now, 0), None);
    let heard = Heard {
        from: 1,
        network: None,
    };
    let (now, ack) = (world.now, Frame::Ack { root, next, flags });
    world.members[0].group.handle_frame(now, heard, &ack);
    world.settle();
    world.check();
    assert_eq!(world.members[1].group.stats().acks, 1);
}

/// On rails that write, an acknowledgement is a number in the collector's memory.
#[test]
fn acknowledgements_are_written() {
    let scheme = Scheme {
        marks: true,
        ..Scheme::WINDOW
    };
    let (_, world) = root_packets(scheme);
    assert_eq!(world.members[0].group.stats().heard, 11 * 20);
    // An old number that is read again has no effect.
    let mut group = world.members.into_iter().next().unwrap().group;
    group.handle_mark(world.now, 3, 0, 5 << 2);
    assert_eq!(
        (group.held(), group.poll_event()),
        (GroupHeld::default(), None)
    );
}

/// A parity repairs the loss of one chunk of its group without a NACK.
#[test]
fn a_parity_repairs_one_loss_of_its_chunks() {
    let faults = Faults { lost: 20, ..CALM };
    let count = |parity| {
        let mut world = World::new(
            8,
            Scheme {
                parity,
                ..Scheme::NACK
            },
            faults,
            34,
        );
        world.script = vec![(0, 99_500), (0, 1_000), (3, 45_001)];
        world.post_all();
        world.settle();
        world.check();
        let again = world.total(|s| s.repairs + s.repairs_to_all);
        (
            again,
            world.total(|s| s.rebuilt),
            world.total(|s| s.parities),
        )
    };
    let (without, with) = (count(0), count(8));
    assert_eq!((without.1, without.2), (0, 0));
    assert_eq!(with.2, 13 + 6);
    assert!(
        with.1 > 10 && with.0 * 2 < without.0,
        "{without:?} {with:?}"
    );
}

/// A chunk missed by few members is sent to each by unicast; one missed by more is multicast again.
/// The setting decides.
#[test]
fn repairs_go_to_each_or_to_all_by_number() {
    for (missing, from, all) in [
        (1, 3, false),
        (2, 3, false),
        (3, 3, true),
        (6, 3, true),
        (1, 1, true),
    ] {
        let scheme = Scheme {
            repair_all_from: from,
            ..Scheme::NACK
        };
        let mut world = World::new(8, scheme, CALM, 35);
        world.script = vec![(0, 5_000)];
        // The first chunk reaches only some members.
        world.unreachable = (1..=missing).collect();
        world.members[0].group.post(world.now, 0, 0, 5_000);
        let memory: Vec<u8> = (0..5_000).map(|o| byte(0, o)).collect();
        world.members[0].posted.insert(0, (0, memory));
        world.members[0].next_handle = 1;
        let first = world.members[0].group.poll_transmit(world.now).unwrap();
        world.send(0, first);
        world.unreachable.clear();
        world.pump(0);
        world.post_all();
        world.settle();
        world.check();
        assert_eq!(
            world.total(|s| s.repairs_to_all) > 0,
            all,
            "{missing} miss it"
        );
    }
}
