//! Writes into the memory of peers, beside packets.
//!
//! By key ([`RemoteWrite::write`]: RDMA over verbs, and TCP and shared memory, whose receiving
//! halves put the bytes in place), or by datagrams whose bytes the receiving half has the kernel
//! put in place ([`DirectWrite::write_direct`]: UDP). The owner of memory opens it to its peers by
//! *registering* it under a key, the *rkey*, which it tells them.

use crate::link::LinkId;
use crate::outcome::SendOutcome;
use marline_wire::DirectHead;

/// How a rail writes, and what its packets say of its writes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum RemoteWrites {
    /// Not at all.
    #[default]
    None,
    /// The packet that tells of a write may arrive before it, or without it (as unreliable
    /// connections do).
    Unordered,
    /// The packet that tells of a write arrives after the write and never without it (as reliable
    /// connections do).
    Ordered,
    /// By datagrams ([`DirectWrite::write_direct`]): the bytes have been read when the call
    /// returns, and are lost or come too late as packets are. What has landed once, or is known to
    /// be right ([`DirectWrite::seal`]), is never landed on again.
    Direct,
}

/// A contiguous part of the memory that a write reads.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Piece {
    /// Its first byte.
    pub base: *const u8,
    /// Bytes.
    pub len: usize,
}

/// One write.
#[derive(Clone, Copy, Debug)]
pub struct Write<'a> {
    /// The peer's key ([`RemoteWrite::register`]).
    pub key: u64,
    /// Offset in the registered memory, in bytes.
    pub offset: u64,
    /// The memory that is written, one piece after another. The caller keeps it valid until
    /// [`crate::RailEvent::Done`]. A rail with a limit posts several writes before the packet.
    pub pieces: &'a [Piece],
    /// The caller's name for the write.
    pub token: u64,
    /// The key under which the rail's own device may read the memory that these are pieces of
    /// ([`crate::RemoteRead::open`]), until it has done with the write at least; `None`, or other
    /// pieces: they are opened for this write alone.
    pub source: Option<u64>,
}

impl Write<'_> {
    /// The head that goes before its bytes, and before `packet`, where it leaves as datagrams.
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
    /// Lets peers write into `len` bytes at `base` until [`RemoteWrite::deregister`]: the key that
    /// they name; `None`: not now. The memory stays valid until then. What is written to an earlier
    /// life of this process must not land there: its connections ended with it.
    fn register(&mut self, base: *mut u8, len: usize) -> Option<u64>;

    /// Ends a registration. When this returns no byte is written under the key any more, whatever
    /// is under way: late writes are refused (which breaks a connection that is in order).
    fn deregister(&mut self, key: u64);

    /// Writes into memory that the peer registered on its rail, and then sends `packet`, which
    /// tells of it. `Sent`: both were taken, and a [`crate::RailEvent::Done`] with the write's
    /// token will follow, until which the pieces are in flight. Otherwise neither was.
    ///
    /// They are one call because a rail in order ([`RemoteWrites::Ordered`]) must never deliver the
    /// packet without the write: not even if its link breaks, and is made anew, between them.
    fn write(&mut self, link: LinkId, write: &Write<'_>, packet: &[u8]) -> SendOutcome;
}

/// The same by datagrams.
pub trait DirectWrite: RemoteWrite {
    /// As [`RemoteWrite::write`], on a rail that does so by datagrams: the bytes of `write` leave
    /// in datagrams of up to `segment` bytes, behind `packet` (that tells of an earlier write, say;
    /// or empty). The packet that tells of this write is sent later, so that the bytes can be
    /// summed where the kernel has brought them, into the cache.
    fn write_direct(
        &mut self,
        link: LinkId,
        write: &Write<'_>,
        packet: &[u8],
        segment: usize,
        flow: u8,
    ) -> SendOutcome;

    /// These bytes of a registration are known to be right, and nothing lands there any more.
    fn seal(&mut self, key: u64, offset: u64, len: u64);

    /// Some landed damaged. Where that happens often, the network may change the order of
    /// datagrams, which only sums show.
    fn damaged(&mut self);

    /// These bytes of a registration have landed, right or not.
    fn landed(&self, key: u64, offset: u64, len: u64) -> bool;
}

/// `no_remote_write!(Tx)`: a rail that does not write ([`RemoteWrites::None`]), of which nothing is
/// asked that it would have to do.
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

/// `no_direct_write!(Tx)`: a rail whose writes are not made of datagrams.
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
                true // of other writes the packet tells
            }
        }
    };
}
