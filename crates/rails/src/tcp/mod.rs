//! The TCP rail: one address of an interface, one connection per link.
//!
//! A link's connection is made on demand by either end, and again after it breaks. Its first frame
//! identifies the connecting rail, so that the other end can answer on it. With a key of the job,
//! both ends prove first that they have it ([`proof`]). If both ends connect at
//! the same time there are two connections, and the rail with the higher address gives up its own.
//!
//! Bytes in a stream arrive in order or not at all, so nothing is retransmitted while the
//! connection stands. Data in flight when it breaks is lost, and the protocol sends it on another
//! path.
//!
//! If there are too many connections, the least recently used is evicted: both ends complete what
//! they have begun, and the next send reconnects. A silent link is retried from another source
//! port: a new connection replaces the old one.
//!
//! The halves share no lock on the data path: each informs the other through a queue, and a flag
//! states that the queue is not empty.

mod broken;
mod connections;
mod frame;
mod handshake;
mod input;
mod output;
mod proof;
mod rx;
mod shared;
#[cfg(test)]
mod tests;
mod tx;

pub use rx::TcpRx;
pub use shared::TcpConfig;
pub use tx::TcpTx;

use crate::addr::UdpAddr;
use crate::sys;
use crate::{InterfaceChoice, Rail};
use shared::Shared;
use std::sync::Arc;

/// A TCP rail on one interface.
pub struct TcpRail {
    tx: TcpTx,
    rx: TcpRx,
}

impl TcpRail {
    /// Opens a rail on `interface`; the error says what to do.
    pub fn open(interface: &InterfaceChoice, config: &TcpConfig) -> Result<TcpRail, String> {
        let failed = |(step, errno)| {
            let text = sys::errno_text(errno);
            let advice = config.ports.advice(errno);
            format!("rail tcp:{interface}: {step} failed: {text}{advice}")
        };
        let shared =
            Shared::open(interface.bind_ip(), interface.scope_id, config).map_err(failed)?;
        let shared = Arc::new(shared);
        let local = match interface.is_awaited() {
            true => UdpAddr::none_yet(shared.local().port),
            false => shared.local().rail(interface.prefix_len),
        };
        let rx = TcpRx::new(shared.clone());
        let tx = TcpTx::new(shared, (local, interface), config.standby);
        Ok(TcpRail { tx, rx })
    }
}

impl Rail for TcpRail {
    type Tx = TcpTx;
    type Rx = TcpRx;
    fn split(self) -> (TcpTx, TcpRx) {
        (self.tx, self.rx)
    }
}
