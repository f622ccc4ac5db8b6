//! A connection: a queue pair for one peer's rail.

use super::handshake::End;
use super::send_queue::SendQueue;
use super::shared::{Connections, Shared};
use crate::sys::verbs::{Path, QueuePair, QueueSizes, QueueType, ToPeer};
use crate::sys::{self, Errno};

/// Depth of a connection's send queue.
pub(super) const CONNECTION_SENDS: u32 = 128;
/// Bytes of an inline send, if the device supports it.
const INLINE: u32 = 256;
/// PSNs have 24 bits.
const PSN_MASK: u64 = (1 << 24) - 1;
/// Minimum RNR NAK timer, by the table of verbs: 0.64 ms.
const RNR_TIMER: u8 = 12;
/// The device's ACK timeout, 4.096 us times two to this power: 67 ms; longer if a broken connection
/// cannot be recovered (disabled protection).
const ACK_TIMEOUT: u8 = 14;
/// The longest ACK timeout: two hours.
const ACK_TIMEOUT_MAX: u8 = 31;
/// Retransmissions before the connection breaks. (Soft-RoCE takes 7 as infinite.)
const RETRIES: u8 = 6;
/// RNR retries: infinite.
const RNR_RETRIES: u8 = 7;

/// A queue pair for one peer's rail.
pub(super) struct Connection {
    pub(super) pair: QueuePair,
    pub(super) queue: SendQueue,
    psn: u32,
    mtu: i32,
}

impl Connection {
    /// Makes a connection that is not joined to a peer yet.
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
        pair.begin(shared.port.number, shared.port.pkey_index, 0)?;
        let depth = CONNECTION_SENDS.min(shared.port.device.queue_max);
        Ok(Connection {
            pair,
            queue: SendQueue::new(depth, name as u16),
            // (A packet in the peer's name has to guess it, and both queue pairs.)
            psn: (sys::random()? & PSN_MASK) as u32,
            mtu: shared.port.attr.active_mtu.clamp(1, 5),
        })
    }

    /// Our end of the connection.
    pub(super) fn end(&self, name: u64) -> End {
        End {
            name,
            number: self.pair.number(),
            psn: self.psn,
            mtu: self.mtu as u8,
        }
    }

    /// Receives from the peer's end and sends to it from now on. The connection survives a silence
    /// of up to `retry_ms`, and of half a second in any case.
    pub(super) fn join(&self, path: Path, end: &End, retry_ms: u32) -> Result<(), Errno> {
        let peer = ToPeer {
            path,
            number: end.number,
            receive_psn: end.psn,
            send_psn: self.psn,
            mtu: self.mtu.min(end.mtu.into()),
        };
        self.pair.receive_from(&peer, RNR_TIMER)?;
        let timeout = ack_timeout(retry_ms);
        self.pair.send_to(&peer, timeout, RETRIES, RNR_RETRIES)
    }
}

/// The ACK timeout with which a packet and all of its retransmissions take at least this long.
fn ack_timeout(retry_ms: u32) -> u8 {
    let all_ms = |timeout: &u8| (4_096u64 << timeout) * (1 + u64::from(RETRIES)) / 1_000_000;
    let mut timeouts = ACK_TIMEOUT..ACK_TIMEOUT_MAX;
    let enough = timeouts.find(|timeout| all_ms(timeout) >= retry_ms.into());
    enough.unwrap_or(ACK_TIMEOUT_MAX)
}

#[cfg(test)]
mod tests {
    use super::{ack_timeout, ACK_TIMEOUT_MAX};

    #[test]
    fn the_ack_timeout_covers_the_silence() {
        assert_eq!([0, 469, 470, 5_000].map(ack_timeout), [14, 14, 15, 18]);
        assert_eq!(ack_timeout(u32::MAX), ACK_TIMEOUT_MAX);
    }
}
