//! The parts of a measurement, each a curve over the number of endpoints.

use super::cluster::{cluster, fail_switch, Done, TURN_NS};
use super::Sample;
use crate::group::group_scale;
use crate::setup::choices::Work;

/// A kind of measurement.
pub struct Part {
    /// Its name.
    pub name: &'static str,
    /// The quantities.
    pub what: &'static str,
    /// Simplifications; empty: none.
    pub simplified: &'static str,
    /// Most endpoints of a quick run.
    pub quick: usize,
    /// Most endpoints of a whole run.
    pub most: usize,
    /// Measures a cluster; an error is a broken promise.
    pub measure: fn(usize) -> Result<Vec<Sample>, String>,
}

/// Messages of an incast, in bytes.
const INCAST_BYTES: u64 = 16_384;
/// Rounds of messages around the failure of a switch.
const FAILOVER_ROUNDS: u32 = 4;
/// Time for which the switch is silent.
const SILENT_NS: u64 = 400_000_000;

/// All parts.
pub static PARTS: [Part; 8] = [
    Part {
        name: "alltoall",
        what: "an all-to-all of first messages of up to 64 bytes",
        simplified: "",
        quick: 256,
        most: 1_024,
        measure: alltoall,
    },
    Part {
        name: "start",
        what: "the same for two sampled endpoints, with all peers",
        simplified: "the other endpoints speak to the two sampled ones alone, one each 400 ns",
        quick: 1_024,
        most: usize::MAX,
        measure: start,
    },
    Part {
        name: "storm",
        what: "first contacts of all peers with two sampled endpoints in the same nanosecond",
        simplified: "the other endpoints speak to the two sampled ones alone",
        quick: 1_024,
        most: usize::MAX,
        measure: storm,
    },
    Part {
        name: "standby",
        what: "memory of a peer with a standby rail",
        simplified: "as start",
        quick: 256,
        most: 4_096,
        measure: standby,
    },
    Part {
        name: "failover",
        what: "a switch goes silent that a tenth of the peers have on one of two rails",
        simplified: "as start; four rounds of messages",
        quick: 256,
        most: 16_384,
        measure: failover,
    },
    Part {
        name: "incast",
        what: "a message of 16 KiB from every peer to one at once",
        simplified: "a single switch with a queue of 1.25 MB before the receiver",
        quick: 256,
        most: 16_384,
        measure: incast,
    },
    Part {
        name: "allreduce",
        what: "up and down a binomial tree, up to 64 bytes",
        simplified: "",
        quick: 1_024,
        most: usize::MAX,
        measure: allreduce,
    },
    Part {
        name: "broadcast",
        what: "a broadcast of 4 bytes by multicast, as groups choose it",
        simplified: "",
        quick: 1_024,
        most: 16_384,
        measure: broadcast,
    },
];

fn alltoall(hosts: usize) -> Result<Vec<Sample>, String> {
    let mut done = Done::run(&cluster(hosts, 1, Work::AllToAll))?;
    let mut samples = done.traffic();
    samples.extend(done.memory());
    done.check()?;
    Ok(samples)
}

fn start(hosts: usize) -> Result<Vec<Sample>, String> {
    let mut done = Done::run(&cluster(hosts, 1, Work::Sampled))?;
    let mut samples = done.traffic();
    samples.extend(done.memory());
    samples.extend(done.ticks()?);
    done.check()?;
    Ok(samples)
}

fn storm(hosts: usize) -> Result<Vec<Sample>, String> {
    let mut setup = cluster(hosts, 1, Work::Sampled);
    setup.pause_ns = 0;
    let mut done = Done::run(&setup)?;
    let mut samples = done.traffic();
    // At the rate of an all-to-all's messages.
    let least_ns = hosts as f64 * TURN_NS as f64;
    samples.push(Sample::new(
        "time",
        "of the all-to-all's",
        done.world.worked_ns as f64 / least_ns,
    ));
    done.check()?;
    Ok(samples)
}

fn standby(hosts: usize) -> Result<Vec<Sample>, String> {
    let mut setup = cluster(hosts, 2, Work::Sampled);
    setup.set_standby(1);
    Ok(Done::run(&setup)?.memory())
}

fn failover(hosts: usize) -> Result<Vec<Sample>, String> {
    let mut setup = cluster(hosts, 2, Work::Sampled);
    setup.ops = FAILOVER_ROUNDS;
    let calm = Done::run(&setup)?;
    let (calm_ns, packets) = (calm.world.worked_ns, calm.world.net.stats.packets);
    // In the middle of a round.
    let from_ns = calm_ns * 3 / 8;
    fail_switch(&mut setup, from_ns, from_ns + SILENT_NS);
    let mut done = Done::run(&setup)?;
    let took_ns = done.world.worked_ns;
    let more = done.world.net.stats.packets as f64 / packets as f64;
    let samples = vec![
        Sample::new("time", "us", took_ns as f64 / 1e3),
        Sample::new("delay", "us", took_ns.saturating_sub(calm_ns) as f64 / 1e3),
        Sample::new("packets", "of those without the failure", more),
        Sample::new("wall time", "s", calm.seconds + done.seconds),
    ];
    done.check()?;
    Ok(samples)
}

fn incast(hosts: usize) -> Result<Vec<Sample>, String> {
    let mut setup = cluster(hosts, 1, Work::Gather);
    (setup.pause_ns, setup.size_max) = (0, INCAST_BYTES);
    let rate = setup.rate[0] as f64;
    let mut done = Done::run(&setup)?;
    let mut samples = done.traffic();
    let least_ns = (hosts - 1) as f64 * INCAST_BYTES as f64 / rate * 1e9;
    samples.push(Sample::new(
        "rate",
        "of the rail's",
        least_ns / done.world.worked_ns as f64,
    ));
    done.check()?;
    Ok(samples)
}

fn allreduce(hosts: usize) -> Result<Vec<Sample>, String> {
    let mut done = Done::run(&cluster(hosts, 1, Work::Allreduce))?;
    let samples = done.traffic();
    done.check()?;
    Ok(samples)
}

fn broadcast(hosts: usize) -> Result<Vec<Sample>, String> {
    let row = group_scale("usual", hosts, 4, 0);
    match row.failure {
        Some(text) => Err(text),
        None => Ok(vec![
            Sample::new("time", "us", row.latency_ns as f64 / 1e3),
            Sample::new("packets of the root", "per broadcast", row.root_packets),
            Sample::new("packets heard", "of the busiest", row.busiest),
            Sample::new("root", "bytes per member", row.root_bytes as f64),
            Sample::new("member", "bytes at most", row.member_bytes as f64),
        ]),
    }
}
