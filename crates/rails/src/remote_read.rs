//! Reads of the memory of peers, by rails with connections in order (RDMA read).

use crate::link::LinkId;
use crate::outcome::SendOutcome;
use crate::remote_write::{Piece, RemoteWrite};

/// One read.
#[derive(Clone, Copy, Debug)]
pub struct Read {
    /// The peer's key ([`RemoteRead::offer`]).
    pub key: u64,
    /// Our own key of the memory to read into, from its beginning ([`RemoteWrite::register`]).
    pub into: u64,
    /// Where in both it begins.
    pub at: usize,
    /// Bytes.
    pub len: usize,
    /// The caller's name for the read.
    pub token: u64,
}

/// Reading the memory of peers, and having ours read.
pub trait RemoteRead: RemoteWrite {
    /// Lets peers read `len` bytes at `base` until [`RemoteWrite::deregister`]: the key that they
    /// name, never 0; `None`: not now, or not by this kind.
    fn offer(&mut self, base: *const u8, len: usize) -> Option<u64>;

    /// Lets the rail's own device read memory until [`RemoteWrite::deregister`], for writes to come
    /// ([`crate::Write::source`]): the key that these name. `None`, now and ever: a write costs the
    /// rail no more without. Where the memory cannot be opened, nothing is under the key.
    fn open(&mut self, pieces: &[Piece]) -> Option<u64>;

    /// Begins to read bytes that the peer offers. `Sent`: a [`crate::RailEvent::Pulled`]
    /// with the read's token follows, after which nothing of it lands any more; so it is after
    /// [`RemoteWrite::deregister`] of the key of the memory to read into, or
    /// [`crate::TxBuffers::drain`], which no event needs to follow. Otherwise nothing was begun.
    fn read(&mut self, link: LinkId, read: &Read) -> SendOutcome;
}

/// `no_remote_read!(Tx)`: a rail that reads no memory of peers, of which it is not asked, nor has
/// memory of its own that they write into.
#[macro_export]
macro_rules! no_remote_read {
    ($tx:ty) => {
        impl $crate::RemoteRead for $tx {
            fn offer(&mut self, _base: *const u8, _len: usize) -> Option<u64> {
                None
            }
            fn open(&mut self, _pieces: &[$crate::Piece]) -> Option<u64> {
                None
            }
            fn read(&mut self, _link: $crate::LinkId, _read: &$crate::Read) -> $crate::SendOutcome {
                $crate::SendOutcome::Busy // never begun
            }
        }
        $crate::no_staging!($tx);
    };
}
