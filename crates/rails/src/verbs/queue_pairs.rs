//! The links of a verbs rail. A datagram link is an address handle of the peer; a connected link
//! also has a queue pair, and a handshake exchanges the ends of both sides.
//!
//! ```text
//!   connect, or the peer asks            handle              Answer: send Ready
//!          Resolving --------------------------------> Asking ------------------> Up
//!                         (datagrams: Up)                 | the peer asks: Answer  ^
//!                                                         +-----> Answering -------+
//!                                                                       Ready, or Answer
//! ```
//!
//! `Ask` and `Answer` are repeated until they are answered; a link whose peer does not answer goes
//! down. If both ends ask at the same time, both answer and the result is one link. Link names only
//! grow, so that a late message of an earlier link is distinguished from a peer that starts over.
//!
//! If there are too many connections, the least recently used are evicted ([`rest`]).

mod events;
mod eviction;
mod flows;
mod on_handshake;

use super::addr::VerbsAddr;
use super::connection::{Connection, CONNECTION_SENDS};
use super::flows::{flow_of, Flows, Handles, To, TxQueue};
use super::handshake::{End, Say, NO_CHALLENGE};
use super::handshakes::{Handshakes, Reply, Saying};
use super::held::Held;
use super::resolver::Resolver;
use super::send_queue::{Read, SendQueue};
use super::shared::{Shared, VerbsConfig, WayName};
use crate::link::{Connected, DownReason, LinkId, LinkTable};
use crate::sys::verbs::{AddressHandle, Completion, Path, QueuePair, QueueType};
use crate::sys::{self, Errno};
use crate::RailEvent;
use marline_auth::Challenge;
use std::collections::{HashMap, VecDeque};
use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime};

/// Maximum of connections: the outstanding requests of all fit into the completion queue.
const CONNECTIONS_MAX: usize = 200;
/// Default number of connections beyond which idle eviction begins.
const CONNECTIONS: usize = 150;
/// Interval and maximum count of repetitions of an unanswered handshake message.
const AGAIN: Duration = Duration::from_millis(20);
const TRIES_MAX: u32 = 100;
/// A connection younger than this is not renewed for silence.
const KEPT_MIN: Duration = Duration::from_millis(100);

/// State of a link.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    Resolving,
    /// Waits for room for a connection.
    Wanting,
    Asking,
    Answering,
    Up,
    /// The connection is about to be closed: nothing more is sent on it.
    Draining,
    /// No connection until the next send or the peer's `Ask`: the link was evicted, or sends
    /// datagrams.
    Evicted,
    Down,
}

/// A link.
struct Link {
    name: u64,
    state: State,
    /// The local side has called `connect`; `false` if only the peer has asked.
    wanted: bool,
    handle: Option<AddressHandle>,
    others: Handles,
    connection: Option<Connection>,
    /// Our end of the present or last connection.
    own: Option<End>,
    /// The peer's end.
    peer: Option<End>,
    /// The peer's queue pairs of links with names up to this one no longer exist.
    past: u64,
    /// The link was up once: while it has no connection, its sends are held.
    begun: bool,
    /// The peer wants the connection closed.
    leaving: bool,
    /// The challenge of this end, and that of the peer's, which has proven the key with it.
    ours: Challenge,
    theirs: Option<Challenge>,
    /// A message that the peer gets as soon as there is a handle.
    reply: Option<Reply>,
    held: Held,
    /// Value of `VerbsLinks::clock` at the last send.
    used: u64,
    /// Packets sent as datagrams since the link last had a connection.
    datagrams: u32,
    tries: u32,
    again: Instant,
    /// When the link was begun or came up.
    since: Instant,
}

impl Link {
    fn new(name: u64, state: State) -> Link {
        Link {
            name,
            state,
            wanted: false,
            handle: None,
            others: Handles::default(),
            connection: None,
            own: None,
            peer: None,
            past: 0,
            begun: false,
            leaving: false,
            ours: NO_CHALLENGE,
            theirs: None,
            reply: None,
            held: Held::default(),
            used: 0,
            datagrams: 0,
            tries: 0,
            again: Instant::now(),
            since: Instant::now(),
        }
    }

    fn saying(&self, to: &VerbsAddr) -> Saying<'_> {
        Saying {
            to: *to,
            handle: self.handle.as_ref(),
            own: self.own.as_ref(),
            peer: self.peer.as_ref(),
            ours: &self.ours,
            theirs: self.theirs.as_ref(),
        }
    }
}

