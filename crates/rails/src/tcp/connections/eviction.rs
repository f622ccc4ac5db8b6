//! Idle eviction of connections if there are too many, and replacement of silent connections.

use super::{Connection, State, TcpLinks, Unlinked};
use crate::link::{DownReason, LinkId};
use crate::tcp::frame::Kind;
use crate::tcp::handshake::TcpAddr;
use crate::tcp::shared::{Name, Order};
use crate::RailEvent;

/// Maximum segment sizes of replacement connections, in turn (0: derived from the MTUs). A switch
/// may silently drop packets that exceed its MTU, which the kernel does not detect by default
/// (`net.ipv4.tcp_mtu_probing` is 0). IPv6 guarantees packets of 1,280 bytes, IPv4 of 576.
const SEGMENTS_MAX: [u16; 3] = [0, 1_220, 536];

/// The connection to close.
enum Idle {
    Link(LinkId),
    Unlinked(Name),
}

impl TcpLinks {
    /// Evicts connections until `more` can be added, if any can be evicted.
    pub(super) fn make_room(&mut self, more: usize) {
        let open = |links: &TcpLinks| links.by_connection.len() + links.unlinked.len();
        while open(self) + more > self.shared.connections_max && self.evict_one() {}
    }

    /// Evicts the least recently used connection with an empty queue. Returns whether there was
    /// one.
    #[cold]
    pub(super) fn evict_one(&mut self) -> bool {
        let links = self.table.iter().filter_map(|(id, _, link)| {
            let up = link.state == State::Up && link.next.is_none();
            let connection = link.connection.as_ref().filter(|_| up)?;
            let idle = connection.output.is_empty() && !connection.draining;
            idle.then_some((connection.used, Idle::Link(id)))
        });
        let unlinked = self.unlinked.iter();
        let unlinked = unlinked.map(|(name, s)| (s.used, Idle::Unlinked(*name)));
        match links.chain(unlinked).min_by_key(|(used, _)| *used) {
            Some((_, Idle::Link(link))) => return self.evict(link),
            Some((_, Idle::Unlinked(name))) => {
                if let Some(mut unlinked) = self.unlinked.remove(&name) {
                    // Nothing was sent on it before. If there is no room even for this frame, the
                    // other end sees the connection break.
                    let Unlinked { output, stream, .. } = &mut unlinked;
                    let _ = output.send_control(stream, Kind::Eviction, &[]);
                    self.finish(name, &unlinked.stream);
                }
            }
            None => return false,
        }
        true
    }

    /// Announces to the other end that nothing more is sent on a link's connection, and closes it.
    /// Returns whether that was possible.
    fn evict(&mut self, id: LinkId) -> bool {
        let link = self.table.get_mut(id);
        let Some(connection) = link.and_then(|link| link.connection.as_mut()) else {
            return false;
        };
        let Connection { output, stream, .. } = connection;
        match output.send_control(stream, Kind::Eviction, &[]) {
            Ok(true) if connection.output.is_empty() => self.close_drained(id),
            Ok(true) => {
                connection.draining = true;
                self.waiting.push(id);
            }
            Ok(false) => return false,
            Err(errno) => self.end(id, DownReason::Broken(errno)),
        }
        true
    }

    /// The other end wants to close a connection and sends nothing more on it.
    pub(super) fn evicted(&mut self, name: Name) {
        if let Some(unlinked) = self.unlinked.remove(&name) {
            return self.finish(name, &unlinked.stream);
        }
        let Some(&link) = self.by_connection.get(&name) else {
            return;
        };
        let row = self.table.get_mut(link);
        let connection = row.and_then(|row| row.connection.as_mut());
        let Some(connection) = connection.filter(|c| c.name == name) else {
            return;
        };
        connection.draining = true;
        if connection.output.is_empty() {
            self.close_drained(link);
        }
    }

    /// Closes the connection of a link with an empty queue.
    pub(super) fn close_drained(&mut self, id: LinkId) {
        let Some(link) = self.table.get_mut(id) else {
            return;
        };
        let old = link.connection.take();
        link.connection = link.next.take();
        link.state = match link.connection {
            Some(_) => State::Reconnecting,
            None => State::Evicted,
        };
        self.events.push_back(RailEvent::Evicted);
        if let Some(old) = old {
            self.leave(old);
        }
    }

