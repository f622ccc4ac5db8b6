//! The links of a TCP rail: each has one connection that is sent on, ours or one that the peer
//! made.

use super::input::Break;
use super::output::Output;
use super::shared::{greeting_of, Name, Notice, Order, Shared, TcpAddr};
use crate::link::{Connected, DownReason, LinkId, LinkTable};
use crate::sys::{Errno, Stream};
use crate::{RailEvent, Write};
use std::collections::{BTreeMap, VecDeque};
use std::sync::atomic::Ordering::{Acquire, Relaxed};
use std::sync::Arc;

/// Connections that rails made to us to which we have no link: the oldest goes when there are more.
/// (They are closed one by one when their peers close theirs; this bounds what a stranger can do.)
const STRANGERS_MAX: usize = 16 * 1024;

/// The state of a link.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    /// Its connection is being made.
    Connecting,
    /// It carries packets.
    Up,
    /// It carries nothing any more.
    Down,
}

/// The connection that a link sends on.
struct Connection {
    name: Name,
    stream: Arc<Stream>,
    output: Output,
}

/// One remote rail.
struct Link {
    state: State,
    connection: Option<Connection>,
}

/// The fate of bytes for a link.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Sent {
    /// They are in the kernel, or wait here for it; or the link is not up, and they are lost.
    Taken,
    /// There is no room now.
    NoRoom,
}

/// The links of a rail.
pub(super) struct TcpLinks {
    shared: Arc<Shared>,
    table: LinkTable<TcpAddr, Link>,
    by_connection: BTreeMap<Name, LinkId>,
    /// Connections that rails made to us and that no link sends on.
    strangers: BTreeMap<Name, (TcpAddr, Arc<Stream>)>,
    /// Links whose output waits for room.
    waiting: Vec<LinkId>,
    events: VecDeque<RailEvent>,
    /// Writes whose memory is not read any more.
    over: VecDeque<u64>,
}

impl TcpLinks {
    pub(super) fn new(shared: Arc<Shared>) -> TcpLinks {
        TcpLinks {
            shared,
            table: LinkTable::default(),
            by_connection: BTreeMap::new(),
            strangers: BTreeMap::new(),
            waiting: Vec::new(),
            events: VecDeque::new(),
            over: VecDeque::new(),
        }
    }

    /// The link to a rail, made if there is none: one more user of it.
    pub(super) fn connect(&mut self, to: TcpAddr) -> Connected {
        let known = self.table.find(&to).is_some();
        let link = self.table.connect(to, || Link {
            state: State::Connecting,
            connection: None,
        });
        if !known {
            match self.stranger(&to) {
                Some((name, stream)) => self.set_connection(link, name, stream, State::Up),
                None => self.begin(link, &to),
            }
        }
        let state = self.table.get(link).map(|link| link.state);
        Connected {
            link,
            up: state == Some(State::Up),
        }
    }

    /// One user less; without any the link ends, once what it was given has left.
    pub(super) fn close(&mut self, link: LinkId) {
        if let Some(Link {
            connection: Some(mut connection),
            ..
        }) = self.table.close(link)
        {
            // What the kernel has no room for now was not acknowledged, and whoever closes does not
            // wait for that.
            let _ = connection.output.flush(&connection.stream, &mut self.over);
            connection.output.clear(&mut self.over);
            self.by_connection.remove(&connection.name);
            // The other end may still send; who reads it learns when that is over.
            connection.stream.finish();
        }
    }

    /// The newest connection that a rail made to us, and that no link sends on.
    fn stranger(&mut self, from: &TcpAddr) -> Option<(Name, Arc<Stream>)> {
        let mut newest = self.strangers.iter().rev();
        let name = *newest.find(|(_, (address, _))| address == from)?.0;
        let (_, stream) = self.strangers.remove(&name)?;
        Some((name, stream))
    }

    /// Begins to make the link's connection.
    fn begin(&mut self, link: LinkId, to: &TcpAddr) {
        match Stream::connect(&self.shared.options, &to.ip, to.port) {
            Ok(stream) => {
                let (name, stream) = (self.shared.new_name(), Arc::new(stream));
                self.shared.order(Order::Read {
                    name,
                    stream: stream.clone(),
                });
                self.set_connection(link, name, stream, State::Connecting);
            }
            Err(errno) => self.end(link, DownReason::Broken(errno)),
        }
    }

    fn set_connection(&mut self, link: LinkId, name: Name, stream: Arc<Stream>, state: State) {
        self.by_connection.insert(name, link);
        if let Some(link) = self.table.get_mut(link) {
            link.state = state;
            link.connection = Some(Connection {
                name,
                stream,
                output: Output::default(),
            });
        }
    }

    /// The link's connection has ended, or cannot be made. If the peer has made one to us meanwhile
    /// the link that was to come up does so by that; else it is down for good.
    fn end(&mut self, link: LinkId, why: DownReason) {
        let Some(row) = self.table.get_mut(link) else {
            return;
        };
        let was = std::mem::replace(&mut row.state, State::Down);
        if let Some(mut connection) = row.connection.take() {
            connection.output.clear(&mut self.over);
            connection.stream.shut();
            self.by_connection.remove(&connection.name);
            self.shared.order(Order::Forget(connection.name));
        }
        let address = self.table.key(link).filter(|_| was == State::Connecting);
        if let Some((name, stream)) = address.and_then(|from| self.stranger(&from)) {
            self.set_connection(link, name, stream, State::Up);
            return self.events.push_back(RailEvent::LinkUp(link));
        }
        if was != State::Down {
            self.table.retire(link);
            self.events.push_back(RailEvent::LinkDown(link, why));
        }
    }

