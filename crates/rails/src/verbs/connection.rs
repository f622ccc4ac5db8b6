//! A connection: a queue pair of its own for one peer's rail.

use super::greeting::End;
use super::send_queue::SendQueue;
use super::shared::{Connections, Shared};
use crate::sys::verbs::{Path, QueuePair, QueueSizes, QueueType, ToPeer};
use crate::sys::Errno;

/// Sends that may be posted to one connection.
pub(super) const CONNECTION_SENDS: u32 = 128;
/// Bytes of a send that its request holds itself, if the device can.
const INLINE: u32 = 256;
/// Packets are numbered by so many bits.
const PSN_MASK: u64 = (1 << 24) - 1;
/// How long a peer without a receive asks for patience, by the table of verbs: 0.64 ms.
const RNR_TIMER: u8 = 12;
/// The device waits for an acknowledgement so long, 4.096 us times two to this power: 67 ms.
const ACK_TIMEOUT: u8 = 14;
/// And so often, before the connection breaks. For want of receives it waits for ever (7).
const RETRIES: u8 = 7;

/// A queue pair for one peer's rail.
pub(super) struct Connection {
    pub(super) pair: QueuePair,
    pub(super) queue: SendQueue,
    psn: u32,
    mtu: i32,
}

impl Connection {
    /// A new one, which waits to be told of its peer.
    pub(super) fn new(
        shared: &Shared,
        connections: &Connections,
        kind: QueueType,
        name: u64,
    ) -> Result<Connection, Errno> {
        let sizes = QueueSizes {
            sends: CONNECTION_SENDS,
            receives: 0,
            inline: INLINE,
        };
        let queues = [&shared.send_queue, &shared.receive_queue];
        let receives = Some(&connections.receives);
        let pair = QueuePair::new(&shared.domain, kind, queues, receives, sizes)?;
        pair.begin(shared.port.number, 0, 0)?;
        let depth = CONNECTION_SENDS.min(shared.port.device.queue_max);
        Ok(Connection {
            pair,
            queue: SendQueue::new(depth, name as u16),
            psn: (name.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 40 & PSN_MASK) as u32,
            mtu: shared.port.attr.active_mtu.clamp(1, 5),
        })
    }

    /// Our end of it.
    pub(super) fn end(&self, name: u64) -> End {
        End {
            name,
            number: self.pair.number(),
            psn: self.psn,
            mtu: self.mtu as u8,
        }
    }

    /// Receives from the peer's end and sends to it from now on.
    pub(super) fn join(&self, path: Path, end: &End) -> Result<(), Errno> {
        let peer = ToPeer {
            path,
            number: end.number,
            receive_psn: end.psn,
            send_psn: self.psn,
            mtu: self.mtu.min(end.mtu.into()),
        };
        self.pair.receive_from(&peer, RNR_TIMER)?;
        self.pair.send_to(&peer, ACK_TIMEOUT, RETRIES)
    }
}
