//! Capabilities of a rail, by which the engine and the protocol make decisions.

use crate::remote_write::RemoteWrites;

/// Properties and capabilities of a rail. A field stays constant for the life of the rail unless
/// its comment says otherwise.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Caps {
    /// Largest packet in bytes (UDP: payload of a datagram that the interface sends without
    /// fragmentation).
    pub datagram_max: usize,
    /// Largest batch of equal packets in one `send`, in bytes (<= 64,000); one packet for a rail
    /// without batches. May shrink.
    pub batch_bytes_max: usize,
    /// Most packets in one `send`. May shrink.
    pub batch_segments_max: usize,
    /// Bytes of received packets that can wait before further packets are lost (UDP: SO_RCVBUF as
    /// read back).
    pub receive_buffer_bytes: usize,
    /// Nominal rate in bytes/s, 0 when unknown.
    pub bytes_per_s: u64,
    /// Nominal one-way latency in ns, 0 when unknown.
    pub latency_ns: u64,
    /// Packets of a link arrive in the order in which they were sent, or not at all.
    pub ordered: bool,
    /// Packets of a link are lost only when the link breaks, so none is retransmitted while it is
    /// up.
    pub lossless: bool,
    /// Every path takes packets of `datagram_max` bytes: no PMTU discovery.
    pub fixed_mtu: bool,
    /// A link is a connection: it comes up after [`crate::Links::connect`] and may break.
    /// Connectionless links are up at once and never break.
    pub connected: bool,
    /// How the rail writes into peer memory. May become [`RemoteWrites::None`].
    pub remote_write: RemoteWrites,
    /// The receiving half places or sees the bytes of a write before it hands over the write
    /// notification, and no byte of the write lands afterwards. A correct sum over the destination
    /// then proves that the bytes landed, whatever the memory contained before.
    pub knows_landed: bool,
    /// One send can reach a group of peers (multicast).
    pub groups: bool,
    /// Bounds of group packets where they differ from the bounds above.
    pub group_bounds: Option<GroupBounds>,
    /// The rail reads and writes peer memory with a single copy by the processor.
    pub one_copy: bool,
    /// [`crate::TxBuffers::drain`] copies the unsent parts of writes, and leaves the links up.
    pub copies_writes: bool,
    /// Sending and receiving handle each packet alone, although one `send` takes several: a rail of
    /// the same port whose batches the kernel or the card cuts carries long messages with less
    /// work.
    pub per_packet: bool,
    /// The rail is the standby of the rail before it: another kind at the same address and port,
    /// used only for peers that no other rail reaches.
    pub standby: bool,
}

/// Bounds of multicast packets, which may be tighter than those of other packets.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct GroupBounds {
    /// Largest packet in bytes.
    pub datagram_max: usize,
    /// Bytes of received group packets that can wait before further packets are lost.
    pub receive_buffer_bytes: usize,
}

impl Caps {
    /// A rail of single datagrams of up to this many bytes, which may be lost, reordered or longer
    /// than the PMTU. A kind starts from this value and adds its capabilities.
    pub fn datagrams(datagram_max: usize) -> Caps {
        Caps {
            datagram_max,
            batch_bytes_max: datagram_max,
            batch_segments_max: 1,
            receive_buffer_bytes: 0,
            bytes_per_s: 0,
            latency_ns: 0,
            ordered: false,
            lossless: false,
            fixed_mtu: false,
            connected: false,
            remote_write: RemoteWrites::None,
            knows_landed: false,
            groups: false,
            group_bounds: None,
            one_copy: false,
            copies_writes: false,
            per_packet: false,
            standby: false,
        }
    }

    /// Bounds of multicast packets; `None` for a rail without groups.
    pub fn for_groups(&self) -> Option<GroupBounds> {
        let common = GroupBounds {
            datagram_max: self.datagram_max,
            receive_buffer_bytes: self.receive_buffer_bytes,
        };
        self.groups.then(|| self.group_bounds.unwrap_or(common))
    }
}
