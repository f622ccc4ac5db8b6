//! Unreachable peers, which an endpoint may declare dead although they live.

use crate::machine::host::index_of;
use crate::setup::choices::{FalseReport, Fault, Trouble};
use crate::setup::faults::LATE_NS;
use crate::setup::profile::Profile;
use crate::world::state::World;
use marline_proto::{Evidence, PathState};

/// Uptime in which a rail certainly could resolve its neighbours' addresses (`uptime.rs` of proto).
const STEADY_NS: u64 = 3_000_000_000;
/// Durations after which refusals prove the end of a process: if packets and connections are
/// refused, and if only one kind is (`rail_events.rs` of proto).
const BOTH_NS: u64 = 400_000_000;
const ONE_KIND_NS: u64 = 4_000_000_000;
/// Time for which a drained rail is out of use (`RETRY_NS` of the engine).
const OUT_OF_USE_NS: u64 = 100_000_000;

impl World {
    /// Longest time until a host declares a peer dead that has been silent since `since`: the
    /// timeout, a fifth of it between probes, and ticks of a computing application. After an outage
    /// of rails, also the time until these could send probes and the next check, up to three
    /// timeouts.
    pub(crate) fn declared_within_ns(&self, host: usize, since: u64) -> u64 {
        let timeout = self.setup.node.peer_timeout_ns;
        let usual = timeout * 5 / 4 + 50_000_000;
        let flaps = self.setup.faults.iter().filter(|fault| match fault.what {
            Trouble::RailDown { host: of, .. } | Trouble::Move { host: of, .. } => of == host,
            _ => false,
        });
        let back = flaps.map(|fault| fault.to_ns).filter(|to| *to <= self.now);
        let noticed = match back.max().filter(|back| *back > since) {
            Some(back) => {
                let asks = (back - since + STEADY_NS.min(timeout)).min(3 * timeout);
                usual + asks.saturating_sub(timeout) + timeout / 8
            }
            None => usual,
        };
        // Time with all own rails down does not count.
        noticed + self.down_ns(host, since) + self.drained_ns(host)
    }

    /// Time that passes until a peer is declared dead by a host with a device that has never
    /// reported the end of a write: its rail is drained and out of use, which may be at the last
    /// moment of a timeout, and is given another one then.
    fn drained_ns(&self, of: usize) -> u64 {
        let never = |f: &Fault| match f.what {
            Trouble::Lies { host, how, .. } => host == of && how == FalseReport::NeverOver,
            _ => false,
        };
        let drained = (self.setup.faults.iter()).any(|f| never(f) && f.from_ns <= self.now);
        u64::from(drained) * (self.setup.node.peer_timeout_ns + OUT_OF_USE_NS)
    }

    /// Longest time for which rails of a host have been down after `since`.
    fn down_ns(&self, of: usize, since: u64) -> u64 {
        let spans = self.setup.faults.iter().filter(|f| match f.what {
            Trouble::RailDown { host, .. } | Trouble::Move { host, .. } => host == of,
            _ => false,
        });
        let lasted = |f: &Fault| self.now.min(f.to_ns).saturating_sub(f.from_ns.max(since));
        spans.map(lasted).max().unwrap_or(0)
    }

    /// True if a firewall has refused packets on all paths that ever carried packets from `other`
    /// to `e`, and on their standby rails, for as long as this kind of evidence requires. (Other
    /// paths are unknown to `e`.)
    pub(crate) fn every_path_refuses(&self, e: u32, other: u32, evidence: Evidence) -> bool {
        let least_ns = match evidence {
            // No firewall of the simulator causes such evidence.
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
                // The standby rail of a rail that worked has a known address, and counts too.
                let behind = |rail| self.setup.behind.filter(|&b| b == rail + 1);
                let of = |rail: usize| [Some(rail), behind(rail)].into_iter().flatten();
                let open = |rail| of(rail).any(|rail| self.refused_ns((host, rail)) < least_ns);
                let open = { proven }.any(|p| open(p.1 as usize));
                every &= index_of(id) != other || !open;
            });
        });
        every
    }

    /// Time for which a firewall has refused packets to a rail.
    fn refused_ns(&self, at: (usize, usize)) -> u64 {
        let of_rail = |f: &&Fault| match f.what {
            Trouble::Refuse { host, rail } => (host, rail) == at,
            _ => false,
        };
        let spans = self.setup.faults.iter().filter(of_rail);
        // The last refusals are still in flight.
        let lasted = |f: &Fault| self.now.min(f.to_ns + LATE_NS).saturating_sub(f.from_ns);
        spans.map(lasted).sum()
    }

    /// True if for long no packet of `e` reached `other`, or no packet of `other` came back: each
    /// path that `e` knows was cut. (A peer never heard is known by the two rails in its address.)
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

    /// True if one fault has blocked all packets from one rail to another for half of the timeout
    /// for silent peers, and until so recently that perhaps no probe was sent since: at their
    /// rarest, fifty probes are sent in that timeout.
    fn is_cut_long(&self, from: (usize, usize), to: (usize, usize)) -> bool {
        let timeout = self.setup.node.peer_timeout_ns;
        // In this profile outages are shorter than the timeout by much more than probes need.
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
