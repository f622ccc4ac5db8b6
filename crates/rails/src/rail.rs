//! The traits that a kind of rail implements, and what passes through them. All methods are
//! required: a rail that leaves one out, or forgets to forward it, does not compile.
//!
//! [`RailTx`] is everything that is done under the engine's lock, [`RailRx`] everything beside it.
//! `docs/rails.md` is a guide for a new kind.

use crate::caps::Caps;
use crate::groups::Groups;
use crate::interfaces::InterfaceChoice;
use crate::link::{DownReason, LinkId, Links};
use crate::outcome::{RailFault, SendOutcome};
use crate::remote_read::RemoteRead;
use crate::remote_write::DirectWrite;
use crate::staging::Staging;
use crate::tx_buf::TxBuffers;
use marline_wire::RailAddr;
use std::net::IpAddr;

/// An event that a rail noticed outside of packets.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RailEvent {
    /// State of the rail changed.
    Fault(RailFault),
    /// A link carries packets from now on.
    LinkUp(LinkId),
    /// A link is down for good: its users close it, and connect anew when they want to.
    LinkDown(LinkId, DownReason),
    /// Of a link that is no connection: the host at its other end said that nobody listens there
    /// (ICMP port unreachable), a hint that the process is gone.
    Refused(LinkId),
    /// Somebody else said so, of what is sent to others: a firewall on the way, or this host's own.
    Barred(IpAddr),
    /// The path of a link takes at most so many bytes per datagram (ICMP too big).
    TooBig(LinkId, usize),
    /// Another connection took the place of a link's silent one: the longest segments of the two,
    /// which are not the same.
    Segments(LinkId, (usize, usize)),
    /// The memory that a write (by its token) reads is free: it is not read any more.
    Done(u64),
    /// A read (by its token) is over: all of it is in its place, or not.
    Pulled(u64, bool),
    /// An adapter told of something by itself: its name in verbs.
    Told(&'static str),
    /// An adapter ended a request with an error.
    FailedCompletion,
    /// Memory of the program was registered.
    Registered,
    /// Memory of the program could not be registered, with the errno: it is copied instead, or what
    /// it was for takes another way.
    Unregistered(i32),
    /// A connection was closed for others: its link rests, and carries what is sent on it by
    /// another one.
    Rested,
    /// A link that rested has a connection again.
    Woken,
    /// Datagrams of groups that were read for all processes of this host, and that another one of
    /// them had read.
    HostReads {
        /// Read for all.
        read: u64,
        /// Taken from what another one had read.
        taken: u64,
    },
    /// This many packets were dropped because our receive buffer was full (SO_RXQ_OVFL).
    ReceiverDrops(u64),
}

impl RailEvent {
    /// Returns whether it speaks of this link. None does once that is closed, as another one may
    /// have its number then.
    pub(crate) fn is_of(&self, link: LinkId) -> bool {
        match self {
            RailEvent::LinkUp(of)
            | RailEvent::LinkDown(of, _)
            | RailEvent::Refused(of)
            | RailEvent::TooBig(of, _)
            | RailEvent::Segments(of, _) => *of == link,
            _ => false,
        }
    }
}

/// One received packet or batch of them.
#[derive(Clone, Copy, Debug)]
pub struct Received<'a> {
    /// The link by which they came; `None` from a rail whose receiving half does not know.
    pub link: Option<LinkId>,
    /// Source address as the kernel gave it (index and largest datagram 0); `RailAddr::NONE` from
    /// a rail that does not ask for it.
    pub from: RailAddr,
    /// One or more packets, back to back.
    pub bytes: &'a [u8],
    /// Length of each packet but the last (which may be shorter); = bytes.len() for one. 0 from
    /// a rail that was told not to ask (see [`crate::UdpConfig::cmsg`]): `bytes` may then hold
    /// several, all but the last as long as the first, whose length its own contents tell.
    pub segment: usize,
    /// Bytes of a direct write that landed with them ([`crate::RemoteWrites::Direct`]); `bytes` may
    /// be empty then.
    pub beside: usize,
    /// Bytes of a direct write that should have come with them and did not: they may still come, by
    /// themselves.
    pub missing: usize,
}

/// Sending half of a rail.
pub trait RailTx: Links + TxBuffers + DirectWrite + RemoteRead + Staging + Groups + Send {
    /// Capabilities (some may shrink, e.g. after GSO turned out to be missing).
    fn caps(&self) -> Caps;

    /// Address by which peers reach this rail.
    fn local_addr(&self) -> RailAddr;

    /// The rail's address is gone, and its interface has this one instead: the rail goes on there,
    /// with all its links, at the same port. Returns the address by which peers reach it now;
    /// `None`: it cannot, or its kind never does, and everything is as it was.
    fn move_to(&mut self, interface: &InterfaceChoice) -> Option<RailAddr>;

    /// The rail's interface is called so from now on, which matters to kinds that look it up.
    fn renamed(&mut self, _interface: &str) {}

    /// Sends `bytes` on a link as packets of `segment` bytes each (the last may be shorter), by
    /// flow `flow`: others than 0 ask for another route through the fabric (of UDP: a source port
    /// of their own), which a rail with only one ignores. `bytes` is free when the call returns. On
    /// a link that is not up they are lost.
    fn send(&mut self, link: LinkId, bytes: &[u8], segment: usize, flow: u8) -> SendOutcome;

    /// Next event (errors, links, ICMP, completions); cheap when there is none.
    fn poll_event(&mut self) -> Option<RailEvent>;
}

/// The answer to [`RailRx::arm`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Armed {
    /// The descriptor tells of what waits already: sleep.
    Sleep,
    /// It tells only of what comes from now on: look once more, then sleep.
    LookAgain,
}

/// Receiving half of a rail.
pub trait RailRx: Send {
    /// Receives what waits, at most one batch, and hands each packet (or batch of equal ones) to
    /// `sink`. Returns the number of packets (a batch of unknown segment length counts as one); 0
    /// when nothing waited.
    fn recv(&mut self, sink: &mut dyn FnMut(Received<'_>)) -> usize;

    /// Receives as `recv` does, but what comes for groups alone where a rail can tell it apart: for
    /// whoever waits for that and looks again and again.
    fn recv_groups(&mut self, sink: &mut dyn FnMut(Received<'_>)) -> usize {
        self.recv(sink)
    }

    /// Receives as `recv` does from where nothing is expected: to be called now and then, every
    /// 16th time say, and before waiting.
    fn recv_rest(&mut self, sink: &mut dyn FnMut(Received<'_>)) -> usize;

    /// The rail's descriptor, readable when packets or events wait; `None`: it has to be polled.
    fn fd(&self) -> Option<i32>;

    /// Before a sleep on the descriptor: makes it tell of what comes.
    fn arm(&mut self) -> Armed;
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