/// The links of a rail.
pub(super) struct VerbsLinks {
    shared: Arc<Shared>,
    kind: QueueType,
    table: LinkTable<VerbsAddr, Link>,
    by_number: HashMap<u32, LinkId>,
    resolver: Resolver,
    last_name: u64,
    /// First half of all challenges; with a link's first name in the other half none comes twice.
    challenges: u64,
    handshakes: Handshakes,
    flows: Flows,
    /// Handles of closed links, which outstanding requests may still use.
    closed: Vec<AddressHandle>,
    pub(super) events: VecDeque<RailEvent>,
    /// Buffers and writes that the device no longer reads.
    pub(super) over: Vec<Read>,
    /// The next time at which a repetition or another check is due.
    again: Option<Instant>,
    /// Silence of a peer, in ms, that must not break a reliable connection.
    retry_ms: u32,
    /// Number of connections beyond which idle eviction begins.
    connections_max: usize,
    /// Packets that a link without a connection sends as datagrams before it gets one; 0: links
    /// always have connections.
    pub(super) datagrams_first: u32,
    /// Links whose connections are about to be closed.
    draining: Vec<LinkId>,
    /// Links that hold packets or writes for want of a connection.
    pub(super) holding: Vec<LinkId>,
    /// Bytes of our memory held on all links.
    held_bytes: usize,
    /// Counts sends.
    clock: u64,
    /// Buffers, writes and reads posted so far.
    pub(super) given: u64,
    /// The lowest post count of the requests that completed since this value was last taken.
    pub(super) done: u64,
}

