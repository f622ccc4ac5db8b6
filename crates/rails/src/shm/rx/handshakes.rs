//! Accepts connections and completes handshakes. With a key, each end proves first that it has it.

use super::ShmRx;
use crate::rail::KeyMismatch;
use crate::shm::connection::{Break, Connection, Name};
use crate::shm::handshake::{Handshake, HANDSHAKE_LEN};
use crate::shm::inbox::RINGS_MAX;
use crate::shm::proof::{
    answer_to, foreign_version, is_keyed, refusal, refusal_in, refusal_of_version, Handshaking,
    Prover, Step,
};
use crate::shm::shared::Notification;
use crate::sys::{LinkMemory, Message, SeqPacket};
use std::os::fd::AsFd;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::Arc;

/// Most accepted connections without handshake. Strangers can open connections; beyond this number
/// the oldest is closed.
const HANDSHAKING_MAX: usize = 256;
/// Most connections accepted per poll.
const ACCEPT_MAX: usize = 64;
impl ShmRx {
    /// Accepts incoming connections, a few at a time. Those of other users' processes are closed
    /// before a byte or a descriptor of theirs is received.
    pub(super) fn accept(&mut self) {
        for _ in 0..ACCEPT_MAX {
            let Ok(socket) = self.shared.listener.accept() else {
                return;
            };
            if !socket.is_of_own_user() {
                self.shared.refused.fetch_add(1, Relaxed);
                continue;
            }
            let name = self.shared.new_name();
            let prover = match self.shared.config.keys {
                Some(_) => match Prover::new(self.shared.local, true) {
                    Ok(prover) if socket.send(&prover.challenge(), &[]).is_ok() => Some(prover),
                    _ => continue,
                },
                None => None,
            };
            if self.shared.epoll.add(socket.fd(), name).is_ok() {
                self.handshaking.push_back(Handshaking {
                    name,
                    socket,
                    prover,
                });
            }
            if self.handshaking.len() > HANDSHAKING_MAX {
                self.handshaking.pop_front();
                self.shared.refused.fetch_add(1, Relaxed);
            }
        }
    }

    /// Reads the handshake of an accepted connection.
    pub(super) fn read_handshake(&mut self, at: usize) {
        if self.handshaking[at].prover.is_some() {
            return self.read_proof(at);
        }
        let mut bytes = [0; HANDSHAKE_LEN + 1];
        let message = match self.handshaking[at].socket.recv(&mut bytes) {
            Ok(message) => message,
            Err(libc::EAGAIN | libc::EINTR) => return,
            Err(_) => {
                self.handshaking.remove(at);
                return;
            }
        };
        let Some(Handshaking { name, socket, .. }) = self.handshaking.remove(at) else {
            return;
        };
        if message.len == 0 {
            return; // the connection has ended
        }
        let bytes = &bytes[..message.len];
        if self.shared.config.keys.is_none() && is_keyed(bytes) {
            let _ = socket.send(&refusal(KeyMismatch::KeyedThere), &[]); // or it closes
            self.report(Break::Forged(KeyMismatch::KeyedThere));
        }
        if let Some(theirs) = foreign_version(bytes) {
            let _ = socket.send(&refusal_of_version(), &[]); // or it closes
            self.report(Break::Foreign(theirs));
        }
        if self.welcome(name, socket, bytes, message).is_err() {
            self.shared.refused.fetch_add(1, Relaxed);
        }
    }

    /// Reads the proof of an accepted connection. No descriptor is received before it.
    #[cold]
    fn read_proof(&mut self, at: usize) {
        let mut bytes = [0; HANDSHAKE_LEN + 1];
        let secret = self.shared.config.keys.clone();
        let (Some(one), Some(secret)) = (self.handshaking.get_mut(at), secret) else {
            return;
        };
        let Some(prover) = one.prover.as_mut() else {
            return;
        };
        let heard = match one.socket.recv_plain(&mut bytes) {
            Err(libc::EAGAIN | libc::EINTR) => return,
            Ok(0) => Err(Break::Closed),
            Ok(len) => prover.hear(&secret, &bytes[..len]),
            Err(errno) => Err(Break::Failed(errno)),
        };
        let sent = match heard {
            Ok(Step::Wait) => return,
            Ok(Step::Send(message) | Step::Proven(Some(message))) => one.socket.send(&message, &[]),
            Ok(Step::Proven(None)) => Ok(()),
            Err(broken) => {
                if let Some(answer) = answer_to(broken) {
                    let _ = one.socket.send(&answer, &[]); // or it closes
                }
                self.handshaking.remove(at);
                self.shared
                    .refused
                    .fetch_add(u64::from(broken != Break::Closed), Relaxed);
                return self.report(broken);
            }
        };
        one.prover = None;
        if sent.is_err() {
            self.handshaking.remove(at);
        }
    }

