//! The state that both halves share: listener, registered memory, and two queues by which each
//! tells the other what changed.

use super::greeting::{Greeting, TcpAddr};
use super::input::Break;
use crate::ports::Ports;
use crate::sys::{self, Epoll, Errno, Stream, StreamOptions};
use crate::Registrations;
use std::net::IpAddr;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed, Ordering::Release};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// Settings of a TCP rail.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TcpConfig {
    /// Local ports, of which it listens on one.
    pub ports: Ports,
    /// Receive buffer of a connection in bytes; 0: as the kernel chooses and grows it.
    pub rcvbuf_bytes: usize,
    /// Send buffer of a connection in bytes; 0: as the kernel chooses and grows it.
    pub sndbuf_bytes: usize,
    /// The kernel gives up a connection whose bytes are not acknowledged for so long, in ms: the
    /// time after which a silent peer is dead, so that the kernel's patience ends with ours.
    pub user_timeout_ms: u32,
    /// Connections beyond which those that were sent on least lately are closed, until they are
    /// wanted again; 0: an eighth of the descriptors that the process may have.
    pub connections_max: usize,
    /// It stands behind a rail of UDP, of the same address and port.
    pub standby: bool,
}

impl Default for TcpConfig {
    /// Any port, buffers that the kernel grows, five seconds.
    fn default() -> TcpConfig {
        TcpConfig {
            ports: Ports::ANY,
            rcvbuf_bytes: 0,
            sndbuf_bytes: 0,
            user_timeout_ms: 5_000,
            connections_max: 0,
            standby: false,
        }
    }
}

/// A rail's connections are this part of the process's descriptors, where no setting says how many:
/// there are other rails and other libraries.
const DESCRIPTORS_SHARE: usize = 8;
/// And no fewer, however few descriptors there are.
const CONNECTIONS_MIN: usize = 8;

/// Name of a connection, which none had before.
pub(super) type Name = u64;

/// Name of the listener among the descriptors that are waited for.
pub(super) const LISTENER: Name = Name::MAX;

/// A task for the receiving half.
pub(super) enum Order {
    /// A connection that is being made is to be read once it is there.
    Read { name: Name, stream: Arc<Stream> },
    /// A connection is not to be read any more.
    Forget(Name),
}

/// News for the sending half.
pub(super) enum Notice {
    /// A connection that was being made is there.
    Connected(Name),
    /// A rail has connected to ours.
    Accepted {
        name: Name,
        greeting: Greeting,
        stream: Arc<Stream>,
    },
    /// The other end of a connection sends no more on it, and wants us to do the same.
    Rested(Name),
    /// The other end wants a connection sent on instead of ours of this token.
    Joined { name: Name, token: u64 },
    /// There were no descriptors for a connection that waits to be accepted.
    Crowded,
    /// A connection is at its end.
    Broken { name: Name, broken: Break },
}

/// The state of both halves.
pub(super) struct Shared {
    listener: Mutex<Stream>,
    /// Where it listens, and how connections are made from there; the sending half alone moves it.
    here: Mutex<(TcpAddr, StreamOptions)>,
    /// See [`TcpConfig::connections_max`].
    pub(super) connections_max: usize,
    pub(super) epoll: Epoll,
    /// Memory that peers may write into.
    pub(super) memory: Registrations,
    names: AtomicU64,
    orders: Mutex<Vec<Order>>,
    pub(super) ordered: AtomicBool,
    notices: Mutex<Vec<Notice>>,
    pub(super) noted: AtomicBool,
}

impl Shared {
    /// Listens on the address; the error names the step that failed.
    pub(super) fn open(
        ip: IpAddr,
        scope_id: u32,
        config: &TcpConfig,
    ) -> Result<Shared, (&'static str, Errno)> {
        let options = StreamOptions {
            ip,
            scope_id,
            receive_bytes: config.rcvbuf_bytes,
            send_bytes: config.sndbuf_bytes,
            user_timeout_ms: config.user_timeout_ms,
            segment_max: 0,
        };
        let listen = |port| Stream::listen(&options, port);
        let (listener, port) = config.ports.first_free(listen)?;
        let epoll = Epoll::new().map_err(|e| ("epoll_create", e))?;
        epoll
            .add(listener.fd(), LISTENER)
            .map_err(|e| ("epoll_ctl", e))?;
        Ok(Shared {
            listener: Mutex::new(listener),
            here: Mutex::new((TcpAddr { ip, port }, options)),
            connections_max: match config.connections_max {
                0 => (sys::descriptors_max() / DESCRIPTORS_SHARE).max(CONNECTIONS_MIN),
                max => max,
            },
            epoll,
            memory: Registrations::default(),
            names: AtomicU64::new(0),
            orders: Mutex::default(),
            ordered: AtomicBool::new(false),
            notices: Mutex::default(),
            noted: AtomicBool::new(false),
        })
    }

    /// Where the rail listens.
    pub(super) fn local(&self) -> TcpAddr {
        lock(&self.here).0
    }

    /// How connections are opened from there.
    pub(super) fn options(&self) -> StreamOptions {
        lock(&self.here).1
    }

    /// Listens at another address, at the same port. Where that cannot be, all is as it was.
    pub(super) fn listen_at(&self, ip: IpAddr, scope_id: u32) -> Result<TcpAddr, Errno> {
        let (was, mut options) = *lock(&self.here);
        if ip.is_ipv6() != was.ip.is_ipv6() {
            return Err(libc::EAFNOSUPPORT);
        }
        (options.ip, options.scope_id) = (ip, scope_id);
        let (listener, port) = Stream::listen(&options, was.port).map_err(|(_, errno)| errno)?;
        self.epoll.add(listener.fd(), LISTENER)?;
        let old = std::mem::replace(&mut *lock(&self.listener), listener);
        self.epoll.remove(old.fd());
        let local = TcpAddr { ip, port };
        *lock(&self.here) = (local, options);
        Ok(local)
    }

    /// The next connection that was made to the rail.
    pub(super) fn accept(&self) -> Result<Stream, Errno> {
        lock(&self.listener).accept()
    }

    pub(super) fn new_name(&self) -> Name {
        self.names.fetch_add(1, Relaxed)
    }

    #[cold]
    pub(super) fn order(&self, order: Order) {
        lock(&self.orders).push(order);
        self.ordered.store(true, Release);
    }

    pub(super) fn take_orders(&self) -> Vec<Order> {
        std::mem::take(&mut lock(&self.orders))
    }

    #[cold]
    pub(super) fn note(&self, notice: Notice) {
        lock(&self.notices).push(notice);
        self.noted.store(true, Release);
    }

    pub(super) fn take_notices(&self) -> Vec<Notice> {
        std::mem::take(&mut lock(&self.notices))
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
