//! Rows of a page from a node's counters: peers and their paths.

use crate::state::pairing::show_address;
use crate::stats::rows::{PathRow, PathState, PeerRow, PeerState};
use crate::stats::{PathCounters, PeerCounters};
use marline_proto as proto;

/// The row of a peer that is closed; `named`: with its address.
pub(crate) fn peer_row(
    node: &proto::Node,
    (peer, id): (proto::PeerId, u64),
    named: bool,
    stats: &proto::PeerStats,
    paths: impl Iterator<Item = PathOfNode>,
) -> PeerRow {
    let address = node.peer_address(peer).filter(|_| named);
    PeerRow {
        endpoint: id,
        address: address.map_or(String::new(), show_address),
        state: PeerState::Closed,
        checksum: node.peer_algorithm(peer),
        counters: peer_counters(stats),
        paths: paths.map(path_row).collect(),
    }
}

fn peer_counters(s: &proto::PeerStats) -> PeerCounters {
    PeerCounters {
        messages_sent: s.messages_sent,
        messages_received: s.messages_received,
        bytes_sent: s.bytes_sent,
        bytes_received: s.bytes_received,
        flow_acks_sent: s.flow_acks,
        flow_acks_received: s.flow_acks_received,
        acks_received: s.acks_received,
        acks_sent: s.acks_explicit,
        acks_piggybacked: s.acks_piggybacked,
        duplicate_fragments: s.duplicates,
        unacked_packets_max: s.queue_max,
    }
}

/// Local and remote rail, state and counters of a path.
type PathOfNode = (u8, u8, proto::PathState, proto::PathStats);

fn path_row((local, remote, state, s): PathOfNode) -> PathRow {
    let state = match state {
        proto::PathState::Unproven => PathState::Unknown,
        proto::PathState::Up => PathState::Up,
        proto::PathState::Suspect => PathState::Suspect,
        proto::PathState::Down => PathState::Down,
    };
    let counters = PathCounters {
        packets_sent: s.packets_sent,
        packets_received: s.packets_received,
        bytes_sent: s.bytes_sent,
        bytes_received: s.bytes_received,
        lost: s.lost,
        resent_loss: s.resent_loss,
        resent_pto: s.resent_pto,
        resent_failover: s.resent_failover,
        reroutes: s.reroutes,
        spurious: s.spurious,
        resent_spurious: s.resent_spurious,
        probes_sent: s.probes,
        window_bytes: s.window_bytes,
        bytes_per_s: s.bytes_per_s,
        corrupt_payloads: s.corrupt,
        corrupt_downs: s.corrupt_downs,
        duplicates: s.duplicates,
        downs: s.failovers,
        ups: s.returns,
        shrinks: s.shrinks,
        rtt_ns: s.srtt_ns,
    };
    PathRow {
        rail: local as u32,
        peer_rail: remote as u32,
        state,
        counters,
    }
}
