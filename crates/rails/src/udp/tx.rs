//! Sending half: batches out, errors in.

use super::peers::Peers;
use super::{
    datagram_max, options, Shared, UdpConfig, FLOW_RCVBUF, SEGMENTS_MAX, SUPER_PACKET_MAX,
};
use crate::addr::UdpAddr;
use crate::choose::InterfaceChoice;
use crate::sys::{self, Errno, SockName, Socket, SocketOptions};
use crate::{Caps, RailEvent, RailFault, RailTx, SendOutcome, Write, Writes};
use marline_wire::RailAddr;
use std::collections::VecDeque;
use std::hash::{BuildHasher, RandomState};
use std::sync::atomic::Ordering::Relaxed;
use std::sync::Arc;

/// Extra source ports per rail.
const FLOWS_MAX: usize = 4;
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

/// Sending half of a [`super::UdpRail`].
pub struct UdpTx {
    pub(super) shared: Arc<Shared>,
    interface: InterfaceChoice,
    local: RailAddr,
    pub(super) caps: Caps,
    sndbuf_bytes: usize,
    gso: bool,
    segments_max: usize,
    flows: [Option<Socket>; FLOWS_MAX],
    /// Connected sockets; `None` where none are wanted.
    pub(super) peers: Option<Box<Peers>>,
    /// Bit n: flow n was opened, or opening it failed and is not tried again.
    flows_tried: u8,
    events: VecDeque<RailEvent>,
    drops_told: u64,
    polls: u32,
    faulty: bool,
    /// How many direct writes were damaged lately.
    pub(super) doubts: u32,
    /// Keys so far, and what makes them differ from those of other lives.
    granted: u64,
    random: RandomState,
}

