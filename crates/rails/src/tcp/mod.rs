//! The TCP rail: one interface's address, one connection per link.
//!
//! A link's connection is made when it is first wanted, by whoever wants it first, and made anew when
//! it breaks. Its first frame says which rail has made it, so that the other end can answer on it. When
//! both ends connect at once there are two: each sends on its own, and reads both.
//!
//! Bytes in a stream arrive in order or not at all, so nothing is sent again while the connection
//! stands. What was on its way when it broke is lost, and the protocol sends it elsewhere.
//!
//! The two halves share no lock on the way of a packet: each tells the other what changed by a queue,
//! and a flag says that there is something in it.

mod frame;
mod input;
mod links;
mod output;
mod rx;
#[cfg(test)]
mod tests;
mod tx;

pub use rx::TcpRx;
pub use tx::TcpTx;

use crate::sys::{self, Epoll, Errno, Stream, StreamOptions};
use crate::{InterfaceChoice, Rail, Registrations, UdpAddr};
use input::Break;
use marline_wire::{RailAddr, RailKind};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed, Ordering::Release};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// Settings of a TCP rail.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TcpConfig {
    /// Local port to listen on, 0 for any.
    pub port: u16,
    /// Receive buffer of a connection in bytes; 0: as the kernel chooses and grows it.
    pub rcvbuf_bytes: usize,
    /// Send buffer of a connection in bytes; 0: as the kernel chooses and grows it.
    pub sndbuf_bytes: usize,
    /// The kernel gives up a connection whose bytes are not acknowledged for so long, in ms: the
    /// time after which a silent peer is dead, so that the kernel's patience ends with ours.
    pub user_timeout_ms: u32,
}

impl Default for TcpConfig {
    /// Any port, buffers that the kernel grows, five seconds.
    fn default() -> TcpConfig {
        TcpConfig {
            port: 0,
            rcvbuf_bytes: 0,
            sndbuf_bytes: 0,
            user_timeout_ms: 5_000,
        }
    }
}

/// The kernel's lowest retransmission timeout that is asked for, in us, where kernels have the
/// option: its usual 200 ms is what users feel when the last packet of a message is lost.
const RTO_MIN_US: u32 = 5_000;

/// Where a TCP rail listens.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct TcpAddr {
    pub(crate) ip: IpAddr,
    pub(crate) port: u16,
}

/// Bytes of the longest greeting: port, then the address.
const GREETING_MAX: usize = 18;

/// The greeting that says which rail connects.
fn greeting_of(local: &TcpAddr) -> ([u8; GREETING_MAX], usize) {
    let mut out = [0; GREETING_MAX];
    out[..2].copy_from_slice(&local.port.to_le_bytes());
    let len = match local.ip {
        IpAddr::V4(ip) => {
            out[2..6].copy_from_slice(&ip.octets());
            6
        }
        IpAddr::V6(ip) => {
            out[2..18].copy_from_slice(&ip.octets());
            18
        }
    };
    (out, len)
}

/// The rail of a greeting.
fn read_greeting(bytes: &[u8]) -> Option<TcpAddr> {
    let (port, ip) = bytes.split_first_chunk::<2>()?;
    let ip = match ip.len() {
        4 => IpAddr::V4(Ipv4Addr::from(<[u8; 4]>::try_from(ip).ok()?)),
        16 => IpAddr::V6(Ipv6Addr::from(<[u8; 16]>::try_from(ip).ok()?)),
        _ => return None,
    };
    let port = u16::from_le_bytes(*port);
    (port != 0).then_some(TcpAddr { ip, port })
}

/// Name of a connection, which none had before.
type Name = u64;

/// A task for the receiving half.
enum Order {
    /// A connection that is being made is to be read once it is there.
    Read { name: Name, stream: Arc<Stream> },
    /// A connection is not to be read any more.
    Forget(Name),
}

/// News for the sending half.
enum Notice {
    /// A connection that was being made is there.
    Connected(Name),
    /// A rail has connected to ours.
    Accepted {
        name: Name,
        from: TcpAddr,
        stream: Arc<Stream>,
    },
    /// A connection is at its end.
    Broken { name: Name, broken: Break },
}

/// What both halves use.
struct Shared {
    listener: Stream,
    local: TcpAddr,
    options: StreamOptions,
    epoll: Epoll,
    /// Memory that peers may write into.
    memory: Registrations,
    names: AtomicU64,
    orders: Mutex<Vec<Order>>,
    ordered: AtomicBool,
    notices: Mutex<Vec<Notice>>,
    noted: AtomicBool,
}

impl Shared {
    /// Listens on the address; the error names the step that failed.
    fn open(
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
            rto_min_us: RTO_MIN_US,
        };
        let (listener, port) = Stream::listen(&options, config.port)?;
        Ok(Shared {
            listener,
            local: TcpAddr { ip, port },
            options,
            epoll: Epoll::new().map_err(|e| ("epoll_create", e))?,
            memory: Registrations::default(),
            names: AtomicU64::new(0),
            orders: Mutex::default(),
            ordered: AtomicBool::new(false),
            notices: Mutex::default(),
            noted: AtomicBool::new(false),
        })
    }

    fn new_name(&self) -> Name {
        self.names.fetch_add(1, Relaxed)
    }

    #[cold]
    fn order(&self, order: Order) {
        lock(&self.orders).push(order);
        self.ordered.store(true, Release);
    }

    fn take_orders(&self) -> Vec<Order> {
        std::mem::take(&mut lock(&self.orders))
    }

    #[cold]
    fn note(&self, notice: Notice) {
        lock(&self.notices).push(notice);
        self.noted.store(true, Release);
    }

    fn take_notices(&self) -> Vec<Notice> {
        std::mem::take(&mut lock(&self.notices))
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// A TCP rail on one interface.
pub struct TcpRail {
    tx: TcpTx,
    rx: TcpRx,
}

impl TcpRail {
    /// Opens a rail on `interface`; the error says what to do.
    pub fn open(interface: &InterfaceChoice, config: &TcpConfig) -> Result<TcpRail, String> {
        let failed = |(step, errno)| {
            let text = sys::errno_text(errno);
            format!("rail tcp:{interface}: {step} failed: {text}")
        };
        let shared = Shared::open(interface.ip, interface.scope_id, config).map_err(failed)?;
        let shared = Arc::new(shared);
        let key = sys::random().map_err(|errno| failed(("getrandom", errno)))?;
        let local = address(&shared.local, interface.prefix_len);
        let rx = TcpRx::new(shared.clone()).map_err(|errno| failed(("epoll_ctl", errno)))?;
        let tx = TcpTx::new(shared, local, interface.bytes_per_s, key);
        Ok(TcpRail { tx, rx })
    }
}

impl Rail for TcpRail {
    type Tx = TcpTx;
    type Rx = TcpRx;
    fn split(self) -> (TcpTx, TcpRx) {
        (self.tx, self.rx)
    }
}

/// The rail's address for others.
fn address(local: &TcpAddr, prefix_len: u8) -> RailAddr {
    let udp = UdpAddr {
        ip: local.ip,
        port: local.port,
        prefix_len,
    };
    let kind = match local.ip {
        IpAddr::V4(_) => RailKind::Tcp4,
        IpAddr::V6(_) => RailKind::Tcp6,
    };
    RailAddr::new(kind, udp.rail().bytes())
}
