//! The shm rail: between processes of one user on one host, through shared memory.
//!
//! A rail listens on a socket with an abstract name. A connecting peer passes a memfd with a ring
//! for each direction ([`ring`]), and each end passes its inbox, through which it learns which
//! rings to read and when to wake ([`inbox`]). A killed process therefore leaves nothing in
//! /dev/shm or elsewhere, and the end of its socket informs the other process at once.
//!
//! With a key of the job, both ends prove first that they have it ([`proof`]).
//!
//! Long messages go through the ring while the other end reads it, or by one copy ([`copies`]): the
//! frame states the location of the bytes, and the receiver reads them from the sender's memory
//! into their registered place (`process_vm_readv`). The receiver holds the lock of the
//! registration meanwhile, so that no byte lands after deregistration. If a container hides the
//! sender's process or forbids such reads, all bytes go through the ring.
//!
//! The halves of a rail share no lock on the data path: each informs the other through a queue, and
//! a flag states that the queue is not empty.

mod addr;
mod connection;
mod copies;
mod frame;
mod handshake;
mod inbox;
mod proof;
mod pulls;
mod ring;
mod rx;
mod segments;
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
