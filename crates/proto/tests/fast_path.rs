//! Fast path: a lone short message's packet, predicted before the message is posted and built.

mod face;

use face::{output, take, Pair};
use marline_proto::{Node, PeerId, SendSpec, Span, Transmit, UNKEPT_MAX};
use marline_wire::Packet;

fn message(peer: PeerId, len: u64) -> SendSpec {
    SendSpec {
        handle: 9,
        peer,
        tag: Some(77),
        data: None,
        len,
        urgent_ack: false,
    }
}

/// The packet predicted for a message.
fn predicted(node: &Node, now: u64, spec: &SendSpec) -> Option<(Transmit, Span, Vec<u8>)> {
    let mut out = [0xaa; UNKEPT_MAX];
    let (transmit, span) = node.fast_packet(now, spec, &mut out)?;
    Some((transmit, span, out[..transmit.len].to_vec()))
}

/// Posts the message and builds its packet, which must be the predicted one.
fn holds(node: &mut Node, now: u64, spec: &SendSpec) -> Vec<u8> {
    let (transmit, span, packet) = predicted(node, now, spec).expect("a lone message");
    assert!(node.post_send(spec));
    let (mut out, mut spans) = ([0xaa; 2_000], Vec::new());
    let built = node.build(now, &mut out, &mut spans, None);
    assert_eq!(built, Some(transmit));
    assert_eq!(spans, [span]);
    assert_eq!(packet, out[..packet.len()]);
    node.sent(now);
    packet
}

/// A pair with nothing to send.
fn quiet(rails: u8) -> (Pair, PeerId) {
    let mut pair = Pair::new(rails, false);
    let to_a = pair.b.peer(&pair.a.address());
    pair.b.post_send(&message(to_a, 8));
    pair.settle();
    (pair, to_a)
}

#[test]
fn a_lone_message_is_predicted_byte_for_byte() {
    for rails in [1, 2] {
        let (mut pair, to_a) = quiet(rails);
        let mut answers = 0;
        for len in [0, 1, 8, 100, 800] {
            let there = holds(&mut pair.a, pair.now, &message(pair.to_b, len));
            take(&mut pair.b, pair.now, &[(0, there)]);
            let back = holds(&mut pair.b, pair.now, &message(to_a, len));
            answers += Packet::parse(&back, |_| 0).unwrap().answer().is_some() as u32;
            take(&mut pair.a, pair.now, &[(0, back)]);
            assert!(output(&mut pair.a, pair.now, false).is_empty());
        }
        assert_eq!(answers, 5);
        pair.settle();
        assert_eq!(pair.lost(), 0);
    }
}

#[test]
fn only_lone_plain_messages_are_predicted() {
    let (mut pair, _) = quiet(2);
    let (now, to_b) = (pair.now, pair.to_b);
    let plain = message(to_b, 8);
    let sure = |node: &Node, spec: &SendSpec| predicted(node, now, spec).is_some();
    assert!(sure(&pair.a, &plain));
    assert!(!sure(&pair.a, &message(to_b, UNKEPT_MAX as u64)), "long");
    assert!(!sure(&pair.a, &message(PeerId(55), 8)), "unknown");
    let urgent = SendSpec {
        urgent_ack: true,
        ..plain
    };
    assert!(!sure(&pair.a, &urgent), "its ack is wanted");
    assert!(pair.a.post_send(&plain));
    assert!(!sure(&pair.a, &plain), "another waits");
    pair.settle();
    assert!(sure(&pair.a, &plain));
    pair.a.on_rail(pair.now, 0, true);
    assert!(!sure(&pair.a, &plain), "a rail fell: there is work");
    pair.settle();
    let (transmit, ..) = predicted(&pair.a, pair.now, &plain).expect("the other rail serves");
    assert_eq!(transmit.rail, 1);
    pair.a.say_bye();
    assert!(!sure(&pair.a, &plain), "closing");
}

#[test]
fn nothing_is_predicted_before_hello_or_without_credit() {
    let pair = Pair::of([1, 2].map(|host| face::node(host, 1)), false);
    let spec = message(pair.to_b, 8);
    assert!(predicted(&pair.a, pair.now, &spec).is_none());
    let (mut pair, _) = quiet(1);
    let spec = message(pair.to_b, 800);
    // Without receives the credit is used up in the end.
    let sent = (0..100_000).take_while(|_| {
        let sure = predicted(&pair.a, pair.now, &spec).is_some();
        if sure {
            let there = holds(&mut pair.a, pair.now, &spec);
            take(&mut pair.b, pair.now, &[(0, there)]);
            let back = output(&mut pair.b, pair.now, false);
            take(&mut pair.a, pair.now, &back);
        }
        sure
    });
    assert!((10..99_999).contains(&sent.count()));
}
