//! What a peer costs when nothing is going on.

use marline_sim::{scale, Work};

/// The mark: a million of them fit into 2 GiB.
const IDLE_PEER_MAX: u64 = 2_048;

#[test]
fn an_idle_peer_takes_at_most_2_kib() {
    for work in [Work::AllToAll, Work::Tree] {
        let row = scale(32, work);
        assert_eq!(row.failure, None);
        let each = row.peer_bytes / row.peers;
        println!("{work:?}: {} peers, {each} bytes each", row.peers);
        assert!(each <= IDLE_PEER_MAX, "{work:?}: {each} bytes");
    }
}
