//! The state that both halves share: the port, its queues, and news for the sending half.

use super::addr::VerbsAddr;
use super::greeting::Greeting;
use super::port::Port;
use crate::sys::verbs::{
    AddressHandle, CompletionChannel, CompletionQueue, Domain, QueuePair, QueueSizes, QueueType,
    ReceiveQueue, VerbsEvent,
};
use crate::sys::{Epoll, Errno};
use std::os::fd::AsRawFd;
use std::os::unix::net::UnixDatagram;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering::Acquire, Ordering::Release};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// The Q_Key of all datagrams: whoever sends without it is not heard. (The highest bit is clear, as
/// such keys are for the kernel alone.)
pub(super) const QKEY: u32 = 0x4d41_524c;
/// Bytes before each datagram that comes: room for its global route.
pub(super) const ROUTE_LEN: usize = 40;
/// Sends that may be posted: several of the largest batches.
pub(super) const SENDS: u32 = 1024;
/// Other flows of datagrams.
pub(super) const FLOWS: usize = 3;
/// Sends that may be posted to the pair of one.
pub(super) const FLOW_SENDS: u32 = 128;
/// Datagrams that may wait to be received.
pub(super) const RECEIVES: u32 = 2048;
/// The same, where they are greetings and packets of groups.
pub(super) const GREETING_SLOTS: u32 = 256;
/// Bytes of a datagram that its request holds itself, if the device can: a lone short message.
const INLINE: u32 = 256;

/// Bytes for packets that may wait to be received from connections.
const CONNECTED_BYTES: usize = 8 << 20;
/// Receives for them at most: immediates take one, too.
const CONNECTED_RECEIVES: u32 = 2048;
/// Largest packet of a reliable connection: each that waits to be received takes as much.
const CONNECTED_MAX: usize = 16 * 1024;
/// Largest packet of an unreliable one, unless the MTU is larger.
const UNRELIABLE_MAX: usize = 8 * 1024;
/// Completions of sends that may wait: of all connections when all fail at once.
const SEND_COMPLETIONS: u32 = 32_000;

/// Settings of verbs rails.
#[derive(Clone, Debug, Default)]
pub struct VerbsConfig {
    /// Connections of a rail beyond which those that were sent on least lately rest; 0: 150.
    pub connections_max: usize,
    /// Packets that leave on a link as datagrams before it gets a connection; 0: it has one from
    /// the start.
    pub datagrams_first: u32,
    /// Silence that breaks no reliable connection; 0: half a second breaks it.
    pub patience_ms: u32,
    /// Copies what it writes into registered buffers first, instead of registering it.
    pub staged: bool,
}

/// The name of a link, and the flow, if another one is meant.
pub(super) type WayName = (u64, Option<usize>);

/// News for the sending half.
pub(super) enum Notice {
    /// The device tells of something by itself, which has a name.
    Event(VerbsEvent, &'static str),
    /// The pair of datagrams has failed, in this life of it.
    Failed(u32),
    /// A connection has failed: its queue pair, and the status of the completion.
    Broken(u32, i32),
    /// A peer says something of a link.
    Heard(Greeting),
    /// The way to a peer was found, or not, by the name that was given with the question.
    Resolved(WayName, Result<AddressHandle, Errno>),
}

/// Queues that the connections of a rail share.
pub(super) struct Connections {
    pub(super) receives: Arc<ReceiveQueue>,
    /// Receives in it, and the bytes of each: the largest packet.
    pub(super) slots: usize,
    pub(super) slot_len: usize,
}

impl Connections {
    fn new(domain: &Arc<Domain>, port: &Port, kind: QueueType) -> Result<Connections, Errno> {
        let slot_len = match kind {
            QueueType::Rc => CONNECTED_MAX,
            // All of a packet is lost with any of its parts, so these are fewer.
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

/// The state of both halves.
pub(super) struct Shared {
    /// The pair of datagrams. It goes before what it is made of.
    pub(super) datagrams: QueuePair,
    /// `None`: the rail is one of datagrams.
    pub(super) connections: Option<Arc<Connections>>,
    pub(super) send_queue: Arc<CompletionQueue>,
    pub(super) receive_queue: Arc<CompletionQueue>,
    pub(super) channel: Arc<CompletionChannel>,
    pub(super) domain: Arc<Domain>,
    pub(super) port: Port,
    /// The descriptors that the receiving half sleeps on.
    pub(super) epoll: Epoll,
    /// Which life of the pair of datagrams it is: each reset begins one.
    pub(super) life: AtomicU32,
    /// Held while receives are posted, and while a new life begins.
    posting: Mutex<()>,
    /// Wakes the receiving half: the near end is written to, the far end is in the set.
    wake: (UnixDatagram, UnixDatagram),
    notices: Mutex<Vec<Notice>>,
    noted: AtomicBool,
}

/// The step that failed, and how.
pub(super) type Failure = (&'static str, Errno);

impl Shared {
    /// Makes the queues of a port.
    pub(super) fn new(port: Port, kind: QueueType) -> Result<Shared, Failure> {
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
            .begin(port.number, 0, QKEY)
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
            life: AtomicU32::new(0),
            posting: Mutex::default(),
            wake,
            notices: Mutex::default(),
            noted: AtomicBool::new(false),
        })
    }

    /// Where the rail is reached.
    pub(super) fn address(&self) -> VerbsAddr {
        VerbsAddr {
            node: self.port.node,
            number: self.datagrams.number(),
        }
    }

    /// For as long as receives are posted.
    pub(super) fn posting(&self) -> MutexGuard<'_, ()> {
        lock(&self.posting)
    }

    /// Begins a new life of the pair of datagrams: nothing that was posted is read or written any
    /// more when this returns.
    #[cold]
    pub(super) fn renew(&self) -> Result<(), Errno> {
        let _posting = self.posting();
        self.datagrams.reset()?;
        self.life.fetch_add(1, Release);
        self.datagrams.begin(self.port.number, 0, QKEY)?;
        self.datagrams.ready()
    }

    #[cold]
    pub(super) fn note(&self, notice: Notice) {
        lock(&self.notices).push(notice);
        self.noted.store(true, Release);
    }

    /// The same, for whoever sleeps.
    #[cold]
    pub(super) fn note_and_wake(&self, notice: Notice) {
        self.note(notice);
        let _ = self.wake.0.send(&[0]); // full: it is awake soon
    }

    /// Takes what woke the receiving half.
    pub(super) fn awake(&self) {
        let mut byte = [0];
        while self.wake.1.recv(&mut byte).is_ok() {}
    }

    /// News, if there are any.
    #[inline]
    pub(super) fn take_notices(&self) -> Option<Vec<Notice>> {
        (self.noted.load(Acquire)).then(|| self.take_all())
    }

    #[cold]
    fn take_all(&self) -> Vec<Notice> {
        let mut notices = lock(&self.notices);
        self.noted.store(false, Release);
        std::mem::take(&mut notices)
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
