//! A rail fails at each moment of a message, between each two kinds of rails, at either end: the
//! packet of that moment is lost with it, and all messages arrive exactly once over the remaining
//! rail.

use marline_proto::RailPolicy;
use marline_sim::{run_setup, Moment, Outcome, PacketFaults, Setup, Strike, Topology, Verbs, Work};

const MS: u64 = 1_000_000;
/// Duration of the failure, longer than any packet is in flight.
const AWAY_NS: u64 = 60 * MS;
/// The failing rail. The other one is a fallback.
const FAILS: usize = 0;
const OTHER: usize = 1;

/// The kind of a rail.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Kind {
    Udp,
    Tcp,
    Shm,
    /// Reliable InfiniBand connections.
    Rc,
}

fn set_kind(setup: &mut Setup, rail: usize, kind: Kind, writes: bool) {
    match kind {
        Kind::Udp => (setup.datagram_max[rail], setup.latency_ns[rail]) = (1_472, 20_000),
        Kind::Tcp => {
            (setup.datagram_max[rail], setup.latency_ns[rail]) = (64_000, 25_000);
            (setup.streams[rail], setup.connected[rail]) = (true, true);
        }
        Kind::Shm => {
            (setup.datagram_max[rail], setup.latency_ns[rail]) = (64_000, 2_000);
            (setup.streams[rail], setup.connected[rail]) = (true, true);
            setup.near = Some(rail);
        }
        Kind::Rc => {
            (setup.datagram_max[rail], setup.latency_ns[rail]) = (4_096, 2_000);
            setup.set_verbs(rail, Verbs::Rc);
        }
    }
    match kind {
        Kind::Udp => setup.direct |= writes,
        Kind::Tcp | Kind::Shm => setup.writes[rail] = writes,
        Kind::Rc => {}
    }
}

/// Ping-pong between two processes over two rails, the first of which carries all while it works.
fn setup((from, to): (Kind, Kind), moment: Moment) -> Setup {
    let mut setup = Setup::plain(7, 2, 2);
    setup.topology = Topology::Planes;
    setup.packet_faults = PacketFaults::default();
    (setup.work, setup.ops, setup.pause_ns) = (Work::PingPong, 60, 500);
    setup.rate = vec![1_250_000_000; 2];
    (setup.socket_bytes, setup.log_bytes, setup.queue_ns) = (4 << 20, 64 << 20, MS);
    (setup.second, setup.threaded, setup.send_errors) = (false, true, false);
    setup.size_max = match moment {
        Moment::Eager => 2_000,
        Moment::Write => 300_000,
        _ => 70_000,
    };
    setup.node.policy = RailPolicy::Standby;
    (setup.node.eager_max, setup.node.write_min) = (4_096, 8_192);
    (setup.node.reliable, setup.node.peer_timeout_ns) = (true, 1_000 * MS);
    setup.silent_ns = 20 * MS;
    let writes = moment == Moment::Write;
    set_kind(&mut setup, FAILS, from, writes);
    set_kind(&mut setup, OTHER, to, false);
    setup.faults.clear();
    setup.faults_end_ns = 400 * MS;
    setup
}

/// The ordinal of the moment to strike, of all in a run: one in the middle, for acks the last.
fn nth(moment: Moment, moments: u64) -> u64 {
    match moment {
        Moment::Ack => moments,
        _ => moments.div_ceil(2),
    }
}

fn run(setup: &Setup) -> Outcome {
    let outcome = run_setup(setup, false);
    assert_eq!(outcome.failure, None);
    outcome
}

/// A failure that a run does not reach, for counting moments.
fn strike(moment: Moment, senders: bool, notified: bool) -> Strike {
    Strike {
        moment,
        nth: u64::MAX,
        rail: FAILS,
        senders,
        notified,
        lasts_ns: AWAY_NS,
    }
}