    /// Reconnects an evicted link for a send.
    #[cold]
    pub(super) fn wake(&mut self, link: LinkId) {
        if let Some(to) = self.table.key(link) {
            self.begin(link, &to, State::Reconnecting);
        }
        if self
            .table
            .get(link)
            .is_some_and(|link| link.state == State::Up)
        {
            self.events.push_back(RailEvent::Reconnected); // by one that the peer had made
        }
    }

    /// After a move to another address: ends all connections, ours and those that peers made to the
    /// old address. Evicted links reconnect from the new one on demand.
    #[cold]
    pub(in crate::tcp) fn part_from_all(&mut self) {
        for (name, unlinked) in std::mem::take(&mut self.unlinked) {
            unlinked.stream.shut();
            self.shared.order(Order::Forget(name));
        }
        let linked = self.table.iter().map(|(id, _, link)| (id, link.state));
        let ending = linked.filter(|(_, state)| !matches!(state, State::Evicted | State::Down));
        for (link, _) in ending.collect::<Vec<_>>() {
            self.end(link, DownReason::Broken(libc::EADDRNOTAVAIL));
        }
    }

    /// Tries another source port and other segment sizes for a silent link, unless the network has
    /// carried everything that was sent: then the peer itself is silent. Returns whether a new
    /// connection is tried.
    #[cold]
    pub(in crate::tcp) fn reroute(&mut self, id: LinkId) -> bool {
        let key = self.table.key(id);
        let link = self
            .table
            .get_mut(id)
            .filter(|link| link.state == State::Up);
        let Some((link, to)) = link.zip(key) else {
            return false;
        };
        let silent = |c: &Connection| !c.output.is_empty() || c.stream.is_unacknowledged();
        if !link.connection.as_ref().is_some_and(silent) {
            return false;
        }
        // The other end may send on that one already, and closes the silent one then.
        if link.next.as_ref().is_some_and(Connection::awaits_answer) {
            return true;
        }
        link.rerouted += 1;
        let segment_max = SEGMENTS_MAX[link.rerouted % SEGMENTS_MAX.len()];
        if let Some(late) = link.next.take() {
            late.stream.shut();
            self.by_connection.remove(&late.name);
            self.shared.order(Order::Forget(late.name));
        }
        // (The peer may have closed a connection that it was asked to give up.)
        let given_up =
            |links: &TcpLinks, name: &Name| links.unlinked.get(name).is_some_and(|s| s.asked);
        let made = self.newest_unlinked(&to);
        let made = made.filter(|name| !given_up(self, name));
        if let Some(connection) = made.and_then(|name| self.take_unlinked(name)) {
            self.take_over(id, connection);
            return true;
        }
        let Ok(next) = self.dial(&to, segment_max) else {
            return false;
        };
        let Some(link) = self.table.get_mut(id) else {
            return false;
        };
        match link.state {
            State::Up => {
                self.by_connection.insert(next.name, id);
                link.next = Some(next);
            }
            // The link was evicted to make room for the new connection.
            State::Evicted => self.set_connection(id, next, State::Reconnecting),
            _ => {
                self.shared.order(Order::Forget(next.name));
                return false;
            }
        }
        true
    }

    /// If both ends of a link connected at the same time, each would send on its own connection,
    /// and data on each would need separate TCP acks (docs/design/tcp.md). So the rail with the
    /// lower address asks the other end to send on this link's connection instead of its own
    /// connection of this token.
    pub(super) fn join(&mut self, id: LinkId, token: u64) {
        let lower = self
            .table
            .key(id)
            .is_some_and(|to| self.shared.local() < to);
        let link = self.table.get_mut(id).filter(|_| lower);
        let Some(link) = link.filter(|link| link.state == State::Up && link.next.is_none()) else {
            return;
        };
        let idle = |c: &&mut Connection| c.output.is_empty() && !c.draining;
        let Some(connection) = link.connection.as_mut().filter(idle) else {
            return;
        };
        let Connection { output, stream, .. } = connection;
        match output.join(stream, token) {
            Ok(false) => return,
            Ok(true) if !output.is_empty() => self.waiting.push(id),
            Ok(true) => {}
            Err(errno) => return self.end(id, DownReason::Broken(errno)),
        }
        let to = self.table.key(id);
        let of_token = |s: &&mut Unlinked| Some(s.from) == to && s.token == token;
        if let Some(asked) = self.unlinked.values_mut().find(of_token) {
            asked.asked = true;
        }
    }

