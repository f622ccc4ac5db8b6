//! The shm rail: between processes of one user on one host, by memory that they share.
//!
//! A rail listens on a socket of an abstract name. Whoever connects passes a file of memory
//! without a name, which holds a ring for each direction ([`ring`]), and each end passes its inbox,
//! by which it is told what to look at and is woken ([`inbox`]). So nothing is left when a process
//! is killed, in /dev/shm or elsewhere, and the socket's end tells the other process at once.
//!
//! Long messages go through the ring while the other end reads it, or with one copy ([`copies`]):
//! the frame names where the bytes are, and the receiver reads them out of the sender's memory into
//! their registered place (`process_vm_readv`). It holds the lock of the registration meanwhile, so
//! that nothing lands later. A container may hide the sender's process, or forbid this; then all
//! bytes go through the ring.
//!
//! The two halves of a rail share no lock on the way of a packet: each tells the other what changed
//! by a queue, and a flag says that there is something in it.

mod addr;
mod connection;
mod copies;
mod frame;
mod greeting;
mod inbox;
mod links;
mod pulls;
mod ring;
mod rx;
mod shared;
#[cfg(test)]
mod tests;
mod tx;

pub(crate) use addr::show;
pub(crate) use inbox::Page;
pub(crate) use ring::Memory;
pub use rx::ShmRx;
pub use shared::ShmConfig;
pub use tx::ShmTx;

use crate::Rail;
use shared::Shared;
use std::sync::Arc;

/// A shm rail.
pub struct ShmRail {
    tx: ShmTx,
    rx: ShmRx,
}

impl ShmRail {
    /// Opens a rail; the error says what to do.
    pub fn open(config: &ShmConfig) -> Result<ShmRail, String> {
        let shared = Arc::new(Shared::open(config)?);
        Ok(ShmRail {
            tx: ShmTx::new(shared.clone()),
            rx: ShmRx::new(shared),
        })
    }
}

impl Rail for ShmRail {
    type Tx = ShmTx;
    type Rx = ShmRx;
    fn split(self) -> (ShmTx, ShmRx) {
        (self.tx, self.rx)
    }
}
