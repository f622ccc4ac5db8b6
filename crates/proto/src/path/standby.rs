//! Standby rails: a path over a standby rail is made where the preferred rail before it does not
//! carry packets.
//!
//! A standby rail has the address of the rail before it and the next index, so each can be derived
//! from the other ([`RailAddr::behind`]) without a message or table. Before it is needed, a standby
//! rail has no path, link or connection. Afterwards its path stays, in a less preferred tier: the
//! preferred path takes over as soon as it works.

use crate::base::config::{Config, PATHS_MAX};
use crate::path::actions::Recovery;
use crate::state::conn::Conn;
use crate::state::local::Local;
use crate::state::path::Path;
use alloc::borrow::Cow;
use alloc::vec::Vec;
use marline_wire::{path_code, RailAddr};

/// Pairs of rails by their places in two lists.
type Pairs = Vec<(usize, usize)>;

impl Conn {
    /// Adds, for each path, a path between the standby rails of its two rails, if they exist.
    /// Returns whether any was added.
    pub(crate) fn add_standby(&mut self, cfg: &Config, local: &Local) -> bool {
        let before = self.paths.len();
        for at in 0..before {
            let path = &self.paths[at];
            let behind = path.local as usize + 1;
            let Some(rail) = local.rails.get(behind).filter(|rail| rail.standby) else {
                continue;
            };
            let Some(to) = path.to.behind() else {
                continue;
            };
            let known = self.path_by_send_code(path_code(behind as u8, to.index));
            let reached = local.pairing.reaches(&rail.addr, &to);
            if known.is_none() && reached && self.paths.len() < PATHS_MAX {
                self.push_path(Path::new(behind as u8, &local.rail(behind, cfg), to));
            }
        }
        self.paths.len() > before
    }

    /// The standby rail of the peer with this index, if we have a path to the rail before it.
    pub(crate) fn behind(&self, remote: usize) -> Option<RailAddr> {
        let mut behind = self.paths.iter().filter_map(|p| p.to.behind());
        behind.find(|addr| addr.index as usize == remote)
    }
}

impl Recovery<'_> {
    /// Makes standby paths because no path to the peer carries packets. (The engine opens their
    /// links; the first answer proves a path.)
    pub(crate) fn standby(&mut self, conn: &mut Conn) {
        if conn.add_standby(self.cfg, self.local) {
            self.ask_links_of(conn);
        }
    }
}

impl Local {
    /// Pairs of our rails and the given rails of a peer. If there is no pair without standby rails,
    /// standby rails on both sides count too: a peer may reach only a standby rail here.
    pub(crate) fn pairs_with<'a>(&self, remotes: &'a [RailAddr]) -> (Cow<'a, [RailAddr]>, Pairs) {
        let (locals, pairing) = (self.addrs(), self.pairing);
        let mut pairs = pairing.pairs(&locals, remotes);
        let stands_by = |local: usize| self.rails[local].standby;
        if pairs.iter().any(|&(local, _)| !stands_by(local)) {
            pairs.retain(|&(local, _)| !stands_by(local));
            return (Cow::Borrowed(remotes), pairs);
        }
        let behind: Vec<RailAddr> = remotes.iter().filter_map(RailAddr::behind).collect();
        if behind.is_empty() {
            return (Cow::Borrowed(remotes), pairs);
        }
        let all = [remotes, &behind[..]].concat();
        let pairs = pairing.pairs(&locals, &all);
        (Cow::Owned(all), pairs)
    }
}
