//! Draws the rails with remote writes, and the faults of writes.

use crate::base::rng::Rng;
use crate::machine::connections::{Evictions, Verbs};
use crate::machine::port::TRUESIZE;
use crate::setup::choices::span;
use crate::setup::choices::{FalseReport, Setup, Topology, Trouble};
use crate::setup::pipeline::draw_chunks;
use crate::setup::profile::Profile;
use marline_checksum::Algorithm;
use marline_proto::Config;

/// Delays of late writes: before, during and after the packets that retransmit their data.
pub(crate) const LATE_NS: [u64; 4] = [300_000, 1_000_000, 5_000_000, 20_000_000];

/// Draws the rails with remote writes and their false reports, from separate random numbers, so
/// that other draws of a seed are unaffected.
pub(crate) fn draw_writes(setup: &mut Setup, lies: bool) {
    let rng = &mut Rng::new(setup.seed, 10);
    setup.direct = rng.one_in(3);
    setup.direct_again = setup.direct && lies && rng.one_in(2);
    let rng = &mut Rng::new(setup.seed, 9);
    if !rng.one_in(3) {
        return;
    }
    setup.writes = (0..setup.rails).map(|_| !rng.one_in(3)).collect();
    setup.node.write_min = rng.pick(&[16_384, 2_000, 2_000, 60_000]);
    setup.registered_max = rng.pick(&[usize::MAX, usize::MAX, 3, 1]);
    if setup.topology == Topology::Mesh {
        // Either all rails with writes deliver in order or none does: rails with and without order
        // do not reach each other.
        let ordered = rng.one_in(2);
        for (stream, &writes) in setup.streams.iter_mut().zip(&setup.writes) {
            *stream = if writes { ordered } else { *stream };
        }
    }
    if lies {
        draw_lies(setup, rng);
    }
}

/// Draws rails' false reports about their writes.
pub(crate) fn draw_lies(setup: &mut Setup, rng: &mut Rng) {
    // Without sums false reports would go unnoticed.
    if setup.node.summed != Config::default().summed {
        return;
    }
    let (hosts, rails) = (setup.hosts, setup.rails);
    for _ in 0..rng.pick(&[0, 1, 2, 4]) {
        let (from_ns, mut to_ns) = span(setup, rng);
        if rng.one_in(2) {
            to_ns = setup.faults_end_ns;
        }
        let (host, rail) = (
            rng.below(hosts as u64) as usize,
            rng.below(rails as u64) as usize,
        );
        let late = FalseReport::Late(rng.pick(&LATE_NS));
        let how = rng.pick(&[
            FalseReport::Never,
            late,
            late,
            late,
            FalseReport::OverEarly,
            FalseReport::NeverOver,
        ]);
        setup.add((from_ns, to_ns), Trouble::Lies { host, rail, how });
    }
    // In a quarter of the seeds all writes are late: packets retransmit their bytes meanwhile, and
    // the late writes land damaged.
    if rng.one_in(4) {
        let how = FalseReport::Late(rng.pick(&LATE_NS));
        let times = (rng.below(setup.faults_end_ns / 2), setup.faults_end_ns);
        for (host, rail) in (0..hosts).flat_map(|h| (0..rails).map(move |r| (h, r))) {
            setup.add(times, Trouble::Lies { host, rail, how });
        }
    }
}

/// Draws networks that reorder datagrams of direct writes. In some of them the rails' sums ignore
/// order; then nothing else is damaged, since such sums would miss some damage.
pub(crate) fn draw_shuffles(setup: &mut Setup) {
    let rng = &mut Rng::new(setup.seed, 19);
    setup.direct_shuffled = setup.direct && rng.one_in(2);
    let blind = rng.pick(&[Algorithm::Sum32, Algorithm::Xor32]);
    if setup.direct_shuffled && rng.one_in(4) {
        setup.node.rail_algorithm.fill(Some(blind as u8));
        setup.direct_again = false;
        setup.poison_nothing();
    }
}

impl Setup {
    /// Makes a rail an InfiniBand rail. (Such rails reach only their own kind, so that hosts have
    /// them at the same index.)
    pub fn set_verbs(&mut self, rail: usize, kind: Verbs) {
        self.verbs[rail] = Some(kind);
        self.streams[rail] = kind == Verbs::Rc;
        self.connected[rail] = true;
        self.writes[rail] = kind != Verbs::Ud;
        self.topology = Topology::Planes;
    }

    /// Returns whether the rail has InfiniBand connections.
    pub(crate) fn has_queue_pairs(&self, rail: usize) -> bool {
        matches!(self.verbs.get(rail), Some(Some(Verbs::Rc | Verbs::Uc)))
    }

    /// Returns whether the rail has unreliable InfiniBand connections.
    pub(crate) fn is_uc(&self, rail: usize) -> bool {
        matches!(self.verbs.get(rail), Some(Some(Verbs::Uc)))
    }
}

/// Makes most rails InfiniBand rails, with all faults of rails and writes.
pub(crate) fn draw_verbs(setup: &mut Setup) {
    let rng = &mut Rng::new(setup.seed, 23);
    setup.direct = false;
    for rail in 0..setup.rails {
        let kinds = [Verbs::Rc, Verbs::Rc, Verbs::Uc, Verbs::Uc, Verbs::Ud];
        let kind = rng.pick(&kinds);
        if rail == 0 || !rng.one_in(5) {
            setup.set_verbs(rail, kind);
        }
    }
    setup.topology = Topology::Planes;
    // Receive slots have the size of the longest packet, and there are only a few.
    let longest = setup.datagram_max.iter().max().copied().unwrap_or(0) as u64;
    setup.socket_bytes = setup.socket_bytes.max(4 * (longest + TRUESIZE));
    setup.node.write_min = rng.pick(&[16_384, 2_000, 2_000, 60_000]);
    setup.registered_max = rng.pick(&[usize::MAX, usize::MAX, 3, 1]);
    draw_lies(setup, rng);
    let long = |setup: &Setup, at: usize| setup.outlasts_connections(&setup.faults[at]);
    let faults = (0..setup.faults.len()).filter(|&at| !long(setup, at));
    setup.faults = faults.map(|at| setup.faults[at]).collect();
    setup.packet_faults.breaks = rng.pick(&[0, 100, 1_000, 3_000]);
    setup.sticks = Rng::new(setup.seed, 24).one_in(2);
    setup.evictions = Evictions::draw(setup.seed);
    setup.node.staged = draw_chunks(setup.seed);
    setup.draw_reads();
    // A loss on a native rail ends the connection with the peer.
    if setup.profile == Profile::Native && rng.one_in(4) {
        setup.node.native_rails = rng.next() as u32;
        setup.may_die = true;
    }
}
