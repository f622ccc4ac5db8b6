//! Sends handshake messages by the datagram queue pair.

use super::addr::VerbsAddr;
use super::connection::Connection;
use super::handshake::{
    add_tag, mark_of, refusal, End, Handshake, Say, HANDSHAKE_LEN, NO_CHALLENGE,
};
use super::proof::{self, Between};
use super::send_queue::SendQueue;
use super::shared::{Shared, SENDS};
use crate::sys::verbs::{AddressHandle, Operation, QueueType, Region, Sends};
use crate::sys::Errno;
use marline_auth::Challenge;
use std::sync::Arc;

/// Handshake messages whose bytes the device may still read.
const HANDSHAKES: usize = 256;

/// The sender's state of a link for a handshake message.
pub(super) struct Saying<'a> {
    pub(super) to: VerbsAddr,
    pub(super) handle: Option<&'a AddressHandle>,
    /// Our end.
    pub(super) own: Option<&'a End>,
    /// The peer's end.
    pub(super) peer: Option<&'a End>,
    /// Our challenge.
    pub(super) ours: &'a Challenge,
    /// The peer's challenge.
    pub(super) theirs: Option<&'a Challenge>,
}

/// The reply to a message that changed nothing, with the challenge of its sender.
#[derive(Clone, Copy)]
pub(super) enum Reply {
    /// To an `Ask` without the challenge of this end: that challenge.
    Challenge(Challenge),
    /// To a message of another version: the version of this end.
    Refusal(Challenge),
}

/// Sends handshake messages.
pub(super) struct Handshakes {
    chain: Sends,
    handshakes: Region,
    next: usize,
    kind: QueueType,
    /// The send queue of the datagram queue pair, shared with all other datagrams.
    pub(super) queue: SendQueue,
    shared: Arc<Shared>,
}

impl Handshakes {
    pub(super) fn new(shared: Arc<Shared>, kind: QueueType) -> Result<Handshakes, Errno> {
        Ok(Handshakes {
            chain: Sends::new(1),
            handshakes: Region::new(&shared.domain, HANDSHAKES * HANDSHAKE_LEN)?,
            next: 0,
            kind,
            queue: SendQueue::new(SENDS.min(shared.port.device.queue_max), 0),
            shared,
        })
    }

    /// Sends a message once; it may be lost. Only `Ask` goes to a peer whose challenge is unknown.
    pub(super) fn say(&mut self, say: Say, saying: &Saying<'_>) {
        let (Some(handle), Some(own)) = (saying.handle, saying.own) else {
            return;
        };
        let theirs = match (&self.shared.keys, saying.theirs) {
            (Some(_), None) if say != Say::Ask => return,
            (_, theirs) => theirs.unwrap_or(&NO_CHALLENGE),
        };
        let handshake = Handshake {
            say,
            kind: self.kind,
            from: self.shared.address(),
            challenge: *saying.ours,
            known: mark_of(theirs),
            end: *own,
            to: saying.peer.map_or(0, |peer| peer.name),
        };
        let between = (saying.ours, theirs);
        self.send(&mut handshake.encode(), (&saying.to, handle), between);
    }

    /// Sends our challenge to a peer, which does not know it.
    pub(super) fn challenge(&mut self, saying: &Saying<'_>, theirs: &Challenge) {
        let Some(handle) = saying.handle else {
            return;
        };
        let handshake = Handshake {
            say: Say::Challenge,
            kind: self.kind,
            from: self.shared.address(),
            challenge: *saying.ours,
            known: mark_of(theirs),
            end: End::NONE,
            to: 0,
        };
        let between = (saying.ours, theirs);
        self.send(&mut handshake.encode(), (&saying.to, handle), between);
    }

    /// Tells a peer of another version the version of this rail.
    pub(super) fn refuse(&mut self, saying: &Saying<'_>, theirs: &Challenge) {
        let Some(handle) = saying.handle else {
            return;
        };
        let mut bytes = refusal(self.kind, &self.shared.address(), saying.ours);
        let between = (saying.ours, theirs);
        self.send(&mut bytes, (&saying.to, handle), between);
    }

    /// Adds the tag under the key of both challenges, and sends the message.
    fn send(
        &mut self,
        message: &mut [u8],
        (to, handle): (&VerbsAddr, &AddressHandle),
        (ours, theirs): (&Challenge, &Challenge),
    ) {
        if self.queue.room() == 0 {
            return;
        }
        if let Some(keys) = &self.shared.keys {
            let between = Between {
                kind: self.kind,
                from: (&self.shared.address(), ours),
                to: (to, theirs),
            };
            let tag = proof::tag(keys, between, message);
            add_tag(message, tag);
        }
        let at = self.next * HANDSHAKE_LEN;
        self.next = (self.next + 1) % HANDSHAKES;
        let bytes = self.handshakes.bytes_mut(at, message.len());
        bytes.copy_from_slice(message);
        let mut request = Sends::of_region(&self.handshakes, at, message.len());
        request.signalled = self.queue.is_due(1);
        request.name = self.queue.name(1);
        self.chain
            .datagram(&request, handle, (to.number, self.shared.qkey));
        if self.chain.post(&self.shared.datagrams).is_ok() {
            self.queue.posted(1, request.signalled, &[], 0);
        }
    }

    /// Posts an empty signalled request on a connection, unless one is outstanding: its completion
    /// covers all earlier requests. The peer receives a packet of no bytes.
    pub(super) fn finish(&mut self, connection: &mut Connection) {
        let queue = &mut connection.queue;
        if queue.is_signalled() || queue.room() == 0 {
            return;
        }
        let mut request = Sends::of_region(&self.handshakes, 0, 0);
        (request.signalled, request.name) = (true, queue.name(1));
        self.chain.add(&request, Operation::Send);
        if self.chain.post(&connection.pair).is_ok() {
            queue.posted(1, true, &[], 0);
        }
    }
}
