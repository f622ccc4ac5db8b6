//! Connections of ours until they carry packets: the handshake, and with a key its answer.

use super::{Connection, State, TcpLinks};
use crate::link::{DownReason, LinkId};
use crate::sys::Errno;
use crate::tcp::frame::Kind;
use crate::tcp::handshake::Handshake;
use crate::tcp::output::Output;
use crate::tcp::shared::Name;
use crate::RailEvent;
use marline_auth::FrameKey;

impl Connection {
    /// Sends our handshake, under a key if there is one; returns 0 or an errno.
    fn send_handshake(&mut self, handshake: &Handshake, key: Option<FrameKey>) -> Errno {
        let (bytes, len) = handshake.write();
        // The queue stays behind.
        let mut output = Output::default();
        key.into_iter().for_each(|key| output.set_key(key));
        let sent = output.send_control(&self.stream, Kind::Handshake, &bytes[..len]);
        let whole = output.is_empty();
        self.key = output.into_key();
        match sent {
            Ok(true) if whole => 0,
            Ok(_) => libc::EAGAIN,
            Err(errno) => errno,
        }
    }

    /// Returns whether our handshake was sent and its answer is on the way.
    pub(super) fn awaits_answer(&self) -> bool {
        self.key.is_some()
    }

    /// Lets packets leave.
    fn open(&mut self) {
        if let Some(key) = self.key.take() {
            self.output.set_key(key);
        }
    }
}

impl TcpLinks {
    /// Sends the handshake of a connection of ours. Without a key the connection then carries
    /// packets; with one, the answer has to come first.
    pub(super) fn connected(&mut self, name: Name, key: Option<FrameKey>) {
        let Some(&link) = self.by_connection.get(&name) else {
            return;
        };
        let Some(row) = self.table.get_mut(link) else {
            return;
        };
        let silent = row.connection.as_ref().map_or(0, |c| c.token);
        let next = row.next.as_mut().filter(|next| next.name == name);
        let replaces = next.as_ref().map_or(0, |_| silent);
        let Some(made) = next.or(row.connection.as_mut()) else {
            return;
        };
        let handshake = Handshake {
            from: self.shared.local(),
            token: made.token,
            replaces,
        };
        let errno = made.send_handshake(&handshake, key);
        if errno != 0 || made.key.is_none() {
            self.established(name, errno);
        }
    }

    /// Completes a connection of ours, which carries packets from now on, or failed.
    pub(super) fn established(&mut self, name: Name, errno: Errno) {
        let Some(&link) = self.by_connection.get(&name) else {
            return;
        };
        let Some(row) = self.table.get_mut(link) else {
            return;
        };
        let replaces = row.next.take_if(|next| next.name == name);
        match (replaces, errno) {
            (Some(mut next), 0) => {
                next.open();
                self.replace(link, next);
            }
            (Some(next), _) => self.leave(next),
            (None, 0) => {
                if let Some(mut made) = row.connection.take() {
                    made.open();
                    self.complete(link, made);
                }
                self.join_newest(link);
            }
            (None, errno) => self.end(link, DownReason::Broken(errno)),
        }
        self.make_room(0);
    }

    /// Gives a link its finished connection: the link is up, or reconnected after an eviction.
    pub(super) fn complete(&mut self, id: LinkId, connection: Connection) {
        let was = self.table.get(id).map(|link| link.state);
        self.set_connection(id, connection, State::Up);
        self.events.push_back(match was {
            Some(State::Connecting) => RailEvent::LinkUp(id),
            _ => RailEvent::Reconnected,
        });
    }
}
