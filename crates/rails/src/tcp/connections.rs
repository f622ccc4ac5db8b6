//! The links of a TCP rail. Each sends on one connection, made by us or by the peer, or has none
//! while evicted.

mod establish;
mod eviction;

use super::broken::Break;
use super::frame::VERSION;
use super::handshake::{Handshake, TcpAddr};
use super::output::Output;
use super::shared::{Name, Notification, Order, Shared};
use crate::link::{Connected, DownReason, LinkId, LinkTable};
use crate::sys::{self, Errno, Stream, StreamOptions};
use crate::{RailEvent, RailVersions, Write};
use marline_auth::FrameKey;
use std::collections::{BTreeMap, VecDeque};
use std::sync::atomic::Ordering::{Acquire, Relaxed};
use std::sync::Arc;

/// Most connections from rails to which this end has no link; beyond this number the oldest is
/// closed. Honest peers close theirs; the limit bounds those of attackers.
const UNLINKED_MAX: usize = 16 * 1024;

/// Connections that this side has closed and the other end has not, beside as many as may be open;
/// beyond that number the oldest is ended. Honest ends close theirs with their next poll.
const HALF_CLOSED_MAX: usize = 64;

/// Maximum of bytes of our own memory queued on a link that is reconnecting, or is full while there
/// are other links; beyond it the rail is busy. It exceeds what grants and credits allow in flight
/// to one peer (half of 6 MiB, and 1 MiB), so that an unresponsive peer does not delay others.
const BACKLOG_MAX: usize = 8 << 20;
/// The same for all links together, of which there may be thousands.
const BACKLOGS_MAX: usize = 64 << 20;

/// The state of a link.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    /// Its first connection is being made.
    Connecting,
    /// The link carries packets.
    Up,
    /// Evicted: no connection until the next send.
    Evicted,
    /// Reconnecting after an eviction. Sends are queued meanwhile.
    Reconnecting,
    /// The link is down for good.
    Down,
}

/// A connection on which a link sends, or will send.
struct Connection {
    name: Name,
    stream: Arc<Stream>,
    output: Output,
    /// The key of our frames, until the other end has proven that it has the same.
    key: Option<FrameKey>,
    /// A random token known only to its two ends.
    token: u64,
    /// Value of `TcpLinks::clock` at the last send.
    used: u64,
    /// The other end wants to close it, which happens when the output is empty.
    draining: bool,
    /// The other end sends on another connection that replaced this one.
    superseded: bool,
}

/// The link to one remote rail.
struct Link {
    state: State,
    connection: Option<Connection>,
    /// The connection that will replace a silent one.
    next: Option<Connection>,
    /// Number of replacements of a silent connection.
    rerouted: usize,
}

/// A connection from a rail to us on which no link sends.
struct Unlinked {
    from: TcpAddr,
    token: u64,
    stream: Arc<Stream>,
    /// Empty; it has the key of our frames.
    output: Output,
    /// The peer was asked to send on another connection and may end this one.
    asked: bool,
    used: u64,
}

/// The outcome of a send.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Sent {
    /// The bytes are in the kernel or queued; or the link is not up and they are lost.
    Taken,
    /// No room.
    NoRoom,
}

/// The links of a rail.
pub(super) struct TcpLinks {
    shared: Arc<Shared>,
    table: LinkTable<TcpAddr, Link>,
    by_connection: BTreeMap<Name, LinkId>,
    unlinked: BTreeMap<Name, Unlinked>,
    /// Connections on which this side has said that it sends no more, oldest first.
    half_closed: VecDeque<Name>,
    /// Links with a non-empty output.
    waiting: Vec<LinkId>,
    /// Upper bound of the bytes of our own memory in those outputs.
    held: usize,
    /// Counts sends and accepted connections.
    clock: u64,
    events: VecDeque<RailEvent>,
    /// Writes whose memory is no longer needed.
    over: VecDeque<u64>,
}