/// Errors that may mean that this rail cannot send at all.
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
        let flow = port_of(flow);
        if flow != 0 {
            self.count_peer(to, flow); // the port that is tried is to be the one that is kept
        }
        if let Some(outcome) = self.send_connected(to, bytes, segment, flow) {
            return outcome;
        }
        let name = SockName::of_rail(to, self.interface.scope_id);
        let (Some(name), true) = (name, to.kind == self.local.kind) else {
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
                Err(errno) if self.socket(flow).lost(errno) => break,
                Err(errno) => return self.failure(to, segment, errno),
            }
        }
        if self.faulty {
            self.faulty = false;
            self.clear_peers();
            self.push(RailEvent::Fault(RailFault::Up));
        }
        if flow == 0 {
            self.count_peer(to, flow);
        }
        SendOutcome::Sent
    }

    fn write_direct(
        &mut self,
        to: &RailAddr,
        write: &Write<'_>,
        packet: &[u8],
        segment: usize,
        flow: u8,
    ) -> SendOutcome {
        self.send_direct(to, write, packet, segment, flow)
    }

    fn grant(&mut self, base: *mut u8, len: usize) -> Option<u64> {
        if !self.shared.whole.load(Relaxed) {
            return None;
        }
        self.granted += 1;
        let key = self.random.hash_one(self.granted);
        self.shared.grants.grant(key, base, len);
        Some(key)
    }

    fn revoke(&mut self, key: u64) {
        self.shared.grants.revoke(key);
    }

    fn damaged(&mut self) {
        self.doubt();
    }

    fn seal(&mut self, key: u64, offset: u64, len: u64) {
        self.doubts = self.doubts.saturating_sub(1);
        self.shared.grants.seal(key, offset..offset + len);
    }

    fn landed(&self, key: u64, offset: u64, len: u64) -> bool {
        self.shared.grants.landed(key, &(offset..offset + len))
    }

    #[inline]
    fn poll_event(&mut self) -> Option<RailEvent> {
        self.polls = self.polls.wrapping_add(1);
        if self.polls % ERROR_POLL_PERIOD == 0 {
            self.drain_unread();
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

/// The source port of a flow, by number: 0 is the rail's, of others there are so many.
pub(super) fn port_of(flow: u8) -> u8 {
    match flow {
        0 => 0,
        flow => (flow - 1) % FLOWS_MAX as u8 + 1,
    }
}

/// No room now.
pub(super) fn is_busy(errno: Errno) -> bool {
    matches!(errno, libc::EAGAIN | libc::ENOBUFS | libc::ENOMEM)
}

/// A filter of this host dropped the packet: loss, as on the way.
pub(super) fn is_drop(errno: Errno) -> bool {
    matches!(errno, libc::EPERM | libc::EACCES)
}

impl UdpTx {
    pub(super) fn new(
        shared: Arc<Shared>,
        interface: &InterfaceChoice,
        local: RailAddr,
        caps: Caps,
        config: &UdpConfig,
        sndbuf_bytes: usize,
    ) -> UdpTx {
        UdpTx {
            shared,
            interface: interface.clone(),
            local,
            caps,
            sndbuf_bytes,
            gso: caps.batch_segments_max > 1,
            peers: config.connect.then(|| Box::new(Peers::new())),
            segments_max: SEGMENTS_MAX,
            flows: [const { None }; FLOWS_MAX],
            flows_tried: 0,
            events: VecDeque::new(),
            drops_told: 0,
            polls: 0,
            faulty: false,
            doubts: 0,
            granted: 0,
            random: RandomState::new(),
        }
    }

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
                socket.send(Some(to), chunk, None)
            } else if self.gso {
                socket.send(Some(to), chunk, Some(segment as u16))
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
                    .send(Some(to), first, None)
                    .map(|()| first.len())
            }
            sent => Ok(sent),
        }
    }

    /// Turns the errno of a send into its outcome.
    pub(super) fn failure(&mut self, to: &RailAddr, segment: usize, errno: Errno) -> SendOutcome {
        match errno {
            libc::EMSGSIZE => {
                let options = options(&self.interface, &UdpConfig::default());
                // Never the size that just failed, whatever the kernel now says.
                let to = UdpAddr::of(to);
                let mtu = to.map_or(0, |to| sys::path_mtu(&options, &to).unwrap_or(0));
                let v6 = to.is_some_and(|to| to.ip.is_ipv6());
                let fits = datagram_max(mtu.max(PATH_MTU_MIN), v6);
                SendOutcome::TooBig(fits.min(segment.saturating_sub(8)).max(1))
            }
            errno if is_rail_fault(errno) => match self.interface.state() {
                // The rail is well: only this peer has no route from here.
                RailFault::Up => SendOutcome::Sent,
                RailFault::Down(_) => {
                    self.faulty = true;
                    self.clear_peers();
                    SendOutcome::Fault(RailFault::Down(errno))
                }
            },
            // Refused again and again on behalf of other peers: the caller may try again.
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
        self.flows[at] = Socket::open(&self.send_only())
            .ok()
            .filter(|s| s.refuse_data().is_ok());
    }

    /// Options of a socket that is only sent on.
    fn send_only(&self) -> SocketOptions<'_> {
        SocketOptions {
            receive_bytes: FLOW_RCVBUF,
            send_bytes: self.sndbuf_bytes / 2, // the kernel doubles it again
            ..options(&self.interface, &UdpConfig::default())
        }
    }

    /// Counts a send that the main socket served; connects when it was one of many.
    fn count_peer(&mut self, to: &RailAddr, flow: u8) {
        let Some(mut peers) = self.peers.take() else {
            return;
        };
        if peers.count(to, flow) {
            peers.connect(to, flow, &self.send_only());
        }
        self.peers = Some(peers);
    }

    /// What connected sockets remember of routes and addresses may be out of date.
    fn clear_peers(&mut self) {
        if let Some(peers) = &mut self.peers {
            peers.clear();
        }
    }

    /// Sends by the destination's connected socket. `None` when there is none or when it failed
    /// in a way of which the main socket shall say what it means: nothing was sent then.
    #[inline]
    fn send_connected(
        &mut self,
        to: &RailAddr,
        bytes: &[u8],
        segment: usize,
        flow: u8,
    ) -> Option<SendOutcome> {
        let peers = self.peers.as_mut()?;
        let at = peers.find(to, flow)?;
        let socket = peers.socket(at)?;
        let cut = if bytes.len() <= segment {
            None
        } else {
            let fits = bytes.len() <= SUPER_PACKET_MAX
                && bytes.len().div_ceil(segment) <= self.segments_max;
            (self.gso && fits).then_some(())?;
            Some(segment as u16)
        };
        match socket.send(None, bytes, cut) {
            Ok(()) => Some(SendOutcome::Sent),
            Err(errno) => self.connected_failure(at, bytes, cut, errno),
        }
    }

    /// What follows the error of a connected socket. A refusal may be that of an earlier packet,
    /// and the peer may be back: it becomes an event, and the send is repeated once.
    #[cold]
    fn connected_failure(
        &mut self,
        at: usize,
        bytes: &[u8],
        cut: Option<u16>,
        errno: Errno,
    ) -> Option<SendOutcome> {
        let mut errno = errno;
        for _ in 0..2 {
            let lost = is_drop(errno) || self.peers.as_ref()?.socket(at)?.lost(errno);
            match errno {
                _ if lost => return Some(SendOutcome::Sent),
                errno if is_busy(errno) => return Some(SendOutcome::Busy),
                libc::ECONNREFUSED => self.drain_peer(at),
                libc::EINTR => {}
                _ => break,
            }
            match self.peers.as_ref()?.socket(at)?.send(None, bytes, cut) {
                Ok(()) => return Some(SendOutcome::Sent),
                Err(again) => errno = again,
            }
        }
        self.drain_peer(at);
        self.peers.as_mut()?.drop_slot(at);
        None
    }

    fn lower_segments(&mut self, segments_max: usize) {
        if segments_max < self.segments_max {
            self.segments_max = segments_max.max(1);
            self.caps.batch_segments_max = self.segments_max;
        }
    }

    pub(super) fn disable_gso(&mut self) {
        self.gso = false;
        self.caps.batch_segments_max = 1;
        self.caps.writes = Writes::No;
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

    /// Scope of link-local addresses.
    pub(super) fn scope_id(&self) -> u32 {
        self.interface.scope_id
    }

    /// The socket of a flow; the main one where a flow has none yet.
    #[inline]
    pub(super) fn socket(&self, flow: u8) -> &Socket {
        match flow {
            0 => &self.shared.socket,
            _ => self.flows[(flow as usize - 1) % FLOWS_MAX]
                .as_ref()
                .unwrap_or(&self.shared.socket),
        }
    }

    #[cold]
    pub(super) fn drain(&mut self, flow: u8) {
        self.drain_main();
        if flow != 0 {
            self.drain_flows();
        }
    }

    fn drain_main(&mut self) {
        let shared = self.shared.clone();
        let hot = shared.hot.as_deref();
        for socket in [&shared.socket].into_iter().chain(hot) {
            if !self.drain_socket(socket) {
                shared.errors_wait.store(true, Relaxed);
            }
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

    /// Reads the errors of one connected socket.
    pub(super) fn drain_peer(&mut self, at: usize) {
        if let Some(socket) = self.peers.as_mut().and_then(|peers| peers.take(at)) {
            self.drain_socket(&socket);
            if let Some(peers) = &mut self.peers {
                peers.put_back(at, socket);
            }
        }
    }

    /// Looks into the error queues of sockets that nobody reads: all flows, and the connected
    /// ones by turns, as there may be many.
    #[cold]
    fn drain_unread(&mut self) {
        if self.flows_tried != 0 {
            self.drain_flows();
        }
        if let Some(at) = self.peers.as_mut().and_then(|peers| peers.next_open()) {
            self.drain_peer(at);
        }
    }

    /// Turns what waits in an error queue into events; whether the queue is empty now.
    fn drain_socket(&mut self, socket: &Socket) -> bool {
        for _ in 0..ERRORS_PER_DRAIN_MAX {
            let Some(report) = socket.take_error() else {
                return true;
            };
            let Some(to) = report.to else { continue };
            match report.errno {
                // Local ones are the outcome of a send, which the sender learns anyway.
                libc::EMSGSIZE if !report.local => {
                    let mtu = report.mtu.max(PATH_MTU_MIN);
                    let fits = datagram_max(mtu, to.ip.is_ipv6());
                    self.push(RailEvent::TooBig(to.rail(), fits));
                }
                libc::ECONNREFUSED => self.push(RailEvent::Refused(to.rail())),
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

#[cfg(test)]
#[path = "tx_test.rs"]
mod tests;
