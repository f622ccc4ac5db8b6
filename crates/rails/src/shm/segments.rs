//! The links of a shm rail: made on request or by a peer, and down for good when their connection
//! ends.

use super::addr::ShmAddr;
use super::connection::{Break, Connection, Name};
use super::copies::Copies;
use super::frame::{write_piece, Head, Kind, To, PLACE_LEN};
use super::proof::{Prover, VERSION};
use super::ring::{Garbled, Memory, Producer};
use super::shared::{Notification, Order, Shared, BODY_MAX};
use crate::link::LinkTable;
use crate::sys::{self, LinkMemory, Ring, SeqPacket, PULL_PIECES_MAX};
use crate::{DownReason, LinkId, Piece, RailEvent, RailVersions, Write};
use std::collections::{HashMap, VecDeque};
use std::sync::atomic::Ordering::Relaxed;
use std::sync::Arc;

/// Most bytes that wait for room in one link's ring; beyond that the rail is busy. More than grants
/// and credits allow in flight to one peer over all rails, so that a peer which does not read does
/// not delay packets to others.
const BACKLOG_MAX: usize = 16 << 20;

/// A link.
struct Link {
    /// `None` if the link is down.
    connection: Option<Arc<Connection>>,
    producer: Producer,
    copies: Copies,
    /// The other end has completed the handshake.
    up: bool,
    /// The local side has called `connect`; `false` if only the peer has made the link.
    wanted: bool,
    /// Tokens of pulls that the other end has not made yet, the oldest first.
    pulls: VecDeque<u64>,
    /// Frames that wait for room in the ring.
    backlog: VecDeque<(Head, Vec<u8>)>,
    /// Bytes in `backlog`.
    backlog_len: usize,
}

impl Link {
    fn new(connection: Option<Arc<Connection>>, up: bool) -> Link {
        Link {
            connection,
            producer: Producer::new::<Ring>(),
            copies: Copies::new(),
            up,
            wanted: false,
            pulls: VecDeque::new(),
            backlog: VecDeque::new(),
            backlog_len: 0,
        }
    }

    /// Puts a frame into the ring or the backlog. `Err`: the other end wrote an impossible value.
    #[inline]
    fn put(&mut self, head: Head, parts: &[Piece]) -> Result<Put, Garbled> {
        if !self.backlog.is_empty() {
            self.put_backlog()?;
        }
        let Some(connection) = self.connection.as_ref().filter(|_| self.up) else {
            return Ok(Put::Lost);
        };
        let len = head.len as u64;
        debug_assert!(len <= BODY_MAX, "longer than any batch or write");
        if self.backlog.is_empty() {
            if let Some(at) = self.producer.body(&connection.out, len)? {
                connection.out.put_pieces(at, parts);
                self.producer.publish(&connection.out, head.word(), len);
                connection.notify();
                return Ok(Put::Done);
            }
        }
        if self.backlog_len + head.len > BACKLOG_MAX {
            return Ok(Put::NoRoom);
        }
        self.backlog_len += head.len;
        self.backlog.push_back((head, sys::gather(parts)));
        Ok(Put::Later)
    }

    /// Decides whether a write that the other end could pull is copied through the ring instead;
    /// `true` implies that the ring has room.
    fn copies(&mut self, write: &Write<'_>, packet: &[u8]) -> bool {
        let Some(connection) = self.connection.as_ref().filter(|_| self.backlog.is_empty()) else {
            return false;
        };
        let len: usize = write.pieces.iter().map(|piece| piece.len).sum();
        let consumed = connection.out.consumed().load(Relaxed);
        let body = (PLACE_LEN + len + packet.len()) as u64;
        self.copies.one_more(consumed, len as u64)
            && matches!(self.producer.body(&connection.out, body), Ok(Some(_)))
    }

    /// Moves frames from the backlog to the ring while there is room.
    fn put_backlog(&mut self) -> Result<(), Garbled> {
        let Some(connection) = &self.connection else {
            return Ok(());
        };
        let mut any = false;
        while let Some((head, bytes)) = self.backlog.front() {
            let len = head.len as u64;
            let body = match self.producer.body(&connection.out, len)? {
                None => self.producer.body_or_wait(&connection.out, len)?,
                body => body,
            };
            let Some(at) = body else { break };
            connection.out.put(at, bytes);
            self.producer.publish(&connection.out, head.word(), len);
            self.backlog_len -= head.len;
            self.backlog.pop_front();
            any = true;
        }
        if any {
            connection.notify();
        }
        Ok(())
    }
}

