//! Native rails (without software reliability): no loss goes unnoticed.

use crate::face;

use face::{done, output, take, Pair};
use marline_proto::{Config, Delivery, Event, Landing, LinkEnd, Memory, Payload, RailPolicy};
use marline_wire::Packet;

const MS: u64 = 1_000_000;
const RAILS: [Delivery; 2] = [Delivery::STREAM, Delivery::DATAGRAMS];

/// Two nodes whose first rail is native, after two messages.
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

/// Exchanges packets for `ns`; returns true if the sender gives the peer up because of a loss.
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
fn a_native_message_ends_when_it_left() {
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

/// Packets in flight on a broken connection cannot be retransmitted.
#[test]
fn a_loss_with_a_broken_connection_is_an_error() {
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
fn a_broken_connection_without_losses_is_no_error() {
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

/// Native rails that lose single packets are probed now and then.
#[test]
fn a_lost_native_packet_is_an_error() {
    let mut pair = pair(&[Delivery::DATAGRAMS]);
    pair.message(3, 2_000);
    pair.alone(); // lost
    assert!(done(&mut pair.a, 3));
    assert!(ends(&mut pair, 2_000 * MS));
}

/// A receiver of corrupted bytes cannot have them retransmitted.
#[test]
fn corruption_of_a_native_packet_is_an_error() {
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
