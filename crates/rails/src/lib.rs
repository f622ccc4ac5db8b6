//! Rails: one local interface of one kind each. Every system call lives in this crate.
//!
//! A rail has two halves so that an empty poll's system call need not hold the engine's lock
//! (design rule 2): [`RailTx`] lives inside the lock, [`RailRx`] beside it. Called by
//! `marline-engine` only; the simulator brings rails of its own by the same traits.

mod addr;
mod any;
mod choose;
mod faulty;
mod groups;
mod link;
pub mod pairing;
mod script;
mod sys;
mod udp;
mod writes;

pub use addr::{show_addr, UdpAddr};
pub use any::{AnyRail, AnyRx, AnyTx};
pub use choose::{choose_interfaces, InterfaceChoice};
pub use faulty::{Clock, FaultScript, Faults, Faulty, FaultyRx, FaultyTx};
pub use groups::{GroupError, GroupLink, Groups};
pub use link::LinkWatch;
pub use sys::Place;
pub use udp::{Grants, UdpConfig, UdpRail, UdpRx, UdpTx};
pub use writes::{Piece, Write, Writes};

use marline_wire::RailAddr;

/// What a rail can do.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Caps {
    /// Largest datagram payload in bytes that the interface takes without fragmentation.
    pub datagram_max: usize,
    /// Largest batch of equal-sized segments in one `send`, in bytes (<= 64,000; one segment
    /// when the kernel has no GSO).
    pub batch_bytes_max: usize,
    /// Most segments in one `send`.
    pub batch_segments_max: usize,
    /// Receive buffer of the kernel for this rail, in bytes as read back (SO_RCVBUF).
    pub receive_buffer_bytes: usize,
    /// Nominal link rate in bytes/s, 0 when unknown.
    pub bytes_per_s: u64,
    /// Whether it can write into the memory of its peers.
    pub writes: Writes,
}

/// What became of one `send`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SendOutcome {
    /// All segments handed to the kernel (which may still drop them).
    Sent,
    /// No room in the socket or device queue now: nothing was sent; try again later.
    Busy,
    /// A segment exceeds the path's MTU; the new largest datagram in bytes, nothing was sent.
    TooBig(usize),
    /// The rail (not the peer) cannot send: link down, interface gone.
    Fault(RailFault),
}

/// Something is wrong with the rail itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RailFault {
    /// Interface down or gone, with the errno.
    Down(i32),
    /// It answers again.
    Up,
}

/// An event that a rail noticed outside of packets.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RailEvent {
    /// State of the rail changed.
    Fault(RailFault),
    /// The host at this address said that nobody listens on that port (ICMP port unreachable):
    /// a hint that the process there is gone.
    Refused(RailAddr),
    /// The path to this address takes at most so many bytes per datagram (ICMP too big).
    TooBig(RailAddr, usize),
    /// A write (by its token) is over, one way or another: its bytes are not read any more.
    Written(u64),
    /// The kernel dropped so many packets because our receive buffer was full (SO_RXQ_OVFL).
    ReceiverDrops(u64),
}

/// One received datagram or GRO batch of them.
#[derive(Clone, Copy, Debug)]
pub struct Received<'a> {
    /// Source address as the kernel gave it (index and mtu 0); `RailAddr::NONE` from a rail that
    /// does not ask for it.
    pub from: RailAddr,
    /// One or more datagrams, back to back.
    pub bytes: &'a [u8],
    /// Length of each datagram but the last (which may be shorter); = bytes.len() for one. 0 from
    /// a rail that was told not to ask (see [`UdpConfig::cmsg`]): `bytes` may then hold several
    /// datagrams, all but the last as long as the first, whose length its own contents tell.
    pub segment: usize,
    /// Bytes of a direct write that landed with them ([`Writes::Direct`]); `bytes` may be empty
    /// then.
    pub beside: usize,
    /// Bytes of a direct write that should have come with them and did not: they may still come, by
    /// themselves.
    pub missing: usize,
}

