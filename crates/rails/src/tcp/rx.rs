//! Receiving half: reads connections, accepts incoming ones and completes outgoing ones.

use super::broken::Break;
use super::frame::Kind;
use super::handshake::{Handshake, TcpAddr};
use super::input::{Input, Sink, Spare};
use super::output::{send_plain, Output};
use super::proof::{refusal, Keys, Ours, OTHER_VERSION};
use super::shared::{Name, Notification, Order, Shared, LISTENER};
use crate::sys::{Errno, Stream};
use crate::{Armed, RailRx, Received};
use marline_auth::{Challenge, FrameKey};
use marline_wire::RailAddr;
use std::collections::{BTreeMap, VecDeque};
use std::net::{IpAddr, Ipv4Addr};
use std::sync::atomic::Ordering::{Acquire, Relaxed};
use std::sync::Arc;
use std::time::{Duration, Instant};

/// Empty polls of the last active connection per check of all connections: a check costs a system
/// call, as a poll does.
const LOOK_EVERY: u32 = 4;
/// Polls per check of the listener while there are no connections: most standby rails never have
/// one, and a sleeping thread is woken by the descriptor.
const CALLED_EVERY: u32 = 64;
/// Most accepted connections without handshake. Strangers can open connections; beyond this number
/// the oldest is closed.
const HANDSHAKING_MAX: usize = 256;
/// Most connections accepted at a time, before established ones are read.
const ACCEPT_MAX: usize = 32;
/// Time for handshake and proof of the other end. Longer than outages that TCP carries a connection
/// over, since an honest end that is cut off connects again.
const PROOF_WITHIN: Duration = Duration::from_secs(30);

/// A connection.
struct Incoming {
    stream: Arc<Stream>,
    input: Input,
    /// The connection is being made by us.
    connecting: bool,
    /// The address to which it was made.
    to: TcpAddr,
    /// The other end's address; a socket that was reset does not know it any more.
    far: IpAddr,
    /// Our challenge, if the job has a key, and then the key of our frames.
    ours: Option<Ours>,
    sending: Option<FrameKey>,
}

impl Incoming {
    /// Returns whether a stranger may have made the connection.
    fn is_handshaking(&self) -> bool {
        self.input.is_accepted() && !self.input.is_known()
    }
}

/// Receiving half of a [`super::TcpRail`].
pub struct TcpRx {
    shared: Arc<Shared>,
    connections: BTreeMap<Name, Incoming>,
    /// Connections without handshake or proof, and some that have it meanwhile, oldest first.
    unproven: VecDeque<(Name, Instant)>,
    spare: Spare,
    /// The connection that last had data.
    last: Option<Name>,
    turn: u32,
    /// A thread sleeps or slept on the descriptor, so its cause must be found at the next poll.
    armed: bool,
    ready: Vec<u64>,
}

/// Counts packets and hands on frames.
struct Handing<'a> {
    shared: &'a Shared,
    name: Name,
    stream: &'a Arc<Stream>,
    accepted: bool,
    ours: &'a Option<Ours>,
    sending: &'a mut Option<FrameKey>,
    sink: &'a mut dyn FnMut(Received<'_>),
    count: usize,
}

