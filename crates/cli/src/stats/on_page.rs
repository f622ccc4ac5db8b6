//! A rail as the pages of a host's processes show it.

use super::jobs::is_over;
use crate::top::data::State;
use marline_engine::stats::rows::{JobPage, PathRow, PathState, PeerRow, PeerState, RailRow};

/// A rail of one process.
#[derive(Clone, Copy)]
pub struct OnPage<'a> {
    /// The page of the process.
    pub page: &'a JobPage,
    /// Index of the rail.
    pub n: usize,
}

impl<'a> OnPage<'a> {
    /// The rail itself.
    pub fn row(self) -> &'a RailRow {
        &self.page.rails[self.n]
    }

    /// The paths with traffic to peers that live.
    pub fn paths(self) -> impl Iterator<Item = (&'a PeerRow, &'a PathRow)> {
        let lives = |peer: &&PeerRow| matches!(peer.state, PeerState::Contacted | PeerState::Alive);
        let peers = self.page.peers.iter().filter(lives);
        let paths = peers.flat_map(|peer| peer.paths.iter().map(move |path| (peer, path)));
        paths.filter(move |(_, path)| {
            path.rail as usize == self.n && path.state != PathState::Unknown
        })
    }

    /// True unless the process has ended.
    pub fn is_live(self) -> bool {
        !is_over(self.page)
    }
}

/// True for a path that was given up.
pub fn is_down(path: &PathRow) -> bool {
    path.state == PathState::Down
}

/// The state of a rail by its interface and its paths, in all processes that live.
pub fn state(live: &[OnPage<'_>]) -> State {
    let up = live.iter().filter(|on| on.row().up).count();
    let standby = live.iter().filter(|on| on.row().standby).count();
    let paths = live.iter().flat_map(|on| on.paths());
    let paths: Vec<&PathRow> = paths.map(|(_, path)| path).collect();
    let down = paths.iter().filter(|path| is_down(path)).count();
    let any = |state| paths.iter().any(|path| path.state == state);
    match live.len() {
        0 => State::Ended,
        all if up == 0 && standby == all && !has_carried(live) => State::Waiting,
        _ if up == 0 => State::LinkDown,
        _ if down > 0 && down == paths.len() => State::Down,
        all if up + standby < all || down > 0 => State::PartDown,
        _ if any(PathState::Suspect) => State::Suspect,
        _ if any(PathState::Probation) => State::Probation,
        all if standby == all && paths.is_empty() => State::Standby,
        _ => State::Up,
    }
}

fn has_carried(live: &[OnPage<'_>]) -> bool {
    let sent = |on: &OnPage<'_>| on.row().counters.wire_packets_sent > 0;
    live.iter().any(sent)
}