    /// Reports a connection that ends for its key or version.
    pub(super) fn report(&self, broken: Break) {
        if let Break::Foreign(theirs) = broken {
            self.shared.note(Notification::Foreign(theirs));
        }
        if let Break::Forged(why) | Break::Refused(why) = broken {
            self.shared.note(Notification::Forged(why));
        }
    }

    /// Completes an incoming connection, if its peer is of our host and sent all descriptors.
    fn welcome(
        &mut self,
        name: Name,
        socket: SeqPacket,
        bytes: &[u8],
        message: Message,
    ) -> Result<(), Break> {
        let handshake = Handshake::read(bytes).ok_or(Break::Garbled)?;
        let near = self.shared.is_near(&handshake.from);
        let [inbox, memory] = message.fds.as_slice() else {
            return Err(Break::Garbled);
        };
        if !near || handshake.slot >= RINGS_MAX {
            return Err(Break::Unwelcome);
        }
        let memory = LinkMemory::open(memory.as_fd()).map_err(Break::Failed)?;
        let slot = self.shared.take_slot().ok_or(Break::Unwelcome)?;
        let (theirs, ours) = memory.rings();
        let connection = Connection::new(name, socket, (ours, theirs), slot);
        let welcome = connection.on_handshake(&handshake, inbox).and_then(|()| {
            let send_handshake = self.shared.send_handshake(&connection.socket, slot, None);
            send_handshake.map_err(Break::Failed)
        });
        if welcome.is_err() {
            self.shared.free_slot(slot);
            return welcome;
        }
        let connection = Arc::new(connection);
        self.add(connection.clone(), None);
        let from = handshake.from;
        self.shared.note(Notification::Accepted(from, connection));
        Ok(())
    }

    /// Reads the proof of the other end of a connection that we made, and sends our handshake after
    /// it; returns whether there was a message.
    #[cold]
    pub(super) fn prove(&mut self, slot: u32) -> Result<bool, Break> {
        let mut bytes = [0; HANDSHAKE_LEN + 1];
        let Some(Some(incoming)) = self.incoming.get_mut(slot as usize) else {
            return Ok(false);
        };
        let secret = self.shared.config.keys.as_ref();
        let (Some((prover, _)), Some(secret)) = (incoming.proving.as_mut(), secret) else {
            return Ok(false);
        };
        let socket = &incoming.connection.socket;
        let len = match socket.recv_plain(&mut bytes) {
            Ok(0) | Err(libc::ECONNRESET) => return Err(Break::Closed),
            Ok(len) => len,
            Err(libc::EAGAIN) => return Ok(false),
            Err(libc::EINTR) => return Ok(true),
            Err(errno) => return Err(Break::Failed(errno)),
        };
        match prover.hear(secret, &bytes[..len])? {
            Step::Wait => {}
            Step::Send(message) | Step::Proven(Some(message)) => {
                socket.send(&message, &[]).map_err(Break::Failed)?;
            }
            Step::Proven(None) => {
                let memory = incoming.proving.take().map(|(_, memory)| memory);
                let sent = self.shared.send_handshake(socket, slot, memory);
                sent.map_err(Break::Failed)?;
            }
        }
        Ok(true)
    }

    /// Handles the handshake answer on a connection that we made.
    pub(super) fn answered(
        &self,
        connection: &Connection,
        bytes: &[u8],
        message: Message,
    ) -> Result<(), Break> {
        let unlike = || match (refusal_in(bytes), foreign_version(bytes)) {
            (_, Some(theirs)) => Break::Foreign(theirs),
            (Some(why), _) => Break::Refused(why),
            _ if is_keyed(bytes) => Break::Forged(KeyMismatch::KeyedThere),
            _ => Break::Garbled,
        };
        let handshake = Handshake::read(bytes).ok_or_else(unlike)?;
        let [inbox] = message.fds.as_slice() else {
            return Err(Break::Garbled);
        };
        if handshake.slot >= RINGS_MAX {
            return Err(Break::Garbled);
        }
        connection.on_handshake(&handshake, inbox)?;
        self.shared.note(Notification::Connected(connection.name));
        Ok(())
    }
}