impl Sink for Handing<'_> {
    fn challenge(&mut self, theirs: &Challenge) -> Result<FrameKey, Break> {
        let (ours, secret) = (self.ours.as_ref(), self.shared.keys.as_ref());
        let (ours, secret) = ours.zip(secret).ok_or(Break::Garbled)?;
        let Keys { sending, receiving } = ours.keys(secret, theirs);
        match self.accepted {
            true => *self.sending = Some(sending),
            false => self.shared.note(Notification::Connected {
                name: self.name,
                key: Some(sending),
            }),
        }
        Ok(receiving)
    }

    fn handshake(&mut self, handshake: &[u8]) -> Result<(), Break> {
        let handshake = Handshake::read(handshake).ok_or(Break::Garbled)?;
        // A rail that claims another host's address must not receive data meant for that host.
        if self.stream.remote_ip() != Some(handshake.from.ip) {
            return Err(Break::Garbled);
        }
        let mut key = self.sending.take();
        if let Some(first) = key.take() {
            // Before the sending half knows of the connection, whose first frame this is.
            let mut output = Output::default();
            output.set_key(first);
            let sent = output.send_control(self.stream, Kind::Answer, &[]);
            if !sent.map_err(Break::Failed)? || !output.is_empty() {
                return Err(Break::Failed(libc::EAGAIN)); // a new connection has room
            }
            key = output.into_key();
        }
        self.shared.note(Notification::Accepted {
            name: self.name,
            handshake,
            stream: self.stream.clone(),
            key,
        });
        Ok(())
    }

    fn answer(&mut self) {
        self.shared.note(Notification::Answered(self.name));
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

    fn evicted(&mut self) {
        self.shared.note(Notification::Evicted(self.name));
    }

    fn join(&mut self, token: u64) {
        let name = self.name;
        self.shared.note(Notification::Joined { name, token });
    }
}

impl TcpRx {
    pub(super) fn new(shared: Arc<Shared>) -> TcpRx {
        TcpRx {
            shared,
            connections: BTreeMap::new(),
            unproven: VecDeque::new(),
            spare: Spare::default(),
            last: None,
            turn: 0,
            armed: false,
            ready: Vec::new(),
        }
    }