impl TcpLinks {
    pub(super) fn new(shared: Arc<Shared>) -> TcpLinks {
        TcpLinks {
            shared,
            table: LinkTable::default(),
            by_connection: BTreeMap::new(),
            unlinked: BTreeMap::new(),
            half_closed: VecDeque::new(),
            waiting: Vec::new(),
            held: 0,
            clock: 0,
            events: VecDeque::new(),
            over: VecDeque::new(),
        }
    }

    /// Adds a user to the link to a rail; makes the link if there is none.
    pub(super) fn connect(&mut self, to: TcpAddr) -> Connected {
        let known = self.table.find(&to).is_some();
        let link = self.table.connect(to, || Link {
            state: State::Connecting,
            connection: None,
            next: None,
            rerouted: 0,
        });
        if !known {
            self.begin(link, &to, State::Connecting);
        }
        let state = self.table.get(link).map(|link| link.state);
        Connected {
            link,
            up: matches!(
                state,
                Some(State::Up | State::Evicted | State::Reconnecting)
            ),
        }
    }

    /// Removes a user; the last one ends the link after its queued data has left.
    pub(super) fn close(&mut self, link: LinkId) {
        let Some(row) = self.table.close(link) else {
            return;
        };
        for mut connection in row.connection.into_iter().chain(row.next) {
            // Bytes without room in the kernel are dropped: they are not acknowledged, and the
            // closing user does not wait for them.
            let _ = connection.output.flush(&connection.stream, &mut self.over);
            self.leave(connection);
        }
        self.events.retain(|event| !event.is_of(link));
    }

    /// Closes the sending direction of a connection. The other end may still send; the receiving
    /// half notices the end.
    fn leave(&mut self, mut connection: Connection) {
        connection.output.clear(&mut self.over);
        self.by_connection.remove(&connection.name);
        self.finish(connection.name, &connection.stream);
    }

    /// Closes the sending direction of a connection, and ends the oldest of those that the other
    /// end leaves open: each occupies a descriptor.
    fn finish(&mut self, name: Name, stream: &Stream) {
        stream.finish();
        self.half_closed.push_back(name);
        if self.half_closed.len() > self.shared.connections_max + HALF_CLOSED_MAX {
            if let Some(oldest) = self.half_closed.pop_front() {
                self.shared.order(Order::Forget(oldest));
            }
        }
    }

    /// The newest connection from a rail to us on which no link sends.
    fn unlinked_from(&mut self, from: &TcpAddr) -> Option<Connection> {
        let name = self.newest_unlinked(from)?;
        self.take_unlinked(name)
    }

    fn newest_unlinked(&self, from: &TcpAddr) -> Option<Name> {
        let mut newest = self.unlinked.iter().rev();
        let (name, _) = newest.find(|(_, unlinked)| unlinked.from == *from)?;
        Some(*name)
    }

    fn take_unlinked(&mut self, name: Name) -> Option<Connection> {
        let unlinked = self.unlinked.remove(&name)?;
        Some(self.connection(name, (unlinked.stream, unlinked.output), unlinked.token))
    }

    fn connection(
        &mut self,
        name: Name,
        (stream, output): (Arc<Stream>, Output),
        token: u64,
    ) -> Connection {
        self.clock += 1;
        Connection {
            name,
            stream,
            output,
            key: None,
            token,
            used: self.clock,
            draining: false,
            superseded: false,
        }
    }

    /// Gives the link the connection that its peer has made, or starts to make one and sets the
    /// state `making`.
    fn begin(&mut self, link: LinkId, to: &TcpAddr, making: State) {
        let (connection, state) = match self.unlinked_from(to) {
            Some(connection) => (connection, State::Up),
            None => match self.dial(to, 0) {
                Ok(connection) => (connection, making),
                Err(errno) => return self.end(link, DownReason::Broken(errno)),
            },
        };
        self.set_connection(link, connection, state);
    }

