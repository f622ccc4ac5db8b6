//! The cost of a peer when nothing is going on, and of first contact of all with all.

use marline_sim::{scale, Work};

/// A million of them fit into 3 GiB.
const IDLE_PEER_MAX: u64 = 2_976;

/// With 256 the bytes were above the mark, and there were 9.5 packets for each message: probes of
/// paths and of packet sizes, all at once, kept the acks waiting until repair timers expired.
#[test]
fn an_idle_peer_takes_little_however_many_there_are() {
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

/// Both sides of a pair speak at once, so that each message takes itself and an ack; down a tree
/// only one does, and the other's HELLO wants an ack, too.
#[test]
fn first_messages_take_no_more_packets_than_they_must() {
    for (work, hosts, each) in [(Work::AllToAll, 64, 2), (Work::Tree, 64, 3)] {
        let row = scale(hosts, work);
        assert_eq!(row.failure, None);
        assert_eq!(row.packets, each * row.messages, "{work:?}");
    }
}
