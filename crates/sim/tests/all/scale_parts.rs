//! Bounds of what grows with the endpoints, at sizes that take seconds; `make bench-scale` measures
//! the large ones.

use marline_sim::scale::{Sample, PARTS};

/// Measures a part, which keeps all promises.
fn measure(name: &str, endpoints: usize) -> Vec<Sample> {
    let part = PARTS.iter().find(|part| part.name == name).unwrap();
    let samples = (part.measure)(endpoints).unwrap();
    println!("{name} {endpoints}: {samples:?}");
    samples
}

/// The value of a quantity with this unit.
fn value(samples: &[Sample], quantity: &str, unit: &str) -> f64 {
    let found = |s: &&Sample| s.quantity == quantity && s.unit == unit;
    samples.iter().find(found).unwrap().value
}

/// Timers of an idle endpoint look at no peers, however many there are; while it speaks, they look
/// at each a few times.
#[test]
fn timers_do_not_look_at_all_peers() {
    for endpoints in [64, 512] {
        let samples = measure("start", endpoints);
        let idle = value(&samples, "visited idle", "peers per tick");
        assert!(idle <= 2.0, "{idle} peers a tick, of {endpoints}");
        let spoke = value(&samples, "visited", "peers per peer spoken to");
        assert!(spoke <= 4.0, "{spoke} times each, of {endpoints}");
    }
}

/// First contacts that all come at once overflow a receive buffer: they are repeated a few times,
/// and not all again and again.
#[test]
fn a_storm_of_first_contacts_is_bounded() {
    for endpoints in [256, 1_024] {
        let samples = measure("storm", endpoints);
        let packets = value(&samples, "packets", "per message");
        assert!(packets <= 6.0, "{packets} packets a message");
    }
}

/// A failed switch moves its packets to the other rail, without a collapse.
#[test]
fn a_failed_switch_delays_little_and_costs_few_packets() {
    let samples = measure("failover", 256);
    let more = value(&samples, "packets", "of those without the failure");
    assert!(more <= 2.0, "{more} times the packets");
    let delay_us = value(&samples, "delay", "us");
    assert!(0.0 < delay_us && delay_us <= 20_000.0, "{delay_us} us");
    // Without the failure the rounds take their turns, without a loss.
    assert_eq!(value(&samples, "calm lost", "packets"), 0.0);
}

#[test]
fn an_incast_uses_the_rail() {
    let samples = measure("incast", 256);
    let rate = value(&samples, "rate", "of the rail's");
    assert!(rate >= 0.2, "{rate} of the rail's rate");
}

/// Up and down a tree: time grows with its depth, memory and packets do not grow.
#[test]
fn a_reduction_takes_few_packets() {
    for endpoints in [64, 512] {
        let samples = measure("allreduce", endpoints);
        let packets = value(&samples, "packets", "per message");
        assert!(packets <= 3.5, "{packets} packets a message");
    }
}

/// A standby rail has no path until the other rail fails.
#[test]
fn a_standby_rail_has_a_path_when_it_is_needed() {
    let (one, two) = (measure("start", 64), measure("standby", 64));
    let idle = value(&two, "connection", "bytes per peer");
    assert!(idle <= 1.05 * value(&one, "connection", "bytes per peer"));
    let used = value(&two, "connection", "bytes with standby path");
    assert!(1.2 * idle < used && used <= 3.5 * idle, "{used} bytes");
    assert_eq!(value(&two, "paths", "per peer"), 2.0);
}
