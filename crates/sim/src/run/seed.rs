//! A seed: its two phases, the verdict, the report.

use crate::check::outcome::Outcome;
use crate::setup::choices::Setup;
use crate::setup::faults::LATE_NS;
use crate::world::endpoint::{add_counters, Endpoint};
use crate::world::state::World;
use marline_proto::PathStats;
use std::collections::BTreeSet;
use std::fmt::Write;
use std::panic::{catch_unwind, AssertUnwindSafe};

/// Events after which a run counts as endless.
const EVENTS_MAX: u64 = 30_000_000;

/// Runs one simulation. With `tracing` a failure shows the last events of each endpoint.
pub fn run_setup(setup: &Setup, tracing: bool) -> Outcome {
    let mut world = World::new(setup.clone(), tracing);
    let played = catch_unwind(AssertUnwindSafe(|| world.play()));
    let played = played.unwrap_or_else(|panic| {
        let text = panic.downcast_ref::<String>().cloned();
        Err(format!(
            "panic: {}",
            text.unwrap_or_else(|| "see above".into())
        ))
    });
    let failure = played.err().map(|text| world.describe(&text));
    Outcome {
        seed: setup.seed,
        hash: world.hash,
        failure,
        net: world.net.stats,
        troubles: std::mem::take(&mut world.troubles),
        moments: world.moments,
        messages: world.truth.msgs.len() as u64,
        open_max: world.eps.iter().map(|ep| ep.open_max).max().unwrap_or(0),
        worked_ns: world.worked_ns,
        simulated_ns: world.now,
        recovery_ns: recovery_ns(&world),
        peers: world.eps.iter().map(|ep| peers_of(ep).1).sum(),
        peer_bytes: world.eps.iter().map(|ep| peers_of(ep).0).sum(),
        written: written_of(&world),
        skipped: skipped_of(&world),
        drained: drained_of(&world),
        rails: rails_of(&world),
    }
}

/// Sums up `Outcome::written` over all endpoints.
fn written_of(world: &World) -> (u64, u64) {
    let stats = world
        .eps
        .iter()
        .filter_map(|ep| ep.node(|node| (node.stats().written, node.stats().written_lost)));
    stats.fold((0, 0), |sum, one| (sum.0 + one.0, sum.1 + one.1))
}

/// Sums up `Outcome::skipped` over all endpoints.
fn skipped_of(world: &World) -> (u64, u64) {
    let of_node = |ep: &Endpoint| ep.node(|node| (node.stats().skipped, node.stats().pretended));
    let stats = world.eps.iter().filter_map(of_node);
    stats.fold((0, 0), |sum, one| (sum.0 + one.0, sum.1 + one.1))
}

/// Sums up `Outcome::drained` over all endpoints.
fn drained_of(world: &World) -> u64 {
    let drained = |ep: &Endpoint| -> u64 {
        let wires = ep.machine.wires();
        wires.ports.iter().map(|port| u64::from(port.drained)).sum()
    };
    world.eps.iter().map(drained).sum()
}

/// Counters of all rails, by their index.
fn rails_of(world: &World) -> Vec<PathStats> {
    let mut rails = vec![PathStats::default(); world.setup.rails];
    for ep in &world.eps {
        for (sum, stats) in rails.iter_mut().zip(ep.rails()) {
            add_counters(sum, &stats);
        }
    }
    rails
}

/// Computes `Outcome::recovery_ns`.
fn recovery_ns(world: &World) -> u64 {
    let first = world.setup.faults.iter().map(|f| f.from_ns).min();
    let from = first.unwrap_or(u64::MAX);
    let ops = world.eps.iter().flat_map(|ep| &ep.ops);
    let ended = ops.filter_map(|op| op.done_ns.filter(|_| op.posted_ns <= from));
    ended.max().unwrap_or(0).saturating_sub(from)
}

fn peers_of(ep: &Endpoint) -> (u64, u64) {
    let (bytes, count) = ep.node(|node| node.peer_bytes()).unwrap_or_default();
    (bytes as u64, count as u64)
}

impl World {
    /// Runs both phases until there are enough packets, and the end.
    fn play(&mut self) -> Result<(), String> {
        // A silent peer is declared dead within the timeout plus a probe interval; abandoned paths
        // return within a second's damping.
        // A packet that was lost, recorded and replayed is a sign of life so much later.
        let replayed = self.setup.packet_faults.strangers > 0 && self.setup.node.key_mark != 0;
        // An endpoint found by host and port is asked for its address before it can be silent.
        let late = u64::from(replayed) + u64::from(self.setup.by_place);
        let timeout_ns = self.setup.node.peer_timeout_ns;
        let quiet_max = late * timeout_ns + timeout_ns * 13 / 10 + 3_000_000_000;
        loop {
            self.go(|w| w.calm && (w.finished() || w.now > w.progress_ns + quiet_max))?;
            if !self.finished() {
                return Err(format!("stuck:\n{}", self.unfinished()));
            }
            if !self.another_round()? {
                break;
            }
        }
        if self.eps.iter().any(|ep| !ep.alive) || self.setup.strands() {
            // Incomplete messages of a dead or stranded peer are freed when its death is detected.
            let until = self.now + quiet_max;
            self.go(|w| w.now >= until)?;
        }
        // Delayed packets arrive and are answered.
        let until = self.now + LATE_NS;
        self.go(|w| w.now >= until)?;
        let packets = self.net.stats.packets;
        let until = self.now + 400_000_000;
        self.go(|w| w.now >= until)?;
        let alive = self.eps.iter().filter(|ep| ep.alive).count() as u64;
        let chatter = self.net.stats.packets - packets;
        if chatter > 600 * alive * alive * self.setup.rails as u64 {
            return Err(format!("not quiet: {chatter} packets when all is done"));
        }
        self.check_returned()?;
        self.check_counted()?;
        if self.setup.bye {
            self.close_all(quiet_max)?;
        }
        Ok(())
    }

