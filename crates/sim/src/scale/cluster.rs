//! The clusters that are measured, and their runs.

use super::Sample;
use crate::setup::choices::{Fault, PacketFaults, Setup, Topology, Trouble, Work};
use crate::setup::sample::turn_ns;
use crate::world::state::World;
use marline_proto::{Config, Node, NodeStats, PeerId};
use std::panic::{catch_unwind, AssertUnwindSafe};
use std::time::Instant;

/// Time between two messages of an endpoint to an all-to-all's peers, as measured with 1,024.
pub(crate) const TURN_NS: u64 = 400;
/// Longest time without an ended operation.
const QUIET_NS: u64 = 10_000_000_000;
/// Virtual time for which an idle cluster is watched.
const IDLE_NS: u64 = 200_000_000;
/// Interval between ticks of the progress thread.
const TICK_NS: f64 = 10_000_000.0;
/// Polls whose time is taken.
const POLLS: u32 = 1_000;
/// Rounds of messages around the failure of rails.
const FAILURE_ROUNDS: u32 = 4;
/// Time for which rails are silent: longer than the rounds.
const SILENT_NS: u64 = 400_000_000;
/// Every such host is behind the switch that fails.
const BEHIND_SWITCH: usize = 10;

/// A cluster with rails of 10 Gbit/s and 5 us, switches with queues of 1.25 MB, and the receive
/// buffers that Linux allows by default.
pub(crate) fn cluster(hosts: usize, rails: usize, work: Work) -> Setup {
    let mut setup = Setup::plain(1, hosts, rails);
    setup.topology = Topology::Planes;
    setup.node = Config::default();
    setup.datagram_max = vec![1_472; rails];
    setup.latency_ns = vec![5_000; rails];
    setup.rate = vec![1_250_000_000; rails];
    setup.queue_ns = 1_000_000;
    setup.socket_bytes = 425_984;
    setup.packet_faults = PacketFaults::default();
    setup.faults_end_ns = 1;
    setup.work = work;
    setup.ops = 1;
    setup.size_max = 64;
    setup.pause_ns = TURN_NS;
    setup.log_bytes = 64 << 20;
    (setup.bye, setup.second, setup.versions) = (false, false, false);
    setup.threaded = true;
    // Each endpoint has a processor to itself.
    setup.yields_ns = [300; 4];
    setup.paces_ns = [3_000; 3];
    setup
}

/// The hosts behind a switch that a tenth of them share on the first rail.
pub(crate) fn behind_switch(hosts: usize) -> impl Iterator<Item = usize> {
    (0..hosts).filter(|host| host % BEHIND_SWITCH == BEHIND_SWITCH - 1)
}

/// Makes the first rail of these hosts go silent.
fn silence(setup: &mut Setup, hosts: impl Iterator<Item = usize>, from_ns: u64) {
    let to_ns = from_ns + SILENT_NS;
    setup.faults = hosts
        .map(|host| Fault {
            from_ns,
            to_ns,
            what: Trouble::RailDown {
                host,
                rail: 0,
                notified: false,
            },
        })
        .collect();
    setup.faults_end_ns = to_ns;
}

/// A cluster whose work is done.
pub(crate) struct Done {
    pub(crate) world: World,
    /// Wall-clock time of the run, in seconds.
    pub(crate) seconds: f64,
}

impl Done {
    /// Runs a cluster until its work is done; an error is a broken promise.
    pub(crate) fn run(setup: &Setup) -> Result<Done, String> {
        let start = Instant::now();
        let mut world = World::new(setup.clone(), false);
        let played = catch_unwind(AssertUnwindSafe(|| -> Result<(), String> {
            world.go(|w| w.calm && (w.finished() || w.now > w.progress_ns + QUIET_NS))?;
            match world.finished() {
                true => Ok(()),
                false => Err("work is left when nothing goes on".into()),
            }
        }));
        played.unwrap_or_else(|_| Err("panic: see above".into()))?;
        Ok(Done {
            world,
            seconds: start.elapsed().as_secs_f64(),
        })
    }

    /// Runs a cluster without a failure, and again with one in the middle of the second round of
    /// messages: the first rail of `failing` is silent. Also when that begins, in ns.
    pub(crate) fn run_both(
        mut setup: Setup,
        failing: impl Iterator<Item = usize>,
    ) -> Result<([Done; 2], u64), String> {
        setup.ops = FAILURE_ROUNDS;
        let calm = Done::run(&setup)?;
        let from_ns = turn_ns(&setup, 0, 1) * 3 / 2;
        silence(&mut setup, failing, from_ns);
        Ok(([calm, Done::run(&setup)?], from_ns))
    }

