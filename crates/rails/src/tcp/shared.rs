//! The state that both halves share: listener, registered memory, and a queue in each direction
//! between the halves.

use super::broken::Break;
use super::handshake::{Handshake, TcpAddr};
use crate::ports::Ports;
use crate::rail::KeyMismatch;
use crate::sys::{self, Epoll, Errno, Stream, StreamOptions};
use crate::Registrations;
use marline_auth::{ConnectionKeys, FrameKey};
use std::net::IpAddr;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed, Ordering::Release};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// Settings of a TCP rail.
#[derive(Clone, Debug)]
pub struct TcpConfig {
    /// Local ports, on one of which the rail listens.
    pub ports: Ports,
    /// Receive buffer of a connection in bytes; 0: autotuned by the kernel.
    pub rcvbuf_bytes: usize,
    /// Send buffer of a connection in bytes; 0: autotuned by the kernel.
    pub sndbuf_bytes: usize,
    /// Differentiated services code point of all packets, 0 to 63 (RFC 2474).
    pub dscp: u8,
    /// Time in ms after which the kernel drops a connection with unacknowledged bytes: the time
    /// after which a silent peer is declared dead.
    pub user_timeout_ms: u32,
    /// Connections beyond which the least recently used are evicted until needed again; 0: an
    /// eighth of the process's descriptors.
    pub connections_max: usize,
    /// The rail is the standby of a UDP rail with the same address and port.
    pub standby: bool,
    /// The secret of the job's connections; `None`: connections prove nothing.
    pub keys: Option<Arc<ConnectionKeys>>,
}

impl Default for TcpConfig {
    /// Any port, autotuned buffers, five seconds.
    fn default() -> TcpConfig {
        TcpConfig {
            ports: Ports::ANY,
            rcvbuf_bytes: 0,
            sndbuf_bytes: 0,
            dscp: 0,
            user_timeout_ms: 5_000,
            connections_max: 0,
            standby: false,
            keys: None,
        }
    }
}

/// Default limit of connections as a fraction of the process's descriptors: other rails and
/// libraries need descriptors, too.
const DESCRIPTORS_SHARE: usize = 8;
/// Minimum of the default limit.
const CONNECTIONS_MIN: usize = 8;

/// Name of a connection; never reused.
pub(super) type Name = u64;

/// Name of the listener in the epoll set.
pub(super) const LISTENER: Name = Name::MAX;

/// An order for the receiving half.
pub(super) enum Order {
    /// Read a connection that is being made, once it is established.
    Read {
        name: Name,
        stream: Arc<Stream>,
        to: TcpAddr,
    },
    /// Stop reading a connection.
    Forget(Name),
}

/// A notice for the sending half.
pub(super) enum Notification {
    /// A connection that was being made is established: our handshake is due, under this key if the
    /// job has one.
    Connected { name: Name, key: Option<FrameKey> },
    /// The acceptor of our handshake has proven that it has the key.
    Answered(Name),
    /// A peer's rail has connected.
    Accepted {
        name: Name,
        handshake: Handshake,
        stream: Arc<Stream>,
        /// The key of our frames on it.
        key: Option<FrameKey>,
    },
    /// A connection was refused or ended for its key.
    Forged(IpAddr, KeyMismatch),
    /// A connection ended as the other end speaks this other version of the framing.
    Foreign(IpAddr, u8),
    /// The other end evicts a connection: it sends nothing more and expects the same of us.
    Evicted(Name),
    /// The other end wants us to send on this connection instead of ours of this token.
    Joined { name: Name, token: u64 },
    /// No descriptor was left for a connection that waits to be accepted.
    NoDescriptors,
    /// A connection ended.
    Broken { name: Name, broken: Break },
}

/// The state that both halves share.
pub(super) struct Shared {
    listener: Mutex<Stream>,
    /// The listening address and the options of outgoing connections; only the sending half changes
    /// them.
    here: Mutex<(TcpAddr, StreamOptions)>,
    /// See [`TcpConfig::connections_max`].
    pub(super) connections_max: usize,
    pub(super) epoll: Epoll,
    /// See [`TcpConfig::keys`].
    pub(super) keys: Option<Arc<ConnectionKeys>>,
    /// Memory that peers may write.
    pub(super) memory: Registrations,
    names: AtomicU64,
    orders: Mutex<Vec<Order>>,
    pub(super) ordered: AtomicBool,
    notifications: Mutex<Vec<Notification>>,
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
            dscp: config.dscp,
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
            keys: config.keys.clone(),
            memory: Registrations::default(),
            names: AtomicU64::new(0),
            orders: Mutex::default(),
            ordered: AtomicBool::new(false),
            notifications: Mutex::default(),
            noted: AtomicBool::new(false),
        })
    }

    /// The address on which the rail listens.
    pub(super) fn local(&self) -> TcpAddr {
        lock(&self.here).0
    }

    /// The options of outgoing connections.
    pub(super) fn options(&self) -> StreamOptions {
        lock(&self.here).1
    }

    /// Listens on another address with the same port. On failure nothing changes.
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

    /// The next incoming connection.
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
    pub(super) fn note(&self, notification: Notification) {
        lock(&self.notifications).push(notification);
        self.noted.store(true, Release);
    }

    pub(super) fn take_notifications(&self) -> Vec<Notification> {
        std::mem::take(&mut lock(&self.notifications))
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