/// The outcome of sending a frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Put {
    /// The frame is in the ring.
    Done,
    /// The frame waits in the backlog.
    Later,
    /// No room.
    NoRoom,
    /// The link is not up; the frame is lost.
    Lost,
}

/// The links of a rail.
pub(super) struct ShmLinks {
    shared: Arc<Shared>,
    table: LinkTable<ShmAddr, Link>,
    by_name: HashMap<Name, LinkId>,
    /// Links with outstanding pulls.
    pulling: Vec<LinkId>,
    /// Links with a backlog.
    waiting: Vec<LinkId>,
    events: VecDeque<RailEvent>,
}

impl ShmLinks {
    pub(super) fn new(shared: Arc<Shared>) -> ShmLinks {
        ShmLinks {
            shared,
            table: LinkTable::default(),
            by_name: HashMap::new(),
            pulling: Vec::new(),
            waiting: Vec::new(),
            events: VecDeque::new(),
        }
    }

    /// Adds a user to the link to a rail; returns also whether the link is up.
    pub(super) fn connect(&mut self, to: ShmAddr) -> (LinkId, bool) {
        let mut made = None;
        let shared = &self.shared;
        let link = self.table.connect(to, || {
            let result = begin(shared, &to);
            let link = Link::new(result.as_ref().ok().cloned(), false);
            made = Some(result);
            link
        });
        if let Some(state) = self.table.get_mut(link) {
            state.wanted = true;
        }
        match made {
            Some(Ok(connection)) => _ = self.by_name.insert(connection.name, link),
            Some(Err(reason)) => self.fall(link, reason),
            None => {}
        }
        (link, self.table.get(link).is_some_and(|link| link.up))
    }

    /// Removes a user; the last one ends the link.
    pub(super) fn close(&mut self, link: LinkId) {
        if let Some(mut gone) = self.table.close(link) {
            if let Some(connection) = gone.connection.take() {
                self.end(&connection);
            }
            self.free(link, gone.pulls);
            self.events.retain(|event| !event.is_of(link));
        }
    }

    /// Ends a connection: outstanding pulls become void, and the receiving half stops reading.
    fn end(&mut self, connection: &Connection) {
        connection.void();
        connection.close();
        self.by_name.remove(&connection.name);
        self.shared.order(Order::Forget(connection.name));
    }

    /// Reports the memory of these pulls as free.
    fn free(&mut self, link: LinkId, tokens: VecDeque<u64>) {
        self.events.extend(tokens.into_iter().map(RailEvent::Done));
        self.pulling.retain(|pulling| *pulling != link);
        self.waiting.retain(|waiting| *waiting != link);
    }

    /// Takes a link down for good.
    #[cold]
    fn fall(&mut self, link: LinkId, reason: DownReason) {
        self.table.retire(link);
        let Some(state) = self.table.get_mut(link) else {
            return;
        };
        state.up = false;
        let wanted = state.wanted;
        state.backlog.clear();
        let (connection, pulls) = (state.connection.take(), std::mem::take(&mut state.pulls));
        if let Some(connection) = connection {
            self.end(&connection);
        }
        self.free(link, pulls);
        match wanted {
            true => self.events.push_back(RailEvent::LinkDown(link, reason)),
            false => _ = self.table.close(link),
        }
    }

    /// Sends a batch of packets on a link.
    #[inline]
    pub(super) fn send(&mut self, link: LinkId, bytes: &[u8], segment: usize) -> Put {
        let head = Head {
            kind: Kind::Packets,
            len: bytes.len(),
            segment: segment.min(bytes.len()),
        };
        self.put(link, head, &[piece(bytes)])
    }

