//! A test_page page for tests of sums and texts.

use super::rows::{JobPage, PathRow, PeerRow, RailRow};

/// A process with two rails and one peer that it reached over both, on a healthy network.
pub(super) fn page() -> JobPage {
    let mut page = JobPage {
        opened_unix_ns: 1_000_000_000,
        published_unix_ns: 3_000_000_000,
        ..JobPage::default()
    };
    let mut peer = PeerRow {
        address: "10.0.0.2:4000".into(),
        checksum: Some(1),
        ..PeerRow::default()
    };
    peer.counters.bytes_sent = 1_000_000;
    for rail in 0..2 {
        peer.paths.push(PathRow {
            rail,
            ..PathRow::default()
        });
        page.rails.push(RailRow {
            name: format!("rail{rail}"),
            up: true,
            ..RailRow::default()
        });
    }
    page.peers.push(peer);
    page
}
