//! Peers that an endpoint cannot reach: it may call them dead though they live.

use crate::machine::host::index_of;
use crate::setup::choices::{Fault, Trouble};
use crate::setup::faults::LATE_NS;
use crate::setup::profile::Profile;
use crate::world::state::World;
use marline_proto::{Evidence, PathState};

/// A rail that has been up for so long could ask where its neighbours are (`uptime.rs` of proto).
const STEADY_NS: u64 = 3_000_000_000;
/// Refusals of packets and connections at once prove the end of a process after so long, those of
/// one kind after so long (`rail_events.rs` of proto).
const BOTH_NS: u64 = 400_000_000;
const ONE_KIND_NS: u64 = 4_000_000_000;

impl World {
    /// How long a host is to wait for a peer that is silent since then: the timeout, a fifth of it
    /// between two questions, and ticks of a computing application; after rails that came back
    /// until they could ask, and to the next look, but for no more than three timeouts.
    pub(crate) fn told_within_ns(&self, host: usize, since: u64) -> u64 {
        let timeout = self.setup.node.peer_timeout_ns;
        let usual = timeout * 5 / 4 + 50_000_000;
        let flaps = self.setup.faults.iter().filter(|fault| match fault.what {
            Trouble::RailDown { host: of, .. } | Trouble::Move { host: of, .. } => of == host,
            _ => false,
        });
        let back = flaps.map(|fault| fault.to_ns).filter(|to| *to <= self.now);
        let told = match back.max().filter(|back| *back > since) {
            Some(back) => {
                let asks = (back - since + STEADY_NS.min(timeout)).min(3 * timeout);
                usual + asks.saturating_sub(timeout) + timeout / 8
            }
            None => usual,
        };
        // Time in which its own rails were all down does not count.
        told + self.down_ns(host, since)
    }

    /// For how long rails of a host have been down since then, at most.
    fn down_ns(&self, of: usize, since: u64) -> u64 {
        let spans = self.setup.faults.iter().filter(|f| match f.what {
            Trouble::RailDown { host, .. } | Trouble::Move { host, .. } => host == of,
            _ => false,
        });
        let lasted = |f: &Fault| self.now.min(f.to_ns).saturating_sub(f.from_ns.max(since));
        spans.map(lasted).max().unwrap_or(0)
    }

    /// True if a firewall has refused all that comes to an endpoint by the paths on which another
    /// has ever heard of it, and by what stands behind them, for as long as evidence of that kind
    /// has to last. (Who knows only these cannot know better.)
    pub(crate) fn every_path_refuses(&self, e: u32, other: u32, evidence: Evidence) -> bool {
        let least_ns = match evidence {
            // No firewall of the simulator's does that.
            Evidence::NoSuchName | Evidence::Ended | Evidence::OneProcess => return false,
            Evidence::Both => BOTH_NS,
            Evidence::Packets | Evidence::Connections => {
                ONE_KIND_NS.min(self.setup.node.peer_timeout_ns)
            }
        };
        let (ep, host) = (&self.eps[e as usize], self.eps[other as usize].host);
        let mut every = true;
        ep.engine.inspect(|core| {
            let Some(node) = core.node(ep.ep) else { return };
            node.for_each_peer(|_, id, _, paths| {
                let proven = paths.filter(|p| p.2 != PathState::Unproven);
                // What stands behind a rail that has worked has its address, and a say as well.
                let behind = |rail| self.setup.behind.filter(|&b| b == rail + 1);
                let of = |rail: usize| [Some(rail), behind(rail)].into_iter().flatten();
                let open = |rail| of(rail).any(|rail| self.refused_ns((host, rail)) < least_ns);
                let open = { proven }.any(|p| open(p.1 as usize));
                every &= index_of(id) != other || !open;
            });
        });
        every
    }

    /// For how long a firewall has refused what comes to a rail.
    fn refused_ns(&self, at: (usize, usize)) -> u64 {
        let of_rail = |f: &&Fault| match f.what {
            Trouble::Refuse { host, rail } => (host, rail) == at,
            _ => false,
        };
        let spans = self.setup.faults.iter().filter(of_rail);
        // Its last packets are on their way for a while.
        let lasted = |f: &Fault| self.now.min(f.to_ns + LATE_NS).saturating_sub(f.from_ns);
        spans.map(lasted).sum()
    }

    /// True if no packet of `e` reached `other`, or none of `other`'s came back, for long: of the
    /// paths that `e` knows each was cut. (One that was never heard is known by the two rails that
    /// its address names.)
    pub(crate) fn is_cut_off(&self, e: u32, other: u32) -> bool {
        let (ep, there) = (&self.eps[e as usize], &self.eps[other as usize]);
        let (mut out, mut back) = (true, true);
        ep.engine.inspect(|core| {
            let Some(node) = core.node(ep.ep) else { return };
            node.for_each_peer(|_, id, _, paths| {
                for (local, remote, ..) in paths.filter(|_| index_of(id) == other) {
                    let ends = [(ep.host, local as usize), (there.host, remote as usize)];
                    out &= self.is_cut_long(ends[0], ends[1]);
                    back &= self.is_cut_long(ends[1], ends[0]);
                }
            });
        });
        out || back
    }

    /// True if one fault has kept all packets from a rail to another for half of the time after
    /// which a silent peer is dead, until now or until so little ago that no question need have
    /// been asked since: at their rarest they come fifty times in that time.
    fn is_cut_long(&self, from: (usize, usize), to: (usize, usize)) -> bool {
        let timeout = self.setup.node.peer_timeout_ns;
        // Outages of this profile are shorter than the timeout, by far more than questions take.
        let least = match self.setup.profile {
            Profile::Outages => timeout,
            _ => timeout / 2,
        };
        self.setup.faults.iter().any(|fault| {
            let lasted = self.now.min(fault.to_ns).saturating_sub(fault.from_ns) >= least;
            lasted && self.now <= fault.to_ns + timeout / 50 && fault.what.cuts(from, to)
        })
    }
}
