//! The shm rail: between processes of one user on one host, by memory that they share.
//!
//! A rail listens on a socket of an abstract name. Whoever connects passes a file of memory
//! without a name, which holds a ring for each direction ([`ring`]), and each end passes its inbox,
//! by which it is told what to look at and is woken ([`inbox`]). So nothing is left when a process
//! is killed, in /dev/shm or elsewhere, and the socket's end tells the other process at once.
//!
//! Long messages are written with one copy: the frame names where the bytes are, and the receiver
//! reads them out of the sender's memory into their registered place (`process_vm_readv`). It holds
//! the lock of the registration meanwhile, so that nothing lands later. A container may hide the
//! sender's process, or forbid this; then the bytes go through the ring.
//!
//! The two halves of a rail share no lock on the way of a packet: each tells the other what changed
//! by a queue, and a flag says that there is something in it.

mod addr;
mod connection;
mod frame;
mod greeting;
mod inbox;
mod links;
mod ring;
mod rx;
#[cfg(test)]
mod tests;
mod tx;

pub(crate) use inbox::Page;
pub(crate) use ring::Memory;
pub use rx::ShmRx;
pub use tx::ShmTx;

use crate::sys::{self, Epoll, Errno, Gate, Inbox, Ring, Witness};
use crate::{Caps, Rail, Registrations, RemoteWrites};
use addr::ShmAddr;
use connection::{Break, Connection, Name};
use greeting::Greeting;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::atomic::{
    AtomicBool, AtomicU64, Ordering::Acquire, Ordering::Relaxed, Ordering::Release,
};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// Bytes of the largest batch, and of the largest packet: as of other rails.
const BATCH_MAX: usize = 64_000;
/// Most packets of a batch.
const SEGMENTS_MAX: usize = 64;
/// Bytes that may be under way to a rail, of which what its rings have no room for waits at the
/// senders: half of what other rails ask of the kernel.
const RECEIVE_BYTES: usize = 4 << 20;
/// Bytes of the largest frame in a ring.
const BODY_MAX: u64 = ring::body_max::<Ring>();
/// Name of the listener among the descriptors that are waited for.
const LISTENER: Name = Name::MAX;

/// Settings of a shm rail.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ShmConfig {
    /// Read long messages out of the sender's memory where the kernel allows it.
    pub one_copy: bool,
}

impl Default for ShmConfig {
    fn default() -> ShmConfig {
        ShmConfig { one_copy: true }
    }
}

/// A task for the receiving half.
enum Order {
    /// A connection is to be read.
    Read(Arc<Connection>),
    /// A connection is not to be read any more.
    Forget(Name),
}

/// News for the sending half.
enum Notice {
    /// The other end of a connection that we made has greeted.
    Connected(Name),
    /// A rail has connected to ours.
    Accepted(ShmAddr, Arc<Connection>),
    /// A connection is at its end.
    Broken(Name, Break),
}

/// The part of a rail that both halves use.
struct Shared {
    /// A child of a fork has the same sockets, and is not to end our connections.
    process: u32,
    local: ShmAddr,
    config: ShmConfig,
    listener: Gate,
    epoll: Epoll,
    inbox: Inbox,
    inbox_file: OwnedFd,
    witness: Witness,
    /// Memory that peers may write into.
    memory: Registrations,
    names: AtomicU64,
    /// Indices of connections that are in use.
    slots: Mutex<Vec<bool>>,
    orders: Mutex<Vec<Order>>,
    ordered: AtomicBool,
    notices: Mutex<Vec<Notice>>,
    noted: AtomicBool,
    /// Connections that ended because of what came by them, and strangers that were not let in.
    refused: AtomicU64,
}

impl Shared {
    fn open(config: &ShmConfig) -> Result<Shared, String> {
        let local = ShmAddr::new()?;
        let open = || -> Result<Shared, Errno> {
            let (inbox, inbox_file) = Inbox::create()?;
            let listener = Gate::listen(local.name)?;
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
                witness: Witness::new()?,
                memory: Registrations::default(),
                names: AtomicU64::new(0),
                slots: Mutex::default(),
                orders: Mutex::default(),
                ordered: AtomicBool::new(false),
                notices: Mutex::default(),
                noted: AtomicBool::new(false),
                refused: AtomicU64::new(0),
            })
        };
        open().map_err(|errno| format!("rail shm: {}", sys::errno_text(errno)))
    }

    fn new_name(&self) -> Name {
        self.names.fetch_add(1, Relaxed)
    }

    /// An index for a connection; `None`: there are as many as can be.
    fn take_slot(&self) -> Option<u32> {
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

    fn free_slot(&self, slot: u32) {
        if let Some(used) = lock(&self.slots).get_mut(slot as usize) {
            *used = false;
        }
    }

    /// Greets the other end of a connection; `memory`: and passes it the memory for both.
    fn greet(&self, gate: &Gate, slot: u32, memory: Option<OwnedFd>) -> Result<(), Errno> {
        let greeting = Greeting {
            from: self.local,
            slot,
            witness: self.witness.at(),
        };
        let inbox = self.inbox_file.as_fd();
        match memory {
            Some(memory) => gate.send(&greeting.write(), &[inbox, memory.as_fd()]),
            None => gate.send(&greeting.write(), &[inbox]),
        }
    }

    /// Tells a rail of this host and user from others.
    fn is_near(&self, addr: &ShmAddr) -> bool {
        addr.host == self.local.host
    }

    #[cold]
    fn order(&self, order: Order) {
        lock(&self.orders).push(order);
        self.ordered.store(true, Release);
    }

    fn take_orders(&self) -> Vec<Order> {
        match self.ordered.load(Relaxed) && self.ordered.swap(false, Acquire) {
            true => std::mem::take(&mut lock(&self.orders)),
            false => Vec::new(),
        }
    }

    #[cold]
    fn note(&self, notice: Notice) {
        lock(&self.notices).push(notice);
        self.noted.store(true, Release);
    }

    fn take_notices(&self) -> Vec<Notice> {
        match self.noted.load(Relaxed) && self.noted.swap(false, Acquire) {
            true => std::mem::take(&mut lock(&self.notices)),
            false => Vec::new(),
        }
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// A shm rail.
pub struct ShmRail {
    tx: ShmTx,
    rx: ShmRx,
}

impl ShmRail {
    /// Opens a rail; the error says what to do.
    pub fn open(config: &ShmConfig) -> Result<ShmRail, String> {
        let shared = Arc::new(Shared::open(config)?);
        Ok(ShmRail {
            tx: ShmTx::new(shared.clone()),
            rx: ShmRx::new(shared),
        })
    }
}

impl Rail for ShmRail {
    type Tx = ShmTx;
    type Rx = ShmRx;
    fn split(self) -> (ShmTx, ShmRx) {
        (self.tx, self.rx)
    }
}

/// The properties of a shm rail.
fn caps() -> Caps {
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
        one_copy: true,
        ..Caps::datagrams(BATCH_MAX)
    }
}
