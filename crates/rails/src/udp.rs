//! The UDP rail: one interface's address, GSO/GRO where the kernel has them, never a fragment.
//!
//! Two halves share one socket. Errors that the kernel attaches to the socket are noticed by
//! whichever half calls next and are read from the error queue by the sending half, which turns
//! them into events.

use crate::choose::InterfaceChoice;
use crate::sys::{self, Errno, RecvBuffers, SockName, Socket, SocketOptions, RECV_BATCH};
use crate::{Caps, Rail, RailEvent, RailFault, RailRx, RailTx, Received, SendOutcome};
use marline_wire::RailAddr;
use std::collections::VecDeque;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::sync::Arc;

/// Largest super-packet in bytes: 65,507, the largest that UDP could hold, was measured to be
/// split silently (design rule 8).
const SUPER_PACKET_MAX: usize = 64_000;
/// Most segments of one super-packet; kernels before 6.9 refuse more.
const SEGMENTS_MAX: usize = 64;
/// Extra source ports per rail.
const FLOWS_MAX: usize = 4;
/// Receive buffer of an extra source port, in bytes: room for errors only.
const FLOW_RCVBUF: usize = 64 << 10;
/// How often one send is repeated when the error it got may have belonged to another peer.
const FOREIGN_ERRORS_MAX: usize = 4;
/// Polls between looks into the error queues of sockets that nobody reads. Costs one system
/// call of 0.1 µs each time, so 2 ns per poll; a hint about a dead peer may come that late.
const ERROR_POLL_PERIOD: u32 = 64;
/// Most events kept while nobody polls; further ones are dropped, being hints.
const EVENTS_MAX: usize = 256;
/// Most entries read from one error queue in one go, so that a flood cannot hold the caller.
const ERRORS_PER_DRAIN_MAX: usize = 64;
/// Smallest path MTU in bytes of IP packet that is believed; IPv4 promises 576, but Linux
/// itself refuses to learn less than 552.
const PATH_MTU_MIN: usize = 552;
/// What one small packet occupies in a send buffer beyond its payload, in bytes, by estimate.
const SKB_OVERHEAD: usize = 1024;

/// Settings of a UDP rail.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UdpConfig {
    /// Let the kernel cut super-packets (UDP_SEGMENT).
    pub gso: bool,
    /// Let the kernel join what arrives (UDP_GRO).
    pub gro: bool,
    /// Receive buffer to ask for, in bytes; what was given is in [`Caps`].
    pub rcvbuf_bytes: usize,
    /// Send buffer to ask for, in bytes.
    pub sndbuf_bytes: usize,
    /// Local port, 0 for any.
    pub port: u16,
}

impl Default for UdpConfig {
    /// GSO and GRO on; 8 MiB to receive (design rule 4: this buffer is the window), 4 MiB to
    /// send, which is 0.4 ms at 10 GB/s.
    fn default() -> UdpConfig {
        let (rcvbuf_bytes, sndbuf_bytes) = (8 << 20, 4 << 20);
        UdpConfig {
            gso: true,
            gro: true,
            rcvbuf_bytes,
            sndbuf_bytes,
            port: 0,
        }
    }
}

/// What both halves use.
struct Shared {
    socket: Socket,
    /// A call on the socket failed: the error queue deserves a look.
    errors_wait: AtomicBool,
    /// Packets that the kernel dropped so far because the receive buffer was full.
    drops: AtomicU64,
}

/// A UDP rail on one interface.
pub struct UdpRail {
    tx: UdpTx,
    rx: UdpRx,
}

/// Sending half of a [`UdpRail`].
pub struct UdpTx {
    shared: Arc<Shared>,
    interface: InterfaceChoice,
    local: RailAddr,
    caps: Caps,
    sndbuf_bytes: usize,
    gso: bool,
    segments_max: usize,
    flows: [Option<Socket>; FLOWS_MAX],
    /// Bit n: flow n was opened, or opening it failed and is not tried again.
    flows_tried: u8,
    events: VecDeque<RailEvent>,
    drops_told: u64,
    polls: u32,
    faulty: bool,
}

