//! The links of a UDP rail: destinations with cached look-ups, and connected sockets for the most
//! frequent destinations.
//!
//! A send on a connected socket needs no route look-up and no copy of an address
//! (docs/design/udp.md). Connected sockets only send: their ports are ephemeral, and peers answer
//! to the rail's own port. Each is only a faster way to send than the unconnected socket, and may
//! be closed at any time.

use super::shared::FLOW_RCVBUF;
use crate::addr::UdpAddr;
use crate::link::{LinkId, LinkTable};
use crate::sys::{SockName, Socket, SocketOptions};
use std::net::IpAddr;

/// Additional source ports per rail.
pub(super) const FLOWS_MAX: usize = 4;
/// Number of source ports: the rail's own and the additional ones.
const QUEUES: usize = FLOWS_MAX + 1;
/// Sends to a destination before it gets a socket, so that short exchanges cost nothing.
const SENDS_MIN: i32 = 8;
/// Sends to a destination before the next attempt after its socket could not be opened, for example
/// for want of descriptors.
const SENDS_AFTER_FAILURE: i32 = 4096;
/// Sends to a destination, after its socket could not be opened (for example for want of
/// descriptors), before the next attempt.
const SOCKETS_MAX: usize = 64;
/// Attempts of other destinations to take a destination's socket, without a send of its own in
/// between, after which it loses the socket. Destinations in steady use thus do not evict each
/// other, which would cost more than it saves.
const CREDIT: u8 = 64;
/// In [`Link::sockets`]: no socket.
const NO_SOCKET: u8 = u8::MAX;

/// A destination.
pub(super) struct Link {
    pub(super) to: UdpAddr,
    /// The destination in the kernel's form; `None` if its IP version differs from the rail's, so
    /// that it is unreachable.
    pub(super) name: Option<SockName>,
    /// By source port: the index of its socket.
    sockets: [u8; QUEUES],
    /// By source port: sends without a socket; negative while no socket may be opened.
    sends: [i32; QUEUES],
    newest: Newest,
}

/// By source port: the newest flow that left by it, other than the flow whose number is the port's
/// own index.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Newest([Option<u8>; QUEUES]);

impl Newest {
    /// Records that a packet of a flow leaves. Returns whether the flow is newer than all earlier
    /// flows of its source port. (Flow numbers wrap around; the numbers in use at a time span less
    /// than half of the range. A link may begin with any number.)
    #[inline]
    pub(super) fn note(&mut self, flow: u8) -> bool {
        let newest = &mut self.0[queue_of(flow) as usize];
        let newer = newest.is_none_or(|newest| (flow.wrapping_sub(newest) as i8) > 0);
        if newer {
            *newest = Some(flow);
        }
        newer
    }
}

/// The index of the socket, and thereby of the source port, of a flow. Index 0 is the rail's own
/// port: its socket, or the connected socket of the destination.
#[inline]
pub(super) fn queue_of(flow: u8) -> u8 {
    match flow {
        0 => 0,
        flow => flow % QUEUES as u8,
    }
}

/// A connected socket and its owner.
struct Slot {
    link: LinkId,
    flow: u8,
    credit: u8,
    /// Absent while the socket's errors are read.
    socket: Option<Socket>,
}

/// The links and their sockets.
pub(super) struct UdpLinks {
    table: LinkTable<(IpAddr, u16), Link>,
    slots: Vec<Option<Slot>>,
    /// Destinations may have sockets.
    connects: bool,
    /// The clock hand: the next socket to lose credit or be replaced.
    hand: usize,
    /// The socket whose errors were read last.
    looked_at: usize,
    open: usize,
}

impl UdpLinks {
    /// `connects`: frequent destinations get sockets.
    pub(super) fn new(connects: bool) -> UdpLinks {
        UdpLinks {
            table: LinkTable::default(),
            slots: Vec::new(),
            connects,
            hand: 0,
            looked_at: 0,
            open: 0,
        }
    }

    /// Adds a user to the link to `to`, whose kernel's form is `name`.
    pub(super) fn connect(&mut self, to: UdpAddr, name: Option<SockName>) -> LinkId {
        self.table.connect((to.ip, to.port), || Link {
            to,
            name,
            sockets: [NO_SOCKET; QUEUES],
            sends: [0; QUEUES],
            newest: Newest::default(),
        })
    }

    /// Removes a user; returns whether the link is gone.
    pub(super) fn close(&mut self, link: LinkId) -> bool {
        let Some(gone) = self.table.close(link) else {
            return false;
        };
        for at in gone.sockets {
            self.drop_slot(at as usize);
        }
        true
    }

    #[inline]
    pub(super) fn get(&self, link: LinkId) -> Option<&Link> {
        self.table.get(link)
    }

    /// The link to an address.
    pub(super) fn find(&self, to: &UdpAddr) -> Option<LinkId> {
        self.table.find(&(to.ip, to.port))
    }

    /// The links to a host.
    pub(super) fn to_host(&self, ip: IpAddr) -> Vec<LinkId> {
        let all = self.table.iter();
        all.filter(|(_, key, _)| key.0 == ip).map(|l| l.0).collect()
    }

