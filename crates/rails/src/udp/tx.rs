//! Sending half: batches and errors.

use super::destinations::{queue_of, Newest, UdpLinks, FLOWS_MAX};
use super::host_share::OwnGroup;
use super::shared::{
    is_busy, is_drop, is_rail_fault, options, Shared, UdpConfig, FLOW_RCVBUF, SEGMENTS_MAX,
    SUPER_PACKET_MAX,
};
use crate::addr::UdpAddr;
use crate::interfaces::{InterfaceChoice, SilentPeers};
use crate::plain_buffers::PlainBuffers;
use crate::ports::Ports;
use crate::sys::{self, Errno, SockName, Socket, SocketOptions};
use crate::tx_buf::BUFFER_LEN;
use crate::{
    Caps, Connected, LinkId, Links, RailEvent, RailFault, RailTx, RemoteWrites, SendOutcome,
};
use marline_wire::RailAddr;
use std::collections::VecDeque;
use std::hash::RandomState;
use std::os::fd::OwnedFd;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::Arc;

/// A buffer for building packets, a buffer that waits for room, and a spare.
const BUFFERS_MAX: usize = 3;
/// Most repetitions of one send whose error may belong to a packet to another peer.
const FOREIGN_ERRORS_MAX: usize = 4;
/// Polls between checks of the error queues of sockets that are never read. Each check is a system
/// call; a hint about a dead peer may be late by that many polls.
const ERROR_POLL_PERIOD: u32 = 64;
/// Estimated bytes that a small packet occupies in a send buffer beyond its payload.
const SKB_OVERHEAD: usize = 1024;

/// Sending half of a [`super::UdpRail`].
pub struct UdpTx {
    pub(super) shared: Arc<Shared>,
    pub(super) interface: InterfaceChoice,
    local: RailAddr,
    pub(crate) caps: Caps,
    sndbuf_bytes: usize,
    pub(super) gso: bool,
    segments_max: usize,
    pub(super) flows: [Option<Socket>; FLOWS_MAX],
    pub(super) links: UdpLinks,
    buffers: PlainBuffers,
    /// Bit n: flow n was opened, or opening it failed and is not retried.
    pub(super) flows_tried: u8,
    /// The newest flows of all links.
    newest: Newest,
    pub(super) events: VecDeque<RailEvent>,
    pub(super) drops_reported: u64,
    polls: u32,
    pub(super) faulty: bool,
    silent: SilentPeers,
    /// Score of damaged direct writes, see `doubt`.
    pub(super) doubts: u32,
    /// Keys issued so far, and the hash that distinguishes them from those of other lives.
    pub(super) registered: u64,
    pub(super) random: RandomState,
    /// Joined groups, by number.
    pub(super) groups: Vec<Option<OwnGroup>>,
    /// Requested receive buffer of a group's socket, in bytes.
    pub(super) group_rcvbuf: usize,
    /// The kernel joins received datagrams (GRO).
    pub(super) gro: bool,
    /// Ports of groups.
    pub(super) ports: Ports,
    pub(super) share_groups: bool,
    /// Number of groups whose sockets other processes may still come to share.
    pub(super) share_setups: u32,
    /// Counts of datagrams read for and taken from the host, as last reported.
    host_reported: (u64, u64),
}

impl Links for UdpTx {
    fn connect(&mut self, to: &RailAddr) -> Connected {
        let link = match UdpAddr::of(to) {
            Some(to) => self.links.connect(to, self.name(&to)),
            None => LinkId::NONE,
        };
        Connected { link, up: true }
    }

    fn works(&mut self, link: LinkId) {
        if let Some(name) = self.links.get(link).and_then(|link| link.name) {
            self.shared.socket.confirm(&name);
        }
    }

    fn silent(&mut self, _: LinkId) {
        self.silent.note(self.interface.ip, &self.interface.name);
    }

    // The next flow has another source port.
    fn reroute(&mut self, _: LinkId) -> bool {
        false
    }

    fn close(&mut self, link: LinkId) {
        if self.links.close(link) {
            self.events.retain(|event| !event.is_of(link));
        }
    }
}

crate::plain_buffers!(UdpTx, buffers);

impl RailTx for UdpTx {
    fn caps(&self) -> Caps {
        self.caps
    }

    fn local_addr(&self) -> RailAddr {
        self.local
    }

    #[cold]
    fn move_to(&mut self, interface: &InterfaceChoice) -> Option<RailAddr> {
        self.local = self.go_on_at(interface).ok()?;
        Some(self.local)
    }

    fn renamed(&mut self, interface: &str) {
        interface.clone_into(&mut self.interface.name);
    }