impl VerbsLinks {
    pub(super) fn new(
        shared: Arc<Shared>,
        kind: QueueType,
        config: &VerbsConfig,
    ) -> Result<VerbsLinks, Errno> {
        let since = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH);
        Ok(VerbsLinks {
            table: LinkTable::default(),
            by_number: HashMap::new(),
            resolver: Resolver::new(shared.clone()),
            last_name: since.map_or(1, |since| since.as_micros() as u64),
            challenges: sys::random()?,
            handshakes: Handshakes::new(shared.clone(), kind)?,
            flows: Flows::default(),
            closed: Vec::new(),
            events: VecDeque::new(),
            over: Vec::new(),
            again: None,
            retry_ms: config.retry_ms,
            connections_max: match config.connections_max {
                0 => CONNECTIONS,
                most => most.min(CONNECTIONS_MAX),
            },
            datagrams_first: match kind {
                QueueType::Ud => 0,
                QueueType::Rc | QueueType::Uc => config.datagrams_first,
            },
            draining: Vec::new(),
            holding: Vec::new(),
            held_bytes: 0,
            clock: 0,
            given: 0,
            done: u64::MAX,
            shared,
            kind,
        })
    }

    /// Adds a user to the link to a rail; makes the link if there is none.
    pub(super) fn connect(&mut self, to: VerbsAddr) -> Connected {
        let link = match self.table.find(&to) {
            Some(_) => self.table.connect(to, || unreachable!("it was found")),
            None => {
                self.begin(to);
                self.table.connect(to, || unreachable!("it was made"))
            }
        };
        let row = self.table.get_mut(link);
        let (up, known) = row.map_or((false, false), |row| {
            row.wanted = true;
            (row.begun, row.state == State::Evicted)
        });
        if known && !up {
            self.dial(link, None); // the peer had its challenge, and nothing came of it yet
        }
        Connected { link, up }
    }

    /// Makes a link without users.
    fn begin(&mut self, to: VerbsAddr) -> LinkId {
        self.last_name += 1;
        let name = self.last_name;
        let mut row = Link::new(name, State::Resolving);
        if self.shared.keys.is_some() {
            row.ours[..8].copy_from_slice(&self.challenges.to_le_bytes());
            row.ours[8..].copy_from_slice(&name.to_le_bytes());
        }
        let link = self.table.add(to, row);
        let path = Path {
            flow: flow_of(self.shared.datagrams.number(), to.number),
            ..self.path(&to)
        };
        self.resolver.ask((name, None), path);
        link
    }

    /// Depth of a connection's send queue in requests.
    pub(super) fn depth(&self) -> usize {
        CONNECTION_SENDS.min(self.shared.port.device.queue_max) as usize
    }

    /// Removes a user of a link.
    pub(super) fn close(&mut self, link: LinkId) {
        let Some(key) = self.table.key(link) else {
            return;
        };
        if let Some(row) = self.table.close(link) {
            self.end(key, row);
            self.events.retain(|event| !event.is_of(link));
        }
    }

    /// Ends a link: tells the peer, and frees the buffers that the link's requests read.
    fn end(&mut self, to: VerbsAddr, mut row: Link) {
        if row.state != State::Down && row.peer.is_some() {
            self.handshakes.say(Say::Over, &row.saying(&to));
        }
        self.end_connection(row.connection.take());
        self.held_bytes -= row.held.bytes();
        self.closed.extend(row.handle);
        self.closed.extend(row.others.into_known());
    }

    fn end_connection(&mut self, connection: Option<Connection>) {
        if let Some(Connection { pair, queue, .. }) = connection {
            self.by_number.remove(&pair.number());
            self.end_pair(pair, queue);
        }
    }

    fn end_pair(&mut self, pair: QueuePair, mut queue: SendQueue) {
        // A reset queue pair reads nothing. If the reset fails, the queue pair is destroyed below,
        // with the same effect.
        let _ = pair.reset();
        queue.reset();
        drop(pair);
        while let Some((number, read)) = queue.free() {
            self.done = self.done.min(number);
            self.over.push(read);
        }
    }

    /// The datagram queue pair and its send queue.
    pub(super) fn datagrams(&mut self) -> (&QueuePair, &mut SendQueue) {
        (&self.shared.datagrams, &mut self.handshakes.queue)
    }

    /// Destroys an address handle that belongs to no link, once no outstanding request can use it.
    pub(super) fn retire(&mut self, handle: AddressHandle) {
        self.closed.push(handle);
    }

    /// Destroys the handles of closed links as soon as no outstanding request can use them.
    pub(super) fn tidy(&mut self) {
        if !self.closed.is_empty() && self.handshakes.queue.is_empty() && self.flows.are_empty() {
            self.closed.clear();
        }
    }

    /// The queues by which a link sends; `None` if it cannot send at present.
    #[inline]
    pub(super) fn tx_queue(&mut self, link: LinkId) -> Option<TxQueue<'_>> {
        let to = (self.table.key(link)?.number, self.shared.qkey);
        let row = self.table.get_mut(link)?;
        let up = row.state == State::Up;
        let light = !up && row.begun && self.datagrams_first > 0;
        if !row.held.is_empty() || !up && !light {
            return None;
        }
        self.clock += 1;
        row.used = self.clock;
        if light {
            return Some(TxQueue {
                pair: &self.shared.datagrams,
                queue: &mut self.handshakes.queue,
                to: To::Datagrams(row.handle.as_ref()?, to),
            });
        }
        Some(match &mut row.connection {
            Some(connection) => TxQueue {
                pair: &connection.pair,
                queue: &mut connection.queue,
                to: To::Peer,
            },
            None => {
                let own = (&self.shared.datagrams, &mut self.handshakes.queue);
                let handles = (row.handle.as_ref()?, &row.others);
                self.flows.tx_queue(own, handles, to)
            }
        })
    }

    /// Handles a send completion; returns whether the datagram queue pair failed.
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
            (None, true) => &mut self.handshakes.queue,
            (None, false) => match self.flows.queue(number) {
                Some(queue) => queue,
                None => return false, // of a destroyed queue pair
            },
        };
        let known = queue.completed(completion.wr_id);
        // A read freed by an error completion has failed or was flushed.
        while let Some((number, read)) = queue.free() {
            self.done = self.done.min(number);
            match read {
                Read::Peer(token) if completion.status == 0 => {
                    self.events.push_back(RailEvent::Pulled(token, true));
                }
                read => self.over.push(read),
            }
        }
        let failed = known && completion.status != 0;
        if failed && completion.status != Completion::FLUSHED {
            self.events.push_back(RailEvent::FailedCompletion);
        }
        if failed && link.is_some() {
            self.failed(number, completion.status);
        }
        failed && link.is_none()
    }

    /// The datagram queue pair was reset.
    pub(super) fn renewed(&mut self) {
        self.end_flows();
        self.handshakes.queue.reset();
        while let Some((number, read)) = self.handshakes.queue.free() {
            self.done = self.done.min(number);
            self.over.push(read);
        }
    }

    /// Takes a link with a failing connection down; `false` if the link has no connection.
    #[cold]
    pub(super) fn failed_link(&mut self, link: LinkId, errno: Errno) -> bool {
        let row = self.table.get(link);
        let connected = row.is_some_and(|row| row.connection.is_some());
        if connected {
            self.down(link, DownReason::Broken(errno));
        }
        connected
    }

    /// Takes the link of a failed connection down.
    #[cold]
    pub(super) fn failed(&mut self, number: u32, status: i32) {
        if let Some(&link) = self.by_number.get(&number) {
            self.down(link, DownReason::Completion(status));
        }
    }

    /// Ends a link's connection whose packets seem to get lost; `false` if there is none or it is
    /// young.
    #[cold]
    pub(super) fn renew(&mut self, link: LinkId) -> bool {
        let old = |row: &&Link| row.state == State::Up && row.since.elapsed() >= KEPT_MIN;
        let renewed = self.table.get(link).filter(old).is_some();
        if renewed {
            self.down(link, DownReason::Broken(libc::ETIMEDOUT));
        }
        renewed
    }

    /// Takes a link down for good.
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
        let mut ended = std::mem::replace(row, Link::new(row.name, State::Down));
        row.wanted = true;
        if why != DownReason::Closed && ended.peer.is_some() {
            self.handshakes.say(Say::Over, &ended.saying(&to));
        }
        self.end_connection(ended.connection.take());
        self.held_bytes -= ended.held.bytes();
        self.closed.extend(ended.handle);
        self.closed.extend(ended.others.into_known());
        self.events.push_back(RailEvent::LinkDown(link, why));
    }

    fn up(&mut self, link: LinkId) {
        if let Some(row) = self.table.get_mut(link) {
            (row.state, row.since) = (State::Up, Instant::now());
            row.used = self.clock;
            match std::mem::replace(&mut row.begun, true) {
                false if row.wanted => self.events.push_back(RailEvent::LinkUp(link)),
                false => {}
                true => self.events.push_back(RailEvent::Reconnected),
            }
        }
        self.make_room(0);
    }

    /// Handles the result of an address resolution.
    #[cold]
    pub(super) fn resolved(&mut self, name: WayName, found: Result<AddressHandle, Errno>) {
        let (name, flow) = name;
        let named = (self.table.iter()).find(|(_, _, row)| row.name == name);
        let Some(link) = named.map(|(link, ..)| link) else {
            return;
        };
        let Some(row) = self.table.get_mut(link) else {
            return;
        };
        if let Some(flow) = flow {
            return row.others.found(flow, found);
        }
        if row.state != State::Resolving {
            return;
        }
        match found {
            Ok(handle) => row.handle = Some(handle),
            Err(errno) => return self.down(link, DownReason::Broken(errno)),
        }
        if self.shared.connections.is_none() {
            return self.up(link); // a datagram link
        }
        let (asked, reply, wanted) = (row.peer.take(), row.reply.take(), row.wanted);
        if let Some(reply) = reply {
            self.reply(link, &reply);
        }
        if self.datagrams_first > 0 {
            self.carry_datagrams(link);
            if asked.is_none() {
                return; // until it has sent enough packets
            }
        }
        match asked.is_none() && !wanted {
            true => self.rest(link), // until the peer asks with the right challenge
            false => self.dial(link, asked),
        }
    }

    /// Makes a queue pair for a link without one and begins the handshake: answers the peer's
    /// `Ask`, or asks. Without room for a queue pair the link waits.
    fn dial(&mut self, link: LinkId, asked: Option<End>) {
        self.make_room(1);
        if self.by_number.len() >= CONNECTIONS_MAX {
            return self.want(link);
        }
        match (self.make(link), asked) {
            (Err(errno), _) => self.down(link, DownReason::Broken(errno)),
            (Ok(()), Some(end)) => self.accept(link, end),
            (Ok(()), None) => self.set(link, State::Asking, Say::Ask),
        }
    }

    /// Makes the link's queue pair, with a name greater than any before.
    fn make(&mut self, link: LinkId) -> Result<(), Errno> {
        let connections = self.shared.connections.clone().ok_or(libc::ENOTCONN)?;
        self.last_name += 1;
        let name = self.last_name;
        let connection = Connection::new(&self.shared, &connections, self.kind, name)?;
        let Some(row) = self.table.get_mut(link) else {
            return Ok(());
        };
        (row.name, row.tries, row.leaving) = (name, 0, false);
        (row.own, row.peer) = (Some(connection.end(name)), None);
        self.by_number.insert(connection.pair.number(), link);
        row.connection = Some(connection);
        Ok(())
    }

    /// Sends a handshake message and sets a state in which the link waits for the answer.
    fn set(&mut self, link: LinkId, state: State, say: Say) {
        let (Some(to), Some(row)) = (self.table.key(link), self.table.get_mut(link)) else {
            return;
        };
        row.state = state;
        row.tries += 1;
        row.again = Instant::now() + AGAIN;
        let again = row.again;
        self.look_again(again);
        self.say_on(link, &to, say);
    }

    /// Connects the link to the peer's end; `false` if that failed and the link is down.
    fn join(&mut self, link: LinkId, end: End) -> bool {
        let Some(to) = self.table.key(link) else {
            return false;
        };
        let path = self.path(&to);
        let Some(row) = self.table.get_mut(link) else {
            return false;
        };
        let joined = match &row.connection {
            Some(connection) => connection.join(path, &end, self.retry_ms),
            None => Err(libc::ENOTCONN),
        };
        match joined {
            Ok(()) => row.peer = Some(end),
            Err(errno) => self.down(link, DownReason::Broken(errno)),
        }
        joined.is_ok()
    }

    fn path(&self, to: &VerbsAddr) -> Path {
        let (gid, lid) = to.node.gid_and_lid();
        self.shared.port.path(gid, lid)
    }
}