/// Receiving half of a [`UdpRail`].
pub struct UdpRx {
    shared: Arc<Shared>,
    buffers: RecvBuffers,
    /// The last poll found something: more may wait.
    busy: bool,
    drops_seen: u32,
}

impl UdpRail {
    /// Opens a rail on `interface`; the error says what to do.
    pub fn open(interface: &InterfaceChoice, config: &UdpConfig) -> Result<UdpRail, String> {
        let socket = Socket::open(&options(interface, config)).map_err(|(step, errno)| {
            let text = sys::errno_text(errno);
            format!(
                "rail {interface}: {step} failed: {text} (port {})",
                config.port
            )
        })?;
        if config.gro {
            let _ = socket.enable_gro(); // without it datagrams arrive one by one
        }
        let _ = socket.enable_drop_count(); // without it such drops look like path loss
        let mut local = socket
            .local_addr()
            .map_err(|e| format!("rail {interface}: getsockname: {}", sys::errno_text(e)))?;
        let sizes = socket.buffer_sizes();
        let datagram_max = datagram_max(interface.mtu, socket.is_v6());
        local.mtu = datagram_max as u16;
        local.prefix_len = interface.prefix_len as u16;
        let gso = config.gso && socket.knows_gso();
        let shared = Arc::new(Shared {
            socket,
            errors_wait: AtomicBool::new(false),
            drops: AtomicU64::new(0),
        });
        let caps = Caps {
            datagram_max,
            batch_bytes_max: if gso { SUPER_PACKET_MAX } else { datagram_max },
            batch_segments_max: if gso { SEGMENTS_MAX } else { 1 },
            receive_buffer_bytes: sizes.receive,
            bytes_per_s: interface.bytes_per_s,
        };
        let rx = UdpRx {
            shared: shared.clone(),
            buffers: RecvBuffers::new(),
            busy: false,
            drops_seen: 0,
        };
        let tx = UdpTx {
            shared,
            interface: interface.clone(),
            local,
            caps,
            sndbuf_bytes: sizes.send,
            gso,
            segments_max: SEGMENTS_MAX,
            flows: [const { None }; FLOWS_MAX],
            flows_tried: 0,
            events: VecDeque::new(),
            drops_told: 0,
            polls: 0,
            faulty: false,
        };
        Ok(UdpRail { tx, rx })
    }
}

impl Rail for UdpRail {
    type Tx = UdpTx;
    type Rx = UdpRx;
    fn split(self) -> (UdpTx, UdpRx) {
        (self.tx, self.rx)
    }
}

fn options<'a>(interface: &'a InterfaceChoice, config: &UdpConfig) -> SocketOptions<'a> {
    SocketOptions {
        ip: interface.ip,
        port: config.port,
        scope_id: interface.scope_id,
        interface: &interface.name,
        receive_bytes: config.rcvbuf_bytes,
        send_bytes: config.sndbuf_bytes,
    }
}

/// UDP payload that fits an IP packet of `mtu` bytes, at most one super-packet.
fn datagram_max(mtu: usize, v6: bool) -> usize {
    let headers = if v6 { 40 + 8 } else { 20 + 8 };
    mtu.saturating_sub(headers).clamp(1, SUPER_PACKET_MAX)
}

/// Errors that mean that this rail cannot send at all, unless an ICMP message about another
/// peer put them on the socket.
fn is_rail_fault(errno: Errno) -> bool {
    matches!(
        errno,
        libc::ENETDOWN
            | libc::ENETUNREACH
            | libc::ENODEV
            | libc::ENXIO
            | libc::EADDRNOTAVAIL
            | libc::EHOSTUNREACH
            | libc::EINVAL
    )
}

