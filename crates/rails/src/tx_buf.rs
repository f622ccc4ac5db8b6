//! Buffers that packets are built in. Each belongs to a rail, which lends them out.
//!
//! ```text
//!           lend              send_buffer             the rail has done with it
//!   free ----------> lent -----------------> in flight ------------------------> free
//!     ^                |  Busy: stays lent                (drain: at once)
//!     +----------------+
//!          give_back
//! ```
//!
//! - *free*: nobody's; its contents mean nothing.
//! - *lent*: the borrower's, who builds packets in it, or keeps it while the rail has no room.
//! - *in flight*: the rail's, which reads it (the kernel, an adapter, a peer). Nobody writes.
//!
//! A rail whose sends copy (UDP, TCP) has done with a buffer when the send returns; one with
//! registered memory when the completion comes; one with a ring when the peer has moved on. The
//! memory of a user that a rail reads past its buffers ([`crate::RemoteWrite::write`]) goes the
//! same way, but that its owner has to be told: [`crate::RailEvent::Done`].

use crate::link::LinkId;
use crate::outcome::SendOutcome;

/// Bytes of a buffer: the longest super-packet, and room for a head that turns out too long for it.
pub const BUFFER_LEN: usize = marline_wire::PACKET_MAX + 512;

/// Names a buffer of one rail.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct BufId(pub u32);

/// Lending out buffers.
pub trait TxBuffers {
    /// A buffer to build packets in, long enough for the largest batch; `None`: all are lent or in
    /// flight. Whoever borrows it sends it or gives it back.
    fn lend(&mut self) -> Option<BufId>;

    /// The memory of a buffer that is lent.
    fn buffer(&mut self, id: BufId) -> &mut [u8];

    /// Gives back a buffer that is lent and is not to be sent.
    fn give_back(&mut self, id: BufId);

    /// As [`crate::RailTx::send`] of the first `len` bytes of a lent buffer, which is in flight
    /// then. After `Busy` it is still lent; after anything else it is the rail's.
    fn send_buffer(
        &mut self,
        link: LinkId,
        buffer: BufId,
        len: usize,
        segment: usize,
        flow: u8,
    ) -> SendOutcome;

    /// Gives up all that is in flight, buffers and writes, however long the hardware would take:
    /// when this returns none of it is read any more. Events of it need not come.
    fn drain(&mut self);

    /// How many buffers, writes and reads the rail has given its device so far. Rails whose sends
    /// copy count nothing.
    fn given(&self) -> u64;

    /// How many had been given before the earliest of those that the device has done with since
    /// this was asked last, as of the last poll; `u64::MAX`: with none. While what was given before
    /// something ends, that waits for a slow device at worst.
    fn take_done(&mut self) -> u64;
}
