//! The TCP rail: one interface's address, one connection per link.
//!
//! A link's connection is made when it is first wanted, by whoever wants it first, and made anew
//! when it breaks. Its first frame says which rail has made it, so that the other end can answer on
//! it. When both ends connect at once there are two, and the rail of the higher address gives its
//! own up for the other's.
//!
//! Bytes in a stream arrive in order or not at all, so nothing is sent again while the connection
//! stands. What was on its way when it broke is lost, and the protocol sends it elsewhere.
//!
//! A link whose connection was sent on least lately rests when there are too many: both ends finish
//! what they have begun, and whoever sends again makes another. A link that is silent by one source
//! port is tried by another: a new connection takes the old one's place.
//!
//! The two halves share no lock on the way of a packet: each tells the other what changed by a
//! queue, and a flag says that there is something in it.

mod frame;
mod greeting;
mod input;
mod links;
mod output;
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
        let key = sys::random().map_err(|errno| failed(("getrandom", errno)))?;
        let local = match interface.is_awaited() {
            true => UdpAddr::none_yet(shared.local().port),
            false => shared.local().rail(interface.prefix_len),
        };
        let rx = TcpRx::new(shared.clone());
        let tx = TcpTx::new(shared, (local, interface), key, config.standby);
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
