//! Rails whose links are connections, lossless until they break: a break loses all data in flight,
//! and the ends dial again.

use marline_sim::{run_setup, Fault, Outcome, PacketFaults, Setup, Topology, Trouble};

const MS: u64 = 1_000_000;

/// Two hosts with this number of such rails. Each packet breaks its connection with a probability
/// of `breaks` per million, and rail 0 goes down twice.
fn setup(seed: u64, rails: usize, breaks: u32) -> Setup {
    let mut setup = Setup::plain(seed, 2, rails);
    setup.topology = Topology::Planes;
    setup.streams.fill(true);
    setup.connected.fill(true);
    setup.writes.fill(false);
    setup.packet_faults = PacketFaults {
        breaks,
        ..PacketFaults::default()
    };
    let down = |from_ms: u64| Fault {
        from_ns: from_ms * MS,
        to_ns: (from_ms + 3) * MS,
        what: Trouble::RailDown {
            host: 0,
            rail: 0,
            notified: true,
        },
    };
    setup.faults = vec![down(1), down(8)];
    setup.faults_end_ns = 20 * MS;
    assert!((0..rails).all(|rail| setup.connects(rail)));
    setup
}

fn clean(setup: &Setup) -> Outcome {
    let outcome = run_setup(setup, false);
    assert_eq!(outcome.failure, None);
    outcome
}

#[test]
fn every_message_survives_connections_that_break() {
    let (mut broken, mut packets) = (0, 0);
    for seed in 0..60 {
        let outcome = clean(&setup(seed, 1 + seed as usize % 3, 10_000));
        broken += outcome.net.broken;
        packets += outcome.net.streamed;
    }
    assert!(broken > 500, "{broken} packets lost with connections");
    assert!(packets > 10_000, "{packets} packets");
}

/// The mutation that forgets data lost with a connection is noticed.
#[cfg(feature = "mutation")]
#[test]
fn forgotten_losses_of_a_connection_are_noticed() {
    let mut setup = setup(3, 1, 10_000);
    setup.node.mutation = Some(marline_proto::Mutation::ForgetMoved);
    assert!(run_setup(&setup, false).failure.is_some());
}