    /// Reads one connection; returns the number of packets.
    fn read(&mut self, name: Name, sink: &mut dyn FnMut(Received<'_>)) -> usize {
        let Some(connection) = self.connections.get_mut(&name) else {
            return 0;
        };
        let mut handing = Handing {
            shared: &self.shared,
            name,
            stream: &connection.stream,
            accepted: connection.input.is_accepted(),
            ours: &connection.ours,
            sending: &mut connection.sending,
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

    /// Ends a connection.
    #[cold]
    fn forget(&mut self, name: Name, broken: Break) {
        if let Some(mut connection) = self.connections.remove(&name) {
            self.report(&connection, broken);
            connection.input.give_back(&mut self.spare);
            self.shared.epoll.remove(connection.stream.fd());
            self.shared.note(Notification::Broken { name, broken });
        }
        self.last = self.last.filter(|last| *last != name);
    }

    /// Reports a connection that ends for its key or version, to the other end too if it cannot
    /// know. (A refusal of another version names that by its head alone.)
    fn report(&self, connection: &Incoming, broken: Break) {
        if let Break::Foreign(theirs) = broken {
            let _ = send_plain(&connection.stream, Kind::Refusal, &OTHER_VERSION);
            let from = connection.far;
            return self.shared.note(Notification::Foreign(from, theirs));
        }
        let (Break::Forged(why) | Break::Refused(why)) = broken else {
            return;
        };
        if broken == Break::Forged(why) && !connection.input.has_proof() {
            let _ = send_plain(&connection.stream, Kind::Refusal, &refusal(why));
            // or it closes
        }
        self.shared.note(Notification::Forged(connection.far, why));
    }

    /// Carries out the orders of the sending half.
    #[cold]
    fn obey(&mut self) {
        for order in self.shared.take_orders() {
            match order {
                Order::Read { name, stream, to } => self.add(name, stream, (to, true)),
                Order::Forget(name) => self.forget(name, Break::Closed),
            }
        }
    }

    /// Starts to read a connection that we are making or that was made to us.
    fn add(&mut self, name: Name, stream: Arc<Stream>, (to, connecting): (TcpAddr, bool)) {
        let epoll = &self.shared.epoll;
        let added = match connecting {
            true => epoll.add_connecting(stream.fd(), name),
            false => epoll.add(stream.fd(), name),
        };
        let far = match connecting {
            true => Some(to.ip),
            false => stream.remote_ip(),
        };
        let connection = Incoming {
            stream,
            far: far.unwrap_or(Ipv4Addr::UNSPECIFIED.into()),
            input: Input::new(!connecting, self.shared.keys.is_some()),
            connecting,
            to,
            ours: None,
            sending: None,
        };
        self.connections.insert(name, connection);
        if let Err(errno) = added {
            self.forget(name, Break::Failed(errno));
        }
    }

    /// Accepts incoming connections.
    #[cold]
    fn accept(&mut self) {
        for _ in 0..ACCEPT_MAX {
            let stream = match self.shared.accept() {
                Ok(stream) => stream,
                Err(libc::EMFILE | libc::ENFILE) => {
                    return self.shared.note(Notification::NoDescriptors)
                }
                Err(_) => return,
            };
            self.drop_handshaking();
            stream.tune(&self.shared.options());
            let name = self.shared.new_name();
            let here = self.shared.local();
            let ip = stream.local_ip().unwrap_or(here.ip);
            self.add(name, Arc::new(stream), (TcpAddr { ip, ..here }, false));
            if let Err(errno) = self.begin_proof(name) {
                self.forget(name, Break::Failed(errno));
            }
        }
    }

    /// Sends our challenge on a new connection, if the job has a key, and limits the time of the
    /// other end.
    #[cold]
    fn begin_proof(&mut self, name: Name) -> Result<(), Errno> {
        let Some(connection) = self.connections.get_mut(&name) else {
            return Ok(());
        };
        if self.shared.keys.is_some() {
            let ours = Ours::new(connection.to, connection.input.is_accepted())?;
            if !send_plain(&connection.stream, Kind::Challenge, &ours.challenge)? {
                return Err(libc::EAGAIN); // a new connection has room
            }
            connection.ours = Some(ours);
        }
        if !connection.input.is_known() {
            self.unproven.push_back((name, Instant::now()));
        }
        if self.unproven.len() > 2 * HANDSHAKING_MAX {
            let open = &self.connections;
            let unproven = |name: &Name| open.get(name).is_some_and(|c| !c.input.is_known());
            self.unproven.retain(|(name, _)| unproven(name));
        }
        Ok(())
    }

    /// Ends connections whose other end has not proven itself in time.
    #[cold]
    pub(super) fn drop_late(&mut self, now: Instant) {
        while let Some((name, since)) = self.unproven.front().copied() {
            let connection = self.connections.get(&name);
            let unproven = connection.is_some_and(|connection| !connection.input.is_known());
            if unproven && now.duration_since(since) < PROOF_WITHIN {
                return;
            }
            self.unproven.pop_front();
            if unproven {
                self.forget(name, Break::Late);
            }
        }
    }

    /// Number of open connections, including those of strangers.
    #[cfg(test)]
    pub(super) fn open(&self) -> usize {
        self.connections.len()
    }

    #[cfg(test)]
    pub(super) fn handshaking(&self) -> usize {
        let connections = self.connections.values();
        connections
            .filter(|connection| connection.is_handshaking())
            .count()
    }

    /// Makes room for another connection without handshake.
    fn drop_handshaking(&mut self) {
        let handshaking = || {
            let connections = self.connections.iter();
            connections.filter(|(_, connection)| connection.is_handshaking())
        };
        if handshaking().count() >= HANDSHAKING_MAX {
            if let Some(oldest) = handshaking().map(|(name, _)| *name).next() {
                self.forget(oldest, Break::Garbled);
            }
        }
    }

    /// Handles the end of a connection attempt.
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
        if let Err(errno) = self.begin_proof(name) {
            return self.forget(name, Break::Failed(errno));
        }
        if self.shared.keys.is_none() {
            self.shared
                .note(Notification::Connected { name, key: None });
        }
    }

    /// Handles all ready connections; returns the number of packets.
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
        // At last, after established connections were read.
        if called {
            self.accept();
        }
        if !self.unproven.is_empty() {
            self.drop_late(Instant::now());
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
            true => 0, // `recv` checks the listener occasionally
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