    #[inline]
    fn send(&mut self, link: LinkId, bytes: &[u8], segment: usize, flow: u8) -> SendOutcome {
        debug_assert!(segment > 0 && !bytes.is_empty());
        let flow = self.choose(link, flow);
        if flow != 0 {
            self.count(link, flow); // the port that is tried must stay the same afterwards
        }
        let connected = self.links.socket_of(link, flow);
        if let Some((at, cut)) = connected.zip(self.cut(bytes.len(), segment)) {
            let socket = self.links.socket(at);
            let failed = match socket.map(|socket| socket.send(None, bytes, cut)) {
                Some(Ok(())) => return SendOutcome::Sent,
                Some(Err(errno)) => self.connected_failure(at, bytes, cut, errno),
                None => None,
            };
            if let Some(outcome) = failed {
                return outcome;
            }
        }
        self.send_unconnected(link, bytes, segment, flow)
    }

    #[inline]
    fn poll_event(&mut self) -> Option<RailEvent> {
        self.polls = self.polls.wrapping_add(1);
        if self.polls % ERROR_POLL_PERIOD == 0 {
            self.drain_unread();
            self.report_host_reads();
        }
        if self.share_setups > 0 {
            self.poll_share_setups();
        }
        let wait = &self.shared.errors_wait;
        if wait.load(Relaxed) && wait.swap(false, Relaxed) {
            self.drain_main();
        }
        let drops = self.shared.drops.load(Relaxed);
        if drops != self.drops_reported {
            let new = drops - self.drops_reported;
            self.drops_reported = drops;
            self.push(RailEvent::ReceiverDrops(new));
        }
        self.events.pop_front()
    }
}

