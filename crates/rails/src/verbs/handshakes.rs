//! Sends handshake messages by the datagram queue pair.

use super::addr::VerbsAddr;
use super::connection::Connection;
use super::handshake::{End, Handshake, Say, HANDSHAKE_LEN};
use super::send_queue::SendQueue;
use super::shared::{Shared, QKEY, SENDS};
use crate::sys::verbs::{AddressHandle, Operation, QueueType, Region, Sends};
use crate::sys::Errno;
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

    /// Sends a message once; it may be lost.
    pub(super) fn say(&mut self, say: Say, saying: &Saying<'_>) {
        let (Some(handle), Some(own)) = (saying.handle, saying.own) else {
            return;
        };
        if self.queue.room() == 0 {
            return;
        }
        let handshake = Handshake {
            say,
            kind: self.kind,
            from: self.shared.address(),
            end: *own,
            to: saying.peer.map_or(0, |peer| peer.name),
        };
        let at = self.next * HANDSHAKE_LEN;
        self.next = (self.next + 1) % HANDSHAKES;
        let bytes = self.handshakes.bytes_mut(at, HANDSHAKE_LEN);
        bytes.copy_from_slice(&handshake.encode());
        let mut request = Sends::of_region(&self.handshakes, at, HANDSHAKE_LEN);
        request.signalled = self.queue.is_due(1);
        request.name = self.queue.name(1);
        self.chain
            .datagram(&request, handle, (saying.to.number, QKEY));
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