    /// Like [`TcpLinks::join`], if the peer has connected while this link's connection was being
    /// made.
    pub(super) fn join_newest(&mut self, id: LinkId) {
        let newest = self.table.key(id).and_then(|to| self.newest_unlinked(&to));
        let unlinked = newest.and_then(|name| self.unlinked.get(&name));
        if let Some(token) = unlinked.map(|unlinked| unlinked.token) {
            self.join(id, token);
        }
    }

    /// The peer asks us to send on its connection instead of ours of this token, which we do if our
    /// queue is empty. Only the receiver of our handshake knows the token.
    pub(super) fn joined(&mut self, name: Name, token: u64) {
        let from = self.unlinked.get(&name).map(|unlinked| unlinked.from);
        let Some(id) = from.and_then(|from| self.table.find(&from)) else {
            return;
        };
        let link = self.table.get(id).filter(|link| link.next.is_none());
        let ours = link.and_then(|link| link.connection.as_ref());
        if ours.is_some_and(|ours| ours.awaits_answer() && ours.token == token) {
            return self.use_instead(id, name);
        }
        let link = link.filter(|link| link.state == State::Up);
        let idle = |c: &&Connection| c.output.is_empty() && !c.draining;
        let ours = link.and_then(|link| link.connection.as_ref()).filter(idle);
        if ours.is_some_and(|ours| ours.token == token && token != 0) {
            if let Some(connection) = self.take_unlinked(name) {
                self.take_over(id, connection);
            }
        }
    }

    /// Completes a link by a connection that the peer made, instead of ours, whose answer is on the
    /// way.
    fn use_instead(&mut self, id: LinkId, name: Name) {
        let (Some(mut made), Some(link)) = (self.take_unlinked(name), self.table.get_mut(id))
        else {
            return;
        };
        if let Some(mut ours) = link.connection.take() {
            made.output.adopt(std::mem::take(&mut ours.output));
            self.leave(ours);
        }
        self.complete(id, made);
    }

    /// Sends on a connection that the peer made and uses, instead of our own.
    fn take_over(&mut self, id: LinkId, connection: Connection) {
        let link = self.table.get_mut(id);
        if let Some(old) = link.and_then(|link| link.connection.as_mut()) {
            old.superseded = true;
        }
        self.replace(id, connection);
    }

    /// The maker of a connection sends nothing more on another one, of this token. Returns the link
    /// that shall do the same.
    pub(super) fn superseded(&mut self, from: &TcpAddr, token: u64) -> Option<LinkId> {
        let id = self.table.find(from).filter(|_| token != 0)?;
        let link = self.table.get_mut(id)?;
        let connection = link.connection.as_mut().filter(|c| c.token == token)?;
        connection.superseded = true;
        // If we are also making another connection, each end sends on its own connection.
        (link.state == State::Up && link.next.is_none()).then_some(id)
    }

    /// Sends on another connection from now on. Data in flight on the old one may still arrive; its
    /// queue is lost, and the protocol sends the data again.
    pub(super) fn replace(&mut self, id: LinkId, connection: Connection) {
        let Some(link) = self.table.get_mut(id) else {
            return;
        };
        self.by_connection.insert(connection.name, id);
        let now = connection.stream.segment_max();
        let Some(mut old) = link.connection.replace(connection) else {
            return;
        };
        let segments = (old.stream.segment_max(), now);
        if segments.0 != segments.1 {
            self.events.push_back(RailEvent::Segments(id, segments));
        }
        if old.superseded {
            return self.leave(old);
        }
        // The other end closes it after it learns of the new one. If it saw the end of this one
        // first, it would consider its link down.
        old.output.clear(&mut self.over);
        self.by_connection.remove(&old.name);
    }
}