    pub(crate) fn go(&mut self, mut enough: impl FnMut(&World) -> bool) -> Result<(), String> {
        let mut steps = 0u64;
        // Checking every endpoint costs as much as many steps of one endpoint.
        let often = 16 * (1 + self.eps.len() as u64 / 8);
        while !(steps % often == 0 && enough(self)) {
            steps += 1;
            if !self.step() {
                return Ok(());
            }
            if let Some(v) = &self.violation {
                return Err(format!("endpoint {}: {}", v.endpoint, v.text));
            }
            if self.events > EVENTS_MAX {
                return Err("endless".into());
            }
        }
        Ok(())
    }

    /// Returns whether every application is done and every operation ended.
    pub(crate) fn finished(&self) -> bool {
        self.eps.iter().filter(|ep| ep.alive).all(|ep| {
            let open = ep.open + ep.owed + ep.awaited + ep.app.pending;
            let unread = ep.due.iter().any(|d| !d.is_empty());
            let waits = !(ep.claims.is_empty() && ep.late.is_empty() && ep.windows.open.is_empty());
            ep.app.done && open == 0 && !unread && !waits
        })
    }

    fn unfinished(&self) -> String {
        let mut text = String::new();
        for ep in self.eps.iter().filter(|ep| ep.alive) {
            let _ = writeln!(
                text,
                "endpoint {}: done {} open {} owed {} awaited {} pending {} claims {} late {} \
                unread {:?} windows {} deadline {:?} clock {}",
                ep.index,
                ep.app.done,
                ep.open,
                ep.owed,
                ep.awaited,
                ep.app.pending,
                ep.claims.len(),
                ep.late.len(),
                ep.due.each_ref().map(|due| due.len()),
                ep.windows.open.len(),
                ep.engine.inspect(|core| core.next_deadline()),
                self.now + ep.clock_ns,
            );
            let open = ep
                .ops
                .iter()
                .enumerate()
                .filter(|(_, op)| op.done_ns.is_none());
            for (handle, op) in open.take(6) {
                let mut what = format!("{:?}", op.kind);
                if let crate::truth::memory::OpKind::Send { uid, .. } = op.kind {
                    let m = &self.truth.msgs[uid as usize];
                    what += &format!(
                        " to {} #{} of {} B, head {} arrived {} matched {:?} complete {}",
                        m.dst,
                        m.number,
                        m.len,
                        m.head_seen,
                        m.arrived,
                        m.matched,
                        m.complete()
                    );
                }
                what.truncate(300);
                let _ = writeln!(text, "  {handle} since {}: {what}", op.posted_ns);
            }
        }
        text
    }

    /// Checks that nothing is kept for operations that ended.
    pub(crate) fn check_returned(&mut self) -> Result<(), String> {
        // An endpoint that was declared dead without knowing it waits for messages that never come,
        // and keeps answering reads (seed 7057512).
        let alive = self.eps.iter().filter(|ep| ep.alive);
        let given_up: BTreeSet<u32> = alive.flat_map(|ep| &ep.torn_down).copied().collect();
        for e in 0..self.eps.len() as u32 {
            if !self.eps[e as usize].alive {
                continue;
            }
            let given_up = given_up.contains(&e);
            self.cancel_all(e);
            self.read_all(e);
            let ep = &mut self.eps[e as usize];
            if let Err((handle, text)) = ep.retired.empty() {
                return Err(format!("endpoint {e}: {text}, {handle}"));
            }
            self.check_unlent(e)?;
            let ep = &self.eps[e as usize];
            let left = ep.plain.unexpected.len();
            let Some(held) = ep.node(|node| node.held()) else {
                continue;
            };
            let look = |core: &marline_engine::Core<_>| {
                (core.pool_bytes(), core.open_ops(), core.region_users())
            };
            let (pool, ops, users) = ep.engine.inspect(look);
            let answers = (held.sends, ops.0, users) == (0, 0, 0) || given_up;
            let fine = answers
                && (held.inbounds == left || given_up)
                && held.receives == 0
                && (held.granted_bytes == 0 || given_up)
                && (ops.1 == 0 || given_up)
                && (left > 0 || given_up || held.unexpected_bytes + (pool.0 + pool.1) as u64 == 0);
            if !fine {
                return Err(format!(
                    "endpoint {e} leaks: {held:?}, {pool:?} bytes of the pool, {ops:?} sends and \
                     receives, {users} users of memory; {left} unexpected"
                ));
            }
        }
        match &self.violation {
            Some(v) => Err(format!("endpoint {}: {}", v.endpoint, v.text)),
            None => Ok(()),
        }
    }

    /// Closes all endpoints with BYE; none may be declared dead.
    fn close_all(&mut self, quiet_max: u64) -> Result<(), String> {
        for e in 0..self.eps.len() as u32 {
            if self.eps[e as usize].alive {
                self.close(e);
            }
        }
        let until = self.now + quiet_max;
        self.go(|w| w.now >= until)
    }

    fn describe(&self, text: &str) -> String {
        let mut out = format!(
            "seed {} at {} us: {text}\n{:#?}\n",
            self.setup.seed,
            self.now / 1_000,
            self.setup
        );
        if self.tracing {
            for ep in &self.eps {
                let _ = writeln!(out, "endpoint {} on host {}:", ep.index, ep.host);
                for (at, what) in &ep.trace {
                    let _ = writeln!(out, "  {:>10.1} {what}", *at as f64 / 1_000.0);
                }
            }
        }
        out
    }
}
