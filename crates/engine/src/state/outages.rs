//! The outages that this process knows of, and its warnings about them.

use crate::stats::events::{Event, Recorder};
use std::collections::BTreeSet;
use std::net::IpAddr;

/// Most warnings of a process about rails that fail or recover; more would flood the log, and the
/// page has all of them.
const WARNINGS_MAX: u32 = 20;

/// Most recorded addresses of routers or hosts that reject packets.
const BARRED_MAX: usize = 64;

/// A path: index of the endpoint, peer, local rail, remote rail.
pub(crate) type PathName = (u32, u32, u8, u8);

/// Current outages.
pub(crate) struct Outages {
    recorder: Option<Recorder>,
    /// True if this process warns for its host.
    speaks: bool,
    warnings: u32,
    /// Paths that are down although their rail is up.
    lost: BTreeSet<PathName>,
    /// Standby rails that have carried packets (bit n: rail n).
    stood_in: u32,
    /// Rails whose wait for an interface was logged (bit n: rail n).
    awaited: u32,
    /// Rails, with the addresses of others that reject their packets.
    barred: BTreeSet<(u8, IpAddr)>,
}

impl Default for Outages {
    fn default() -> Outages {
        Outages {
            recorder: None,
            speaks: true,
            warnings: 0,
            lost: BTreeSet::new(),
            stood_in: 0,
            awaited: 0,
            barred: BTreeSet::new(),
        }
    }
}

impl Outages {
    /// Sets the recorder of events. The first process of each host warns; if the launcher gives no
    /// local rank, every process does.
    pub(crate) fn open(&mut self, recorder: Option<Recorder>) {
        (self.recorder, self.speaks) = (recorder, local_rank_from_env().unwrap_or(0) == 0);
    }

    /// Writes an event to the page, if there is one.
    pub(crate) fn record(&self, event: Event) {
        if let Some(recorder) = &self.recorder {
            recorder.record(event);
        }
    }

    /// Notes that `by` rejects a rail's packets to others. `true`: not known before.
    pub(crate) fn bar(&mut self, rail: u8, by: IpAddr) -> bool {
        self.barred.len() < BARRED_MAX && self.barred.insert((rail, by))
    }

    /// Notes that a path is down. `true`: it is the first path of its rail that is down, which is
    /// worth a warning.
    pub(crate) fn lose(&mut self, path: PathName) -> bool {
        let first = !self.has_lost(path.2);
        self.lost.insert(path) && first
    }

    /// Notes that a path is in use again. `true`: it was the last lost path of its rail.
    pub(crate) fn regain(&mut self, path: PathName) -> bool {
        self.lost.remove(&path) && !self.has_lost(path.2)
    }

    /// Notes that a standby rail carries packets to a peer. Returns whether it carried any before.
    pub(crate) fn stood_in(&mut self, path: PathName) -> bool {
        let bit = 1_u32.checked_shl(path.2.into()).unwrap_or(0);
        let before = self.stood_in & bit != 0;
        self.stood_in |= bit;
        before
    }

    /// Notes that a rail waits for its interface. Returns whether that is new.
    pub(crate) fn await_rail(&mut self, rail: u8) -> bool {
        let bit = 1_u32.checked_shl(rail.into()).unwrap_or(0);
        let before = self.awaited & bit != 0;
        self.awaited |= bit;
        !before
    }

    /// Forgets the paths to a peer.
    pub(crate) fn forget(&mut self, ep: u32, peer: u32) {
        if !self.lost.is_empty() {
            self.lost.retain(|path| (path.0, path.1) != (ep, peer));
        }
    }

    /// Forgets the paths of a closing endpoint.
    pub(crate) fn forget_endpoint(&mut self, ep: u32) {
        self.lost.retain(|path| path.0 != ep);
    }

    fn has_lost(&self, rail: u8) -> bool {
        self.lost.iter().any(|path| path.2 == rail)
    }

    /// True if this process may log another warning, which it then counts.
    pub(crate) fn may_warn(&mut self) -> bool {
        if !self.speaks || self.warnings >= WARNINGS_MAX {
            return false;
        }
        self.warnings += 1;
        true
    }

    /// True after the last warning.
    pub(crate) fn is_silent(&self) -> bool {
        self.warnings == WARNINGS_MAX
    }
}

/// Rank among the processes of the host, from the environment variables of common launchers.
fn local_rank_from_env() -> Option<u32> {
    let names = [
        "MPI_LOCALRANKID",
        "OMPI_COMM_WORLD_LOCAL_RANK",
        "PMIX_LOCAL_RANK",
        "SLURM_LOCALID",
    ];
    let texts = names.iter().filter_map(|name| std::env::var(name).ok());
    texts.filter_map(|text| text.parse().ok()).next()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_rail_is_lost_once_and_back_when_all_its_paths_are() {
        let mut outages = Outages::default();
        let path = |peer, rail| (0, peer, rail, rail);
        assert!(outages.lose(path(1, 0)));
        assert!(!outages.lose(path(2, 0)) && !outages.lose(path(1, 0)));
        assert!(outages.lose(path(1, 1)), "another rail");
        assert!(!outages.regain(path(1, 0)));
        assert!(!outages.regain(path(7, 0)), "never lost");
        assert!(outages.regain(path(2, 0)));
        outages.forget(0, 1);
        assert!(outages.lose(path(2, 1)), "nobody misses those of peer 1");
    }

    #[test]
    fn warnings_end() {
        let mut outages = Outages::default();
        let given = (0..100).filter(|_| outages.may_warn()).count();
        assert_eq!((given, outages.is_silent()), (WARNINGS_MAX as usize, true));
    }
}
