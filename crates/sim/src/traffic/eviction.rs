//! Idle eviction of InfiniBand connections: if too many are needed, one is closed until its next
//! use. Its link stays up; packets sent meanwhile are held, or leave as datagrams (which the
//! network may lose) until there are many.
//!
//! Neither end sends during the close, which completes when all work in progress is over, so that
//! nothing is lost. A descheduled or unreachable peer blocks the close; after a hundred requests
//! the link goes down.

use crate::machine::connections::{Evicted, Evictions, Phase, Way};
use crate::machine::out::Out;
use crate::machine::place::target_of;
use crate::setup::choices::Setup;
use crate::traffic::dials::end_of;
use crate::world::state::{Next, World};
use marline_proto::Mutation;

/// Interval and maximum of repeated requests.
const AGAIN_NS: u64 = 20_000_000;
const TRIES_MAX: u32 = 100;

fn between(one: (usize, usize), other: (usize, usize)) -> Way {
    (one.min(other), one.max(other))
}

impl Setup {
    /// Returns whether connections of a rail may be evicted.
    fn may_evict(&self, rail: usize) -> bool {
        self.evictions != Evictions::default() && self.has_queue_pairs(rail)
    }

    /// Returns whether a rail is lossless while its links are up.
    pub(crate) fn loses_nothing(&self, rail: usize) -> bool {
        let datagrams = self.has_queue_pairs(rail) && self.evictions.datagrams_first > 0;
        self.connects(rail) && self.streams[rail] && !datagrams
    }
}

impl World {
    /// Returns the batch, unless its connection is closed and the batch is held.
    pub(crate) fn hold_if_evicted(&mut self, e: u32, mut out: Out) -> Option<Out> {
        if !self.setup.may_evict(out.rail) {
            return Some(out);
        }
        let up = &self.connections.up;
        if !up.contains_key(&end_of(e, out.rail, &out.to)) {
            return Some(out); // lost
        }
        let way = between((self.eps[e as usize].host, out.rail), target_of(&out.to));
        let first = self.setup.evictions.datagrams_first;
        let Some(evicted_links) = self.connections.eviction.evicted_links.get_mut(&way) else {
            self.sent_on(e, way);
            return Some(out);
        };
        let light = evicted_links.phase != Phase::Draining && first > 0;
        if light && out.write.is_none() && evicted_links.held == 0 {
            evicted_links.datagrams += 1;
            if evicted_links.datagrams > first && evicted_links.phase == Phase::Evicted {
                self.reconnect(way);
            }
            out.light = true;
            return Some(out);
        }
        self.hold_batch(e, way, out);
        None
    }

    /// Holds a batch for a closed connection. The bytes of a write are copied, so that the write
    /// ends at once.
    fn hold_batch(&mut self, e: u32, way: Way, mut out: Out) {
        if let Some(mut write) = out.write.take() {
            let mut bytes = Vec::new();
            if let Err(text) = self.read_pieces(e, &out, &write, &mut bytes) {
                return self.broken(e, text);
            }
            let order = self.push(self.now, Next::WriteOver);
            let over = (e, out.rail, write.token, target_of(&out.to));
            self.overs.insert(order, over);
            write.copied = Some(bytes);
            out.write = Some(write);
        }
        self.net.stats.held += 1;
        if let Some(evicted_links) = self.connections.eviction.evicted_links.get_mut(&way) {
            evicted_links.held += 1;
            self.evicted_links.entry(way).or_default().push((e, out));
            if evicted_links.phase == Phase::Evicted {
                self.reconnect(way);
            }
        }
    }

    /// Reconnects an evicted connection.
    fn reconnect(&mut self, way: Way) {
        if let Some(evicted_links) = self.connections.eviction.evicted_links.get_mut(&way) {
            (evicted_links.phase, evicted_links.tries) = (Phase::Reconnecting, 0);
        }
        let dance_ns = 3 * self.net.latency(way.0 .1);
        self.step_eviction(way, dance_ns);
    }

    fn step_eviction(&mut self, way: Way, after_ns: u64) {
        let after_ns = after_ns + self.rng.below(after_ns + 1);
        let order = self.push(self.now + after_ns, Next::Dialled);
        self.connections.eviction.steps.insert(order, way);
    }

    /// Notes a use of a connection; one may have to be evicted.
    fn sent_on(&mut self, e: u32, way: Way) {
        self.connections.eviction.used.insert(way, self.now);
        let Evictions { most, ppm, .. } = self.setup.evictions;
        let rail = way.0 .1;
        let host = self.eps[e as usize].host;
        let evicted_links = &self.connections.eviction.evicted_links;
        let mine = self.connections.up.keys();
        let mine = mine.filter(|end| end.0 == e && end.1 == rail);
        let mut open: Vec<Way> = mine.map(|end| between((host, rail), end.2)).collect();
        open.retain(|way| !evicted_links.contains_key(way));
        if most > 0 && open.len() > most {
            let used = |way: &Way| {
                self.connections
                    .eviction
                    .used
                    .get(way)
                    .copied()
                    .unwrap_or(0)
            };
            let others = open.into_iter().filter(|other| *other != way);
            if let Some(least) = others.min_by_key(used) {
                self.let_evict(least);
            }
        }
        if self.rng.ppm(ppm) {
            self.let_evict_soon(way);
        }
    }

