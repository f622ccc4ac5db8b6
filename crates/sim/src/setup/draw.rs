//! Draws the simulation of a seed: cluster, settings, workload and faults.

use crate::base::rng::Rng;
use crate::machine::connections::Evictions;
use crate::setup::choices::{PacketFaults, Setup, Topology, Work};
use crate::setup::faults::{draw_faults, draw_near, draw_neighbours, draw_pattern, draw_standby};
use crate::setup::profile::Profile;
use marline_auth::Level;
use marline_checksum::Algorithm;
use marline_proto::{Config, RailPolicy};
use marline_wire::RAILS_MAX;

impl Setup {
    /// Draws the simulation of a seed. `hosts` and `rails` override.
    pub fn draw(seed: u64, profile: Profile, hosts: usize, rails: usize) -> Setup {
        let rng = &mut Rng::new(seed, 1);
        let hosts = given_or(hosts, rng.pick(&[2, 2, 2, 3, 3, 4, 5, 8]));
        let rails = given_or(rails, rng.pick(&[1, 2, 2, 2, 3, 4]));
        let node = draw_config(rng);
        let rate = rng.pick(&[125_000_000, 1_250_000_000, 12_500_000_000]);
        let work = rng.pick(&WORKS);
        let mut setup = Setup {
            seed,
            profile,
            packets_min: 0,
            calm_rounds: 0,
            hosts,
            paired: false,
            rails,
            topology: Topology::draw(rng),
            node,
            datagram_max: (0..rails)
                .map(|_| rng.pick(&[1_472, 1_472, 8_972, 1_232, 64_000]))
                .collect(),
            streams: vec![false; rails],
            connected: vec![false; rails],
            near: None,
            behind: None,
            verbs: vec![None; rails],
            sticks: false,
            evictions: Evictions::default(),
            silent_ns: 0,
            neighbour_resolution_ns: 0,
            writes: vec![false; rails],
            direct: false,
            direct_again: false,
            direct_shuffled: false,
            registered_max: usize::MAX,
            latency_ns: (0..rails).map(|_| rng.range(2_000, 60_000)).collect(),
            rate: draw_rates(rng, rails, rate),
            queue_ns: rng.pick(&[200_000, 1_000_000, 10_000_000]),
            socket_bytes: rng.pick(&[212_992, 212_992, 4 << 20, 1 << 20, 100_000, 30_000]),
            packet_faults: PacketFaults::default(),
            faults: Vec::new(),
            awaited: Vec::new(),
            strike: None,
            faults_end_ns: faults_time(rng),
            refuses: rng.one_in(2),
            may_die: false,
            work,
            ops: rng.pick(&[20, 60, 200, 400]),
            size_max: rng.pick(&[2_000, 70_000, 70_000, 300_000, 3 << 20]),
            pause_ns: rng.pick(&[500, 5_000, 50_000]),
            bye: rng.one_in(2),
            log_bytes: rng.pick(&[64 << 20, 64 << 20, 1 << 20, 160_000]),
            aggregate_after: rng.pick(&[2, 2, 0, 1_000]),
            second: Rng::new(seed, 16).one_in(3),
            threaded: !(rng.one_in(4), rng.one_in(8)).1, // the first draw is unused
            yields_ns: [300, 300, 20_000, 200_000],
            paces_ns: [3_000, 10_000, 40_000],
            send_errors: rng.one_in(2),
            borrow: Rng::new(seed, 20).one_in(2),
            calls: !Rng::new(seed, 18).one_in(4),
            remote: Rng::new(seed, 19).one_in(3),
            segments: Rng::new(seed, 31).one_in(2),
            polled: Rng::new(seed, 46).one_in(2),
            by_place: profile != Profile::Calm && Rng::new(seed, 43).one_in(4),
            versions: Rng::new(seed, 61).one_in(4),
            level: level_of(seed),
        };
        setup.fit_packets();
        setup.draw_rest(rng);
        setup
    }

    fn draw_rest(&mut self, rng: &mut Rng) {
        // Engines share the key of a job: packets have tags.
        self.node.key_mark = Rng::new(self.seed, 19).one_in(2).into();
        draw_faults(self, self.profile, rng);
        draw_near(self);
        draw_neighbours(self);
        draw_standby(self);
        draw_pattern(self);
    }

    /// A cluster of datagram rails without faults, for tests to build on.
    pub fn plain(seed: u64, hosts: usize, rails: usize) -> Setup {
        let mut setup = Setup::draw(seed, Profile::Calm, hosts, rails);
        setup.streams.fill(false);
        setup.connected.fill(false);
        setup.verbs.fill(None);
        setup.writes.fill(false);
        (setup.near, setup.behind, setup.silent_ns) = (None, None, 0);
        setup.neighbour_resolution_ns = 0;
        setup
    }