    /// Recomputes the kernel's form of all addresses.
    pub(super) fn rename(&mut self, name: impl Fn(&UdpAddr) -> Option<SockName>) {
        for link in self.table.iter_mut() {
            link.name = name(&link.to);
        }
    }

    /// Selects a flow for a link's packets. A flow that is new at its source port's index gets a
    /// new socket and so another port, since a middlebox may have dropped the state of the earlier
    /// ports.
    #[inline]
    pub(super) fn choose(&mut self, link: LinkId, flow: u8) {
        let queue = queue_of(flow) as usize;
        let Some(row) = self.table.get_mut(link) else {
            return;
        };
        if row.newest.note(flow) {
            let at = row.sockets[queue] as usize;
            self.drop_slot(at);
        }
    }

    /// The index of a link's open socket, if it has one.
    #[inline]
    pub(super) fn socket_of(&mut self, link: LinkId, flow: u8) -> Option<usize> {
        let at = self.table.get(link)?.sockets[flow as usize] as usize;
        let slot = self.slots.get_mut(at)?.as_mut()?;
        slot.credit = CREDIT;
        Some(at)
    }

    /// The socket at an index.
    #[inline]
    pub(super) fn socket(&self, at: usize) -> Option<&Socket> {
        self.slots.get(at)?.as_ref()?.socket.as_ref()
    }

    /// Counts a send on the unconnected socket; returns whether the link shall get a socket.
    pub(super) fn count(&mut self, link: LinkId, flow: u8) -> bool {
        let Some(row) = self.table.get_mut(link).filter(|_| self.connects) else {
            return false;
        };
        let queue = flow as usize;
        row.sends[queue] = row.sends[queue].saturating_add(1);
        // Other flows than 0 exist for their source port, which must not change afterwards.
        let enough = if flow == 0 { SENDS_MIN } else { 1 };
        row.sockets[queue] == NO_SOCKET && row.sends[queue] >= enough && self.has_place()
    }

    /// Returns whether a socket can be opened, possibly in place of one that has lost its credit.
    fn has_place(&mut self) -> bool {
        if self.open < SOCKETS_MAX {
            return true;
        }
        self.hand = (self.hand + 1) % SOCKETS_MAX;
        let Some(slot) = self.slots.get_mut(self.hand).and_then(Option::as_mut) else {
            return true;
        };
        slot.credit = slot.credit.saturating_sub(1);
        if slot.credit == 0 {
            self.drop_slot(self.hand);
        }
        self.open < SOCKETS_MAX
    }

    /// Opens a link's socket. It is never read, so it accepts no data. On failure the unconnected
    /// socket remains in use.
    #[cold]
    pub(super) fn open_socket(&mut self, link: LinkId, flow: u8, options: &SocketOptions<'_>) {
        let Some(row) = self.table.get_mut(link) else {
            return;
        };
        let options = SocketOptions {
            port: 0,
            receive_bytes: FLOW_RCVBUF,
            ..*options
        };
        let socket = Socket::open(&options).map_err(|(_, errno)| errno);
        let socket = socket.and_then(|socket| {
            socket.refuse_data()?;
            socket.connect(&row.to, options.scope_id)?;
            socket.forget_route()?;
            Ok(socket)
        });
        let Ok(socket) = socket else {
            row.sends[flow as usize] = SENDS_MIN - SENDS_AFTER_FAILURE;
            return;
        };
        let free = self.slots.iter().position(Option::is_none);
        let at = free.unwrap_or_else(|| {
            self.slots.push(None);
            self.slots.len() - 1
        });
        row.sockets[flow as usize] = at as u8;
        self.slots[at] = Some(Slot {
            link,
            flow,
            credit: CREDIT,
            socket: Some(socket),
        });
        self.open += 1;
    }

    /// Takes a socket out to read its errors; [`Self::put_back`] returns it.
    pub(super) fn take(&mut self, at: usize) -> Option<Socket> {
        self.slots.get_mut(at)?.as_mut()?.socket.take()
    }

    /// Returns what [`Self::take`] took.
    pub(super) fn put_back(&mut self, at: usize, socket: Socket) {
        if let Some(slot) = self.slots.get_mut(at).and_then(Option::as_mut) {
            slot.socket = Some(socket);
        }
    }

    /// The index of the next socket, in turn, whose errors must be read.
    pub(super) fn next_open(&mut self) -> Option<usize> {
        if self.open == 0 {
            return None;
        }
        let mut turns = 0..self.slots.len();
        turns.find_map(|_| {
            self.looked_at = (self.looked_at + 1) % self.slots.len();
            self.socket(self.looked_at).map(|_| self.looked_at)
        })
    }

    /// Closes a socket; its link must qualify again for another one.
    pub(super) fn drop_slot(&mut self, at: usize) {
        let Some(slot) = self.slots.get_mut(at).and_then(Option::take) else {
            return;
        };
        self.open -= 1;
        if let Some(row) = self.table.get_mut(slot.link) {
            row.sockets[slot.flow as usize] = NO_SOCKET;
            row.sends[slot.flow as usize] = 0;
        }
    }

    /// Closes all sockets after routes or addresses changed.
    pub(super) fn drop_sockets(&mut self) {
        (0..self.slots.len()).for_each(|at| self.drop_slot(at));
    }
}

#[cfg(test)]
#[path = "links_test.rs"]
mod tests;
