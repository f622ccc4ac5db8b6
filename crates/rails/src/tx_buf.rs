//! Buffers in which packets are built. Each belongs to a rail, which lends it.
//!
//! ```text
//!           lend              send_buffer             the rail is done with it
//!   free ----------> lent -----------------> in flight ------------------------> free
//!     ^                |  Busy: stays lent                (drain: at once)
//!     +----------------+
//!          give_back
//! ```
//!
//! - *free*: unused; its contents are meaningless.
//! - *lent*: owned by the borrower, which builds packets in it or retains it while the rail has no
//!   room.
//! - *in flight*: owned by the rail and read by the kernel, an adapter or a peer; never written.
//!
//! A rail whose sends copy (UDP, TCP) is done with a buffer when the send returns, a rail with
//! registered memory when the completion arrives, and a rail with a ring when the peer has consumed
//! the frame. User memory that a rail reads directly ([`crate::RemoteWrite::write`]) has the same
//! life; [`crate::RailEvent::Done`] reports its end.

use crate::link::LinkId;
use crate::outcome::SendOutcome;

/// Bytes of a buffer: the longest super-packet plus room for a head that is too long for it.
pub const BUFFER_LEN: usize = marline_wire::PACKET_MAX + 512;

/// Names a buffer of one rail.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct BufId(pub u32);

/// Lending out buffers.
pub trait TxBuffers {
    /// Lends a buffer that is long enough for the largest batch; `None` if all are lent or in
    /// flight. The borrower sends it or gives it back.
    fn lend(&mut self) -> Option<BufId>;

    /// The memory of a lent buffer.
    fn buffer(&mut self, id: BufId) -> &mut [u8];

    /// Returns a lent buffer unsent.
    fn give_back(&mut self, id: BufId);

    /// Like [`crate::RailTx::send`] of the first `len` bytes of a lent buffer. After `Busy` the
    /// buffer is still lent; after any other outcome the rail owns it.
    fn send_buffer(
        &mut self,
        link: LinkId,
        buffer: BufId,
        len: usize,
        segment: usize,
        flow: u8,
    ) -> SendOutcome;

    /// Abandons all buffers and writes in flight without waiting for the hardware: after the return
    /// none of their memory is read. Their events may be omitted.
    fn drain(&mut self);

    /// Number of buffers, writes and reads that the rail has posted to its device so far. Always 0
    /// for a rail whose sends copy.
    fn given(&self) -> u64;

    /// The lowest post count (see `given`) among the requests that completed since the previous
    /// call; `u64::MAX` if none completed. By this the caller tells a slow device, whose old
    /// requests still complete, from a stuck one.
    fn take_done(&mut self) -> u64;
}
