//! The outages that this process knows of, and who is told.

use crate::stats::events::{Event, Recorder};
use std::collections::BTreeSet;
use std::net::IpAddr;

/// Warnings of a process that a rail is lost or back, at most: more of them are a flood, and the
/// page has them all.
const WARNINGS_MAX: u32 = 20;

/// Those who refuse what is sent to others, as far as they are told of.
const BARRED_MAX: usize = 64;

/// A path: index of the endpoint, peer, local rail, remote rail.
pub(crate) type PathName = (u32, u32, u8, u8);

/// Outages now.
pub(crate) struct Outages {
    recorder: Option<Recorder>,
    /// This process warns for its host.
    speaks: bool,
    warnings: u32,
    /// Paths that were given up though their rail is up.
    lost: BTreeSet<PathName>,
    /// Rails that stood in (bit n: rail n).
    stood_in: u32,
    /// Rails of which it was said that they are waited for (bit n: rail n).
    awaited: u32,
    /// Rails, and the addresses that refuse what they send to others.
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
    /// Events go to this page. Of the processes of a host the first one warns, if they are told
    /// which they are.
    pub(crate) fn open(&mut self, recorder: Option<Recorder>) {
        (self.recorder, self.speaks) = (recorder, local_rank_from_env().unwrap_or(0) == 0);
    }

    /// Writes an event to the page, if there is one.
    pub(crate) fn record(&self, event: Event) {
        if let Some(recorder) = &self.recorder {
            recorder.record(event);
        }
    }

    /// Somebody refuses what a rail sends to others. `true`: that is new.
    pub(crate) fn bar(&mut self, rail: u8, by: IpAddr) -> bool {
        self.barred.len() < BARRED_MAX && self.barred.insert((rail, by))
    }

    /// A path was given up. `true`: it is the first of its rail, and that is to be said.
    pub(crate) fn lose(&mut self, path: PathName) -> bool {
        let first = !self.has_lost(path.2);
        self.lost.insert(path) && first
    }

    /// A path is in use again. `true`: it was the last of its rail that was lost.
    pub(crate) fn regain(&mut self, path: PathName) -> bool {
        self.lost.remove(&path) && !self.has_lost(path.2)
    }

    /// A rail that stands by carries for a peer; whether it did before for any.
    pub(crate) fn stood_in(&mut self, path: PathName) -> bool {
        let bit = 1_u32.checked_shl(path.2.into()).unwrap_or(0);
        let before = self.stood_in & bit != 0;
        self.stood_in |= bit;
        before
    }

    /// A rail is waited for; whether that is new.
    pub(crate) fn await_rail(&mut self, rail: u8) -> bool {
        let bit = 1_u32.checked_shl(rail.into()).unwrap_or(0);
        let before = self.awaited & bit != 0;
        self.awaited |= bit;
        !before
    }

    /// Nothing is expected of a peer any more.
    pub(crate) fn forget(&mut self, ep: u32, peer: u32) {
        if !self.lost.is_empty() {
            self.lost.retain(|path| (path.0, path.1) != (ep, peer));
        }
    }

    /// An endpoint closes.
    pub(crate) fn forget_endpoint(&mut self, ep: u32) {
        self.lost.retain(|path| path.0 != ep);
    }

    fn has_lost(&self, rail: u8) -> bool {
        self.lost.iter().any(|path| path.2 == rail)
    }

    /// True if something is to be said at warning level: this process speaks, and did not speak too
    /// often.
    pub(crate) fn may_warn(&mut self) -> bool {
        if !self.speaks || self.warnings >= WARNINGS_MAX {
            return false;
        }
        self.warnings += 1;
        true
    }

    /// The last warning was given.
    pub(crate) fn is_silent(&self) -> bool {
        self.warnings == WARNINGS_MAX
    }
}

/// The rank among the processes of the host that common launchers put into the environment.
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