impl RailTx for UdpTx {
    fn caps(&self) -> Caps {
        self.caps
    }

    fn local_addr(&self) -> RailAddr {
        self.local
    }

    fn send(&mut self, to: &RailAddr, bytes: &[u8], segment: usize, flow: u8) -> SendOutcome {
        debug_assert!(segment > 0 && !bytes.is_empty());
        let name = SockName::of_rail(to, self.interface.scope_id);
        let (Some(name), true) = (name, to.kind == self.local.kind && to.port != 0) else {
            return SendOutcome::Sent; // no way there: lost, like on any path that leads nowhere
        };
        if flow != 0 {
            self.open_flow(flow);
        }
        let segment = segment.clamp(1, SUPER_PACKET_MAX);
        let mut left = bytes;
        while !left.is_empty() {
            match self.send_chunk(&name, left, segment, flow) {
                Ok(sent) => left = &left[sent..],
                // Part of the batch is out and cannot be recalled; the rest counts as lost.
                Err(errno) if left.len() < bytes.len() && is_busy(errno) => break,
                Err(errno) => return self.failure(to, segment, errno),
            }
        }
        if self.faulty {
            self.faulty = false;
            self.push(RailEvent::Fault(RailFault::Up));
        }
        SendOutcome::Sent
    }

    #[inline]
    fn poll_event(&mut self) -> Option<RailEvent> {
        self.polls = self.polls.wrapping_add(1);
        if self.flows_tried != 0 && self.polls % ERROR_POLL_PERIOD == 0 {
            self.drain_flows();
        }
        let wait = &self.shared.errors_wait;
        if wait.load(Relaxed) && wait.swap(false, Relaxed) {
            self.drain_main();
        }
        let drops = self.shared.drops.load(Relaxed);
        if drops != self.drops_told {
            let new = drops - self.drops_told;
            self.drops_told = drops;
            self.push(RailEvent::ReceiverDrops(new));
        }
        self.events.pop_front()
    }

    fn fd(&self) -> Option<i32> {
        Some(self.shared.socket.fd())
    }
}

/// No room now.
fn is_busy(errno: Errno) -> bool {
    matches!(errno, libc::EAGAIN | libc::ENOBUFS | libc::ENOMEM)
}

/// A filter of this host dropped the packet: to the caller that is loss on the way.
fn is_drop(errno: Errno) -> bool {
    matches!(errno, libc::EPERM | libc::EACCES)
}

impl UdpTx {
    /// Sends the first part of `bytes` that one call may carry; how much that was.
    #[inline]
    fn send_chunk(
        &mut self,
        to: &SockName,
        bytes: &[u8],
        segment: usize,
        flow: u8,
    ) -> Result<usize, Errno> {
        let mut segments_max = self.segments_max;
        let mut foreign = 0;
        loop {
            let socket = self.socket(flow);
            let per_call = segments_max.min(SUPER_PACKET_MAX / segment).max(1);
            let chunk = &bytes[..bytes.len().min(segment * per_call)];
            let result = if chunk.len() <= segment {
                socket.send(to, chunk, None)
            } else if self.gso {
                socket.send(to, chunk, Some(segment as u16))
            } else {
                return self.send_without_gso(to, bytes, segment, flow);
            };
            match result {
                Ok(()) => {
                    // Only a success proves that the number of segments was to blame: a lost
                    // source address and, on kernels before 6.14, a segment above the MTU are
                    // EINVAL as well.
                    self.lower_segments(segments_max);
                    return Ok(chunk.len());
                }
                Err(libc::EINTR) => {}
                Err(errno) if is_drop(errno) => return Ok(chunk.len()),
                Err(libc::EINVAL) if chunk.len() > segment => segments_max = per_call / 2,
                Err(libc::EIO) if chunk.len() > segment => self.disable_gso(),
                Err(errno) if is_busy(errno) => return Err(errno),
                Err(errno) => {
                    // An ICMP message about any peer fails the next call on the socket, whoever
                    // it is for: clear it away and send again (design rule 10).
                    self.drain(flow);
                    foreign += 1;
                    if foreign == FOREIGN_ERRORS_MAX {
                        return Err(errno);
                    }
                    if foreign == 2 && is_rail_fault(errno) {
                        self.follow_interface(flow);
                    }
                }
            }
        }
    }

