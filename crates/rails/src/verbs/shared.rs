//! The state that both halves share: the port, its queues, and notices for the sending half.

use super::addr::VerbsAddr;
use super::handshake::{Foreign, Handshake};
use super::marks::Marks;
use super::port::Port;
use crate::sys::verbs::{
    AddressHandle, CompletionChannel, CompletionQueue, Domain, QueuePair, QueueSizes, QueueType,
    ReceiveQueue, VerbsEvent,
};
use crate::sys::{Epoll, Errno};
use marline_auth::ConnectionKeys;
use std::os::fd::AsRawFd;
use std::os::unix::net::UnixDatagram;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering::Acquire, Ordering::Release};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// The Q_Key of all datagrams without a key of the job: adapters drop datagrams with another one.
/// (Its highest bit is clear, since Q_Keys with that bit are reserved for privileged users.)
const QKEY: u32 = 0x4d41_524c;
/// Bytes before each received datagram: room for the GRH.
pub(super) const ROUTE_LEN: usize = 40;
/// Depth of the datagram send queue: several of the largest batches.
pub(super) const SENDS: u32 = 1024;
/// Number of additional datagram flows (ECMP).
pub(super) const FLOWS: usize = 3;
/// Depth of the send queue of one flow.
pub(super) const FLOW_SENDS: u32 = 128;
/// Depth of the receive queue for datagrams.
pub(super) const RECEIVES: u32 = 2048;
/// Depth of the receive queue for datagrams if those are only handshakes and multicast.
pub(super) const HANDSHAKE_SLOTS: u32 = 256;
/// Bytes of an inline datagram, if the device supports it: a single short message.
const INLINE: u32 = 256;

/// Bytes of receive buffers for connections.
const CONNECTED_BYTES: usize = 8 << 20;
/// Maximum of receives for connections; an immediate consumes one, too.
const CONNECTED_RECEIVES: u32 = 2048;
/// Largest packet of a reliable connection: each receive buffer has this size.
const CONNECTED_MAX: usize = 16 * 1024;
/// Largest packet of an unreliable connection, unless the MTU is larger.
const UNRELIABLE_MAX: usize = 8 * 1024;
/// Handshake messages that wait for the sending half: more of them are dropped, and repeated by
/// their senders.
const HEARD_MAX: usize = 1024;
/// Depth of the send completion queue: all connections may fail at once.
const SEND_COMPLETIONS: u32 = 32_000;

/// Settings of verbs rails.
#[derive(Clone, Debug, Default)]
pub struct VerbsConfig {
    /// Connections of a rail beyond which idle eviction begins; 0: 150.
    pub connections_max: usize,
    /// Packets that a link sends as datagrams before it gets a connection; 0: a link has a
    /// connection from the start.
    pub datagrams_first: u32,
    /// Silence in ms that must not break a reliable connection; with 0 half a second breaks it.
    pub retry_ms: u32,
    /// Writes leave from registered bounce buffers instead of registered application memory.
    pub staged: bool,
    /// With keys, datagrams have a Q_Key of the job, and connections are made with ends alone that
    /// prove the key.
    pub keys: Option<Arc<ConnectionKeys>>,
    /// The part of a port that rails use, and the class of their packets.
    pub marks: Marks,
}

/// The name of a link, and the index of an additional flow.
pub(super) type WayName = (u64, Option<usize>);