    /// Starts to connect, with a maximum segment size (0: derived from the MTUs).
    fn dial(&mut self, to: &TcpAddr, segment_max: u16) -> Result<Connection, Errno> {
        self.make_room(1);
        let options = StreamOptions {
            segment_max,
            ..self.shared.options()
        };
        let stream = Arc::new(Stream::connect(&options, &to.ip, to.port)?);
        let name = self.shared.new_name();
        self.shared.order(Order::Read {
            name,
            stream: stream.clone(),
            to: *to,
        });
        let output = match self.shared.keys {
            Some(_) => Output::awaiting_key(),
            None => Output::default(),
        };
        // Without a token this connection cannot be replaced, which is harmless.
        let token = sys::random().unwrap_or(0);
        Ok(self.connection(name, (stream, output), token))
    }

    fn set_connection(&mut self, id: LinkId, connection: Connection, state: State) {
        if let Some(link) = self.table.get_mut(id) {
            self.by_connection.insert(connection.name, id);
            link.state = state;
            link.connection = Some(connection);
        }
    }

    /// Handles the end of a link's connection or connection attempt. If the link was still
    /// connecting and its peer has connected to us meanwhile, that connection is used; otherwise
    /// the link is down for good.
    fn end(&mut self, link: LinkId, why: DownReason) {
        let Some(row) = self.table.get_mut(link) else {
            return;
        };
        let was = std::mem::replace(&mut row.state, State::Down);
        let (old, next) = (row.connection.take(), row.next.take());
        let making = matches!(was, State::Connecting | State::Reconnecting);
        let address = self.table.key(link).filter(|_| making);
        let other = address.and_then(|from| self.unlinked_from(&from));
        let mut output = None;
        for mut connection in old.into_iter().chain(next) {
            match other {
                // None of the queue has left.
                Some(_) => output = Some(std::mem::take(&mut connection.output)),
                None => connection.output.clear(&mut self.over),
            }
            connection.stream.shut();
            self.by_connection.remove(&connection.name);
            self.shared.order(Order::Forget(connection.name));
        }
        if let Some(mut connection) = other {
            if let Some(queue) = output {
                connection.output.adopt(queue);
            }
            self.set_connection(link, connection, State::Up);
            if was == State::Connecting {
                self.events.push_back(RailEvent::LinkUp(link));
            }
        } else if was != State::Down {
            self.table.retire(link);
            self.events.push_back(RailEvent::LinkDown(link, why));
        }
    }

    /// Sends a batch of packets on a link.
    #[inline]
    pub(super) fn send(&mut self, link: LinkId, bytes: &[u8], segment: usize) -> Sent {
        self.with_output(link, |output, stream, _| match stream {
            Some(stream) => output.send(stream, bytes, segment),
            None => {
                output.take(bytes, segment);
                Ok(true)
            }
        })
        .unwrap_or(Sent::Taken)
    }

    /// Sends a write and its notification, in this order, both or neither.
    pub(super) fn write(&mut self, link: LinkId, write: &Write<'_>, packet: &[u8]) -> Sent {
        let sent = self.with_output(link, |output, stream, over| {
            output.write(write, packet);
            let flushed = stream.map(|stream| output.flush(stream, over));
            flushed.transpose().map(|_| true)
        });
        // A link that is not up loses the write, whose memory is then free.
        sent.unwrap_or_else(|| {
            self.over.push_back(write.token);
            Sent::Taken
        })
    }