    /// Sends all of `bytes` by as few calls as possible. Says busy beforehand when the whole
    /// would not fit, so that a batch does not lose its tail.
    fn send_without_gso(
        &mut self,
        to: &SockName,
        bytes: &[u8],
        segment: usize,
        flow: u8,
    ) -> Result<usize, Errno> {
        let need = 2 * bytes.len() + bytes.len().div_ceil(segment) * SKB_OVERHEAD;
        let unsent = self.socket(flow).unsent_bytes();
        if unsent > 0 && unsent + need > self.sndbuf_bytes {
            return Err(libc::EAGAIN);
        }
        let (mut done, mut foreign) = (0, 0);
        while foreign < FOREIGN_ERRORS_MAX && done < bytes.len() {
            let (sent, result) = self.socket(flow).send_each(to, &bytes[done..], segment);
            done += sent;
            match result {
                Ok(()) => return Ok(bytes.len()),
                Err(libc::EINTR) => {}
                Err(errno) if is_drop(errno) => done = bytes.len().min(done + segment),
                Err(errno) if is_busy(errno) => break,
                Err(_) => {
                    self.drain(flow);
                    foreign += 1;
                }
            }
        }
        match done {
            0 => {
                // Nothing went: let the call for one datagram say why.
                let first = &bytes[..segment.min(bytes.len())];
                self.socket(flow)
                    .send(to, first, None)
                    .map(|()| first.len())
            }
            sent => Ok(sent),
        }
    }

    /// Turns the errno of a send into its outcome.
    fn failure(&mut self, to: &RailAddr, segment: usize, errno: Errno) -> SendOutcome {
        match errno {
            libc::EMSGSIZE => {
                let options = options(&self.interface, &UdpConfig::default());
                // Never the size that just failed, whatever the kernel now says.
                let mtu = sys::path_mtu(&options, to).unwrap_or(0);
                let fits = datagram_max(mtu.max(PATH_MTU_MIN), to.kind == 6);
                SendOutcome::TooBig(fits.min(segment.saturating_sub(8)).max(1))
            }
            errno if is_rail_fault(errno) => {
                self.faulty = true;
                SendOutcome::Fault(RailFault::Down(errno))
            }
            // Refused again and again on behalf of other peers: the caller may try again; its
            // own timers end it.
            _ => SendOutcome::Busy,
        }
    }

    /// Opens the socket of a flow when it is first used. Nobody reads it, so that it takes no
    /// data; its errors are read. Where it cannot be opened, the main socket serves.
    fn open_flow(&mut self, flow: u8) {
        let at = (flow as usize - 1) % FLOWS_MAX;
        if self.flows_tried & 1 << at != 0 {
            return;
        }
        self.flows_tried |= 1 << at;
        let sizes = UdpConfig {
            sndbuf_bytes: self.sndbuf_bytes / 2,
            ..UdpConfig::default()
        };
        let mut options = options(&self.interface, &sizes);
        options.receive_bytes = FLOW_RCVBUF;
        self.flows[at] = Socket::open(&options)
            .ok()
            .filter(|s| s.refuse_data().is_ok());
    }

    fn lower_segments(&mut self, segments_max: usize) {
        if segments_max < self.segments_max {
            self.segments_max = segments_max.max(1);
            self.caps.batch_segments_max = self.segments_max;
        }
    }

    fn disable_gso(&mut self) {
        self.gso = false;
        self.caps.batch_segments_max = 1;
        self.caps.batch_bytes_max = self.caps.datagram_max;
    }

