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
/// The device waits for an acknowledgement so long, 4.096 us times two to this power: 67 ms; longer
/// where a connection that breaks cannot be helped.
const ACK_TIMEOUT: u8 = 14;
/// The longest that there is: two hours.
const ACK_TIMEOUT_MAX: u8 = 31;
/// And so often, before the connection breaks. (Soft-RoCE takes 7 for ever.)
const RETRIES: u8 = 6;
/// A peer without a receive is waited for for ever.
const RNR_RETRIES: u8 = 7;

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
    /// Silence of up to `patience_ms` does not break it, nor does less than half a second.
    pub(super) fn join(&self, path: Path, end: &End, patience_ms: u32) -> Result<(), Errno> {
        let peer = ToPeer {
            path,
            number: end.number,
            receive_psn: end.psn,
            send_psn: self.psn,
            mtu: self.mtu.min(end.mtu.into()),
        };
        self.pair.receive_from(&peer, RNR_TIMER)?;
        let timeout = ack_timeout(patience_ms);
        self.pair.send_to(&peer, timeout, RETRIES, RNR_RETRIES)
    }
}

/// The device's time for one acknowledgement, if a packet and all of its repetitions are to take so
/// long.
fn ack_timeout(patience_ms: u32) -> u8 {
    let all_ms = |timeout: &u8| (4_096u64 << timeout) * (1 + u64::from(RETRIES)) / 1_000_000;
    let mut timeouts = ACK_TIMEOUT..ACK_TIMEOUT_MAX;
    let enough = timeouts.find(|timeout| all_ms(timeout) >= patience_ms.into());
    enough.unwrap_or(ACK_TIMEOUT_MAX)
}

#[cfg(test)]
mod tests {
    use super::{ack_timeout, ACK_TIMEOUT_MAX};

    #[test]
    fn connections_are_as_patient_as_asked() {
        assert_eq!([0, 469, 470, 5_000].map(ack_timeout), [14, 14, 15, 18]);
        assert_eq!(ack_timeout(u32::MAX), ACK_TIMEOUT_MAX);
    }
}