    /// Sends a write and its notification in one frame. The second result is `true` while the
    /// write's memory is still to be pulled.
    pub(super) fn write(&mut self, link: LinkId, write: &Write<'_>, packet: &[u8]) -> (Put, bool) {
        let Some(state) = self.table.get_mut(link) else {
            return (Put::Lost, false);
        };
        let Some(connection) = &state.connection else {
            return (Put::Lost, false);
        };
        let few = write.pieces.len() <= PULL_PIECES_MAX;
        let is_read = self.shared.config.one_copy && few && connection.is_read();
        if !is_read || state.copies(write, packet) {
            return (self.write_inline(link, write, packet), false);
        }
        if let Some(connection) = &state.connection {
            connection.post(); // before the other end can pull
        }
        let put = self.write_pull(link, write, packet);
        let taken = matches!(put, Put::Done | Put::Later);
        if taken {
            if let Some(state) = self.table.get_mut(link) {
                state.pulls.push_back(write.token);
            }
            note(&mut self.pulling, link);
        }
        (put, taken)
    }

    fn write_inline(&mut self, link: LinkId, write: &Write<'_>, packet: &[u8]) -> Put {
        let len: usize = write.pieces.iter().map(|piece| piece.len).sum();
        let to = To {
            key: write.key,
            offset: write.offset,
            count: len as u64,
        };
        let head = Head {
            kind: Kind::Inline,
            len: PLACE_LEN + len + packet.len(),
            segment: packet.len(),
        };
        let place = to.write();
        let mut parts = vec![piece(&place)];
        parts.extend(write.pieces);
        parts.push(piece(packet));
        self.put(link, head, &parts)
    }

    fn write_pull(&mut self, link: LinkId, write: &Write<'_>, packet: &[u8]) -> Put {
        let to = To {
            key: write.key,
            offset: write.offset,
            count: write.pieces.len() as u64,
        };
        let mut list = to.write().to_vec();
        for piece in write.pieces {
            let address = piece.base.expose_provenance() as u64;
            list.extend(write_piece(address, piece.len as u64));
        }
        let head = Head {
            kind: Kind::Pull,
            len: list.len() + packet.len(),
            segment: packet.len(),
        };
        self.put(link, head, &[piece(&list), piece(packet)])
    }

    /// Puts a frame of these parts into a link's ring and notifies the other end.
    #[inline]
    fn put(&mut self, link: LinkId, head: Head, parts: &[Piece]) -> Put {
        let Some(state) = self.table.get_mut(link) else {
            return Put::Lost;
        };
        match state.put(head, parts) {
            Ok(Put::Later) => {
                note(&mut self.waiting, link);
                Put::Later
            }
            Ok(put) => put,
            Err(Garbled) => {
                self.fall(link, DownReason::Broken(libc::EBADMSG));
                Put::Lost
            }
        }
    }

    /// Reports a write whose memory is already free.
    pub(super) fn done(&mut self, token: u64) {
        self.events.push_back(RailEvent::Done(token));
    }

    /// The next event.
    #[inline]
    pub(super) fn event(&mut self) -> Option<RailEvent> {
        for notification in self.shared.take_notifications() {
            self.on_notification(notification);
        }
        if !self.pulling.is_empty() {
            self.look_for_pulls();
        }
        if !self.waiting.is_empty() {
            self.put_backlogs();
        }
        self.events.pop_front()
    }

    fn put_backlogs(&mut self) {
        for link in std::mem::take(&mut self.waiting) {
            let Some(state) = self.table.get_mut(link) else {
                continue;
            };
            match state.put_backlog() {
                Ok(()) if state.backlog.is_empty() => {}
                Ok(()) => self.waiting.push(link),
                Err(Garbled) => self.fall(link, DownReason::Broken(libc::EBADMSG)),
            }
        }
    }

    fn look_for_pulls(&mut self) {
        let (table, events) = (&mut self.table, &mut self.events);
        self.pulling.retain(|&link| {
            let Some(state) = table.get_mut(link) else {
                return false;
            };
            let ended = state.connection.as_ref().map_or(0, |c| c.take_ended());
            let ended = state.pulls.drain(..state.pulls.len().min(ended as usize));
            events.extend(ended.map(RailEvent::Done));
            !state.pulls.is_empty()
        });
    }

