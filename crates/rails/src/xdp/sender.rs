//! Sends batches as frames by an AF_XDP socket, to destinations whose Ethernet address is known.

use super::frames::{End, Route};
use super::neighbours::{ask_neighbour, ask_route, read_neighbour, read_route};
use super::ways::Way;
use crate::addr::UdpAddr;
use crate::link::LinkId;
use crate::sys::xdp::{RouteSocket, TxQueue};
use crate::sys::Errno;
use crate::SendOutcome;

/// Sends to a destination by the kernel before the kernel's tables are asked again. The number
/// doubles with each vain question up to the maximum, since a destination may never have an
/// Ethernet address (one on this host), and each question is a system call.
const SENDS_MIN: u32 = 1;
const SENDS_MAX: u32 = 1 << 10;
/// Like `SENDS_MIN`, after packets to a destination got no acks: the kernel may have to resolve the
/// address anew.
const SENDS_AFTER_SILENCE: u32 = 16;
/// Polls between looks at the socket's count of dropped frames and at the service, each a system
/// call.
const COUNT_POLL_PERIOD: u32 = 4_096;

/// The way to a link's destination, as far as it is known.
enum Hop {
    /// Frames take this route.
    Known(Box<Route>),
    /// The kernel sends, and is asked again after so many sends; the number after that.
    Unknown(u32, u32),
}

const NEW_HOP: Hop = Hop::Unknown(0, SENDS_MIN);

/// The sending half of an AF_XDP socket.
pub(super) struct Sender {
    queue: TxQueue,
    /// The sockets of further queues, which only receive.
    others: Vec<TxQueue>,
    way: Way,
    routes: RouteSocket,
    here: End,
    /// Traffic class of all frames.
    dscp: u8,
    /// Index of the interface.
    interface: u32,
    /// By number of link.
    hops: Vec<Hop>,
    /// The kernel has not taken all frames of the ring yet.
    owes: bool,
    /// The kernel refused to send: the interface is down.
    refused: bool,
    polls: u32,
    drops: u64,
}

impl Sender {
    /// Sends from `here` in a traffic class (DSCP). The interface has this index.
    pub(super) fn new(
        (queue, others): (TxQueue, Vec<TxQueue>),
        way: Way,
        (here, dscp): (End, u8),
        interface: u32,
    ) -> Result<Sender, Errno> {
        Ok(Sender {
            queue,
            others,
            way,
            routes: RouteSocket::open()?,
            here,
            dscp,
            interface,
            hops: Vec::new(),
            owes: false,
            refused: false,
            polls: 0,
            drops: 0,
        })
    }

    /// Sends `bytes` on a link to `to` as packets of `segment` bytes. `None`: nothing was sent, and
    /// the kernel shall send; after a refusal, frames may still leave when the interface is up
    /// again, as late duplicates.
    #[inline]
    pub(super) fn send(
        &mut self,
        link: LinkId,
        to: impl FnOnce() -> Option<UdpAddr>,
        bytes: &[u8],
        segment: usize,
    ) -> Option<SendOutcome> {
        if self.refused {
            // This batch takes the kernel's way in any case, so that the rail below notices that
            // the interface works again.
            self.refused = self.flush().is_none();
            return None;
        }
        if !matches!(self.hops.get(link.0 as usize), Some(Hop::Known(_))) {
            self.resolve(link, to)?;
        }
        let packets = bytes.len().div_ceil(segment);
        if !self.queue.has_room(packets) {
            self.flush()?;
            if !self.queue.has_room(packets) {
                return Some(SendOutcome::Busy);
            }
        }
        let Some(Hop::Known(route)) = self.hops.get(link.0 as usize) else {
            return None;
        };
        for packet in bytes.chunks(segment) {
            self.queue.push(|frame| route.write(packet, frame));
        }
        self.flush().map(|()| SendOutcome::Sent)
    }

    /// Calls the kernel to send; `None` if it refuses.
    #[inline]
    fn flush(&mut self) -> Option<()> {
        match self.queue.flush() {
            Ok(()) => self.owes = false,
            Err(libc::EAGAIN | libc::EBUSY | libc::ENOBUFS | libc::ENOMEM | libc::EINTR) => {
                self.owes = true;
            }
            Err(_) => {
                (self.owes, self.refused) = (false, true);
                return None;
            }
        }
        Some(())
    }

    /// Looks for the way to a destination, unless it was looked for shortly before. `None`: there
    /// is none yet.
    #[cold]
    fn resolve(&mut self, link: LinkId, to: impl FnOnce() -> Option<UdpAddr>) -> Option<()> {
        let at = link.0 as usize;
        let to = to()?;
        if self.hops.len() <= at {
            self.hops.resize_with(at + 1, || NEW_HOP);
        }
        let hop = &mut self.hops[at];
        if let Hop::Unknown(left @ 1.., _) = hop {
            *left -= 1;
            return None;
        }
        let known = self.look_up(&to);
        let hop = &mut self.hops[at];
        match (known, &hop) {
            (Some(route), _) => *hop = Hop::Known(Box::new(route)),
            (None, &&mut Hop::Unknown(_, next)) => {
                *hop = Hop::Unknown(next, (2 * next).min(SENDS_MAX));
                return None;
            }
            (None, Hop::Known(_)) => return None,
        }
        Some(())
    }

    /// Asks the kernel where frames to an address go.
    fn look_up(&self, to: &UdpAddr) -> Option<Route> {
        let question = ask_route(to.ip, self.interface);
        let hop = self
            .routes
            .ask(&question, |answer| read_route(answer, to.ip))?;
        if hop.interface != self.interface {
            return None;
        }
        let mac = self.routes.ask(&ask_neighbour(&hop), read_neighbour)?;
        Route::new(self.here, (mac, to.ip, to.port), self.dscp)
    }

    /// Forgets the way to a link's destination.
    pub(super) fn forget(&mut self, link: LinkId) {
        if let Some(hop) = self.hops.get_mut(link.0 as usize) {
            *hop = NEW_HOP;
        }
    }

    /// Packets to a destination got no acks: the kernel sends the next ones, and may find that its
    /// Ethernet address has changed.
    pub(super) fn doubt(&mut self, link: LinkId) {
        if let Some(hop @ Hop::Known(_)) = self.hops.get_mut(link.0 as usize) {
            *hop = Hop::Unknown(SENDS_AFTER_SILENCE, SENDS_MIN);
        }
    }

    /// Sends what waits; returns the number of frames dropped at the receiving end since the
    /// previous report.
    #[inline]
    pub(super) fn poll(&mut self) -> u64 {
        if self.owes {
            self.flush();
        }
        self.polls = self.polls.wrapping_add(1);
        match self.polls % COUNT_POLL_PERIOD {
            0 => {
                self.way.poll();
                self.new_drops()
            }
            _ => 0,
        }
    }

    #[cold]
    fn new_drops(&mut self) -> u64 {
        let all = std::iter::once(&self.queue).chain(&self.others);
        let drops: u64 = all.map(|queue| queue.socket().drops()).sum();
        let new = drops.saturating_sub(self.drops);
        self.drops = self.drops.max(drops);
        new
    }
}
