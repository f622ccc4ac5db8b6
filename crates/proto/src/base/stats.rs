//! Counters of a node: plain single-writer integers (paper 4, tables 2 and 3, and more).

/// Upper bounds in bytes of the message size classes (the last class is unbounded).
pub const SIZE_CLASSES: [u64; 7] = [64, 1 << 10, 8 << 10, 64 << 10, 1 << 20, 16 << 20, u64::MAX];

/// Counters of one node.
#[derive(Clone, Copy, Debug, Default)]
pub struct NodeStats {
    /// Messages sent, by size class.
    pub sent_by_size: [u64; 7],
    /// Packets with a wrong token.
    pub drop_token: u64,
    /// Packets of another epoch.
    pub drop_epoch: u64,
    /// Packets of unknown sources.
    pub drop_stranger: u64,
    /// Packets from dead or closed peers.
    pub drop_gone: u64,
    /// Packets whose fields made no sense.
    pub drop_nonsense: u64,
    /// Packets refused for lack of memory.
    pub drop_no_memory: u64,
    /// Packets whose payload algorithm is unknown here.
    pub drop_algorithm: u64,
    /// Rails of peers that are of a kind unknown here.
    pub unknown_rails: u64,
    /// Unexpected bytes now and at most.
    pub unexpected_bytes: u64,
    /// High-water mark of `unexpected_bytes`.
    pub unexpected_bytes_max: u64,
    /// Peers that died.
    pub peers_dead: u64,
    /// Messages sent eagerly.
    pub eager_sent: u64,
    /// Messages sent after a grant.
    pub rendezvous_sent: u64,
    /// Fragments that were written past the packets.
    pub written: u64,
    /// Fragments that peers wrote, by their word, and whose sum was wrong.
    pub written_wrong: u64,
    /// Fragments that peers wrote, by their word, and that did not land.
    pub written_lost: u64,
    /// Messages that were read from their sender's memory.
    pub pulled: u64,
    /// Messages that could not be, or of which a segment came with a wrong sum: what was missing
    /// was granted.
    pub pulls_failed: u64,
    /// Packets of one peer that waited for an ack, at most.
    pub queue_max: u64,
    /// Longest time from a packet's departure to the arrival of its ack, in nanoseconds, while
    /// this side polled.
    pub ack_wait_max_ns: u64,
    /// Longest time from a packet's arrival to its ack, in nanoseconds, by anybody.
    pub ack_delay_max_ns: u64,
    /// The same, of acks that the progress thread sent.
    pub thread_ack_delay_max_ns: u64,
}

/// Counters of one peer.
#[derive(Clone, Copy, Debug, Default)]
pub struct PeerStats {
    /// Messages sent.
    pub messages_sent: u64,
    /// Bytes of messages, remote writes and answers to remote reads.
    pub bytes_sent: u64,
    /// Messages received.
    pub messages_received: u64,
    /// Message bytes received.
    pub bytes_received: u64,
    /// Flow-control frames sent (grants and credits).
    pub flow_acks: u64,
    /// Flow-control frames received.
    pub flow_acks_received: u64,
    /// Reliability acks received.
    pub acks_received: u64,
    /// Reliability acks sent in packets of their own.
    pub acks_explicit: u64,
    /// Reliability acks that rode on other packets.
    pub acks_piggybacked: u64,
    /// Packets (of all paths) that waited for an ack, at most.
    pub queue_max: u64,
    /// Duplicate fragments received.
    pub duplicates: u64,
}

/// Counters of one path.
#[derive(Clone, Copy, Debug, Default)]
pub struct PathStats {
    /// Packets sent.
    pub packets_sent: u64,
    /// Bytes sent, headers included.
    pub bytes_sent: u64,
    /// Packets received that passed every check.
    pub packets_received: u64,
    /// Bytes received, headers included.
    pub bytes_received: u64,
    /// Packets of ours declared lost.
    pub lost: u64,
    /// Frames sent again because acks showed that their packet was lost.
    pub resent_loss: u64,
    /// Frames sent again because no ack came in time.
    pub resent_repair: u64,
    /// Frames sent again because this path was given up.
    pub resent_failover: u64,
    /// Repair timers that expired.
    pub repairs: u64,
    /// Times that another source port was tried, as nothing was acknowledged and there was no other
    /// path; of a connection those times when its rail had something that the network had not
    /// acknowledged.
    pub reroutes: u64,
    /// Packets declared lost that were acknowledged after all.
    pub spurious: u64,
    /// Packets sent again because no ack came in time, whose ack came after all.
    pub needless: u64,
    /// Probes sent.
    pub probes: u64,
    /// Congestion window now, in bytes.
    pub window_bytes: u64,
    /// Delivery rate measured lately, in bytes/s.
    pub bytes_per_s: u64,
    /// Payloads whose sum was wrong.
    pub corrupt: u64,
    /// Times the path was given up because what left on it arrived damaged.
    pub corrupt_downs: u64,
    /// Duplicate packets received.
    pub duplicates: u64,
    /// Times the path was given up.
    pub failovers: u64,
    /// Times it came back.
    pub returns: u64,
    /// Times that packets of the size in use passed no more, though smaller ones did.
    pub shrinks: u64,
    /// Smoothed round trip in nanoseconds.
    pub srtt_ns: u64,
}
