//! Sending half.

use super::addr::{rail_kind, VerbsAddr};
use super::buffers::SendBuffers;
use super::links::DatagramLinks;
use super::send_queue::{Read, SendQueue};
use super::shared::{Failure, Notice, Shared, QKEY, RECEIVES, SENDS};
use crate::sys::verbs::{Completion, QueueType, Request, Sends, VerbsEvent};
use crate::sys::Errno;
use crate::{
    BufId, Caps, Connected, LinkId, Links, RailEvent, RailFault, RailTx, SendOutcome, TxBuffers,
    BUFFER_LEN,
};
use marline_wire::RailAddr;
use std::collections::VecDeque;
use std::sync::Arc;

/// Buffers that packets are built in, or that the device reads.
const BUFFERS: u32 = 16;
/// Most datagrams in one send.
const BATCH_MAX: usize = 64;
/// Completions that are taken at once.
const COMPLETIONS: usize = 32;

/// Sending half of a [`super::VerbsRail`].
pub struct VerbsTx {
    // In this order: what is posted goes before the memory that it reads.
    links: DatagramLinks,
    buffers: SendBuffers,
    shared: Arc<Shared>,
    kind: QueueType,
    queue: SendQueue,
    chain: Sends,
    events: VecDeque<RailEvent>,
    /// The device is unusable for good.
    dead: bool,
}

impl VerbsTx {
    pub(super) fn new(shared: Arc<Shared>, kind: QueueType) -> Result<VerbsTx, Failure> {
        let buffers = SendBuffers::new(&shared.domain, BUFFERS).map_err(|e| ("ibv_reg_mr", e))?;
        let depth = SENDS.min(shared.port.device.queue_max);
        Ok(VerbsTx {
            links: DatagramLinks::new(shared.clone()),
            buffers,
            shared,
            kind,
            queue: SendQueue::new(depth),
            chain: Sends::new(BATCH_MAX),
            events: VecDeque::new(),
            dead: false,
        })
    }

    /// Largest datagram.
    fn datagram_max(&self) -> usize {
        self.shared.port.attr.mtu()
    }

    /// Takes completions of what was sent, and frees what it read.
    fn reap(&mut self) {
        let mut completions = [Completion::default(); COMPLETIONS];
        let mut failed = false;
        loop {
            let polled = self.shared.send_queue.poll(&mut completions);
            let count = polled.unwrap_or(0);
            failed |= polled.is_err();
            for completion in &completions[..count] {
                let known = self.queue.completed(completion.wr_id);
                failed |= known && completion.status != 0;
            }
            if count < COMPLETIONS {
                break;
            }
        }
        self.free();
        if failed {
            self.renew();
        }
    }

    /// Frees what is not read any more.
    #[inline]
    fn free(&mut self) {
        while let Some(Read::Buffer(buffer)) = self.queue.free() {
            self.buffers.free(buffer);
        }
        if !self.queue.waits() {
            self.links.idle();
        }
    }

    /// Begins a new life of the pair, which reads nothing of what was posted.
    #[cold]
    fn renew(&mut self) {
        match self.shared.renew() {
            Ok(()) => {
                self.queue.reset();
                self.free();
            }
            Err(errno) => self.down(errno),
        }
    }

    #[cold]
    fn down(&mut self, errno: Errno) {
        let fault = RailFault::Down(errno);
        self.events.push_back(RailEvent::Fault(fault));
    }

    /// Room for so many requests.
    #[inline]
    fn has_room(&mut self, requests: usize) -> bool {
        if self.queue.room() < requests && self.queue.waits() {
            self.reap();
        }
        self.queue.room() >= requests
    }

    /// Posts the chain that was built of `count` requests; the outcome, and whether what it reads
    /// is in flight.
    #[inline]
    fn post(&mut self, count: usize, told: bool, read: Option<Read>) -> (SendOutcome, bool) {
        match self.chain.post(&self.shared.datagrams) {
            Ok(()) => {
                self.queue.posted(count, told, read);
                (SendOutcome::Sent, true)
            }
            Err((posted, errno)) => self.refused(posted, errno, read),
        }
    }

    #[cold]
    fn refused(&mut self, posted: usize, errno: Errno, read: Option<Read>) -> (SendOutcome, bool) {
        if posted > 0 {
            // Freed by the next completion, or by a new life.
            self.queue.posted(posted, false, read);
            return (SendOutcome::Sent, true); // the rest is lost
        }
        match errno {
            libc::ENOMEM | libc::EAGAIN => (SendOutcome::Busy, false),
            errno => {
                self.renew();
                (SendOutcome::Fault(RailFault::Down(errno)), false)
            }
        }
    }

    /// Sends one datagram whose bytes the request itself holds.
    #[inline]
    fn send_inline(&mut self, link: LinkId, mut request: Request) -> SendOutcome {
        if !self.has_room(1) {
            return SendOutcome::Busy;
        }
        let Some((handle, number)) = self.links.way(link) else {
            return SendOutcome::Sent; // lost
        };
        request.inline = true;
        request.signalled = self.queue.is_due(1);
        request.name = self.queue.name(1);
        self.chain.datagram(&request, handle, (number, QKEY));
        self.post(1, request.signalled, None).0
    }

    #[cold]
    fn on_notice(&mut self, notice: Notice) {
        match notice {
            Notice::Resolved(name, found) => {
                let event = self.links.resolved(name, found);
                self.events.extend(event);
            }
            Notice::Failed(life) => {
                if life == self.shared.life.load(std::sync::atomic::Ordering::Relaxed) {
                    self.renew();
                }
            }
            Notice::Event(event) => self.on_event(event),
        }
    }