    /// Like [`World::let_evict`], after the current packets have left.
    fn let_evict_soon(&mut self, way: Way) {
        let order = self.push(self.now, Next::Dialled);
        self.connections.eviction.steps.insert(order, way);
    }

    /// Starts the eviction of a connection: its ends stop sending.
    fn let_evict(&mut self, way: Way) {
        self.net.stats.evicted += 1;
        self.begin_eviction(way, Phase::Draining);
        let early = self.setup.node.errs(Mutation::EvictEarly);
        let busy = self.connections.eviction.busy.get(&way).copied();
        let left_ns = busy.unwrap_or(0).saturating_sub(self.now);
        let rounds_ns = 2 * self.net.latency(way.0 .1);
        if early && left_ns > 0 {
            self.net.break_stream(way.0, way.1);
        }
        self.step_eviction(way, left_ns.max(rounds_ns));
    }

    fn begin_eviction(&mut self, way: Way, phase: Phase) {
        let evicted_links = Evicted {
            phase,
            held: 0,
            datagrams: 0,
            tries: 0,
        };
        self.connections
            .eviction
            .evicted_links
            .insert(way, evicted_links);
    }

    /// A link comes up, at first with datagrams if configured.
    pub(crate) fn begin_light(&mut self, start: (usize, usize), target: (usize, usize)) {
        let way = between(start, target);
        let first = self.setup.may_evict(start.1) && self.setup.evictions.datagrams_first > 0;
        if first && !self.connections.eviction.used.contains_key(&way) {
            self.connections.eviction.used.insert(way, self.now);
            self.begin_eviction(way, Phase::Evicted);
        }
    }

    /// The next step of an evicted connection; `false` for other events.
    pub(crate) fn step_of_eviction(&mut self, order: u64) -> bool {
        let Some(way) = self.connections.eviction.steps.remove(&order) else {
            return false;
        };
        let away = self.is_away(way.0) || self.is_away(way.1);
        let silent = away || self.net.is_cut(way.0, way.1) || self.net.is_cut(way.1, way.0);
        let is_up = |end: &crate::machine::connections::End| {
            between((self.eps[end.0 as usize].host, end.1), end.2) == way
        };
        let is_up = self.connections.up.keys().any(is_up);
        let Some(evicted_links) = self.connections.eviction.evicted_links.get_mut(&way) else {
            if is_up {
                self.let_evict(way);
            }
            return true;
        };
        match evicted_links.phase {
            Phase::Evicted => {}
            Phase::Reconnecting if silent && evicted_links.tries >= TRIES_MAX => {
                self.break_connection(way.0, way.1)
            }
            Phase::Draining | Phase::Reconnecting if silent => {
                evicted_links.tries += 1;
                self.step_eviction(way, AGAIN_NS);
            }
            Phase::Draining => {
                evicted_links.phase = Phase::Evicted;
                if evicted_links.held > 0 {
                    self.reconnect(way);
                }
            }
            Phase::Reconnecting => self.awake(way),
        }
        true
    }

    /// A connection is re-established: held batches leave.
    fn awake(&mut self, way: Way) {
        self.connections.eviction.evicted_links.remove(&way);
        self.net.stats.reconnected += 1;
        for (e, out) in self.evicted_links.remove(&way).unwrap_or_default() {
            if self.eps[e as usize].alive {
                self.sent_on(e, way);
                self.leave(e, out, self.now, false);
            }
        }
    }

    /// Returns whether a host's process is descheduled or dead.
    fn is_away(&self, at: (usize, usize)) -> bool {
        let ep = self.on_host[at.0].map(|e| &self.eps[e as usize]);
        ep.is_none_or(|ep| {
            let idle = ep.computing > 0 && !ep.threaded;
            !ep.alive || ep.closed || ep.stopped > 0 || idle
        })
    }

    /// Notes that a connection is busy up to time `until`, and is not evicted before.
    pub(crate) fn under_way(&mut self, e: u32, out: &Out, until: u64) {
        if out.light || !self.setup.may_evict(out.rail) {
            return;
        }
        let way = between((self.eps[e as usize].host, out.rail), target_of(&out.to));
        let busy = self.connections.eviction.busy.entry(way).or_default();
        *busy = until.max(*busy);
    }

    /// Connections broke: their held batches are lost.
    pub(crate) fn break_evicted(
        &mut self,
        broken: &impl Fn((usize, usize), (usize, usize)) -> bool,
    ) {
        let rest = &mut self.connections.eviction;
        let ends = |way: &Way| broken(way.0, way.1) || broken(way.1, way.0);
        rest.evicted_links.retain(|way, _| !ends(way));
        rest.used.retain(|way, _| !ends(way));
        rest.steps.retain(|_, way| !ends(way));
        self.evicted_links.retain(|way, _| !ends(way));
    }
}
