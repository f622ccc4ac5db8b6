//! Models the time of a broadcast by multicast and point to point, by number of members.
//!
//! Point to point, a message descends a binomial tree of log2(n) sequential messages. Multicast
//! sends a message once; each level of switches adds a little. Collecting one acknowledgement per
//! member takes the root a constant time for each. Either the root waits for that time (basic), or
//! the time bounds the rate of successive broadcasts (window).

use crate::tune::cost::Network;

/// Constants of a cluster, in seconds and bytes.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Cluster {
    /// Time of a short point-to-point message, and time per byte of a long one.
    pub message: (f64, f64),
    /// Time of a short multicast, and time per byte of a long one.
    pub multicast: (f64, f64),
    /// Ports per switch, and the time that a level of switches adds to a multicast.
    pub hop: (f64, f64),
    /// Time of the root per acknowledgement.
    pub ack: f64,
}

/// The collection of acknowledgements in the window design.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Acks {
    /// Members that collect acknowledgements, including the root.
    pub collectors: u32,
    /// Broadcasts per acknowledgement.
    pub every: u32,
}

impl Cluster {
    /// A cluster with this network, whose hosts copy at `copy` bytes per second. A multicast takes
    /// as long as a message; each switch adds a tenth of the latency.
    pub fn of(network: &Network, copy: f64) -> Cluster {
        let per_byte = 1.0 / network.rate + 2.0 / copy;
        Cluster {
            message: (network.latency, per_byte),
            multicast: (network.latency, per_byte),
            hop: (network.latency / 10.0, 32.0),
            ack: network.gap,
        }
    }

    /// Time of a broadcast down a binomial tree of messages.
    pub fn original(&self, members: u32, len: f64) -> f64 {
        let (start, per_byte) = self.message;
        f64::from(members.max(1)).log2().ceil() * (start + len * per_byte)
    }

    /// Time of a multicast until its arrival at the last member.
    pub fn window(&self, members: u32, len: f64) -> f64 {
        let (start, per_byte) = self.multicast;
        let (hop, ports) = self.hop;
        let levels = f64::from(members.max(2)).log(ports).ceil() - 1.0;
        start + levels.max(0.0) * hop + len * per_byte
    }

    /// Like `window`, plus one acknowledgement from each member to the root.
    pub fn basic(&self, members: u32, len: f64) -> f64 {
        let back = self.message.0;
        self.window(members, len)
            + back
            + self.collect(
                members,
                Acks {
                    collectors: 1,
                    every: 1,
                },
            )
    }

    /// Time of the root to collect the acknowledgements of a broadcast.
    pub fn collect(&self, members: u32, acks: Acks) -> f64 {
        let part = members.div_ceil(acks.collectors.max(1)).saturating_sub(1);
        let heard = part + acks.collectors.saturating_sub(1);
        f64::from(heard) * self.ack / f64::from(acks.every.max(1))
    }
}

/// The testbed of the paper on broadcast by InfiniBand multicast. The slides print results, not
/// constants. These constants make the model reproduce them: at 1,024 nodes less than 20 us for 4
/// bytes, less than 40 us for 1,836, up to 4.86 times as fast as point to point, and 58 % faster at
/// 8 nodes. 6.8 us per message is typical of MPI on such adapters.
pub const PAPER: Cluster = Cluster {
    message: (6.8e-6, 4.8e-9),
    multicast: (12.9e-6, 11e-9),
    hop: (1.09e-6, 32.0),
    ack: 0.8e-6,
};

/// Prints the table for a cluster.
pub fn print(cluster: &Cluster) {
    println!(
        "  broadcast to n members, time in us (times as fast as point to point); then the time"
    );
    println!("  that acknowledgements of one broadcast take at the root");
    println!(
        "{:>8} {:>8} {:>12} {:>12} {:>18} {:>10} {:>10} {:>12}",
        "n", "bytes", "original", "basic", "window", "window", "co-root2", "aggregate10"
    );
    let schemes = [(1, 1), (2, 1), (1, 10)];
    for members in [8, 64, 256, 1_024] {
        for len in [4.0, 1_836.0] {
            let (original, window) = (cluster.original(members, len), cluster.window(members, len));
            print!(
                "{members:>8} {len:>8} {:>12.2} {:>12.2} {:>10.2} ({:>4.2}x)",
                original * 1e6,
                cluster.basic(members, len) * 1e6,
                window * 1e6,
                original / window
            );
            for (collectors, every) in schemes {
                let time = cluster.collect(members, Acks { collectors, every });
                print!(" {:>10.2}", time * 1e6);
            }
            println!();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_papers_statements_come_out() {
        let speedup = |members, len| PAPER.original(members, len) / PAPER.window(members, len);
        assert!(PAPER.window(1_024, 4.0) < 20e-6);
        assert!(PAPER.window(1_024, 1_836.0) < 40e-6);
        let sizes = (2..=11).map(|n| f64::from(1u32 << n));
        let best = sizes.map(|len| speedup(1_024, len)).fold(0.0, f64::max);
        assert!((best - 4.86).abs() < 0.01, "{best}");
        assert!((speedup(8, 4.0) - 1.58).abs() < 0.01, "{}", speedup(8, 4.0));
    }

    #[test]
    fn acknowledgements_grow_with_the_members_and_schemes_share_them() {
        let acks = |collectors, every| PAPER.collect(1_024, Acks { collectors, every });
        assert!((acks(1, 1) / (1_023.0 * PAPER.ack) - 1.0).abs() < 1e-9);
        assert!((acks(2, 1) / (512.0 * PAPER.ack) - 1.0).abs() < 1e-9);
        assert!((acks(1, 10) * 10.0 / acks(1, 1) - 1.0).abs() < 1e-9);
        // The basic root waits for all acknowledgements; the window's root does not.
        assert!(PAPER.basic(1_024, 4.0) > 10.0 * PAPER.window(1_024, 4.0));
    }

    #[test]
    fn a_machines_own_constants_scale_alike() {
        let network = Network {
            latency: 4e-6,
            rate: 1e9,
            gap: 1e-6,
        };
        let cluster = Cluster::of(&network, 10e9);
        assert!((cluster.original(1_024, 4.0) / cluster.message.0 - 10.0).abs() < 0.1);
        assert!(cluster.window(1_024, 4.0) < 1.3 * network.latency);
    }
}
