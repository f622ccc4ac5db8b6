//! The links of a rail: of datagrams, a handle for each peer's address; of connections, a queue
//! pair as well, and how both ends come to know the other's.
//!
//! ```text
//!   connect, or the peer asks            handle              Answer: Ready is said
//!          Resolving --------------------------------> Asking ------------------> Up
//!                         (datagrams: Up)                 | the peer asks: Answer  ^
//!                                                         +-----> Answering -------+
//!                                                                       Ready, or Answer
//! ```
//!
//! Asks and answers are said again until they are heard, and a link whose peer does not answer goes
//! down. When both ends ask at once, both answer, and it is one link. Names of links grow, so that
//! what is said late of an earlier link is told from a peer that begins anew.

use super::addr::VerbsAddr;
use super::connection::{Connection, CONNECTION_SENDS};
use super::greeting::{End, Greeting, Say};
use super::resolver::Resolver;
use super::send_queue::{Read, SendQueue};
use super::shared::{Connections, Shared};
use super::voice::{Saying, Voice};
use crate::link::{Connected, DownReason, LinkId, LinkTable};
use crate::sys::verbs::{AddressHandle, Completion, Path, QueuePair, QueueType};
use crate::sys::Errno;
use crate::RailEvent;
use std::collections::{HashMap, VecDeque};
use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime};

/// Connections at once: what each may have posted fits into the queue of completions.
pub(super) const CONNECTIONS_MAX: usize = 200;
/// A greeting is said again after so long, and so often, until it is heard.
const AGAIN: Duration = Duration::from_millis(20);
const TRIES_MAX: u32 = 100;
/// A connection that was made so lately is not made anew because it is silent.
const YOUNG: Duration = Duration::from_millis(100);

/// How far a link is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    Resolving,
    Asking,
    Answering,
    Up,
    Down,
}

/// One link.
struct Link {
    name: u64,
    state: State,
    /// Somebody has connected; else only the peer has asked.
    wanted: bool,
    handle: Option<AddressHandle>,
    connection: Option<Connection>,
    /// The peer's end.
    peer: Option<End>,
    tries: u32,
    again: Instant,
    /// When it was begun, or came up.
    since: Instant,
}

impl Link {
    fn saying(&self, to: &VerbsAddr) -> Saying<'_> {
        Saying {
            to: *to,
            handle: self.handle.as_ref(),
            name: self.name,
            connection: self.connection.as_ref(),
            peer: self.peer.as_ref(),
        }
    }
}

/// Where what is sent on a link goes.
pub(super) enum To<'a> {
    /// By the pair of datagrams, to this queue pair.
    Datagrams(&'a AddressHandle, u32),
    /// By a pair of its own.
    Peer,
}

/// The queues that a link sends by.
pub(super) struct Lane<'a> {
    pub(super) pair: &'a QueuePair,
    pub(super) queue: &'a mut SendQueue,
    pub(super) to: To<'a>,
}

/// The links of a rail.
pub(super) struct VerbsLinks {
    shared: Arc<Shared>,
    kind: QueueType,
    table: LinkTable<VerbsAddr, Link>,
    by_number: HashMap<u32, LinkId>,
    resolver: Resolver,
    last_name: u64,
    voice: Voice,
    /// Handles of links that were closed, which requests that are posted may still name.
    closed: Vec<AddressHandle>,
    pub(super) events: VecDeque<RailEvent>,
    /// Things that are not read any more.
    pub(super) over: Vec<Read>,
    /// The next time at which something is said again.
    again: Option<Instant>,
}

