//! The memory of an idle peer, and the packets of first contact among all endpoints.

use marline_sim::{scale, Work};

/// Bytes per idle peer with one rail. (Regression: room for a second path, 3,072 bytes.)
const IDLE_PEER_MAX: u64 = 2_304;

/// Memory and packets must not grow with the number of peers: probes of many paths and packet sizes
/// at once must not delay acks until PTOs expire.
#[test]
fn the_memory_of_an_idle_peer_is_bounded() {
    for (work, hosts) in [
        (Work::Tree, 32),
        (Work::Tree, 256),
        (Work::AllToAll, 32),
        (Work::AllToAll, 256),
    ] {
        let row = scale(hosts, work);
        assert_eq!(row.failure, None);
        let each = row.peer_bytes / row.peers;
        println!("{work:?}: {} peers, {each} bytes each", row.peers);
        assert!(each <= IDLE_PEER_MAX, "{work:?}: {each} bytes");
    }
}

/// In an all-to-all both sides of a pair send, so that each message takes itself and an ack; down a
/// tree only one side does, and the other's HELLO needs an ack, too.
#[test]
fn first_messages_take_few_packets() {
    for (work, hosts, each) in [(Work::AllToAll, 64, 2), (Work::Tree, 64, 3)] {
        let row = scale(hosts, work);
        assert_eq!(row.failure, None);
        assert_eq!(row.packets, each * row.messages, "{work:?}");
    }
}
