//! The rows of all peers onto a page: one each as long as there is room, the rest together.

use super::page::{PageWriter, PathRow, PathState, PeerInfo};
use super::{Counters, PathCounters, PeerCounters};

/// Counters of several peers together.
#[derive(Default)]
pub(crate) struct Together {
    peers: u64,
    counters: PeerCounters,
    /// One row for each of our rails.
    paths: Vec<PathRow>,
}

impl Together {
    /// One peer more.
    pub(crate) fn peer(&mut self, counters: &PeerCounters, paths: &[PathRow]) {
        self.add(1, counters, paths);
    }

    fn add(&mut self, peers: u64, counters: &PeerCounters, paths: &[PathRow]) {
        self.peers += peers;
        self.counters.merge(counters);
        for path in paths {
            add(&mut self.paths, path);
        }
    }
}

/// Writes one peer after another.
#[derive(Default)]
pub(crate) struct PeerRows {
    /// Peers with a row of their own.
    rows: usize,
    /// Those without.
    beyond: Together,
}

impl PeerRows {
    /// The next peer, by those of its paths that are used. Once one found no room, all that follow
    /// go to the others, too: a row of theirs would move when the first one got its own.
    pub(crate) fn peer(
        &mut self,
        w: &mut PageWriter<'_>,
        info: &PeerInfo<'_>,
        counters: &PeerCounters,
        paths: &[PathRow],
    ) {
        let used: Vec<PathRow>;
        let paths = match paths.iter().skip(1).any(is_idle) {
            false => paths,
            true => {
                let first = paths.iter().take(1);
                let others = paths.iter().skip(1).filter(|path| !is_idle(path));
                used = first.chain(others).copied().collect();
                &used
            }
        };
        if self.beyond.peers == 0 {
            if w.peer(info, counters, paths) {
                self.rows += 1;
                return;
            }
            // None may be missing in the totals.
            let mut together = Vec::new();
            paths.iter().for_each(|path| add(&mut together, path));
            if together.len() < paths.len() && w.peer(info, counters, &together) {
                w.paths_summed();
                self.rows += 1;
                return;
            }
        }
        self.beyond.peer(counters, paths);
    }

    /// Peers that have no rows any more, after all others.
    pub(crate) fn past(&mut self, past: &Together) {
        self.beyond.add(past.peers, &past.counters, &past.paths);
    }

    /// After the last peer: those without a row. How many peers there were.
    pub(crate) fn end(self, w: &mut PageWriter<'_>) -> u64 {
        let Together {
            peers,
            counters,
            paths,
        } = &self.beyond;
        w.end_peers(*peers, counters, paths);
        self.rows as u64 + peers
    }
}

/// A path that nothing was sent on and nothing came on, as those of rails that stand by. A page has
/// no row for it, but one path of each peer is always there: it shows that there are any.
fn is_idle(path: &PathRow) -> bool {
    path.state == PathState::Unknown && path.counters == PathCounters::default()
}

/// Adds a path to the row of its rail, which says what its paths have in common.
fn add(rows: &mut Vec<PathRow>, path: &PathRow) {
    match rows.iter_mut().find(|row| row.rail == path.rail) {
        None => rows.push(*path),
        Some(row) => {
            row.counters.merge(&path.counters);
            if row.state != path.state {
                row.state = PathState::Unknown;
            }
            if row.peer_rail != path.peer_rail {
                row.peer_rail = PathRow::SEVERAL;
            }
        }
    }
}