impl VerbsLinks {
    pub(super) fn new(shared: Arc<Shared>, kind: QueueType) -> Result<VerbsLinks, Errno> {
        let since = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH);
        Ok(VerbsLinks {
            table: LinkTable::default(),
            by_number: HashMap::new(),
            resolver: Resolver::new(shared.clone()),
            last_name: since.map_or(1, |since| since.as_micros() as u64),
            voice: Voice::new(shared.clone(), kind)?,
            closed: Vec::new(),
            events: VecDeque::new(),
            over: Vec::new(),
            again: None,
            shared,
            kind,
        })
    }

    /// The link to a rail: one more user of it.
    pub(super) fn connect(&mut self, to: VerbsAddr) -> Connected {
        let link = match self.table.find(&to) {
            Some(_) => self.table.connect(to, || unreachable!("it was found")),
            None => {
                self.begin(to);
                self.table.connect(to, || unreachable!("it was made"))
            }
        };
        let row = self.table.get_mut(link);
        let up = row.is_some_and(|row| {
            row.wanted = true;
            row.state == State::Up
        });
        Connected { link, up }
    }

    /// A new link without users.
    fn begin(&mut self, to: VerbsAddr) -> LinkId {
        self.last_name += 1;
        let name = self.last_name;
        let link = self.table.add(
            to,
            Link {
                name,
                state: State::Resolving,
                wanted: false,
                handle: None,
                connection: None,
                peer: None,
                tries: 0,
                again: Instant::now(),
                since: Instant::now(),
            },
        );
        self.resolver.ask(name, self.path(&to));
        link
    }

    /// Requests that a connection's queue holds.
    pub(super) fn depth(&self) -> usize {
        CONNECTION_SENDS.min(self.shared.port.device.queue_max) as usize
    }

    /// One user less.
    pub(super) fn close(&mut self, link: LinkId) {
        let Some(key) = self.table.key(link) else {
            return;
        };
        if let Some(row) = self.table.close(link) {
            self.end(key, row);
        }
    }

    /// A link is no more: says so, and frees what it reads.
    fn end(&mut self, to: VerbsAddr, mut row: Link) {
        if row.state != State::Down && row.peer.is_some() {
            self.voice.say(Say::Over, &row.saying(&to));
        }
        self.drop_connection(&mut row);
        self.closed.extend(row.handle);
    }

    fn drop_connection(&mut self, row: &mut Link) {
        let Some(mut connection) = row.connection.take() else {
            return;
        };
        self.by_number.remove(&connection.pair.number());
        // It reads nothing after this; a pair that cannot be reset is destroyed, which does as
        // much.
        let _ = connection.pair.reset();
        connection.queue.reset();
        drop(connection.pair);
        while let Some(read) = connection.queue.free() {
            self.over.push(read);
        }
    }

    /// Handles go that were closed, once nothing is posted that may name them.
    pub(super) fn tidy(&mut self) {
        if !self.closed.is_empty() && self.voice.queue.is_empty() {
            self.closed.clear();
        }
    }

    /// The queues that a link sends by; `None`: it carries nothing.
    #[inline]
    pub(super) fn lane(&mut self, link: LinkId) -> Option<Lane<'_>> {
        let number = self.table.key(link)?.number;
        let row = self
            .table
            .get_mut(link)
            .filter(|row| row.state == State::Up)?;
        Some(match &mut row.connection {
            Some(connection) => Lane {
                pair: &connection.pair,
                queue: &mut connection.queue,
                to: To::Peer,
            },
            None => Lane {
                pair: &self.shared.datagrams,
                queue: &mut self.voice.queue,
                to: To::Datagrams(row.handle.as_ref()?, number),
            },
        })
    }

    /// A completion of something that was sent has come; whether the pair of datagrams failed.
    #[inline]
    pub(super) fn completed(&mut self, completion: &Completion) -> bool {
        let number = completion.qp_num;
        let datagrams = number == self.shared.datagrams.number();
        let link = match datagrams {
            true => None,
            false => self.by_number.get(&number).copied(),
        };
        let row = link.and_then(|link| self.table.get_mut(link));
        let queue = match (row.and_then(|row| row.connection.as_mut()), datagrams) {
            (Some(connection), _) => &mut connection.queue,
            (None, true) => &mut self.voice.queue,
            (None, false) => return false, // of a pair that is no more
        };
        let known = queue.completed(completion.wr_id);
        while let Some(read) = queue.free() {
            self.over.push(read);
        }
        let failed = known && completion.status != 0;
        if failed && completion.status != Completion::FLUSHED {
            self.events.push_back(RailEvent::FailedCompletion);
        }
        if failed && !datagrams {
            self.failed(number, completion.status);
        }
        failed && datagrams
    }

    /// The pair of datagrams has begun a new life.
    pub(super) fn renewed(&mut self) {
        self.voice.queue.reset();
        while let Some(read) = self.voice.queue.free() {
            self.over.push(read);
        }
    }

    /// A link's connection takes nothing; `false`: it has none of its own.
    #[cold]
    pub(super) fn failed_link(&mut self, link: LinkId, errno: Errno) -> bool {
        let row = self.table.get(link);
        let connected = row.is_some_and(|row| row.connection.is_some());
        if connected {
            self.down(link, DownReason::Broken(errno));
        }
        connected
    }

    /// A connection has failed.
    #[cold]
    pub(super) fn failed(&mut self, number: u32, status: i32) {
        if let Some(&link) = self.by_number.get(&number) {
            self.down(link, DownReason::Broken(status));
        }
    }

    /// A link's connection ends, since the peer seems to take nothing; `false`: it is young, or has
    /// none.
    #[cold]
    pub(super) fn renew(&mut self, link: LinkId) -> bool {
        let old = |row: &&Link| row.state == State::Up && row.since.elapsed() >= YOUNG;
        let renewed = self.table.get(link).filter(old).is_some();
        if renewed {
            self.down(link, DownReason::Broken(libc::ETIMEDOUT));
        }
        renewed
    }

    /// All connections that read something end.
    pub(super) fn drain(&mut self) {
        let busy = |(link, _, row): (LinkId, &VerbsAddr, &Link)| {
            let waits = row.connection.as_ref().is_some_and(|c| c.queue.waits());
            waits.then_some(link)
        };
        let links: Vec<LinkId> = self.table.iter().filter_map(busy).collect();
        for link in links {
            self.down(link, DownReason::Broken(libc::ECANCELED));
        }
    }

    /// A link is down for good.
    fn down(&mut self, link: LinkId, why: DownReason) {
        let Some(to) = self.table.key(link) else {
            return;
        };
        self.table.retire(link);
        let Some(row) = self.table.get_mut(link) else {
            return;
        };
        let was = std::mem::replace(&mut row.state, State::Down);
        if !row.wanted {
            if let Some(row) = self.table.close(link) {
                self.end(to, row);
            }
            return;
        }
        if was == State::Down {
            return;
        }
        let mut ended = Link {
            name: row.name,
            state: was,
            wanted: true,
            handle: row.handle.take(),
            connection: row.connection.take(),
            peer: row.peer,
            tries: 0,
            again: row.again,
            since: row.since,
        };
        if why != DownReason::Closed && ended.peer.is_some() {
            self.voice.say(Say::Over, &ended.saying(&to));
        }
        self.drop_connection(&mut ended);
        self.closed.extend(ended.handle);
        self.events.push_back(RailEvent::LinkDown(link, why));
    }

    fn up(&mut self, link: LinkId) {
        if let Some(row) = self.table.get_mut(link) {
            (row.state, row.since) = (State::Up, Instant::now());
            if row.wanted {
                self.events.push_back(RailEvent::LinkUp(link));
            }
        }
    }

    /// The way to a peer was found, or not.
    #[cold]
    pub(super) fn resolved(&mut self, name: u64, found: Result<AddressHandle, Errno>) {
        let named = (self.table.iter()).find(|(_, _, row)| row.name == name);
        let Some(link) = named.map(|(link, ..)| link) else {
            return;
        };
        let Some(row) = self
            .table
            .get_mut(link)
            .filter(|row| row.state == State::Resolving)
        else {
            return;
        };
        match found {
            Ok(handle) => row.handle = Some(handle),
            Err(errno) => return self.down(link, DownReason::Broken(errno)),
        }
        let Some(connections) = self.shared.connections.clone() else {
            return self.up(link); // of datagrams
        };
        let asked = row.peer.take();
        if let Err(errno) = self.make(link, name, &connections) {
            return self.down(link, DownReason::Broken(errno));
        }
        match asked {
            Some(end) => self.accept(link, end),
            None => self.set(link, State::Asking, Say::Ask),
        }
    }

    /// Makes the link's queue pair.
    fn make(&mut self, link: LinkId, name: u64, connections: &Connections) -> Result<(), Errno> {
        if self.by_number.len() >= CONNECTIONS_MAX {
            return Err(libc::EMFILE);
        }
        let connection = Connection::new(&self.shared, connections, self.kind, name)?;
        self.by_number.insert(connection.pair.number(), link);
        if let Some(row) = self.table.get_mut(link) {
            row.connection = Some(connection);
        }
        Ok(())
    }

    /// The link waits for an answer to what it says.
    fn set(&mut self, link: LinkId, state: State, say: Say) {
        let (Some(to), Some(row)) = (self.table.key(link), self.table.get_mut(link)) else {
            return;
        };
        row.state = state;
        row.tries += 1;
        row.again = Instant::now() + AGAIN;
        let again = row.again;
        self.again = Some(self.again.map_or(again, |at| at.min(again)));
        self.say_on(link, &to, say);
    }

    /// Joins the link to the peer's end; `false`: it cannot be, and is down.
    fn join(&mut self, link: LinkId, end: End) -> bool {
        let Some(to) = self.table.key(link) else {
            return false;
        };
        let path = self.path(&to);
        let Some(row) = self.table.get_mut(link) else {
            return false;
        };
        let joined = match &row.connection {
            Some(connection) => connection.join(path, &end),
            None => Err(libc::ENOTCONN),
        };
        match joined {
            Ok(()) => row.peer = Some(end),
            Err(errno) => self.down(link, DownReason::Broken(errno)),
        }
        joined.is_ok()
    }

    /// The peer has asked: it hears which end is ours.
    fn accept(&mut self, link: LinkId, end: End) {
        if self.join(link, end) {
            self.set(link, State::Answering, Say::Answer);
        }
    }

    /// A peer has said something.
    #[cold]
    pub(super) fn heard(&mut self, greeting: &Greeting) {
        if greeting.kind != self.kind || self.shared.connections.is_none() {
            return;
        }
        match greeting.say {
            Say::Ask => self.asked(greeting),
            Say::Answer | Say::Ready | Say::Over => self.told(greeting),
        }
    }

    fn asked(&mut self, greeting: &Greeting) {
        let end = greeting.end;
        let known = self.table.find(&greeting.from);
        let strangers = self.table.iter().filter(|(_, _, row)| !row.wanted).count();
        let link = match known {
            Some(link) => link,
            None if strangers >= CONNECTIONS_MAX => return,
            None => self.begin(greeting.from),
        };
        let Some(row) = self.table.get_mut(link) else {
            return;
        };
        match (row.peer, row.state) {
            (Some(peer), _) if end.name < peer.name => {} // said long ago
            (_, State::Resolving) => row.peer = Some(end),
            (Some(peer), State::Answering | State::Up) if peer == end => {
                self.say_on(link, &greeting.from, Say::Answer);
            }
            (Some(_), _) => {
                // The peer begins anew.
                self.down(link, DownReason::Closed);
                let link = self.begin(greeting.from);
                if let Some(row) = self.table.get_mut(link) {
                    row.peer = Some(end);
                }
            }
            (None, _) => self.accept(link, end),
        }
    }

    fn told(&mut self, greeting: &Greeting) {
        let end = greeting.end;
        let Some(link) = self.table.find(&greeting.from) else {
            return;
        };
        let Some(row) = self
            .table
            .get_mut(link)
            .filter(|row| row.name == greeting.to)
        else {
            return;
        };
        let same = row.peer == Some(end);
        let was = row.state;
        match (greeting.say, was) {
            (Say::Answer, State::Asking | State::Answering) => {
                let joined = same || was == State::Asking && self.join(link, end);
                if joined {
                    self.up(link);
                    self.say_on(link, &greeting.from, Say::Ready);
                }
            }
            (Say::Answer, State::Up) if same => self.say_on(link, &greeting.from, Say::Ready),
            (Say::Ready, State::Answering) if same => self.up(link),
            (Say::Over, State::Answering | State::Up) if same => {
                self.down(link, DownReason::Closed);
            }
            _ => {}
        }
    }

    /// Says again what was not answered.
    #[inline]
    pub(super) fn tick(&mut self) {
        if self.again.is_some_and(|at| at <= Instant::now()) {
            self.say_again();
        }
    }

    #[cold]
    fn say_again(&mut self) {
        let (now, mut next) = (Instant::now(), None::<Instant>);
        let waits = |row: &Link| matches!(row.state, State::Asking | State::Answering);
        let due: Vec<(LinkId, State, u32, Instant)> = (self.table.iter())
            .filter(|(_, _, row)| waits(row))
            .map(|(link, _, row)| (link, row.state, row.tries, row.again))
            .collect();
        self.again = None;
        for (link, state, tries, at) in due {
            match (at <= now, tries >= TRIES_MAX, state) {
                (false, ..) => next = Some(next.map_or(at, |next| next.min(at))),
                (true, true, _) => self.down(link, DownReason::Unanswered),
                (true, false, State::Asking) => self.set(link, State::Asking, Say::Ask),
                (true, false, _) => self.set(link, state, Say::Answer),
            }
        }
        if let Some(next) = next {
            self.again = Some(self.again.map_or(next, |at| at.min(next)));
        }
    }

    /// Says something of a link.
    fn say_on(&mut self, link: LinkId, to: &VerbsAddr, say: Say) {
        if let Some(row) = self.table.get(link) {
            self.voice.say(say, &row.saying(to));
        }
    }

    fn path(&self, to: &VerbsAddr) -> Path {
        let (gid, lid) = to.node.gid_and_lid();
        Path {
            port: self.shared.port.number,
            gid_index: self.shared.port.gid_index,
            gid,
            lid,
        }
    }
}
