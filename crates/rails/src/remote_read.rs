//! Reads of peer memory by rails with ordered connections (RDMA read).

use crate::link::LinkId;
use crate::outcome::SendOutcome;
use crate::remote_write::{Piece, RemoteWrite};

/// A read.
#[derive(Clone, Copy, Debug)]
pub struct Read {
    /// The peer's key ([`RemoteRead::advertise`]).
    pub key: u64,
    /// Our own key of the destination memory ([`RemoteWrite::register`]).
    pub into: u64,
    /// Offset of the read in both registrations.
    pub at: usize,
    /// Bytes.
    pub len: usize,
    /// The caller's name for the read.
    pub token: u64,
}

/// Reading peer memory, and having ours read.
pub trait RemoteRead: RemoteWrite {
    /// Lets peers read `len` bytes at `base` until [`RemoteWrite::deregister`]. Returns the key
    /// that they use, never 0; `None` if that is impossible at present or with this kind of rail.
    fn advertise(&mut self, base: *const u8, len: usize) -> Option<u64>;

    /// Lets the rail's own device read memory until [`RemoteWrite::deregister`], as the source of
    /// later writes ([`crate::Write::source`]). Returns the key for those writes; `None` on a rail
    /// whose writes are no cheaper with a key. If registration fails, the key names no memory.
    fn open(&mut self, pieces: &[Piece]) -> Option<u64>;

    /// Begins a read of memory that a peer advertises. `Sent`: a [`crate::RailEvent::Pulled`] with
    /// the read's token follows, and no byte lands after it. Nor does any after
    /// [`RemoteWrite::deregister`] of the destination key or [`crate::TxBuffers::drain`], which may
    /// suppress the event. Any other outcome: the read did not begin.
    fn read(&mut self, link: LinkId, read: &Read) -> SendOutcome;
}

/// `no_remote_read!(Tx)`: implements [`RemoteRead`](crate::RemoteRead) for a rail that never reads
/// peer memory and has no staging memory.
#[macro_export]
macro_rules! no_remote_read {
    ($tx:ty) => {
        impl $crate::RemoteRead for $tx {
            fn advertise(&mut self, _base: *const u8, _len: usize) -> Option<u64> {
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
