//! Writes into peer memory, beside packets.
//!
//! Writes go by key ([`RemoteWrite::write`]: RDMA over verbs, and TCP and shared memory, whose
//! receiving halves place the bytes), or by datagrams whose bytes the receiving half lets the
//! kernel place ([`DirectWrite::write_direct`]: UDP). The owner of memory opens it to its peers by
//! *registering* it under a key, the *rkey*, which it advertises to them.

use crate::link::LinkId;
use crate::outcome::SendOutcome;
use marline_wire::DirectHead;

/// How a rail writes, and what the write notification implies.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum RemoteWrites {
    /// The rail does not write.
    #[default]
    None,
    /// The notification may arrive before the write, or without the write (as on unreliable
    /// connections).
    Unordered,
    /// The notification never arrives before the write or without it (as on reliable connections).
    Ordered,
    /// Writes are datagrams ([`DirectWrite::write_direct`]): their bytes have been read when the
    /// call returns, and may be lost or late like packets. No byte lands on a range where bytes
    /// have landed or were verified ([`DirectWrite::seal`]).
    Direct,
}

/// A contiguous part of the memory that a write reads.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Piece {
    /// The first byte.
    pub base: *const u8,
    /// Bytes.
    pub len: usize,
}

/// A write.
#[derive(Clone, Copy, Debug)]
pub struct Write<'a> {
    /// The peer's key ([`RemoteWrite::register`]).
    pub key: u64,
    /// Offset in the registered memory, in bytes.
    pub offset: u64,
    /// The source memory, one piece after another. The caller keeps it valid until
    /// [`crate::RailEvent::Done`]. A rail with a limit on pieces posts several writes before the
    /// packet.
    pub pieces: &'a [Piece],
    /// The caller's name for the write.
    pub token: u64,
    /// The key under which the rail's own device may read the memory that contains the pieces
    /// ([`crate::RemoteRead::open`]), valid at least until the write is done; with `None`, or if a
    /// piece lies elsewhere, the pieces are registered for this write alone.
    pub source: Option<u64>,
}

impl Write<'_> {
    /// The head that precedes the bytes and `packet` when the write leaves as datagrams.
    pub fn head(&self, packet: &[u8]) -> DirectHead {
        DirectHead {
            key: self.key,
            offset: self.offset,
            len: self.pieces.iter().map(|piece| piece.len as u32).sum(),
            packet_len: packet.len() as u16,
            spare: 0,
        }
    }
}

/// Opening memory to peers, and writing into theirs.
pub trait RemoteWrite {
    /// Lets peers write into `len` bytes at `base` until [`RemoteWrite::deregister`]. Returns the
    /// key that they use; `None` if registration is impossible at present. The memory stays valid
    /// until `deregister`. Writes to an earlier life of this process cannot land, since its
    /// connections ended with it.
    fn register(&mut self, base: *mut u8, len: usize) -> Option<u64>;

    /// Ends a registration. After the return no byte is written under the key, whatever is in
    /// flight: late writes are refused (which breaks an ordered connection).
    fn deregister(&mut self, key: u64);

    /// Writes into memory that the peer registered on its rail and then sends `packet`, the write
    /// notification. `Sent`: both were accepted, and a [`crate::RailEvent::Done`] with the write's
    /// token follows, until which the pieces are in flight. Any other outcome: neither was
    /// accepted.
    ///
    /// Both are one call because an ordered rail ([`RemoteWrites::Ordered`]) must never deliver the
    /// packet without the write, even if its link breaks and reconnects in between.
    fn write(&mut self, link: LinkId, write: &Write<'_>, packet: &[u8]) -> SendOutcome;
}

/// Writes by datagrams.
pub trait DirectWrite: RemoteWrite {
    /// Like [`RemoteWrite::write`], but by datagrams: the bytes of `write` leave in datagrams of up
    /// to `segment` bytes behind `packet` (the notification of an earlier write, or empty). The
    /// notification of this write is sent later, so that the receiver sums the bytes while the
    /// kernel's copy is still in the cache.
    fn write_direct(
        &mut self,
        link: LinkId,
        write: &Write<'_>,
        packet: &[u8],
        segment: usize,
        flow: u8,
    ) -> SendOutcome;

    /// Marks bytes of a registration as verified: no byte lands there afterwards.
    fn seal(&mut self, key: u64, offset: u64, len: u64);

    /// Reports that bytes landed damaged. If that happens often, the network may reorder datagrams,
    /// which only the sums reveal.
    fn damaged(&mut self);

    /// Returns whether these bytes of a registration have landed, correct or not.
    fn landed(&self, key: u64, offset: u64, len: u64) -> bool;
}

/// `no_remote_write!(Tx)`: implements the traits for a rail that does not write
/// ([`RemoteWrites::None`]); their methods are never called.
#[macro_export]
macro_rules! no_remote_write {
    ($tx:ty) => {
        impl $crate::RemoteWrite for $tx {
            fn register(&mut self, _base: *mut u8, _len: usize) -> Option<u64> {
                None
            }
            fn deregister(&mut self, _key: u64) {}
            fn write(
                &mut self,
                _link: $crate::LinkId,
                _write: &$crate::Write<'_>,
                _packet: &[u8],
            ) -> $crate::SendOutcome {
                $crate::SendOutcome::Sent // lost
            }
        }
        $crate::no_direct_write!($tx);
        $crate::no_remote_read!($tx);
    };
}

/// `no_direct_write!(Tx)`: implements [`DirectWrite`](crate::DirectWrite) for a rail that writes
/// without datagrams.
#[macro_export]
macro_rules! no_direct_write {
    ($tx:ty) => {
        impl $crate::DirectWrite for $tx {
            fn write_direct(
                &mut self,
                _link: $crate::LinkId,
                _write: &$crate::Write<'_>,
                _packet: &[u8],
                _segment: usize,
                _flow: u8,
            ) -> $crate::SendOutcome {
                $crate::SendOutcome::Sent // lost
            }
            fn seal(&mut self, _key: u64, _offset: u64, _len: u64) {}
            fn damaged(&mut self) {}
            fn landed(&self, _key: u64, _offset: u64, _len: u64) -> bool {
                true // the notification reports it
            }
        }
    };
}
