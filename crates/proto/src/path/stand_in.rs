//! Rails that stand behind others: a path over one is made where the rail before it does not carry.
//!
//! Such a rail has the address of the one before it and the next index, so that whoever knows the
//! one knows the other ([`RailAddr::behind`]), and nothing has to be told or kept for it. Until it
//! is needed there is no path, no link and no connection. After that the path stays, in a higher
//! tier: what stood in gives way to what it stood in for, as soon as that works again.

use crate::base::config::PATHS_MAX;
use crate::node::Node;
use crate::state::conn::Conn;
use crate::state::path::Path;
use alloc::borrow::Cow;
use alloc::vec::Vec;
use marline_wire::{path_code, RailAddr};

/// Pairs of rails by their places in two lists.
type Pairs = Vec<(usize, usize)>;

impl Conn {
    /// The rail of the peer of this index, if it stands behind one that we have a path to.
    pub(crate) fn behind(&self, remote: usize) -> Option<RailAddr> {
        let mut behind = self.paths.iter().filter_map(|p| p.to.behind());
        behind.find(|addr| addr.index as usize == remote)
    }
}

impl Node {
    /// No path to a peer carries: a path is made for each of them between the two rails behind,
    /// where there are any. (Their links are asked for, and their first answers prove them.)
    pub(crate) fn stand_in(&mut self, conn: &mut Conn) {
        let before = conn.paths.len();
        for at in 0..before {
            let path = &conn.paths[at];
            let local = path.local as usize + 1;
            let Some(rail) = self.local.rails.get(local).filter(|rail| rail.standby) else {
                continue;
            };
            let Some(to) = path.to.behind() else {
                continue;
            };
            let known = conn.path_by_send_code(path_code(local as u8, to.index));
            let reached = self.local.pairing.reaches(&rail.addr, &to);
            if known.is_none() && reached && conn.paths.len() < PATHS_MAX {
                conn.push_path(Path::new(
                    local as u8,
                    &self.local.rail(local, &self.cfg),
                    to,
                ));
            }
        }
        if conn.paths.len() > before {
            self.ask_links_of(conn);
        }
    }

    /// Pairs of our rails and these of a peer. If there are none without rails that stand by, here
    /// and there, these count as well: a peer may have only what stands by here.
    pub(crate) fn pairs_with<'a>(&self, remotes: &'a [RailAddr]) -> (Cow<'a, [RailAddr]>, Pairs) {
        let (locals, pairing) = (self.local.addrs(), self.local.pairing);
        let mut pairs = pairing.pairs(&locals, remotes);
        let stands_by = |local: usize| self.local.rails[local].standby;
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
