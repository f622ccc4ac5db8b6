//! Rails without software reliability: what is lost on one is never silently lost.

mod face;

use face::{done, output, take, Pair};
use marline_proto::{Config, Delivery, Event, Landing, LinkEnd, Memory, Payload, RailPolicy};
use marline_wire::Packet;

const MS: u64 = 1_000_000;
const RAILS: [Delivery; 2] = [Delivery::STREAM, Delivery::DATAGRAMS];

/// Two nodes whose first rail is native, after a message in each direction.
fn pair(deliveries: &[Delivery]) -> Pair {
    let config = Config {
        native_rails: 1,
        policy: RailPolicy::Standby,
        peer_timeout_ns: 1_000 * MS,
        ..Config::default()
    };
    let mut pair = Pair::of_rails(config, deliveries);
    pair.message(2, 2_000);
    pair.settle();
    pair
}

/// Time passes and packets flow; whether the sender gives the peer up, and says that something is
/// lost.
fn ends(pair: &mut Pair, ns: u64) -> bool {
    let until = pair.now + ns;
    while pair.now < until {
        pair.settle();
        pair.now += MS;
        for event in std::iter::from_fn(|| pair.a.poll_event()) {
            if let Event::PeerDead { lost, .. } = event {
                return lost;
            }
        }
    }
    false
}

#[test]
fn a_message_is_done_when_it_left_and_few_packets_come_back() {
    let mut pair = pair(&[Delivery::STREAM]);
    let mut back = 0;
    for handle in 3..40 {
        pair.message(handle, 2_000);
        let packets = pair.alone();
        assert!(done(&mut pair.a, handle));
        take(&mut pair.b, pair.now, &packets);
        pair.now += MS;
        back += output(&mut pair.b, pair.now, false).len();
    }
    // Credit, and no acks.
    assert!(back <= 2, "{back} packets back for 37 messages");
    assert!(!pair.a.drained(), "nobody has said that it arrived");
    pair.a.ask_natives();
    pair.settle();
    assert!(pair.a.drained());
}

/// Nobody can send again what a connection had under way when it broke.
#[test]
fn what_a_broken_connection_lost_ends_the_conversation() {
    for rails in [&RAILS[..1], &RAILS] {
        let mut pair = pair(rails);
        pair.message(3, 2_000);
        pair.alone(); // lost
        assert!(done(&mut pair.a, 3));
        pair.a.on_link_down(pair.now, 0, 0, LinkEnd::Broken, 0);
        assert!(ends(&mut pair, 2_000 * MS));
    }
}

#[test]
fn a_connection_that_broke_when_all_had_arrived_lost_nothing() {
    for rails in [&RAILS[..1], &RAILS] {
        let mut pair = pair(rails);
        pair.message(3, 2_000);
        let packets = pair.alone();
        take(&mut pair.b, pair.now, &packets);
        pair.a.on_link_down(pair.now, 0, 0, LinkEnd::Broken, 0);
        pair.b.on_link_down(pair.now, 0, 0, LinkEnd::Broken, 0);
        assert!(!ends(&mut pair, 2_000 * MS));
        pair.message(4, 2_000);
        pair.settle();
        assert!(done(&mut pair.a, 4));
        pair.a.ask_natives();
        pair.settle();
        assert!(pair.a.drained());
    }
}

/// Rails that lose single packets are asked now and then.
#[test]
fn a_packet_that_vanishes_ends_the_conversation() {
    let mut pair = pair(&[Delivery::DATAGRAMS]);
    pair.message(3, 2_000);
    pair.alone(); // lost
    assert!(done(&mut pair.a, 3));
    assert!(ends(&mut pair, 2_000 * MS));
}

/// A receiver that finds bytes damaged cannot ask for them again.
#[test]
fn damage_ends_the_conversation() {
    struct Wrong;
    impl Memory for Wrong {
        fn land(&mut self, _: &Landing, _: &Payload<'_>) -> bool {
            false
        }
    }
    let mut pair = pair(&[Delivery::STREAM]);
    pair.message(3, 1_000);
    for (_, bytes) in pair.alone() {
        let packet = Packet::parse(&bytes, |_| 0).unwrap();
        let _ = pair
            .b
            .handle_packet(pair.now, &packet, bytes.len(), &mut Wrong);
    }
    pair.b.handle_timeouts(pair.now + MS);
    let mut events = std::iter::from_fn(|| pair.b.poll_event());
    assert!(events.any(|e| matches!(e, Event::PeerDead { lost: true, .. })));
}
