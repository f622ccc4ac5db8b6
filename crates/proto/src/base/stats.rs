//! Counters of a node: plain single-writer integers (paper 4, tables 2 and 3, and more).

use crate::base::waits::Waits;

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
    /// First packets of sources whose address was not inserted, for which there was no room.
    pub drop_unadmitted: u64,
    /// Packets from dead or closed peers.
    pub drop_gone: u64,
    /// Packets whose fields contradict the state of this node.
    pub drop_nonsense: u64,
    /// Packets refused for lack of memory.
    pub drop_no_memory: u64,
    /// Packets with an unknown payload algorithm.
    pub drop_algorithm: u64,
    /// Packets of another version than agreed with their source.
    pub drop_version: u64,
    /// Frames and fields of HELLO of a later version, which were skipped.
    pub skipped: u64,
    /// Frames and fields of the version that this node pretends to speak.
    pub pretended: u64,
    /// Rails of peers with an unknown kind.
    pub unknown_rails: u64,
    /// Unexpected bytes held.
    pub unexpected_bytes: u64,
    /// High-water mark of `unexpected_bytes`.
    pub unexpected_bytes_max: u64,
    /// Strangers that were forgotten, as they proved no address.
    pub strangers_forgotten: u64,
    /// Peers that died.
    pub peers_dead: u64,
    /// Peers that timers and events of links looked at.
    pub visited: u64,
    /// Messages sent eagerly.
    pub eager_sent: u64,
    /// Messages sent after a grant.
    pub rendezvous_sent: u64,
    /// Fragments written into peers' registered memory instead of sent in packets.
    pub written: u64,
    /// Fragments whose write notification arrived but whose sum was wrong.
    pub written_wrong: u64,
    /// Fragments whose write notification arrived but whose bytes did not land.
    pub written_lost: u64,
    /// Messages read from their sender's memory.
    pub pulled: u64,
    /// Messages whose reading failed, or that had a segment with a wrong sum; the missing bytes
    /// were granted.
    pub pulls_failed: u64,
    /// Most packets of one peer that waited for an ack at the same time.
    pub queue_max: u64,
    /// Waits of messages that were sent eagerly: from the first chance to leave to the last ack.
    pub eager_waits: Waits,
    /// The same, of messages sent after a grant. Their clock stands still from the ack of the
    /// request to the grant.
    pub rendezvous_waits: Waits,
    /// Longest of these waits in nanoseconds.
    pub message_wait_max_ns: u64,
    /// Longest time in nanoseconds from sending a packet to the arrival of its ack, while this side
    /// polled.
    pub ack_wait_max_ns: u64,
    /// Longest time in nanoseconds from a packet's arrival to its ack, by any thread.
    pub ack_delay_max_ns: u64,
    /// Longest time in nanoseconds from a packet's arrival to its ack, for acks sent by the
    /// progress thread.
    pub thread_ack_delay_max_ns: u64,
}

impl NodeStats {
    /// Counts bytes of an unexpected message.
    pub(crate) fn charge(&mut self, bytes: u64) {
        self.unexpected_bytes += bytes;
        self.unexpected_bytes_max = self.unexpected_bytes_max.max(self.unexpected_bytes);
    }

    /// Counts the wait of a message.
    #[inline]
    pub(crate) fn count_wait(&mut self, eager: bool, wait_ns: u64) {
        match eager {
            true => self.eager_waits.count(wait_ns),
            false => self.rendezvous_waits.count(wait_ns),
        }
        self.message_wait_max_ns = self.message_wait_max_ns.max(wait_ns);
    }
}

/// Counters of one peer.
#[derive(Clone, Copy, Debug, Default)]
pub struct PeerStats {
    /// Messages sent.
    pub messages_sent: u64,
    /// Bytes of messages, remote writes and replies to remote reads.
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
    /// Reliability acks sent in separate packets.
    pub acks_explicit: u64,
    /// Reliability acks piggybacked on other packets.
    pub acks_piggybacked: u64,
    /// Most packets, over all paths, that waited for an ack at the same time.
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
    /// Sent packets declared lost.
    pub lost: u64,
    /// Frames retransmitted because acks showed the loss of their packet.
    pub resent_loss: u64,
    /// Frames retransmitted after a timeout.
    pub resent_pto: u64,
    /// Frames requeued because this path went down.
    pub resent_failover: u64,
    /// Retransmission timers that expired.
    pub ptos: u64,
    /// Changes of the source port because nothing was acknowledged and no other path existed. Of a
    /// connection: only if its rail had data that the network had not acknowledged.
    pub reroutes: u64,
    /// Packets declared lost whose ack arrived later.
    pub spurious: u64,
    /// Spurious retransmissions: packets retransmitted after a timeout whose original's ack arrived
    /// later.
    pub resent_spurious: u64,
    /// Probes sent.
    pub probes: u64,
    /// Congestion window in bytes.
    pub window_bytes: u64,
    /// Recent delivery rate in bytes/s.
    pub bytes_per_s: u64,
    /// Payloads whose sum was wrong.
    pub corrupt: u64,
    /// Times the path was isolated for damage to sent packets.
    pub corrupt_downs: u64,
    /// Duplicate packets received.
    pub duplicates: u64,
    /// Times the path went down.
    pub failovers: u64,
    /// Times the path came back up.
    pub returns: u64,
    /// PMTU black holes found: packets of the size in use were dropped, smaller ones passed.
    pub shrinks: u64,
    /// Smoothed round trip in nanoseconds.
    pub srtt_ns: u64,
}
