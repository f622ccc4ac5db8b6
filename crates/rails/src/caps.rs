//! Capabilities of a rail: data that the engine and the protocol choose by.

use crate::remote_write::RemoteWrites;

/// Properties of a rail and the things it can do. All but the fields that say so stay as they are
/// for the life of the rail.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Caps {
    /// Largest packet in bytes that the rail takes (of UDP: the payload of one datagram that the
    /// interface takes without fragmentation).
    pub datagram_max: usize,
    /// Largest batch of equal packets in one `send`, in bytes (<= 64,000); one packet where the
    /// rail takes no batches. May shrink.
    pub batch_bytes_max: usize,
    /// Most packets in one `send`. May shrink.
    pub batch_segments_max: usize,
    /// Bytes that wait at this rail to be received before more is lost (of UDP: SO_RCVBUF as it was
    /// read back).
    pub receive_buffer_bytes: usize,
    /// Nominal rate in bytes/s, 0 when unknown.
    pub bytes_per_s: u64,
    /// Nominal latency of one way in ns, 0 when unknown.
    pub latency_ns: u64,
    /// Packets of a link arrive in the order in which they were sent, or not at all.
    pub ordered: bool,
    /// Packets of a link are lost only with the link: nothing is to be sent again while it is up.
    pub lossless: bool,
    /// Every path takes packets of `datagram_max` bytes: there is no MTU to be found.
    pub fixed_mtu: bool,
    /// A link is a connection, which comes up after [`crate::Links::connect`] and may break. Links
    /// of others are up at once and for good.
    pub connected: bool,
    /// How it writes into the memory of its peers. May become [`RemoteWrites::None`].
    pub remote_write: RemoteWrites,
    /// Its receiving half puts the bytes of a write in place itself, or sees them there, before it
    /// hands over the packet that tells of it, and nothing of that write lands later. So a right
    /// sum is one of bytes that have landed, whatever lay there before.
    pub knows_landed: bool,
    /// One send can reach a group of peers.
    pub groups: bool,
    /// Packets to groups have other bounds than those above.
    pub group_bounds: Option<GroupBounds>,
    /// It reads and writes the memory of its peers by one copy of the processor's.
    pub one_copy: bool,
    /// [`crate::TxBuffers::drain`] copies what has not left yet of its writes, and its links go on.
    pub copies_writes: bool,
    /// It stands behind the rail before it: by another kind at the same address and port, and only
    /// for peers that no other rail reaches.
    pub standby: bool,
}

/// Bounds of packets to groups, of which a rail may carry less than of others.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct GroupBounds {
    /// Largest packet in bytes.
    pub datagram_max: usize,
    /// Bytes of them that wait to be received before more is lost.
    pub receive_buffer_bytes: usize,
}

impl Caps {
    /// Datagrams of up to so many bytes, one at a time: lost, reordered and too long for a path as
    /// they are. Rails begin with this and say what they have beyond it.
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
            standby: false,
        }
    }

    /// Bounds of packets to groups; `None`: there are no groups.
    pub fn for_groups(&self) -> Option<GroupBounds> {
        let common = GroupBounds {
            datagram_max: self.datagram_max,
            receive_buffer_bytes: self.receive_buffer_bytes,
        };
        self.groups.then(|| self.group_bounds.unwrap_or(common))
    }
}