    #[cold]
    fn on_notification(&mut self, notification: Notification) {
        match notification {
            Notification::Connected(name) => {
                let Some(&link) = self.by_name.get(&name) else {
                    return;
                };
                if let Some(state) = self.table.get_mut(link) {
                    state.up = true;
                    self.events.push_back(RailEvent::LinkUp(link));
                }
            }
            Notification::Accepted(from, connection) => {
                // A connection made here to the same rail stays the link's connection; this one is
                // only read.
                if self.table.find(&from).is_none() {
                    let name = connection.name;
                    let link = self.table.add(from, Link::new(Some(connection), true));
                    self.by_name.insert(name, link);
                }
            }
            Notification::Forged(why) => {
                self.events.push_back(RailEvent::Forged(None, why));
            }
            Notification::Foreign(theirs) => {
                let ours = VERSION;
                let versions = RailVersions { theirs, ours };
                self.events
                    .push_back(RailEvent::OtherVersion(None, versions));
            }
            Notification::Broken(name, broken) => {
                if let Some(&link) = self.by_name.get(&name) {
                    self.fall(link, reason_of(broken));
                }
            }
        }
    }

    /// Ends all links with outstanding pulls, so that no write's memory is read afterwards.
    pub(super) fn drain(&mut self) {
        self.look_for_pulls();
        for link in std::mem::take(&mut self.pulling) {
            self.fall(link, DownReason::Broken(libc::ECANCELED));
        }
    }

    /// Ends all connections.
    pub(super) fn end_all(&mut self) {
        if self.shared.process != std::process::id() {
            return;
        }
        for link in self.table.iter_mut() {
            if let Some(connection) = link.connection.take() {
                connection.void();
                connection.close();
            }
        }
    }
}

fn note(links: &mut Vec<LinkId>, link: LinkId) {
    if !links.contains(&link) {
        links.push(link);
    }
}

fn piece(bytes: &[u8]) -> Piece {
    Piece {
        base: bytes.as_ptr(),
        len: bytes.len(),
    }
}

fn reason_of(broken: Break) -> DownReason {
    match broken {
        Break::Closed | Break::Unwelcome => DownReason::Closed,
        Break::Forged(_) | Break::Refused(_) => DownReason::Broken(libc::EKEYREJECTED),
        Break::Foreign(_) => DownReason::Broken(libc::EPROTONOSUPPORT),
        Break::Garbled => DownReason::Broken(libc::EBADMSG),
        Break::Failed(errno) => DownReason::Broken(errno),
    }
}

/// Starts a connection; it carries packets after the other end's handshake.
fn begin(shared: &Shared, to: &ShmAddr) -> Result<Arc<Connection>, DownReason> {
    if !shared.is_near(to) {
        return Err(DownReason::Broken(libc::EHOSTUNREACH)); // no connection was attempted
    }
    let failed = |errno| match errno {
        libc::ECONNREFUSED => DownReason::Refused,
        libc::EAGAIN => DownReason::Unanswered,
        errno => DownReason::Broken(errno),
    };
    let socket = SeqPacket::connect(to.name).map_err(failed)?;
    if !socket.is_of_own_user() {
        return Err(DownReason::Broken(libc::EACCES)); // another user took the name of a peer
    }
    let (memory, file) = LinkMemory::create().map_err(failed)?;
    let slot = shared.take_slot().ok_or(failed(libc::ENOSPC))?;
    let connection = Connection::new(shared.new_name(), socket, memory.rings(), slot);
    let (name, fd) = (connection.name, connection.socket.fd());
    let (on_handshake, later) = match shared.config.keys {
        None => (
            shared.send_handshake(&connection.socket, slot, Some(file)),
            None,
        ),
        Some(_) => {
            let prover = Prover::new(*to, false).map_err(failed)?;
            let sent = connection.socket.send(&prover.challenge(), &[]);
            (sent, Some((prover, file)))
        }
    };
    // The socket wakes a sleeping receiving half when the handshake arrives.
    let on_handshake = on_handshake.and_then(|()| shared.epoll.add(fd, name));
    if let Err(errno) = on_handshake {
        shared.free_slot(slot);
        return Err(failed(errno));
    }
    let connection = Arc::new(connection);
    shared.order(Order::Read(connection.clone(), later));
    Ok(connection)
}