    /// Calls `give` with a link's output, and with the stream if data may leave at once; `None` if
    /// the link is not up. If there are other links, data for a full connection is queued, since a
    /// busy rail is busy for all peers.
    #[inline]
    fn with_output(
        &mut self,
        id: LinkId,
        give: impl Fn(&mut Output, Option<&Stream>, &mut VecDeque<u64>) -> Result<bool, Errno>,
    ) -> Option<Sent> {
        if self.table.get(id)?.state == State::Evicted {
            self.wake(id);
        }
        let several = self.by_connection.len() > 1;
        let link = self.table.get_mut(id)?;
        let Connection {
            stream,
            output,
            used,
            ..
        } = link.connection.as_mut()?;
        self.clock += 1;
        *used = self.clock;
        let over = &mut self.over;
        let waited = !output.is_empty();
        let before = output.owned_len();
        let room = before < BACKLOG_MAX && self.held < BACKLOGS_MAX;
        let given = match link.state {
            State::Up => {
                let free = match waited {
                    true => output.flush(stream, over),
                    false => Ok(true),
                };
                let given = free.and_then(|free| match free {
                    true => give(output, Some(stream), over),
                    false => Ok(false),
                });
                match given {
                    Ok(false) if several && room => give(output, None, over),
                    given => given,
                }
            }
            State::Reconnecting if room => give(output, None, over),
            State::Reconnecting => Ok(false),
            _ => return None,
        };
        self.held = (self.held + output.owned_len()).saturating_sub(before);
        match given {
            Ok(true) => {
                if !waited && !output.is_empty() {
                    self.waiting.push(id);
                }
                Some(Sent::Taken)
            }
            Ok(false) => Some(Sent::NoRoom),
            Err(errno) => {
                self.end(id, DownReason::Broken(errno));
                None
            }
        }
    }

    /// Sends queued data, and handles the notices of the receiving half.
    #[inline]
    pub(super) fn service(&mut self) {
        if !self.waiting.is_empty() {
            self.flush_waiting();
        }
        if self.shared.noted.load(Relaxed) && self.shared.noted.swap(false, Acquire) {
            for notification in self.shared.take_notifications() {
                self.on_notification(notification);
            }
        }
    }

    fn flush_waiting(&mut self) {
        self.held = 0;
        for id in std::mem::take(&mut self.waiting) {
            let Some(link) = self.table.get_mut(id) else {
                continue;
            };
            let reconnecting = link.state == State::Reconnecting;
            let Some(connection) = link.connection.as_mut() else {
                continue;
            };
            if reconnecting {
                self.held += connection.output.owned_len();
                self.waiting.push(id);
                continue;
            }
            match connection.output.flush(&connection.stream, &mut self.over) {
                Ok(true) if connection.draining => self.close_drained(id),
                Ok(true) => {}
                Ok(false) => {
                    self.held += connection.output.owned_len();
                    self.waiting.push(id);
                }
                Err(errno) => self.end(id, DownReason::Broken(errno)),
            }
        }
        self.make_room(0);
    }

    #[cold]
    fn on_notification(&mut self, notification: Notification) {
        match notification {
            Notification::Connected { name, key } => self.connected(name, key),
            Notification::Answered(name) => self.established(name, 0),
            Notification::Forged(from, why) => {
                self.events.push_back(RailEvent::Forged(Some(from), why))
            }
            Notification::Foreign(from, theirs) => {
                let ours = VERSION;
                let versions = RailVersions { theirs, ours };
                self.events
                    .push_back(RailEvent::OtherVersion(Some(from), versions));
            }
            Notification::Accepted {
                name,
                handshake,
                stream,
                key,
            } => {
                let mut output = Output::default();
                key.into_iter().for_each(|key| output.set_key(key));
                self.accepted(name, &handshake, (stream, output));
            }
            Notification::Evicted(name) => self.evicted(name),
            Notification::Joined { name, token } => self.joined(name, token),
            Notification::NoDescriptors => {
                self.evict_one();
            }
            Notification::Broken { name, broken } => {
                self.unlinked.remove(&name);
                self.half_closed.retain(|one| *one != name);
                self.broken(name, broken);
            }
        }
    }

