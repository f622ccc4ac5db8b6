//! One connection between two rails: a ring each way, and a socket that carries nothing but
//! greetings and wake-ups, and whose end tells that the other process is gone.

use super::greeting::Greeting;
use super::inbox;
use crate::sync::{fence, AtomicU64};
use crate::sys::{self, Gate, Inbox, Peer, Place, Ring, WitnessAt};
use std::os::fd::AsFd;
use std::sync::atomic::Ordering::{Acquire, Relaxed, Release, SeqCst};
use std::sync::OnceLock;

/// Name of a connection, which none had before.
pub(super) type Name = u64;

/// The consumer of a ring cannot read the producer's memory, or can.
const CANNOT: u32 = 2;
const CAN: u32 = 1;

/// Why a connection cannot go on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Break {
    /// The other end has closed it, or is gone.
    Closed,
    /// The other end is none of ours.
    Unwelcome,
    /// It has written nonsense.
    Garbled,
    /// The kernel refused something.
    Failed(sys::Errno),
}

/// The other end.
struct End {
    inbox: Inbox,
    slot: u32,
    peer: Peer,
    witness: WitnessAt,
}

/// A connection, which both halves of a rail use.
pub(super) struct Connection {
    pub(super) name: Name,
    pub(super) gate: Gate,
    /// We produce here.
    pub(super) out: Ring,
    /// We consume here.
    pub(super) input: Ring,
    /// Our index of it, by which the other end tells our inbox.
    pub(super) slot: u32,
    /// Known once it has greeted.
    end: OnceLock<End>,
    /// Pulls that we have asked for, and of those the ones that are known to be over.
    posted: AtomicU64,
    ended: AtomicU64,
}

impl Connection {
    pub(super) fn new(name: Name, gate: Gate, (out, input): (Ring, Ring), slot: u32) -> Connection {
        Connection {
            name,
            gate,
            out,
            input,
            slot,
            end: OnceLock::new(),
            posted: AtomicU64::new(0),
            ended: AtomicU64::new(0),
        }
    }

    /// Takes the other end's greeting, finds out whether its memory can be read, and tells it.
    pub(super) fn greeted(&self, greeting: &Greeting, inbox: impl AsFd) -> Result<(), Break> {
        let inbox = Inbox::open(inbox.as_fd()).map_err(Break::Failed)?;
        let peer = self.gate.peer().map_err(Break::Failed)?;
        let witness = greeting.witness;
        let can = peer.pid > 0 && sys::pull(peer.pid, &[], None, &witness).is_ok();
        let end = End {
            inbox,
            slot: greeting.slot,
            peer,
            witness,
        };
        let can = if can { CAN } else { CANNOT };
        self.input.can_pull().store(can, Relaxed);
        self.end.set(end).map_err(|_| Break::Garbled)
    }

    /// The other end has greeted.
    pub(super) fn is_greeted(&self) -> bool {
        self.end.get().is_some()
    }

    /// Tells the other end that there is something for it.
    #[inline]
    pub(super) fn tell(&self) {
        if let Some(end) = self.end.get() {
            if inbox::tell(&end.inbox, end.slot) {
                // One that is not taken finds another that waits.
                let _ = self.gate.send(&[0], &[]);
            }
        }
    }

    /// The other end can read our memory, and has said so.
    pub(super) fn is_read(&self) -> bool {
        self.out.can_pull().load(Relaxed) == CAN
    }

    /// One pull more that the other end is to make.
    pub(super) fn post(&self) {
        self.posted.store(self.posted.load(Relaxed) + 1, Relaxed);
    }

    /// How many pulls the other end has made that nobody here has heard of; those are heard of now.
    pub(super) fn take_ended(&self) -> u64 {
        let posted = self.posted.load(Relaxed);
        // A peer that counts more than there were is believed as far as there were some.
        let pulled = self.out.pulled().load(Acquire).min(posted);
        let before = self.ended.load(Relaxed);
        self.ended.store(pulled.max(before), Relaxed);
        pulled.saturating_sub(before)
    }

    /// Some pulls are over that nobody here has heard of.
    pub(super) fn has_ended(&self) -> bool {
        let pulled = self
            .out
            .pulled()
            .load(Acquire)
            .min(self.posted.load(Relaxed));
        pulled > self.ended.load(Relaxed)
    }

    /// Pulls that the other end has not made are void: the memory may soon hold something else.
    pub(super) fn void(&self) {
        self.out.void().store(1, Relaxed);
        fence(SeqCst); // before anything that the memory's owner does with it from now on
        self.ended.store(self.posted.load(Relaxed), Relaxed);
    }

    /// Reads pieces of the other end's memory into a place.
    pub(super) fn pull(&self, pieces: &[(u64, u64)], place: &Place<'_>) -> Result<(), Break> {
        let end = self.end.get().ok_or(Break::Garbled)?;
        if self.input.can_pull().load(Relaxed) != CAN {
            return Err(Break::Garbled); // it was told so
        }
        let pulled = sys::pull(end.peer.pid, pieces, Some(place), &end.witness);
        fence(SeqCst); // what was read was read before this
        match pulled {
            Ok(()) if self.input.void().load(Relaxed) == 0 => Ok(()),
            Ok(()) => Err(Break::Closed),
            Err(errno) => {
                self.input.can_pull().store(CANNOT, Relaxed);
                Err(Break::Failed(errno))
            }
        }
    }

    /// Notes that so many pulls were made, and tells the other end.
    pub(super) fn pulled(&self, count: u64) {
        let pulled = self.input.pulled();
        pulled.store(pulled.load(Relaxed).wrapping_add(count), Release);
        self.tell();
    }

    /// Ends it: the other end notices.
    pub(super) fn close(&self) {
        self.gate.shut();
    }
}
