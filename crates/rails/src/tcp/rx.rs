//! Receiving half: connections that are read, those that come, and those that come about.

use super::greeting::Greeting;
use super::input::{Break, Input, Sink, Spare};
use super::shared::{Name, Notice, Order, Shared, LISTENER};
use crate::sys::Stream;
use crate::{Armed, RailRx, Received};
use marline_wire::RailAddr;
use std::collections::BTreeMap;
use std::sync::atomic::Ordering::{Acquire, Relaxed};
use std::sync::Arc;

/// All connections are looked at once in so many polls that found nothing where something was found
/// last: a look costs a system call, as a poll does.
const LOOK_EVERY: u32 = 4;
/// While there are no connections, a rail is looked at once in so many times: most rails that stand
/// by never have one, and who sleeps is woken by the descriptor.
const CALLED_EVERY: u32 = 64;
/// Connections that were accepted and have not said whose they are. Strangers may make some, and
/// the oldest goes when there are more.
const NAMELESS_MAX: usize = 256;
/// Connections that are accepted before those that are there have their turn.
const ACCEPT_MAX: usize = 32;

/// One connection.
struct Incoming {
    stream: Arc<Stream>,
    input: Input,
    /// It is being made, from here.
    connecting: bool,
}

/// Receiving half of a [`super::TcpRail`].
pub struct TcpRx {
    shared: Arc<Shared>,
    connections: BTreeMap<Name, Incoming>,
    spare: Spare,
    /// The connection that something came by last.
    last: Option<Name>,
    turn: u32,
    /// Somebody sleeps, or slept, on the descriptor: what woke it has to be seen at once.
    armed: bool,
    ready: Vec<u64>,
}

/// Counts packets, and hands them and greetings on.
struct Handing<'a> {
    shared: &'a Shared,
    name: Name,
    stream: &'a Arc<Stream>,
    sink: &'a mut dyn FnMut(Received<'_>),
    count: usize,
}

impl Sink for Handing<'_> {
    fn greeting(&mut self, greeting: &[u8]) -> bool {
        let Some(greeting) = Greeting::read(greeting) else {
            return false;
        };
        // Whoever says that it is another host's rail gets nothing that is meant for that.
        if self.stream.remote_ip() != Some(greeting.from.ip) {
            return false;
        }
        self.shared.note(Notice::Accepted {
            name: self.name,
            greeting,
            stream: self.stream.clone(),
        });
        true
    }

    fn packets(&mut self, bytes: &[u8], segment: usize) {
        self.count += bytes.len().div_ceil(segment.max(1));
        (self.sink)(Received {
            bytes,
            segment,
            link: None,
            from: RailAddr::NONE,
            beside: 0,
            missing: 0,
        });
    }

    fn rest(&mut self) {
        self.shared.note(Notice::Rested(self.name));
    }

    fn join(&mut self, token: u64) {
        let name = self.name;
        self.shared.note(Notice::Joined { name, token });
    }
}

impl TcpRx {
    pub(super) fn new(shared: Arc<Shared>) -> TcpRx {
        TcpRx {
            shared,
            connections: BTreeMap::new(),
            spare: Spare::default(),
            last: None,
            turn: 0,
            armed: false,
            ready: Vec::new(),
        }
    }

