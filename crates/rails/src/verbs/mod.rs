//! Verbs rails: a port of an InfiniBand or RoCE device, through libibverbs.
//!
//! A rail has a datagram queue pair, which its address names, and registered memory for packets to
//! send and receive. Send buffers are free after their completion. A separate thread makes the
//! address handles of peers ([`resolver`]).
//!
//! The rail assumes no reliability: the protocol above retransmits, as over UDP. `docs/verbs.md`
//! says which parts rely on the device.

mod addr;
mod buffers;
mod connection;
mod flows;
mod handshake;
mod handshakes;
mod held;
pub mod immediate;
mod marks;
mod port;
mod proof;
mod queue_pairs;
mod resolver;
mod rx;
mod send_queue;
mod shared;
mod tx;
mod ud_multicast;
mod writes;

pub(crate) use addr::{same_host, same_network, show, with_port};
pub use marks::{Marks, Partition};
pub use port::verbs_ports;
pub(crate) use port::{choose, complaint};
pub use rx::VerbsRx;
pub use shared::VerbsConfig;
pub use tx::VerbsTx;
pub(crate) use ud_multicast::group_addr;

use crate::sys::errno_text;
use crate::sys::verbs::QueueType;
use crate::Rail;
use port::Port;
use shared::{Failure, Shared};
use std::sync::Arc;

/// A verbs rail.
pub struct VerbsRail {
    tx: VerbsTx,
    rx: VerbsRx,
}

/// The transport of a kind as named in settings.
fn transport(kind: &str) -> Option<QueueType> {
    match kind {
        "rc" => Some(QueueType::Rc),
        "uc" => Some(QueueType::Uc),
        "ud" => Some(QueueType::Ud),
        _ => None,
    }
}

impl VerbsRail {
    /// Opens rail number `at` on a port that [`choose`] returned, of a kind by its name in settings
    /// (rc, uc, ud); the error says what to do. Rail 0 serves the port's groups.
    pub(crate) fn open(
        kind: &str,
        port: &str,
        at: usize,
        config: &VerbsConfig,
    ) -> Result<VerbsRail, String> {
        let name = format!("{kind}:{port}");
        let transport = transport(kind).ok_or_else(|| format!("rail {name}: no such kind"))?;
        let mut port =
            Port::open(port, config.marks).map_err(|why| format!("rail {name}: {why}"))?;
        port.groups_on = port.groups_on.filter(|_| at == 0);
        VerbsRail::on(port, transport, config).map_err(|(step, errno)| {
            let hint = match (step, errno) {
                ("ibv_reg_mr", libc::ENOMEM) => " (is `ulimit -l` too low?)",
                _ => "",
            };
            format!("rail {name}: {step} failed: {}{hint}", errno_text(errno))
        })
    }

    fn on(port: Port, kind: QueueType, config: &VerbsConfig) -> Result<VerbsRail, Failure> {
        let shared = Arc::new(Shared::new(port, kind, config)?);
        Ok(VerbsRail {
            tx: VerbsTx::new(shared.clone(), kind, config)?,
            rx: VerbsRx::new(shared, kind, config)?,
        })
    }
}

impl Rail for VerbsRail {
    type Tx = VerbsTx;
    type Rx = VerbsRx;
    fn split(self) -> (VerbsTx, VerbsRx) {
        (self.tx, self.rx)
    }
}
