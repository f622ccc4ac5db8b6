//! The part of a shm rail that its halves share, and the messages between the halves.

use super::addr::ShmAddr;
use super::connection::{Break, Connection, Name};
use super::handshake::Handshake;
use super::proof::Prover;
use super::{inbox, ring};
use crate::rail::KeyMismatch;
use crate::sys::{self, Canary, Epoll, Errno, Inbox, Ring, SeqPacket};
use crate::{Caps, Registrations, RemoteWrites};
use marline_auth::ConnectionKeys;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::atomic::{
    AtomicBool, AtomicU64, Ordering::Acquire, Ordering::Relaxed, Ordering::Release,
};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// Bytes of the largest batch and of the largest packet, as on other rails.
pub(super) const BATCH_MAX: usize = 64_000;
/// Most packets of a batch.
pub(super) const SEGMENTS_MAX: usize = 64;
/// Bytes that may be in flight to a rail; bytes beyond the room of its rings wait at the senders.
/// Half of the receive buffer that other rails request.
pub(super) const RECEIVE_BYTES: usize = 4 << 20;
/// Bytes of the largest frame in a ring.
pub(super) const BODY_MAX: u64 = ring::body_max::<Ring>();
/// Name of the listener in the epoll set.
pub(super) const LISTENER: Name = Name::MAX;

/// Settings of a shm rail.
#[derive(Clone, Debug)]
pub struct ShmConfig {
    /// Read long messages from the sender's memory if the kernel allows it.
    pub one_copy: bool,
    /// The secret of the job's connections; `None`: connections prove nothing.
    pub keys: Option<Arc<ConnectionKeys>>,
}

impl Default for ShmConfig {
    fn default() -> ShmConfig {
        ShmConfig {
            one_copy: true,
            keys: None,
        }
    }
}

/// An order for the receiving half.
pub(super) enum Order {
    /// Start reading a connection, and send our handshake with this memory, if there is one, once
    /// the other end has proven itself.
    Read(Arc<Connection>, Option<(Prover, OwnedFd)>),
    /// Stop reading a connection.
    Forget(Name),
}

/// A notice for the sending half.
pub(super) enum Notification {
    /// The handshake of a connection that we made is complete.
    Connected(Name),
    /// A peer's rail has connected.
    Accepted(ShmAddr, Arc<Connection>),
    /// A connection was refused for its key.
    Forged(KeyMismatch),
    /// A connection was refused as the other end speaks this other version.
    Foreign(u8),
    /// A connection ended.
    Broken(Name, Break),
}

/// The part of a rail that both halves use.
pub(super) struct Shared {
    /// Process id of the owner: a forked child has the same sockets and must not end the
    /// connections.
    pub(super) process: u32,
    pub(super) local: ShmAddr,
    pub(super) config: ShmConfig,
    pub(super) listener: SeqPacket,
    pub(super) epoll: Epoll,
    pub(super) inbox: Inbox,
    pub(super) inbox_file: OwnedFd,
    pub(super) canary: Canary,
    /// Memory that peers may write.
    pub(super) memory: Registrations,
    pub(super) names: AtomicU64,
    /// Connection indices in use.
    pub(super) slots: Mutex<Vec<bool>>,
    pub(super) orders: Mutex<Vec<Order>>,
    pub(super) ordered: AtomicBool,
    pub(super) notifications: Mutex<Vec<Notification>>,
    pub(super) noted: AtomicBool,
    /// Count of connections that ended for an impossible value, and of rejected strangers.
    pub(super) refused: AtomicU64,
}

impl Shared {
    pub(super) fn open(config: &ShmConfig) -> Result<Shared, String> {
        let local = ShmAddr::new()?;
        let open = || -> Result<Shared, Errno> {
            let (inbox, inbox_file) = Inbox::create()?;
            let listener = SeqPacket::listen(local.name)?;
            let epoll = Epoll::new()?;
            epoll.add(listener.fd(), LISTENER)?;
            Ok(Shared {
                process: std::process::id(),
                local,
                config: config.clone(),
                listener,
                epoll,
                inbox,
                inbox_file,
                canary: Canary::new()?,
                memory: Registrations::default(),
                names: AtomicU64::new(0),
                slots: Mutex::default(),
                orders: Mutex::default(),
                ordered: AtomicBool::new(false),
                notifications: Mutex::default(),
                noted: AtomicBool::new(false),
                refused: AtomicU64::new(0),
            })
        };
        open().map_err(|errno| format!("rail shm: {}", sys::errno_text(errno)))
    }

    pub(super) fn new_name(&self) -> Name {
        self.names.fetch_add(1, Relaxed)
    }

    /// An index for a connection; `None` if all are in use.
    pub(super) fn take_slot(&self) -> Option<u32> {
        let mut slots = lock(&self.slots);
        let free = slots.iter().position(|used| !used);
        let slot = free.unwrap_or(slots.len());
        if slot >= inbox::RINGS_MAX as usize {
            return None;
        }
        match slots.get_mut(slot) {
            Some(used) => *used = true,
            None => slots.push(true),
        }
        Some(slot as u32)
    }

    pub(super) fn free_slot(&self, slot: u32) {
        if let Some(used) = lock(&self.slots).get_mut(slot as usize) {
            *used = false;
        }
    }

    /// Sends our handshake; with `memory`, passes the shared memory along.
    pub(super) fn send_handshake(
        &self,
        socket: &SeqPacket,
        slot: u32,
        memory: Option<OwnedFd>,
    ) -> Result<(), Errno> {
        let handshake = Handshake {
            from: self.local,
            slot,
            canary: self.canary.at(),
        };
        let inbox = self.inbox_file.as_fd();
        match memory {
            Some(memory) => socket.send(&handshake.write(), &[inbox, memory.as_fd()]),
            None => socket.send(&handshake.write(), &[inbox]),
        }
    }

    /// Returns whether a rail belongs to this host and user.
    pub(super) fn is_near(&self, addr: &ShmAddr) -> bool {
        addr.host == self.local.host
    }

    #[cold]
    pub(super) fn order(&self, order: Order) {
        lock(&self.orders).push(order);
        self.ordered.store(true, Release);
    }

    pub(super) fn take_orders(&self) -> Vec<Order> {
        match self.ordered.load(Relaxed) && self.ordered.swap(false, Acquire) {
            true => std::mem::take(&mut lock(&self.orders)),
            false => Vec::new(),
        }
    }

    #[cold]
    pub(super) fn note(&self, notification: Notification) {
        lock(&self.notifications).push(notification);
        self.noted.store(true, Release);
    }

    pub(super) fn take_notifications(&self) -> Vec<Notification> {
        match self.noted.load(Relaxed) && self.noted.swap(false, Acquire) {
            true => std::mem::take(&mut lock(&self.notifications)),
            false => Vec::new(),
        }
    }
}

pub(super) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The properties of a shm rail.
pub(super) fn caps() -> Caps {
    Caps {
        batch_bytes_max: BATCH_MAX,
        batch_segments_max: SEGMENTS_MAX,
        receive_buffer_bytes: RECEIVE_BYTES,
        latency_ns: 300,
        ordered: true,
        lossless: true,
        fixed_mtu: true,
        connected: true,
        remote_write: RemoteWrites::Ordered,
        knows_landed: true,
        one_copy: true,
        ..Caps::datagrams(BATCH_MAX)
    }
}