/// Runs a cell of the table twice: to count its moments, and to strike one.
fn cell(kinds: (Kind, Kind), moment: Moment, senders: bool, notified: bool) {
    let mut setup = setup(kinds, moment);
    let mut strike = strike(moment, senders, notified);
    setup.strike = Some(strike);
    let whole = run(&setup);
    assert!(whole.moments > 0, "the rail never shows the moment");
    assert!(!whole.troubles.contains_key("struck"));

    strike.nth = nth(moment, whole.moments);
    setup.strike = Some(strike);
    let struck = run(&setup);
    assert_eq!(struck.troubles.get("struck"), Some(&1), "the rail failed");
    let lost = struck.net.cut + struck.net.broken + struck.net.writes_lost;
    assert!(lost > 0, "something was lost with the rail");
    assert_eq!(struck.messages, whole.messages, "the same work");
    // The run has checked exactly-once delivery and contents. Here: the rail was in use, and the
    // other one took over.
    let before = whole.rails[OTHER].packets_sent;
    let after = struck.rails[OTHER].packets_sent;
    assert!(
        after > before,
        "{after} packets on the other rail, {before} without"
    );
    // (The last working path is not given up. Its frames leave when another works.)
    let rail = &struck.rails[FAILS];
    let left = rail.failovers + rail.resent_failover;
    let ptos_sent = struck.rails[FAILS].ptos;
    assert!(
        left > 0 || (!notified && ptos_sent > 0),
        "the rail was left"
    );
}

/// The mutation that forgets frames in flight on an abandoned path is noticed.
#[cfg(feature = "mutation")]
#[test]
fn forgotten_frames_of_an_abandoned_path_are_noticed() {
    use Kind::{Shm, Tcp, Udp};
    for kinds in [
        (Udp, Udp),
        (Udp, Tcp),
        (Tcp, Udp),
        (Tcp, Tcp),
        (Shm, Udp),
        (Shm, Tcp),
    ] {
        let mut setup = setup(kinds, Moment::Data);
        let mut strike = strike(Moment::Data, true, true);
        setup.strike = Some(strike);
        strike.nth = nth(Moment::Data, run(&setup).moments);
        setup.strike = Some(strike);
        setup.node.mutation = Some(marline_proto::Mutation::ForgetMoved);
        assert!(run_setup(&setup, false).failure.is_some(), "{kinds:?}");
    }
}

macro_rules! cells {
    ($name:ident, $kinds:expr) => {
        mod $name {
            use super::{cell, Kind::*, Moment};
            cells!(moments $kinds;
                eager_senders_rail, eager_receivers_rail: Moment::Eager;
                request_senders_rail, request_receivers_rail: Moment::Request;
                grant_senders_rail, grant_receivers_rail: Moment::Grant;
                data_senders_rail, data_receivers_rail: Moment::Data;
                direct_write_senders_rail, direct_write_receivers_rail: Moment::Write;
                last_ack_senders_rail, last_ack_receivers_rail: Moment::Ack);
        }
    };
    (moments $kinds:expr; $($sender:ident, $receiver:ident: $moment:expr);*) => {
        pub mod notified {
            use super::*;
            $(
                #[test]
                fn $sender() {
                    cell($kinds, $moment, true, true);
                }
                #[test]
                fn $receiver() {
                    cell($kinds, $moment, false, true);
                }
            )*
        }
        pub mod silent {
            use super::*;
            $(
                #[test]
                fn $sender() {
                    cell($kinds, $moment, true, false);
                }
                #[test]
                fn $receiver() {
                    cell($kinds, $moment, false, false);
                }
            )*
        }
    };
}

cells!(udp_to_udp, (Udp, Udp));
cells!(udp_to_tcp, (Udp, Tcp));
cells!(tcp_to_udp, (Tcp, Udp));
cells!(tcp_to_tcp, (Tcp, Tcp));
cells!(shm_to_udp, (Shm, Udp));
cells!(shm_to_tcp, (Shm, Tcp));
cells!(rc_to_udp, (Rc, Udp));
cells!(rc_to_tcp, (Rc, Tcp));
