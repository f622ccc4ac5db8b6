//! Writes the peers' rows on a page: one each while there is room, the others summed.

use super::page::{PageWriter, PathRow, PathState, PeerInfo};
use super::{Counters, PathCounters, PeerCounters};

/// Summed counters of several peers.
#[derive(Default)]
pub(crate) struct Together {
    peers: u64,
    counters: PeerCounters,
    /// A row per rail of ours.
    paths: Vec<PathRow>,
}

impl Together {
    /// Adds a peer.
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

/// Writes peers one after another.
#[derive(Default)]
pub(crate) struct PeerRows {
    /// Number of peers with a row of their own.
    rows: usize,
    /// Sum of the others.
    beyond: Together,
}

impl PeerRows {
    /// Writes the next peer with its used paths. After the first peer without room all further ones
    /// are summed, too: their rows would move once that peer gets a row.
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
            // The totals must include all paths.
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

    /// Adds peers that no longer have rows; call it after all others.
    pub(crate) fn past(&mut self, past: &Together) {
        self.beyond.add(past.peers, &past.counters, &past.paths);
    }

    /// Writes the sum of the peers without a row, after the last peer; returns the number of all
    /// peers.
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

/// True for a path without any traffic, such as that of a standby rail. A page has no row for it,
/// apart from one path per peer, which shows that the peer has any.
fn is_idle(path: &PathRow) -> bool {
    path.state == PathState::Unknown && path.counters == PathCounters::default()
}

/// Adds a path to its rail's row, which retains only what its paths have in common.
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
