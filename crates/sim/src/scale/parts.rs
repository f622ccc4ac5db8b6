//! The parts of a measurement, each a curve over the number of endpoints.

use super::cluster::{behind_switch, cluster, Done, TURN_NS};
use super::Sample;
use crate::group::group_scale;
use crate::setup::choices::Work;
use crate::setup::sample::SAMPLED;

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
        what: "memory of a peer with a standby rail, before and after the other rail fails",
        simplified: "as start; four rounds of messages",
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
    samples.extend(done.resent());
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
    let ([calm, mut done], _) = Done::run_both(setup, 0..SAMPLED as usize)?;
    let ((idle, _), (used, paths)) = (calm.connection(), done.connection());
    done.check()?;
    Ok(vec![
        Sample::new("connection", "bytes per peer", idle),
        Sample::new("connection", "bytes with standby path", used),
        Sample::new("paths", "per peer", paths),
    ])
}

fn failover(hosts: usize) -> Result<Vec<Sample>, String> {
    let setup = cluster(hosts, 2, Work::Sampled);
    let ([calm, mut done], from_ns) = Done::run_both(setup, behind_switch(hosts))?;
    let (calm_ns, took_ns) = (calm.world.worked_ns, done.world.worked_ns);
    let delay_ns = done.ended_ns(from_ns) as f64 - calm.ended_ns(from_ns) as f64;
    let packets = |of: &Done| of.world.net.stats.packets as f64;
    let samples = vec![
        Sample::new("time", "us", took_ns as f64 / 1e3),
        Sample::new("calm time", "us", calm_ns as f64 / 1e3),
        Sample::new("calm lost", "packets", calm.lost() as f64),
        Sample::new("delay", "us", (took_ns as f64 - calm_ns as f64) / 1e3),
        Sample::new("delay of the round", "us", delay_ns / 1e3),
        Sample::new(
            "packets",
            "of those without the failure",
            packets(&done) / packets(&calm),
        ),
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