    /// Sends a batch of packets on a link.
    #[inline]
    pub(super) fn send(&mut self, link: LinkId, bytes: &[u8], segment: usize) -> Sent {
        self.with_output(link, |output, stream, _| {
            output.send(stream, bytes, segment)
        })
        .unwrap_or(Sent::Taken)
    }

    /// Sends a write and the packet that tells of it, in this order, both or none.
    pub(super) fn write(&mut self, link: LinkId, write: &Write<'_>, packet: &[u8]) -> Sent {
        let sent = self.with_output(link, |output, stream, over| {
            output.write(write, packet);
            output.flush(stream, over).map(|_| true)
        });
        // A link that is not up loses everything, and has done with the memory.
        sent.unwrap_or_else(|| {
            self.over.push_back(write.token);
            Sent::Taken
        })
    }

    /// Gives something to a link's output, once that is empty; `None`: the link is not up.
    #[inline]
    fn with_output(
        &mut self,
        id: LinkId,
        give: impl FnOnce(&mut Output, &Stream, &mut VecDeque<u64>) -> Result<bool, Errno>,
    ) -> Option<Sent> {
        let link = self.table.get_mut(id);
        let link = link.filter(|link| link.state == State::Up)?;
        let Connection { stream, output, .. } = link.connection.as_mut()?;
        let over = &mut self.over;
        let waited = !output.is_empty();
        let given = match waited {
            true => output.flush(stream, over),
            false => Ok(true),
        };
        let given = given.and_then(|room| match room {
            true => give(output, stream, over),
            false => Ok(false),
        });
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

    /// Sends what waits for room, and learns what the receiving half noticed.
    #[inline]
    pub(super) fn service(&mut self) {
        if !self.waiting.is_empty() {
            self.flush_waiting();
        }
        if self.shared.noted.load(Relaxed) && self.shared.noted.swap(false, Acquire) {
            for notice in self.shared.take_notices() {
                self.on_notice(notice);
            }
        }
    }

    fn flush_waiting(&mut self) {
        for link in std::mem::take(&mut self.waiting) {
            let row = self.table.get_mut(link);
            let Some(connection) = row.and_then(|row| row.connection.as_mut()) else {
                continue;
            };
            match connection.output.flush(&connection.stream, &mut self.over) {
                Ok(true) => {}
                Ok(false) => self.waiting.push(link),
                Err(errno) => self.end(link, DownReason::Broken(errno)),
            }
        }
    }

    #[cold]
    fn on_notice(&mut self, notice: Notice) {
        match notice {
            Notice::Connected(name) => self.connected(name),
            Notice::Accepted { name, from, stream } => {
                self.strangers.insert(name, (from, stream));
                if self.strangers.len() > STRANGERS_MAX {
                    if let Some((name, _)) = self.strangers.pop_first() {
                        self.shared.order(Order::Forget(name));
                    }
                }
            }
            Notice::Broken { name, broken } => {
                self.strangers.remove(&name);
                if let Some(&link) = self.by_connection.get(&name) {
                    self.end(link, reason(broken));
                }
            }
        }
    }

    /// A connection of ours is there: it says whose it is, and carries packets from now on.
    fn connected(&mut self, name: Name) {
        let Some(&link) = self.by_connection.get(&name) else {
            return;
        };
        let (greeting, len) = greeting_of(&self.shared.local);
        let Some(row) = self.table.get_mut(link) else {
            return;
        };
        let Some(connection) = &mut row.connection else {
            return;
        };
        match (connection.output).greet(&connection.stream, &greeting[..len]) {
            Ok(true) => {
                row.state = State::Up;
                self.events.push_back(RailEvent::LinkUp(link));
            }
            Ok(false) => self.end(link, DownReason::Broken(libc::EAGAIN)),
            Err(errno) => self.end(link, DownReason::Broken(errno)),
        }
    }

    /// The next event.
    #[inline]
    pub(super) fn event(&mut self) -> Option<RailEvent> {
        if let Some(token) = self.over.pop_front() {
            return Some(RailEvent::Done(token));
        }
        self.events.pop_front()
    }

    /// Lets no write read its memory after this.
    pub(super) fn drain(&mut self) {
        for link in self.table.iter_mut() {
            if let Some(connection) = &mut link.connection {
                connection.output.copy_lent(&mut self.over);
            }
        }
    }

    /// Breaks a link's connection, as a network would.
    #[cfg(test)]
    pub(super) fn cut(&mut self, link: LinkId) {
        if let Some(connection) = self.table.get(link).and_then(|l| l.connection.as_ref()) {
            connection.stream.shut();
        }
    }
}

/// The reason that the end of a connection is for its link.
fn reason(broken: Break) -> DownReason {
    match broken {
        Break::Closed => DownReason::Closed,
        Break::Failed(libc::ECONNREFUSED) => DownReason::Refused,
        Break::Failed(libc::ETIMEDOUT) => DownReason::Unanswered,
        Break::Failed(errno) => DownReason::Broken(errno),
        Break::Garbled => DownReason::Broken(libc::EBADMSG),
        Break::NoPlace => DownReason::Broken(libc::EFAULT),
    }
}