/// Sending half of a rail.
pub trait RailTx: Send {
    /// Capabilities (may shrink, e.g. after GSO turned out to be missing).
    fn caps(&self) -> Caps;
    /// Where peers reach this rail.
    fn local_addr(&self) -> RailAddr;
    /// Sends `bytes` as datagrams of `segment` bytes each (the last may be shorter) to `to`, by
    /// flow `flow` (others than 0 leave by a source port of their own, so that a fabric hashes
    /// them onto another route). Peers answer to `local_addr`, whatever port a packet came from.
    fn send(&mut self, to: &RailAddr, bytes: &[u8], segment: usize, flow: u8) -> SendOutcome;
    /// Next thing that the rail noticed (errors, ICMP, drops); cheap when there is none.
    fn poll_event(&mut self) -> Option<RailEvent>;
    /// Descriptor that becomes readable when packets or errors wait; `None` in simulation.
    fn fd(&self) -> Option<i32>;

    /// Writes into memory that the peer at `to` granted on its rail, and then sends `packet`, which
    /// tells of it. `Sent`: both were taken, and a [`RailEvent::Written`] with the write's token
    /// will follow, until which the pieces are read. Otherwise neither was.
    ///
    /// They are one call because a rail in order ([`Writes::Ordered`]) must never deliver the
    /// packet without the write: not even if its connection breaks, and is made anew, between them.
    fn write(&mut self, _to: &RailAddr, _write: &Write<'_>, _packet: &[u8]) -> SendOutcome {
        SendOutcome::Fault(RailFault::Down(0))
    }

    /// As [`RailTx::write`], on a rail that does so by datagrams ([`Writes::Direct`]): the bytes of
    /// `write` leave in datagrams of up to `segment` bytes, behind `packet` (that tells of an
    /// earlier write, say; or empty). The packet that tells of this write is sent later, so that
    /// what the kernel has brought into the cache can be summed there.
    fn write_direct(
        &mut self,
        _to: &RailAddr,
        _write: &Write<'_>,
        _packet: &[u8],
        _segment: usize,
        _flow: u8,
    ) -> SendOutcome {
        SendOutcome::Fault(RailFault::Down(0))
    }

    /// Lets peers write into `len` bytes at `base` until [`RailTx::revoke`]: the key that they
    /// name; `None`: not now. The memory stays valid until then. What is written to an earlier life
    /// of this process must not land there: its connections ended with it.
    fn grant(&mut self, _base: *mut u8, _len: usize) -> Option<u64> {
        None
    }

    /// Ends a grant. When this returns no byte is written under the key any more, whatever is under
    /// way: late writes are refused (which breaks a connection that is in order).
    fn revoke(&mut self, _key: u64) {}

    /// On a rail with direct writes: these bytes of a grant are known to be right, and nothing
    /// lands there any more.
    fn seal(&mut self, _key: u64, _offset: u64, _len: u64) {}

    /// On a rail with direct writes: some landed damaged. Where that happens often, the network may
    /// change their order, which only sums show.
    fn damaged(&mut self) {}

    /// On a rail with direct writes: whether these bytes of a grant have landed, right or not.
    fn landed(&self, _key: u64, _offset: u64, _len: u64) -> bool {
        true
    }

    /// Gives up all writes under way, however long the hardware would take: when this returns none
    /// of their pieces is read any more. Their [`RailEvent::Written`] need not come.
    fn drain(&mut self) {}
}

/// Receiving half of a rail.
pub trait RailRx: Send {
    /// Receives what waits, at most one batch, and hands each datagram (or GRO batch) to `sink`.
    /// Returns the number of datagrams (a batch of unknown segment length counts as one); 0 when
    /// nothing waited.
    fn recv(&mut self, sink: &mut dyn FnMut(Received<'_>)) -> usize;

    /// Receives as `recv` does from where nothing is expected: to be called now and then, every
    /// 16th time say, and before waiting.
    fn recv_rest(&mut self, _sink: &mut dyn FnMut(Received<'_>)) -> usize {
        0
    }

    /// A descriptor besides that of the sending half that becomes readable when packets wait.
    fn rest_fd(&self) -> Option<i32> {
        None
    }
}

/// A rail before it is split into its halves.
pub trait Rail {
    /// Sending half.
    type Tx: RailTx;
    /// Receiving half.
    type Rx: RailRx;
    /// Splits the rail.
    fn split(self) -> (Self::Tx, Self::Rx);
}