    /// Makes a queue hold at least one packet: otherwise all packets behind a longer one are lost
    /// while it leaves, and a peer whose packets come just then is never heard (seed 9115949).
    fn fit_packets(&mut self) {
        for (max, rate) in self.datagram_max.iter_mut().zip(&self.rate) {
            let queue_bytes = rate * self.queue_ns / 1_000_000_000;
            *max = (*max).min(queue_bytes as usize).max(1_232);
        }
    }

    /// Draws other faults for the same cluster, with `times` as much work and time.
    pub(crate) fn redraw(&self, seed: u64, times: u64) -> Setup {
        let rng = &mut Rng::new(seed, 1);
        let mut next = Setup {
            seed,
            packet_faults: PacketFaults::default(),
            faults: Vec::new(),
            faults_end_ns: faults_time(rng) * times,
            may_die: false,
            ops: self.ops * times as u32,
            ..self.clone()
        };
        draw_faults(&mut next, self.profile, rng);
        // Settings drawn with faults stay those of the first round.
        (next.node, next.streams) = (self.node, self.streams.clone());
        next.may_die |= self.node.native_rails != 0;
        next.connected.clone_from(&self.connected);
        (next.near, next.silent_ns) = (self.near, self.silent_ns);
        next.writes.clone_from(&self.writes);
        next.verbs.clone_from(&self.verbs);
        (next.direct, next.direct_again) = (self.direct, self.direct_again);
        next.direct_shuffled = self.direct_shuffled;
        (next.queue_ns, next.registered_max) = (self.queue_ns, self.registered_max);
        if self.node.summed != Config::default().summed || self.sums_ignore_order() {
            next.poison_nothing();
        }
        if (0..next.rails).any(|rail| next.connects(rail)) {
            next.faults.retain(|f| !self.outlasts_connections(f));
        }
        next.fit_behind();
        draw_neighbours(&mut next);
        next
    }
}

/// Duration of the phase with faults.
fn faults_time(rng: &mut Rng) -> u64 {
    rng.range(5, 60) * 1_000_000
}

/// The given number, or the drawn one if none is given.
fn given_or(given: usize, drawn: usize) -> usize {
    match given {
        0 => drawn,
        given => given,
    }
}

/// Rates of the rails, bytes/s: of the cluster's, or a tenth or half of it.
fn draw_rates(rng: &mut Rng, rails: usize, rate: u64) -> Vec<u64> {
    (0..rails)
        .map(|_| rate / rng.pick(&[1, 1, 1, 2, 10]))
        .collect()
}

fn draw_config(rng: &mut Rng) -> Config {
    Config {
        algorithm: rng.pick(&[1, 1, 1, 2, 3, 4]),
        algorithms: Algorithm::BY_TRUST_UNKEYED,
        seeing_order: Algorithm::SEEING_ORDER,
        eager_max: rng.pick(&[65_536, 65_536, 8_192, 0, 1_000]),
        credit_bytes: rng.pick(&[1 << 20, 256 * 1024, 128 * 1024, 1 << 20]),
        unexpected_bytes: rng.pick(&[64 << 20, 64 << 20, 1 << 20, 256 * 1024]),
        peer_timeout_ns: rng.pick(&[5_000_000_000, 2_000_000_000, 1_000_000_000]),
        ack_delay_ns: rng.pick(&[20_000, 20_000, 0, 200_000]),
        ack_every: rng.pick(&[64, 64, 2, 16]),
        policy: rng.pick(&[RailPolicy::Stripe, RailPolicy::Stripe, RailPolicy::Standby]),
        rail_algorithm: draw_rail_algorithms(rng),
        ..Config::default()
    }
}

/// Rails with a drawn algorithm: the most that drawn clusters have. (More draws would change the
/// meaning of all seeds.)
const RAILS_DRAWN: usize = 8;

/// In a quarter of the runs, gives some rails their own algorithm, so that retransmissions on
/// another path are summed again.
fn draw_rail_algorithms(rng: &mut Rng) -> [Option<u8>; RAILS_MAX] {
    if !rng.one_in(4) {
        return [None; RAILS_MAX];
    }
    let mut drawn = [None; RAILS_MAX];
    let drawn_rails = drawn.iter_mut().take(RAILS_DRAWN);
    drawn_rails.for_each(|to| *to = rng.pick(&[None, Some(1), Some(2), Some(3), Some(4)]));
    drawn
}

/// The first draw of the work.
const WORKS: [Work; 7] = [
    Work::Random,
    Work::Random,
    Work::Random,
    Work::PingPong,
    Work::Halo,
    Work::AllToAll,
    Work::Incast,
];

/// The level of the job's key, if the job has one.
fn level_of(seed: u64) -> Level {
    match [62, 63].map(|of| Rng::new(seed, of).one_in(2)) {
        [false, _] => Level::Heads,
        [true, false] => Level::Payloads,
        [true, true] => Level::Encrypted,
    }
}
