//! The traits that a kind of rail implements and the types that pass through them. All methods are
//! required, so a rail that omits a method or forgets to forward a call does not compile.
//!
//! [`RailTx`] runs under the engine's lock, [`RailRx`] outside the lock. `docs/rails.md` is a guide
//! for a new kind.

use crate::caps::Caps;
use crate::interfaces::InterfaceChoice;
use crate::link::{DownReason, LinkId, Links};
use crate::multicast::Groups;
use crate::outcome::{RailFault, SendOutcome};
use crate::remote_read::RemoteRead;
use crate::remote_write::DirectWrite;
use crate::staging::Staging;
use crate::tx_buf::TxBuffers;
use marline_wire::RailAddr;
use std::net::IpAddr;

/// How the other end of a connection differs from this one in keys.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum KeyMismatch {
    /// The other end has a key and this one has none.
    KeyedThere,
    /// The other end has no key and this one has one.
    UnkeyedThere,
    /// Both ends have keys, which differ.
    OtherKey,
    /// A frame after the handshake had the wrong tag: it is forged, repeated or damaged.
    Tag,
}

/// Versions of a rail's framing or handshake.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RailVersions {
    /// The version of the other end.
    pub theirs: u8,
    /// The version of this end.
    pub ours: u8,
}

/// An event that a rail noticed outside of packets.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RailEvent {
    /// The state of the rail changed.
    Fault(RailFault),
    /// The link carries packets from this event on.
    LinkUp(LinkId),
    /// The link is down for good: its users close it and reconnect on demand.
    LinkDown(LinkId, DownReason),
    /// The host of a connectionless link's peer answered with ICMP port unreachable: a hint that
    /// the peer process is gone.
    Refused(LinkId),
    /// A connection was refused for its key before it carried packets, or ended after a frame with
    /// a wrong tag. The address is the other end's; `None`: on this host.
    Forged(Option<IpAddr>, KeyMismatch),
    /// A connection ended, or a handshake was ignored, because the other end speaks another version
    /// of the framing or of the handshake: the other end's address, where it is known.
    OtherVersion(Option<IpAddr>, RailVersions),
    /// A firewall, a router or the local host rejected packets (ICMP port unreachable that is not
    /// from the destination host): the address of the rejecting host.
    Barred(IpAddr),
    /// The path of a link takes at most this many bytes per datagram (ICMP packet too big).
    TooBig(LinkId, usize),
    /// A new connection replaced a silent connection of the link: the maximum segment sizes of the
    /// old and new connection, which differ.
    Segments(LinkId, (usize, usize)),
    /// The rail no longer reads the source memory of the write with this token.
    Done(u64),
    /// The read with this token ended: `true` if all of its bytes are in place.
    Pulled(u64, bool),
    /// The adapter reported an asynchronous event: its name in verbs.
    Async(&'static str),
    /// The port dropped datagrams with another Q_Key than their receiver's, of any process.
    QKeyViolations(u64),
    /// The adapter completed a request with an error status.
    FailedCompletion,
    /// Application memory was registered.
    Registered,
    /// Application memory could not be registered, with the errno: its data is copied or takes
    /// another way.
    Unregistered(i32),
    /// Idle eviction closed the connection of a link; the next send on the link reconnects.
    Evicted,
    /// An evicted link has a connection again.
    Reconnected,
    /// Multicast datagrams that one process of this host read on behalf of all: counts of this rail
    /// since the previous such event.
    HostReads {
        /// Datagrams that this rail read for all processes.
        read: u64,
        /// Datagrams that this rail took from those that another process had read.
        taken: u64,
    },
    /// Packets that the kernel dropped because the receive buffer was full (SO_RXQ_OVFL).
    ReceiverDrops(u64),
}

impl RailEvent {
    /// Returns whether the event names this link. After the link is closed no queued event may name
    /// it, since another link may reuse its number.
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

/// A received packet or batch of them.
#[derive(Clone, Copy, Debug)]
pub struct Received<'a> {
    /// The link on which the packets arrived; `None` if the receiving half does not know.
    pub link: Option<LinkId>,
    /// Source address as the kernel reported it (index and largest datagram 0); `RailAddr::NONE`
    /// from a rail that does not ask for the address.
    pub from: RailAddr,
    /// Packets, back to back.
    pub bytes: &'a [u8],
    /// Length in bytes of each packet but the last, which may be shorter; equals `bytes.len()` for
    /// a single packet. 0 from a rail configured not to ask the kernel (see
    /// [`crate::UdpConfig::cmsg`]): `bytes` may then hold several packets of equal length (the last
    /// may be shorter), and the length follows from the packets' own heads.
    pub segment: usize,
    /// Bytes of a direct write that landed together with these packets
    /// ([`crate::RemoteWrites::Direct`]); `bytes` may then be empty.
    pub beside: usize,
    /// Bytes of a direct write that should have arrived with these packets and did not; they may
    /// still arrive alone.
    pub missing: usize,
}

/// Sending half of a rail.
pub trait RailTx: Links + TxBuffers + DirectWrite + RemoteRead + Staging + Groups + Send {
    /// Capabilities; some may shrink, for example after GSO turned out to be missing.
    fn caps(&self) -> Caps;

    /// Address at which peers reach this rail.
    fn local_addr(&self) -> RailAddr;

    /// Moves the rail to the interface's new address after its own address disappeared, with the
    /// same port and all links. Returns the address at which peers reach the rail; `None` if the
    /// rail cannot move (or its kind never does), in which case nothing changed.
    fn move_to(&mut self, interface: &InterfaceChoice) -> Option<RailAddr>;

    /// The rail's interface has a new name, which matters to kinds that look the interface up by
    /// name.
    fn renamed(&mut self, _interface: &str) {}

    /// Sends `bytes` on a link as packets of `segment` bytes each (the last may be shorter), with
    /// ECMP entropy `flow`: a value other than 0 asks for another route through the fabric (UDP:
    /// another source port); a rail with one route ignores it. The caller may reuse `bytes` after
    /// the return. Bytes sent on a link that is not up are lost.
    fn send(&mut self, link: LinkId, bytes: &[u8], segment: usize, flow: u8) -> SendOutcome;

    /// Next event (errors, links, ICMP, completions); cheap when there is none.
    fn poll_event(&mut self) -> Option<RailEvent>;
}

/// The answer to [`RailRx::arm`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Armed {
    /// The descriptor also reports packets that already wait: sleep.
    Sleep,
    /// The descriptor reports only packets that arrive from this call on: poll again, then sleep.
    LookAgain,
}

/// Receiving half of a rail.
pub trait RailRx: Send {
    /// Receives at most one batch of waiting packets and hands each packet (or batch of packets of
    /// equal length) to `sink`. Returns the number of packets (a batch of unknown segment length
    /// counts as one); 0 if none waited.
    fn recv(&mut self, sink: &mut dyn FnMut(Received<'_>)) -> usize;

    /// Like `recv`, but receives only multicast packets where the rail can tell them apart: for a
    /// caller that polls for group packets repeatedly.
    fn recv_groups(&mut self, sink: &mut dyn FnMut(Received<'_>)) -> usize {
        self.recv(sink)
    }

    /// Like `recv`, from sources where packets are rare. Call it every 16th poll or so, and before
    /// waiting.
    fn recv_rest(&mut self, sink: &mut dyn FnMut(Received<'_>)) -> usize;

    /// The rail's descriptor, readable when packets or events wait; `None` if the rail must be
    /// polled.
    fn fd(&self) -> Option<i32>;

    /// Arms the descriptor before a sleep, so that it becomes readable on arrival.
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