    /// Reads one connection; how many packets there were.
    fn read(&mut self, name: Name, sink: &mut dyn FnMut(Received<'_>)) -> usize {
        let Some(connection) = self.connections.get_mut(&name) else {
            return 0;
        };
        let mut handing = Handing {
            shared: &self.shared,
            name,
            stream: &connection.stream,
            sink,
            count: 0,
        };
        let (stream, memory) = (&connection.stream, &self.shared.memory);
        let input = &mut connection.input;
        let result = input.receive(stream, memory, &mut self.spare, &mut handing);
        let count = handing.count;
        if let Err(broken) = result {
            self.forget(name, broken);
        }
        if count > 0 {
            self.last = Some(name);
        }
        count
    }

    /// A connection is at its end.
    #[cold]
    fn forget(&mut self, name: Name, broken: Break) {
        if let Some(mut connection) = self.connections.remove(&name) {
            connection.input.give_back(&mut self.spare);
            self.shared.epoll.remove(connection.stream.fd());
            self.shared.note(Notice::Broken { name, broken });
        }
        self.last = self.last.filter(|last| *last != name);
    }

    /// Does what the sending half asked for.
    #[cold]
    fn obey(&mut self) {
        for order in self.shared.take_orders() {
            match order {
                Order::Read { name, stream } => self.add(name, stream, true),
                Order::Forget(name) => self.forget(name, Break::Closed),
            }
        }
    }

    /// Reads a connection from now on: one that we make, or else one that was made to us.
    fn add(&mut self, name: Name, stream: Arc<Stream>, connecting: bool) {
        let epoll = &self.shared.epoll;
        let added = match connecting {
            true => epoll.add_connecting(stream.fd(), name),
            false => epoll.add(stream.fd(), name),
        };
        let connection = Incoming {
            stream,
            input: Input::new(!connecting),
            connecting,
        };
        self.connections.insert(name, connection);
        if let Err(errno) = added {
            self.forget(name, Break::Failed(errno));
        }
    }

    /// Takes the connections that were made to us.
    #[cold]
    fn accept(&mut self) {
        for _ in 0..ACCEPT_MAX {
            let stream = match self.shared.accept() {
                Ok(stream) => stream,
                Err(libc::EMFILE | libc::ENFILE) => return self.shared.note(Notice::Crowded),
                Err(_) => return,
            };
            self.drop_nameless();
            stream.tune(&self.shared.options());
            let name = self.shared.new_name();
            self.add(name, Arc::new(stream), false);
        }
    }

    /// Connections that are open, strangers' included.
    #[cfg(test)]
    pub(super) fn open(&self) -> usize {
        self.connections.len()
    }

    #[cfg(test)]
    pub(super) fn nameless(&self) -> usize {
        let connections = self.connections.values();
        connections
            .filter(|connection| !connection.input.is_greeted())
            .count()
    }

    /// Makes room for one more that has not said whose it is.
    fn drop_nameless(&mut self) {
        let nameless = || {
            let connections = self.connections.iter();
            connections.filter(|(_, connection)| !connection.input.is_greeted())
        };
        if nameless().count() >= NAMELESS_MAX {
            if let Some(oldest) = nameless().map(|(name, _)| *name).next() {
                self.forget(oldest, Break::Garbled);
            }
        }
    }

    /// A connection that we asked for is there, or cannot be had.
    #[cold]
    fn connected(&mut self, name: Name) {
        let Some(connection) = self.connections.get_mut(&name) else {
            return;
        };
        let stream = connection.stream.clone();
        let mut errno = stream.connected();
        if errno == 0 {
            let changed = self.shared.epoll.change_to_read(stream.fd(), name);
            errno = changed.err().unwrap_or(0);
        }
        if errno != 0 {
            return self.forget(name, Break::Failed(errno));
        }
        connection.connecting = false;
        self.shared.note(Notice::Connected(name));
    }

    /// Looks at all connections; how many packets there were.
    fn look(&mut self, sink: &mut dyn FnMut(Received<'_>)) -> usize {
        self.armed = false;
        let mut ready = std::mem::take(&mut self.ready);
        self.shared.epoll.look(|one| ready.push(one));
        let (mut count, mut called) = (0, false);
        for one in ready.drain(..) {
            if one == LISTENER {
                called = true;
                continue;
            }
            let connection = self.connections.get(&one);
            if connection.is_some_and(|connection| connection.connecting) {
                self.connected(one);
            } else {
                count += self.read(one, sink);
            }
        }
        self.ready = ready;
        // Last, when those that have said whose they are have been read.
        if called {
            self.accept();
        }
        count
    }
}

impl RailRx for TcpRx {
    fn recv(&mut self, sink: &mut dyn FnMut(Received<'_>)) -> usize {
        if self.shared.ordered.load(Relaxed) && self.shared.ordered.swap(false, Acquire) {
            self.obey();
        }
        if let Some(last) = self.last {
            let count = self.read(last, sink);
            if count > 0 {
                return count;
            }
        }
        self.turn = self.turn.wrapping_add(1);
        let every = match self.connections.is_empty() {
            true => CALLED_EVERY,
            false if self.last.is_some() => LOOK_EVERY,
            false => 1,
        };
        if !self.armed && !self.turn.is_multiple_of(every) {
            return 0;
        }
        self.look(sink)
    }

    fn recv_rest(&mut self, sink: &mut dyn FnMut(Received<'_>)) -> usize {
        match self.connections.is_empty() && !self.armed {
            true => 0, // `recv` looks now and then
            false => self.look(sink),
        }
    }

    fn fd(&self) -> Option<i32> {
        Some(self.shared.epoll.fd())
    }

    fn arm(&mut self) -> Armed {
        self.armed = true;
        Armed::Sleep
    }
}