/// Notices for the sending half.
pub(super) enum Notification {
    /// An asynchronous event of the device, and its name.
    Event(VerbsEvent, &'static str),
    /// The port dropped this many datagrams with another Q_Key.
    QKeyViolations(u32),
    /// The datagram queue pair failed in this life (see [`Shared::life`]).
    Failed(u32),
    /// A connection failed: its queue pair number and the completion's status.
    Broken(u32, i32),
    /// A handshake message came, with this tag.
    Heard(Handshake, u64),
    /// A handshake message of another version came.
    Foreign(Foreign),
    /// The result of an address resolution, by the name given in the request.
    Resolved(WayName, Result<AddressHandle, Errno>),
}

/// Queues that all connections of a rail share.
pub(super) struct Connections {
    pub(super) receives: Arc<ReceiveQueue>,
    /// Number of receives, and bytes of each: the largest packet.
    pub(super) slots: usize,
    pub(super) slot_len: usize,
}

impl Connections {
    fn new(domain: &Arc<Domain>, port: &Port, kind: QueueType) -> Result<Connections, Errno> {
        let slot_len = match kind {
            QueueType::Rc => CONNECTED_MAX,
            // A packet is lost if any of its parts is lost, so packets are shorter here.
            QueueType::Uc | QueueType::Ud => UNRELIABLE_MAX.max(port.attr.mtu()),
        };
        let slots = ((CONNECTED_BYTES / slot_len) as u32).min(CONNECTED_RECEIVES);
        Ok(Connections {
            receives: ReceiveQueue::new(domain, slots)?,
            slots: slots as usize,
            slot_len,
        })
    }
}

/// The state that both halves share.
pub(super) struct Shared {
    /// The datagram queue pair; dropped before the objects it uses.
    pub(super) datagrams: QueuePair,
    /// `None`: the rail has no connections.
    pub(super) connections: Option<Arc<Connections>>,
    pub(super) send_queue: Arc<CompletionQueue>,
    pub(super) receive_queue: Arc<CompletionQueue>,
    pub(super) channel: Arc<CompletionChannel>,
    pub(super) domain: Arc<Domain>,
    pub(super) port: Port,
    /// The descriptors on which the receiving half sleeps.
    pub(super) epoll: Epoll,
    /// The keys of the job's connections, and the Q_Key of datagrams.
    pub(super) keys: Option<Arc<ConnectionKeys>>,
    pub(super) qkey: u32,
    /// Counts the lives of the datagram queue pair: each reset begins one.
    pub(super) life: AtomicU32,
    /// Held while receives are posted and while a new life begins.
    posting: Mutex<()>,
    /// Wakes the receiving half: the near end is written, the far end is in `epoll`.
    wake: (UnixDatagram, UnixDatagram),
    notifications: Mutex<Vec<Notification>>,
    noted: AtomicBool,
}

/// The step that failed, and its errno.
pub(super) type Failure = (&'static str, Errno);

impl Shared {
    /// Makes the queues of a port.
    pub(super) fn new(
        port: Port,
        kind: QueueType,
        config: &VerbsConfig,
    ) -> Result<Shared, Failure> {
        let keys = config.keys.clone();
        let qkey = keys.as_ref().map_or(QKEY, |keys| keys.queue_key());
        let step = |name| move |errno| (name, errno);
        let domain = Domain::new(port.device.clone()).map_err(step("ibv_alloc_pd"))?;
        let channel =
            CompletionChannel::new(&port.device).map_err(step("ibv_create_comp_channel"))?;
        let queue = |depth| CompletionQueue::new(&channel, depth).map_err(step("ibv_create_cq"));
        let connected = kind != QueueType::Ud;
        let (sends, receives) = match connected {
            true => (SEND_COMPLETIONS, RECEIVES + CONNECTED_RECEIVES),
            false => (SENDS + FLOWS as u32 * FLOW_SENDS, RECEIVES),
        };
        let (send_queue, receive_queue) = (queue(sends)?, queue(receives)?);
        let connections = match connected {
            true => {
                let connections = Connections::new(&domain, &port, kind);
                Some(Arc::new(connections.map_err(step("ibv_create_srq"))?))
            }
            false => None,
        };
        let sizes = QueueSizes {
            sends: SENDS,
            receives: RECEIVES,
            inline: INLINE,
        };
        let queues = [&send_queue, &receive_queue];
        let datagrams = QueuePair::new(&domain, QueueType::Ud, queues, None, sizes)
            .map_err(step("ibv_create_qp"))?;
        datagrams
            .begin(port.number, port.pkey_index, qkey)
            .map_err(step("ibv_modify_qp to INIT"))?;
        datagrams.ready().map_err(step("ibv_modify_qp to RTS"))?;
        let epoll = Epoll::new().map_err(step("epoll_create"))?;
        let failed = |e: std::io::Error| ("socketpair", e.raw_os_error().unwrap_or(libc::EIO));
        let wake = UnixDatagram::pair().map_err(failed)?;
        for end in [&wake.0, &wake.1] {
            end.set_nonblocking(true).map_err(failed)?;
        }
        for fd in [channel.fd(), port.device.event_fd(), wake.1.as_raw_fd()] {
            epoll.add(fd, 0).map_err(step("epoll_ctl"))?;
        }
        Ok(Shared {
            datagrams,
            connections,
            send_queue,
            receive_queue,
            channel,
            domain,
            port,
            epoll,
            keys,
            qkey,
            life: AtomicU32::new(0),
            posting: Mutex::default(),
            wake,
            notifications: Mutex::default(),
            noted: AtomicBool::new(false),
        })
    }

    /// The rail's address.
    pub(super) fn address(&self) -> VerbsAddr {
        VerbsAddr {
            node: self.port.node,
            number: self.datagrams.number(),
        }
    }

    /// The lock to hold while receives are posted.
    pub(super) fn posting(&self) -> MutexGuard<'_, ()> {
        lock(&self.posting)
    }

    /// Resets the datagram queue pair and begins a new life of it: after the return no previously
    /// posted request reads or writes memory.
    #[cold]
    pub(super) fn renew(&self) -> Result<(), Errno> {
        let _posting = self.posting();
        self.datagrams.reset()?;
        self.life.fetch_add(1, Release);
        let port = &self.port;
        self.datagrams
            .begin(port.number, port.pkey_index, self.qkey)?;
        self.datagrams.ready()
    }

    #[cold]
    pub(super) fn note(&self, notification: Notification) {
        let mut notifications = lock(&self.notifications);
        let heard = matches!(
            notification,
            Notification::Heard(..) | Notification::Foreign(_)
        );
        if heard && notifications.len() >= HEARD_MAX {
            return;
        }
        notifications.push(notification);
        drop(notifications);
        self.noted.store(true, Release);
    }

    /// Adds a notice, and wakes a sleeping receiving half.
    #[cold]
    pub(super) fn note_and_wake(&self, notification: Notification) {
        self.note(notification);
        let _ = self.wake.0.send(&[0]); // full: it is awake soon
    }

    /// Consumes the wake-ups of the receiving half.
    pub(super) fn awake(&self) {
        let mut byte = [0];
        while self.wake.1.recv(&mut byte).is_ok() {}
    }

    /// The pending notices, if there are any.
    #[inline]
    pub(super) fn take_notifications(&self) -> Option<Vec<Notification>> {
        (self.noted.load(Acquire)).then(|| self.take_all())
    }

    #[cold]
    fn take_all(&self) -> Vec<Notification> {
        let mut notifications = lock(&self.notifications);
        self.noted.store(false, Release);
        std::mem::take(&mut notifications)
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