    /// The interface may have been deleted and made again under another index.
    fn follow_interface(&mut self, flow: u8) {
        let _ = self.socket(flow).leave_by(&self.interface.name); // the next send tells
        if let Ok(index) = sys::interface_index(&self.interface.name) {
            if self.interface.scope_id != 0 {
                self.interface.scope_id = index;
            }
        }
    }

    /// The socket of a flow; the main one where a flow has none yet.
    #[inline]
    fn socket(&self, flow: u8) -> &Socket {
        match flow {
            0 => &self.shared.socket,
            _ => self.flows[(flow as usize - 1) % FLOWS_MAX]
                .as_ref()
                .unwrap_or(&self.shared.socket),
        }
    }

    #[cold]
    fn drain(&mut self, flow: u8) {
        self.drain_main();
        if flow != 0 {
            self.drain_flows();
        }
    }

    fn drain_main(&mut self) {
        let shared = self.shared.clone();
        if !self.drain_socket(&shared.socket) {
            shared.errors_wait.store(true, Relaxed);
        }
    }

    fn drain_flows(&mut self) {
        for at in 0..FLOWS_MAX {
            if let Some(socket) = self.flows[at].take() {
                self.drain_socket(&socket);
                self.flows[at] = Some(socket);
            }
        }
    }

    /// Turns what waits in an error queue into events; whether the queue is empty now.
    fn drain_socket(&mut self, socket: &Socket) -> bool {
        for _ in 0..ERRORS_PER_DRAIN_MAX {
            let Some(report) = socket.take_error() else {
                return true;
            };
            match report.errno {
                // Local ones are the outcome of a send, which the sender learns anyway.
                libc::EMSGSIZE if !report.local => {
                    let mtu = report.mtu.max(PATH_MTU_MIN);
                    let fits = datagram_max(mtu, report.to.kind == 6);
                    self.push(RailEvent::TooBig(report.to, fits));
                }
                libc::ECONNREFUSED => self.push(RailEvent::Refused(report.to)),
                // Unreachable hosts and networks: hints that acks and probes give better.
                _ => {}
            }
        }
        false
    }

    fn push(&mut self, event: RailEvent) {
        if self.events.len() < EVENTS_MAX && self.events.back() != Some(&event) {
            self.events.push_back(event);
        }
    }
}

impl RailRx for UdpRx {
    #[inline]
    fn recv(&mut self, sink: &mut dyn FnMut(Received<'_>)) -> usize {
        let mut count = 0;
        let (shared, drops_seen) = (&self.shared, &mut self.drops_seen);
        let mut take = |datagram: sys::Datagram<'_>| {
            if let Some(drops) = datagram.drops {
                let new = drops.wrapping_sub(*drops_seen);
                *drops_seen = drops;
                shared.drops.fetch_add(new as u64, Relaxed);
            }
            if datagram.bytes.is_empty() {
                return;
            }
            let segment = datagram.segment.unwrap_or(0);
            let whole = segment == 0 || segment > datagram.bytes.len();
            let segment = if whole { datagram.bytes.len() } else { segment };
            count += datagram.bytes.len().div_ceil(segment);
            sink(Received {
                from: datagram.from,
                bytes: datagram.bytes,
                segment,
            });
        };
        let result = if self.busy {
            shared.socket.recv_many(&mut self.buffers, &mut take)
        } else {
            shared.socket.recv_one(&mut self.buffers).map(|datagram| {
                datagram.into_iter().for_each(take);
                1
            })
        };
        match result {
            Ok(found) => self.busy = found == if self.busy { RECV_BATCH } else { 1 },
            Err(errno) => {
                self.busy = false;
                if errno != libc::EAGAIN && errno != libc::EINTR {
                    // Something came back from the network; the sending half finds out what.
                    self.shared.errors_wait.store(true, Relaxed);
                }
            }
        }
        count
    }
}