impl UdpTx {
    /// Another descriptor of the rail's socket, which proves to others that this process has it.
    pub(crate) fn share_socket(&self) -> Result<OwnedFd, Errno> {
        let shared = self.shared.socket.as_fd().try_clone_to_owned();
        shared.map_err(|error| error.raw_os_error().unwrap_or(libc::EIO))
    }

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
            links: UdpLinks::new(config.connect),
            buffers: PlainBuffers::new(BUFFER_LEN, BUFFERS_MAX),
            segments_max: SEGMENTS_MAX,
            flows: [const { None }; FLOWS_MAX],
            flows_tried: 0,
            newest: Newest::default(),
            events: VecDeque::new(),
            drops_reported: 0,
            polls: 0,
            faulty: false,
            silent: SilentPeers::none(),
            doubts: 0,
            registered: 0,
            random: RandomState::new(),
            groups: Vec::new(),
            group_rcvbuf: config.rcvbuf_bytes,
            gro: false,
            ports: config.ports,
            share_groups: config.share_groups,
            share_setups: 0,
            host_reported: (0, 0),
        }
    }

    /// Reports multicast datagrams that one process read for others.
    fn report_host_reads(&mut self) {
        let shared = &self.shared;
        let now = [&shared.for_host, &shared.from_host].map(|count| count.load(Relaxed));
        let (read, taken) = (now[0] - self.host_reported.0, now[1] - self.host_reported.1);
        if (read, taken) != (0, 0) {
            self.host_reported = (now[0], now[1]);
            self.push(RailEvent::HostReads { read, taken });
        }
    }

    /// Sends the first part of `bytes` that one call can carry; returns its length.
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
                    // Only a success proves that the number of segments was the cause: EINVAL also
                    // comes from a removed source address and, on kernels before 6.14, from a
                    // segment above the MTU.
                    self.lower_segments(segments_max);
                    return Ok(chunk.len());
                }
                Err(libc::EINTR) => {}
                Err(errno) if is_drop(errno) => return Ok(chunk.len()),
                Err(libc::EINVAL) if chunk.len() > segment => segments_max = per_call / 2,
                Err(libc::EIO) if chunk.len() > segment => self.disable_gso(),
                Err(errno) if is_busy(errno) => return Err(errno),
                Err(errno) => {
                    // An ICMP error about any peer fails the next call on the socket, for any
                    // destination: clear the error and send again.
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

    /// Sends all of `bytes` with as few calls as possible. Reports busy beforehand if not all would
    /// fit, so that a batch does not lose its tail.
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
                // Nothing was sent: a call for one datagram tells the error.
                let first = &bytes[..segment.min(bytes.len())];
                self.socket(flow)
                    .send(Some(to), first, None)
                    .map(|()| first.len())
            }
            sent => Ok(sent),
        }
    }

    /// The index of the source port of a link's packets; opens sockets with another port if the
    /// flow is new.
    #[inline]
    pub(super) fn choose(&mut self, link: LinkId, flow: u8) -> u8 {
        let queue = queue_of(flow);
        if flow != queue {
            self.links.choose(link, flow);
            if self.newest.note(flow) && queue != 0 {
                let at = queue as usize - 1;
                self.flows[at] = None;
                self.flows_tried &= !(1 << at);
            }
        }
        queue
    }

    /// Opens the socket of a flow at first use. It is never read, so it accepts no data; its errors
    /// are read. If it cannot be opened, the main socket is used.
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

    /// Options of a socket that only sends.
    fn send_only(&self) -> SocketOptions<'_> {
        SocketOptions {
            receive_bytes: FLOW_RCVBUF,
            send_bytes: self.sndbuf_bytes / 2, // the kernel doubles it
            dscp: self.shared.socket.dscp(),
            ..options(&self.interface, &UdpConfig::default())
        }
    }

    /// The kernel's form of an address that the rail can reach.
    fn name(&self, to: &UdpAddr) -> Option<SockName> {
        let same = to.ip.is_ipv6() == self.shared.socket.is_v6();
        same.then(|| SockName::new(&to.ip, to.port, self.interface.scope_id))
    }

    /// The address of a link.
    pub(crate) fn destination(&self, link: LinkId) -> Option<UdpAddr> {
        self.links.get(link).map(|link| link.to)
    }

    /// Counts a send on the main socket; opens a socket for a frequent destination.
    fn count(&mut self, link: LinkId, flow: u8) {
        if self.links.count(link, flow) {
            let mut links = std::mem::replace(&mut self.links, UdpLinks::new(false));
            links.open_socket(link, flow, &self.send_only());
            self.links = links;
        }
    }

    /// Sends on the main socket or the flow's.
    fn send_unconnected(
        &mut self,
        link: LinkId,
        bytes: &[u8],
        segment: usize,
        flow: u8,
    ) -> SendOutcome {
        let Some(name) = self.links.get(link).and_then(|link| link.name) else {
            return SendOutcome::Sent; // unreachable: lost, as on any path that leads nowhere
        };
        if flow != 0 {
            self.open_flow(flow);
        }
        let outcome = self.send_named(&name, link, bytes, segment, flow);
        if flow == 0 && outcome == SendOutcome::Sent {
            self.count(link, flow);
        }
        outcome
    }

    /// Sends to an address on the main socket or the flow's; `link` is the link of the address.
    pub(super) fn send_named(
        &mut self,
        name: &SockName,
        link: LinkId,
        bytes: &[u8],
        segment: usize,
        flow: u8,
    ) -> SendOutcome {
        let segment = segment.clamp(1, SUPER_PACKET_MAX);
        let mut left = bytes;
        while !left.is_empty() {
            match self.send_chunk(name, left, segment, flow) {
                Ok(sent) => left = &left[sent..],
                // A part of the batch has left and cannot be recalled; the rest counts as lost.
                Err(errno) if left.len() < bytes.len() && is_busy(errno) => break,
                Err(errno) if self.socket(flow).lost(errno) => break,
                Err(errno) => return self.failure(link, segment, errno),
            }
        }
        if self.faulty {
            self.faulty = false;
            self.links.drop_sockets();
            self.push(RailEvent::Fault(RailFault::Up));
        }
        SendOutcome::Sent
    }

    /// How one call sends `len` bytes as packets of `segment` bytes: whole (`None` inside), or cut
    /// by the kernel. Outer `None`: one call cannot do it.
    #[inline]
    fn cut(&self, len: usize, segment: usize) -> Option<Option<u16>> {
        if len <= segment {
            return Some(None);
        }
        let fits = len <= SUPER_PACKET_MAX && len.div_ceil(segment) <= self.segments_max;
        (self.gso && fits).then_some(Some(segment as u16))
    }

    /// Handles the error of a connected socket. A refusal may concern an earlier packet, and the
    /// peer may be back: it becomes an event, and the send is repeated once. `None`: nothing was
    /// sent, and the main socket must find out the error.
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
            let lost = is_drop(errno) || self.links.socket(at)?.lost(errno);
            match errno {
                _ if lost => return Some(SendOutcome::Sent),
                errno if is_busy(errno) => return Some(SendOutcome::Busy),
                libc::ECONNREFUSED => self.drain_link(at),
                libc::EINTR => {}
                _ => break,
            }
            match self.links.socket(at)?.send(None, bytes, cut) {
                Ok(()) => return Some(SendOutcome::Sent),
                Err(again) => errno = again,
            }
        }
        self.drain_link(at);
        self.links.drop_slot(at);
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
        self.caps.remote_write = RemoteWrites::None;
        self.caps.batch_bytes_max = self.caps.datagram_max;
    }

    /// Looks the interface up again, since it may have been deleted and created with another index.
    fn follow_interface(&mut self, flow: u8) {
        let _ = self.socket(flow).leave_by(&self.interface.name); // an error shows at the next send
        if let Ok(index) = sys::interface_index(&self.interface.name) {
            if self.interface.scope_id != 0 {
                self.interface.scope_id = index;
                let v6 = self.shared.socket.is_v6();
                self.links.rename(|to| {
                    let same = to.ip.is_ipv6() == v6;
                    same.then(|| SockName::new(&to.ip, to.port, index))
                });
            }
        }
    }

    /// The socket of a flow; the main socket if the flow has none.
    #[inline]
    pub(super) fn socket(&self, flow: u8) -> &Socket {
        match flow {
            0 => &self.shared.socket,
            _ => self.flows[(flow as usize - 1) % FLOWS_MAX]
                .as_ref()
                .unwrap_or(&self.shared.socket),
        }
    }
}

#[cfg(test)]
#[path = "tx_test.rs"]
mod tests;
