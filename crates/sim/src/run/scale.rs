//! Large clusters without faults: growth of latency, packets and memory with the endpoints.

use crate::run::seed::run_setup;
use crate::setup::choices::{PacketFaults, Setup, Topology, Work};
use marline_proto::Config;

/// A row of the scaling table.
#[derive(Clone, Debug)]
pub struct Scaled {
    /// Endpoints.
    pub hosts: usize,
    /// Messages sent.
    pub messages: u64,
    /// Packets sent.
    pub packets: u64,
    /// Virtual time from the start to the last completion.
    pub virtual_ns: u64,
    /// Connections (`Conn`) of all nodes.
    pub peers: u64,
    /// Bytes of protocol state of all connections at the end.
    pub peer_bytes: u64,
    /// The failure, if any.
    pub failure: Option<String>,
}

/// Runs an all-to-all (or tree broadcast) of messages of up to 64 bytes over one 10 Gbit/s rail.
pub fn scale(hosts: usize, work: Work) -> Scaled {
    let mut setup = Setup::plain(1, hosts, 1);
    setup.topology = Topology::Planes;
    setup.node = Config::default();
    setup.datagram_max = vec![1_472];
    setup.latency_ns = vec![5_000];
    setup.rate = vec![1_250_000_000];
    setup.queue_ns = 10_000_000;
    setup.socket_bytes = 8 << 20;
    setup.packet_faults = PacketFaults::default();
    setup.faults_end_ns = 1;
    setup.work = work;
    // One all-to-all, or both rounds of a tree.
    setup.ops = if work == Work::Tree { 2 } else { 1 };
    setup.size_max = 64;
    setup.pause_ns = 500;
    setup.bye = false;
    // Each endpoint has a processor to itself.
    setup.yields_ns = [300; 4];
    setup.paces_ns = [3_000; 3];
    let outcome = run_setup(&setup, false);
    Scaled {
        hosts,
        messages: outcome.messages,
        packets: outcome.net.packets,
        virtual_ns: outcome.worked_ns,
        peers: outcome.peers,
        peer_bytes: outcome.peer_bytes,
        failure: outcome.failure,
    }
}