    fn on_event(&mut self, event: VerbsEvent) {
        let ours = self.shared.port.number;
        match event {
            VerbsEvent::Fatal => {
                self.dead = true;
                self.down(libc::EIO);
            }
            VerbsEvent::PortDown(port) if port == ours => self.down(libc::ENETDOWN),
            VerbsEvent::PortUp(port) | VerbsEvent::PortChanged(port) if port == ours => {
                self.look_at_port();
            }
            VerbsEvent::Broken => self.renew(),
            VerbsEvent::PortDown(_)
            | VerbsEvent::PortUp(_)
            | VerbsEvent::PortChanged(_)
            | VerbsEvent::Other => {}
        }
    }

    /// The port may be up, and may be another than its address says.
    fn look_at_port(&mut self) {
        let port = &self.shared.port;
        let active = port.device.port(port.number).is_ok_and(|attr| attr.active());
        if !port.is_itself() {
            self.down(libc::EADDRNOTAVAIL);
        } else if active && !self.dead {
            self.events.push_back(RailEvent::Fault(RailFault::Up));
        }
    }
}

impl RailTx for VerbsTx {
    fn caps(&self) -> Caps {
        let datagram_max = self.datagram_max();
        Caps {
            batch_bytes_max: (BATCH_MAX * datagram_max).min(marline_wire::PACKET_MAX),
            batch_segments_max: BATCH_MAX,
            receive_buffer_bytes: RECEIVES as usize * datagram_max,
            bytes_per_s: self.shared.port.attr.bytes_per_s(),
            fixed_mtu: true,
            connected: true,
            ..Caps::datagrams(datagram_max)
        }
    }

    fn local_addr(&self) -> RailAddr {
        let addr = VerbsAddr {
            node: self.shared.port.node,
            number: self.shared.datagrams.number(),
        };
        addr.rail(self.kind)
    }

    fn send(&mut self, link: LinkId, bytes: &[u8], segment: usize, flow: u8) -> SendOutcome {
        if bytes.len() <= segment.min(self.shared.datagrams.inline_max) {
            let request = Request {
                name: 0,
                signalled: false,
                inline: true,
                address: bytes.as_ptr() as u64,
                len: bytes.len(),
                lkey: 0,
            };
            return self.send_inline(link, request);
        }
        let Some(buffer) = self.lend() else {
            return SendOutcome::Busy;
        };
        self.buffer(buffer)[..bytes.len()].copy_from_slice(bytes);
        let outcome = self.send_buffer(link, buffer, bytes.len(), segment, flow);
        if outcome == SendOutcome::Busy {
            self.give_back(buffer);
        }
        outcome
    }

    #[inline]
    fn poll_event(&mut self) -> Option<RailEvent> {
        if let Some(notices) = self.shared.take_notices() {
            notices.into_iter().for_each(|notice| self.on_notice(notice));
        }
        if self.queue.waits() {
            self.reap();
        }
        self.events.pop_front()
    }
}

impl TxBuffers for VerbsTx {
    #[inline]
    fn lend(&mut self) -> Option<BufId> {
        match self.buffers.lend() {
            None if self.queue.waits() => {
                self.reap();
                self.buffers.lend()
            }
            lent => lent,
        }
    }

    #[inline]
    fn buffer(&mut self, id: BufId) -> &mut [u8] {
        self.buffers.buffer(id)
    }

    #[inline]
    fn give_back(&mut self, id: BufId) {
        self.buffers.free(id);
    }

    fn send_buffer(
        &mut self,
        link: LinkId,
        buffer: BufId,
        len: usize,
        segment: usize,
        _flow: u8,
    ) -> SendOutcome {
        debug_assert!(len <= BUFFER_LEN);
        if len <= segment.min(self.shared.datagrams.inline_max) {
            let request = self.buffers.request(buffer, 0, len);
            let outcome = self.send_inline(link, request);
            if outcome != SendOutcome::Busy {
                self.buffers.free(buffer);
            }
            return outcome;
        }
        let count = len.div_ceil(segment.max(1)).max(1);
        if !self.has_room(count) {
            return SendOutcome::Busy;
        }
        let Some((handle, number)) = self.links.way(link).filter(|_| count <= BATCH_MAX) else {
            self.buffers.free(buffer);
            return SendOutcome::Sent; // lost
        };
        for at in 0..count {
            let from = at * segment;
            let mut request = self.buffers.request(buffer, from, segment.min(len - from));
            request.signalled = at + 1 == count;
            request.name = self.queue.name(at + 1);
            self.chain.datagram(&request, handle, (number, QKEY));
        }
        let (outcome, in_flight) = self.post(count, true, Some(Read::Buffer(buffer)));
        match (in_flight, outcome) {
            (true, _) => self.buffers.in_flight(buffer),
            (false, SendOutcome::Busy) => {}
            (false, _) => self.buffers.free(buffer),
        }
        outcome
    }

    fn drain(&mut self) {
        self.renew();
    }
}

impl Links for VerbsTx {
    fn connect(&mut self, to: &RailAddr) -> Connected {
        match VerbsAddr::of(to).filter(|_| to.kind == rail_kind(self.kind)) {
            Some(to) => self.links.connect(to),
            None => Connected {
                link: LinkId::NONE,
                up: true,
            },
        }
    }

    fn works(&mut self, _: LinkId) {}

    fn close(&mut self, link: LinkId) {
        self.links.close(link);
        if !self.queue.waits() {
            self.links.idle();
        }
    }
}

crate::no_remote_write!(VerbsTx);
crate::no_groups!(VerbsTx);
