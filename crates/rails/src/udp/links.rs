//! The links of a UDP rail: destinations, each with what would else be looked up for every packet,
//! and connected sockets for those that get most packets.
//!
//! A send on a connected socket finds its route already looked up and no address to copy
//! (docs/design/udp.md). The sockets are only sent on: their ports are ephemeral, and peers answer
//! to the rail's own port. Each is a cache of what the unconnected socket does, so that dropping
//! one is always right.

use super::shared::FLOW_RCVBUF;
use crate::addr::UdpAddr;
use crate::link::{LinkId, LinkTable};
use crate::sys::{SockName, Socket, SocketOptions};
use std::net::IpAddr;

/// Extra source ports per rail.
pub(super) const FLOWS_MAX: usize = 4;
/// With the rail's own port.
const LANES: usize = FLOWS_MAX + 1;
/// Sends to a destination after which it gets a socket: contacts that are over after a handshake
/// should cost nothing.
const SENDS_MIN: i32 = 8;
/// Sends to a destination before another attempt when its socket could not be opened, for want of
/// descriptors for example.
const SENDS_AFTER_FAILURE: i32 = 4096;
/// Connected sockets of a rail: a process with four rails stays well below the usual limit of 1024
/// descriptors.
const SOCKETS_MAX: usize = 64;
/// A destination loses its socket when, without any send of its own, it was so often in the way of
/// one that has none. Destinations in steady use thus never push each other out, which would cost
/// more than it saves.
const CREDIT: u8 = 64;
/// In [`Link::sockets`]: there is none.
const NO_SOCKET: u8 = u8::MAX;

/// A destination.
pub(super) struct Link {
    pub(super) to: UdpAddr,
    /// The kernel's form of it; `None`: of another IP version than the rail, so that no way leads
    /// there.
    pub(super) name: Option<SockName>,
    /// By lane: the place of its socket.
    sockets: [u8; LANES],
    /// By lane: sends seen while it had no socket; negative while none is wanted.
    sends: [i32; LANES],
    newest: Newest,
}

/// By lane: the newest flow that left by it, beside the one that has the lane's number.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Newest([Option<u8>; LANES]);

impl Newest {
    /// A flow leaves now; whether it is newer than all that left by its lane. (Numbers go in a
    /// circle; flows of which some are in use at a time are less than half of it apart. A link may
    /// begin with any.)
    #[inline]
    pub(super) fn note(&mut self, flow: u8) -> bool {
        let newest = &mut self.0[lane_of(flow) as usize];
        let newer = newest.is_none_or(|newest| (flow.wrapping_sub(newest) as i8) > 0);
        if newer {
            *newest = Some(flow);
        }
        newer
    }
}

/// The lane by which a flow leaves: 0 is the rail's own port, and the destination's connected
/// socket.
#[inline]
pub(super) fn lane_of(flow: u8) -> u8 {
    match flow {
        0 => 0,
        flow => flow % LANES as u8,
    }
}

/// A connected socket, and whose it is.
struct Slot {
    link: LinkId,
    flow: u8,
    credit: u8,
    /// Absent while its errors are read.
    socket: Option<Socket>,
}

/// The links and their sockets.
pub(super) struct UdpLinks {
    table: LinkTable<(IpAddr, u16), Link>,
    slots: Vec<Option<Slot>>,
    /// Destinations may have sockets.
    connects: bool,
    /// The socket that loses credit or its place next.
    hand: usize,
    /// Where the errors of sockets were looked for last.
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

    /// One user more of the link to `to`, whose kernel's form is `name`.
    pub(super) fn connect(&mut self, to: UdpAddr, name: Option<SockName>) -> LinkId {
        self.table.connect((to.ip, to.port), || Link {
            to,
            name,
            sockets: [NO_SOCKET; LANES],
            sends: [0; LANES],
            newest: Newest::default(),
        })
    }

    /// One user less; whether the link is gone.
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

    /// Makes the kernel's forms of all addresses anew.
    pub(super) fn rename(&mut self, name: impl Fn(&UdpAddr) -> Option<SockName>) {
        for link in self.table.iter_mut() {
            link.name = name(&link.to);
        }
    }

    /// A link's packets leave by a flow. What is new to its lane gets a socket of its own, with
    /// another port: what is between here and there may have forgotten those before.
    #[inline]
    pub(super) fn choose(&mut self, link: LinkId, flow: u8) {
        let lane = lane_of(flow) as usize;
        let Some(row) = self.table.get_mut(link) else {
            return;
        };
        if row.newest.note(flow) {
            let at = row.sockets[lane] as usize;
            self.drop_slot(at);
        }
    }

    /// The place of a link's socket, if it has one that is open.
    #[inline]
    pub(super) fn socket_of(&mut self, link: LinkId, flow: u8) -> Option<usize> {
        let at = self.table.get(link)?.sockets[flow as usize] as usize;
        let slot = self.slots.get_mut(at)?.as_mut()?;
        slot.credit = CREDIT;
        Some(at)
    }

    /// The socket at a place.
    #[inline]
    pub(super) fn socket(&self, at: usize) -> Option<&Socket> {
        self.slots.get(at)?.as_ref()?.socket.as_ref()
    }

    /// Counts a send that the unconnected socket served; whether the link is to get a socket of its
    /// own now.
    pub(super) fn count(&mut self, link: LinkId, flow: u8) -> bool {
        let Some(row) = self.table.get_mut(link).filter(|_| self.connects) else {
            return false;
        };
        let lane = flow as usize;
        row.sends[lane] = row.sends[lane].saturating_add(1);
        // Other flows than the first are tried for their ports: these must not change.
        let enough = if flow == 0 { SENDS_MIN } else { 1 };
        row.sockets[lane] == NO_SOCKET && row.sends[lane] >= enough && self.has_place()
    }

    /// Returns whether there is a place for another socket, one that has lost its credit included.
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

    /// Opens a link's socket. Nobody reads it, so that it takes no data. Where that fails the
    /// unconnected socket goes on serving.
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

    /// The next place with a socket in turn: whose errors are to be read now.
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

    /// Closes a socket; its link has to earn the next.
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

    /// Closes all sockets: routes or addresses changed.
    pub(super) fn drop_sockets(&mut self) {
        (0..self.slots.len()).for_each(|at| self.drop_slot(at));
    }
}

#[cfg(test)]
#[path = "links_test.rs"]
mod tests;