    fn accepted(&mut self, name: Name, handshake: &Handshake, made: (Arc<Stream>, Output)) {
        let Handshake {
            from,
            token,
            replaces,
        } = *handshake;
        if let Some(link) = self.superseded(&from, replaces) {
            let connection = self.connection(name, made, token);
            return self.replace(link, connection);
        }
        self.clock += 1;
        let (stream, output) = made;
        let unlinked = Unlinked {
            from,
            token,
            stream,
            output,
            asked: false,
            used: self.clock,
        };
        self.unlinked.insert(name, unlinked);
        if self.unlinked.len() > UNLINKED_MAX {
            if let Some((name, _)) = self.unlinked.pop_first() {
                self.shared.order(Order::Forget(name));
            }
        }
        if let Some(link) = self.table.find(&from).filter(|_| replaces == 0) {
            self.join(link, token);
        }
        self.make_room(0);
    }

    /// Handles the end of a connection.
    fn broken(&mut self, name: Name, broken: Break) {
        let Some(&link) = self.by_connection.get(&name) else {
            return;
        };
        let Some(row) = self.table.get_mut(link) else {
            return;
        };
        if row.next.as_ref().is_some_and(|next| next.name == name) {
            row.next = None; // the silent connection may still answer
            self.by_connection.remove(&name);
            return;
        }
        // The other end has changed to the new connection; its answer there is on the way.
        let took = |next: &mut Connection| broken == Break::Closed && next.awaits_answer();
        if let Some(next) = row.next.take_if(took) {
            row.state = State::Reconnecting;
            return self.replace(link, next);
        }
        let draining = row.connection.as_ref().is_some_and(|c| c.draining);
        if broken == Break::Closed && draining {
            return; // as announced: queued data can still leave
        }
        self.end(link, reason(broken));
    }

    /// The next event.
    #[inline]
    pub(super) fn event(&mut self) -> Option<RailEvent> {
        if let Some(token) = self.over.pop_front() {
            return Some(RailEvent::Done(token));
        }
        self.events.pop_front()
    }

    /// Copies the memory of all queued writes, so that none of it is read afterwards.
    pub(super) fn drain(&mut self) {
        for link in self.table.iter_mut() {
            if let Some(connection) = &mut link.connection {
                connection.output.copy_lent(&mut self.over);
            }
        }
    }

    /// Breaks a link's connection, as a network failure would.
    #[cfg(test)]
    pub(super) fn cut(&mut self, link: LinkId) {
        if let Some(connection) = self.table.get(link).and_then(|l| l.connection.as_ref()) {
            connection.stream.shut();
        }
    }

    /// The name of a link's connection.
    #[cfg(test)]
    pub(super) fn name(&self, link: LinkId) -> Name {
        let connection = self
            .table
            .get(link)
            .and_then(|link| link.connection.as_ref());
        connection.expect("a connection").name
    }

    /// The token of a link's connection.
    #[cfg(test)]
    pub(super) fn token(&self, link: LinkId) -> u64 {
        let link = self.table.get(link).expect("a link");
        link.connection.as_ref().map_or(0, |c| c.token)
    }

    /// Queued bytes of our own memory.
    #[cfg(test)]
    pub(super) fn held(&self) -> usize {
        self.held
    }

    /// Returns whether a replacement of a link's connection is being made.
    #[cfg(test)]
    pub(super) fn is_replacing(&self, link: LinkId) -> bool {
        self.table.get(link).expect("a link").next.is_some()
    }
}

/// The reason for which a link is down, from that of its connection.
fn reason(broken: Break) -> DownReason {
    match broken {
        Break::Closed => DownReason::Closed,
        Break::Failed(libc::ECONNREFUSED) => DownReason::Refused,
        Break::Failed(libc::ETIMEDOUT) => DownReason::Unanswered,
        Break::Failed(errno) => DownReason::Broken(errno),
        Break::Garbled => DownReason::Broken(libc::EBADMSG),
        Break::NoPlace => DownReason::Broken(libc::EFAULT),
        Break::Forged(_) | Break::Refused(_) => DownReason::Broken(libc::EKEYREJECTED),
        Break::Foreign(_) => DownReason::Broken(libc::EPROTONOSUPPORT),
        Break::Late => DownReason::Unanswered,
    }
}
