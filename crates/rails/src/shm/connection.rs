//! A connection between two rails: a ring each way, and a socket that carries only handshakes and
//! wake-ups and whose end shows that the other process is gone.

use super::handshake::Handshake;
use super::inbox;
use crate::rail::KeyMismatch;
use crate::sync::{fence, AtomicU64};
use crate::sys::{self, CanaryAt, Inbox, Peer, Place, Ring, SeqPacket};
use std::os::fd::AsFd;
use std::sync::atomic::Ordering::{Acquire, Relaxed, Release, SeqCst};
use std::sync::OnceLock;

/// Name of a connection; never reused.
pub(super) type Name = u64;

/// Values of `can_pull`: whether the ring's consumer can read the producer's memory.
const CANNOT: u32 = 2;
const CAN: u32 = 1;

/// The reason why a connection ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Break {
    /// The other end has closed the connection or is gone.
    Closed,
    /// The other end is of another host or user.
    Unwelcome,
    /// The other end has no key, or another one.
    Forged(KeyMismatch),
    /// The other end refused us for our key.
    Refused(KeyMismatch),
    /// The other end speaks this other version of proof and handshake.
    Foreign(u8),
    /// The other end has written an impossible value.
    Garbled,
    /// A system call failed.
    Failed(sys::Errno),
}

/// The other end.
struct End {
    inbox: Inbox,
    slot: u32,
    peer: Peer,
    canary: CanaryAt,
}

/// A connection, shared by both halves of a rail.
pub(super) struct Connection {
    pub(super) name: Name,
    pub(super) socket: SeqPacket,
    /// The ring in which we are the producer.
    pub(super) out: Ring,
    /// The ring in which we are the consumer.
    pub(super) input: Ring,
    /// Our index of the connection, by which the other end notifies our inbox.
    pub(super) slot: u32,
    /// Set by the handshake.
    end: OnceLock<End>,
    /// Pulls posted for the other end, and those of them known to have ended.
    posted: AtomicU64,
    ended: AtomicU64,
}

impl Connection {
    pub(super) fn new(
        name: Name,
        socket: SeqPacket,
        (out, input): (Ring, Ring),
        slot: u32,
    ) -> Connection {
        Connection {
            name,
            socket,
            out,
            input,
            slot,
            end: OnceLock::new(),
            posted: AtomicU64::new(0),
            ended: AtomicU64::new(0),
        }
    }

    /// Handles the other end's handshake: checks whether its memory can be read, and tells it.
    pub(super) fn on_handshake(
        &self,
        handshake: &Handshake,
        inbox: impl AsFd,
    ) -> Result<(), Break> {
        let inbox = Inbox::open(inbox.as_fd()).map_err(Break::Failed)?;
        let peer = self.socket.peer().map_err(Break::Failed)?;
        let canary = handshake.canary;
        let can = peer.pid > 0 && sys::pull(peer.pid, &[], None, &canary).is_ok();
        let end = End {
            inbox,
            slot: handshake.slot,
            peer,
            canary,
        };
        let can = if can { CAN } else { CANNOT };
        self.input.can_pull().store(can, Relaxed);
        self.end.set(end).map_err(|_| Break::Garbled)
    }

    /// Returns whether the other end has completed the handshake.
    pub(super) fn is_known(&self) -> bool {
        self.end.get().is_some()
    }

    /// Notifies the other end of new frames or room.
    #[inline]
    pub(super) fn notify(&self) {
        if let Some(end) = self.end.get() {
            if inbox::notify(&end.inbox, end.slot) {
                // A failed send means that a wake-up is already pending.
                let _ = self.socket.send(&[0], &[]);
            }
        }
    }

    /// Returns whether the other end has stated that it can read our memory.
    pub(super) fn is_read(&self) -> bool {
        self.out.can_pull().load(Relaxed) == CAN
    }

    /// Counts a pull that the other end is to make.
    pub(super) fn post(&self) {
        self.posted.store(self.posted.load(Relaxed) + 1, Relaxed);
    }

    /// Number of pulls that ended since the previous call.
    pub(super) fn take_ended(&self) -> u64 {
        let posted = self.posted.load(Relaxed);
        // A peer's count is limited to the pulls that were posted.
        let pulled = self.out.pulled().load(Acquire).min(posted);
        let before = self.ended.load(Relaxed);
        self.ended.store(pulled.max(before), Relaxed);
        pulled.saturating_sub(before)
    }

    /// Returns whether pulls have ended since `take_ended`.
    pub(super) fn has_ended(&self) -> bool {
        let pulled = self
            .out
            .pulled()
            .load(Acquire)
            .min(self.posted.load(Relaxed));
        pulled > self.ended.load(Relaxed)
    }

    /// Declares outstanding pulls void: their memory may be reused afterwards.
    pub(super) fn void(&self) {
        self.out.void().store(1, Relaxed);
        fence(SeqCst); // orders the flag before later writes to that memory
        self.ended.store(self.posted.load(Relaxed), Relaxed);
    }

    /// Reads pieces of the other end's memory into a place.
    pub(super) fn pull(&self, pieces: &[(u64, u64)], place: &Place<'_>) -> Result<(), Break> {
        let end = self.end.get().ok_or(Break::Garbled)?;
        if self.input.can_pull().load(Relaxed) != CAN {
            return Err(Break::Garbled); // we said that pulls are impossible
        }
        let pulled = sys::pull(end.peer.pid, pieces, Some(place), &end.canary);
        fence(SeqCst); // orders the reads before the check of the flag
        match pulled {
            Ok(()) if self.input.void().load(Relaxed) == 0 => Ok(()),
            Ok(()) => Err(Break::Closed),
            Err(errno) => {
                self.input.can_pull().store(CANNOT, Relaxed);
                Err(Break::Failed(errno))
            }
        }
    }

    /// Counts completed pulls, and notifies the other end.
    pub(super) fn pulled(&self, count: u64) {
        let pulled = self.input.pulled();
        pulled.store(pulled.load(Relaxed).wrapping_add(count), Release);
        self.notify();
    }

    /// Ends the connection; the other end notices.
    pub(super) fn close(&self) {
        self.socket.shut();
    }
}