    /// When the last operation ended that was posted by then, in ns.
    pub(crate) fn ended_ns(&self, posted_by_ns: u64) -> u64 {
        let ops = self.world.eps.iter().flat_map(|ep| &ep.ops);
        let ended = ops.filter_map(|op| op.done_ns.filter(|_| op.posted_ns <= posted_by_ns));
        ended.max().unwrap_or(0)
    }

    /// Looks at the first endpoint's node.
    fn node<R: Default>(&self, look: impl FnOnce(&Node) -> R) -> R {
        self.world.eps[0].node(look).unwrap_or_default()
    }

    /// The first endpoint's counters.
    pub(crate) fn stats(&self) -> NodeStats {
        self.node(|node| *node.stats())
    }

    /// Messages to and from the sampled endpoints, or of all.
    fn messages(&self) -> f64 {
        self.world.truth.msgs.len() as f64
    }

    /// Packets that found a full queue or socket.
    pub(crate) fn lost(&self) -> u64 {
        let net = &self.world.net.stats;
        net.socket_full + net.overflowed
    }

    /// Time and packets of the work.
    pub(crate) fn traffic(&self) -> Vec<Sample> {
        let net = &self.world.net.stats;
        let each = |count: u64| count as f64 / self.messages();
        vec![
            Sample::new("time", "us", self.world.worked_ns as f64 / 1e3),
            Sample::new("packets", "per message", each(net.packets)),
            Sample::new("lost", "per message", each(self.lost())),
            Sample::new("wall time", "s", self.seconds),
        ]
    }

    /// Retransmissions, and spurious ones, for each message.
    pub(crate) fn resent(&self) -> Vec<Sample> {
        let rails = self.world.eps.iter().flat_map(|ep| ep.rails());
        let (again, spurious) = rails.fold((0, 0), |(again, spurious), stats| {
            let resent = stats.resent_loss + stats.resent_pto;
            (again + resent, spurious + stats.resent_spurious)
        });
        let each = |count: u64| count as f64 / self.messages();
        vec![
            Sample::new("resent", "per message", each(again)),
            Sample::new("spurious", "per message", each(spurious)),
        ]
    }

    /// Bytes of the first endpoint's connections and paths, per peer.
    pub(crate) fn connection(&self) -> (f64, f64) {
        let hosts = self.world.setup.hosts as u32;
        let paths = |node: &Node| (0..hosts).map(|n| node.paths_of(PeerId(n)).count()).sum();
        let (bytes, peers) = self.node(Node::peer_bytes);
        let each = |count: usize| count as f64 / peers.max(1) as f64;
        (each(bytes), each(self.node(paths)))
    }

    /// Memory of the first endpoint.
    pub(crate) fn memory(&self) -> Vec<Sample> {
        let (bytes, _) = self.node(Node::peer_bytes);
        let known = self.world.eps[0].addrs.len().max(1) as f64;
        let addresses = self.world.eps[0]
            .engine
            .inspect(|core| core.address_bytes());
        vec![
            Sample::new("address", "bytes per peer", addresses as f64 / known),
            Sample::new("connection", "bytes per peer", self.connection().0),
            Sample::new("memory", "bytes per rank", (bytes + addresses) as f64),
        ]
    }

    /// Work of the first endpoint for its timers: while it spoke, and while it has nothing to do.
    pub(crate) fn ticks(&mut self) -> Result<Vec<Sample>, String> {
        let (_, peers) = self.node(Node::peer_bytes);
        let spoke = self.stats().visited as f64 / peers.max(1) as f64;
        // The last acks and probes of first contact are over.
        let quiet = self.world.now + IDLE_NS;
        self.world.go(|w| w.now >= quiet)?;
        let (from, before) = (self.world.now, self.stats().visited);
        self.world.go(|w| w.now >= from + IDLE_NS)?;
        let ticks = (self.world.now - from) as f64 / TICK_NS;
        let idle = (self.stats().visited - before) as f64 / ticks;
        let engine = &self.world.eps[0].engine;
        let start = Instant::now();
        (0..POLLS).for_each(|_| engine.progress());
        let each_ns = start.elapsed().as_nanos() as f64 / f64::from(POLLS);
        Ok(vec![
            Sample::new("visited", "peers per peer spoken to", spoke),
            Sample::new("visited idle", "peers per tick", idle),
            Sample::new("poll", "ns of wall time", each_ns),
        ])
    }

    /// Checks that nothing is kept for operations that ended.
    pub(crate) fn check(&mut self) -> Result<(), String> {
        self.world.check_returned()
    }
}
