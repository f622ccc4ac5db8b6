//! Sending half.

mod events;
mod multicast_tx;
mod read;
mod write;

use super::addr::{rail_kind, VerbsAddr};
use super::buffers::SendBuffers;
use super::connection::CONNECTION_SENDS;
use super::flows::{To, TxQueue};
use super::held::Waiting;
use super::immediate;
use super::queue_pairs::VerbsLinks;
use super::send_queue::Read;
use super::shared::{Failure, Notification, Shared, VerbsConfig, RECEIVES};
use super::ud_multicast::OwnGroups;
use super::writes::{Writes, PIECES_MAX};
use crate::interfaces::InterfaceChoice;
use crate::sys::verbs::{Completion, Operation, QueueType, Request, Sends};
use crate::sys::Errno;
use crate::{
    BufId, Caps, Connected, LinkId, Links, RailEvent, RailFault, RailTx, RemoteWrites, SendOutcome,
    TxBuffers, BUFFER_LEN,
};
use marline_wire::{RailAddr, RailWrites};
use std::sync::atomic::Ordering::Relaxed;
use std::sync::Arc;

/// Number of buffers for packets, lent or in flight.
const BUFFERS: u32 = 16;
/// Most packets in one send, and most requests in one post.
const BATCH_MAX: usize = 64;
/// Silent connections after which the rail sends nothing longer than one MTU.
const SILENCES_MAX: u32 = 2;
/// Completions per poll.
const COMPLETIONS: usize = 32;

const _: () = assert!(BATCH_MAX <= CONNECTION_SENDS as usize && PIECES_MAX < BATCH_MAX);
const _: () = assert!(CONNECTION_SENDS as usize <= immediate::WRITES_MAX + 1);

/// Sending half of a [`super::VerbsRail`].
pub struct VerbsTx {
    // Drop order: queue pairs before the memory that their requests read.
    links: VerbsLinks,
    groups: OwnGroups,
    buffers: SendBuffers,
    writes: Writes,
    shared: Arc<Shared>,
    kind: QueueType,
    chain: Sends,
    /// Writes leave from bounce buffers.
    staged: bool,
    /// Connections that were renewed because of silence.
    silences: u32,
    /// The port state as last reported.
    up: bool,
    /// The device failed fatally.
    dead: bool,
}

/// The outcome of posting a chain of requests.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Posted {
    /// Posted; the device reads the memory named by the requests.
    Taken,
    /// The link is not up.
    Lost,
    /// The link has no connection at present and holds sends.
    Waits,
    /// There is no room.
    NoRoom,
    /// The queue pair rejects requests.
    Failed(Errno),
}

/// Posts `count` requests on a link.
#[inline]
fn post(
    (links, chain): (&mut VerbsLinks, &mut Sends),
    link: LinkId,
    count: usize,
    reads: &[Read],
    request: impl Fn(usize) -> (Request, Operation),
) -> Posted {
    let given = links.given;
    let Some(TxQueue { pair, queue, to }) = links.tx_queue(link) else {
        return match links.holds(link) {
            true => Posted::Waits,
            false => Posted::Lost,
        };
    };
    if queue.room() < count {
        return Posted::NoRoom;
    }
    let signalled = !reads.is_empty() || queue.is_due(count);
    for at in 0..count {
        let (mut request, operation) = request(at);
        request.signalled = signalled && at + 1 == count;
        request.name = queue.name(at + 1);
        match &to {
            To::Datagrams(handle, to) => chain.datagram(&request, handle, *to),
            To::Peer => chain.add(&request, operation),
        }
    }
    let (posted, signalled) = match chain.post(pair) {
        Ok(()) => (count, signalled),
        Err((0, libc::ENOMEM | libc::EAGAIN)) => return Posted::NoRoom,
        Err((0, errno)) => return Posted::Failed(errno),
        // An RDMA read with a missing part must not count as complete.
        Err((posted, errno)) if matches!(reads, [Read::Peer(_)]) => {
            queue.posted(posted, false, &[], 0);
            return Posted::Failed(errno);
        }
        // The unposted rest is lost; a later completion frees its memory.
        Err((posted, _)) => (posted, false),
    };
    queue.posted(posted, signalled, reads, given);
    links.given += reads.len() as u64;
    Posted::Taken
}

impl VerbsTx {
    pub(super) fn new(
        shared: Arc<Shared>,
        kind: QueueType,
        config: &VerbsConfig,
    ) -> Result<VerbsTx, Failure> {
        let failed = |errno| ("ibv_reg_mr", errno);
        let up = shared.port.attr.active();
        let mut tx = VerbsTx {
            links: VerbsLinks::new(shared.clone(), kind, config).map_err(failed)?,
            buffers: SendBuffers::new(&shared.domain, BUFFERS).map_err(failed)?,
            groups: OwnGroups::default(),
            writes: Writes::new(&shared.domain, kind != QueueType::Ud).map_err(failed)?,
            shared,
            kind,
            chain: Sends::new(CONNECTION_SENDS as usize),
            staged: config.staged,
            silences: 0,
            up,
            dead: false,
        };
        if !up {
            tx.down(libc::ENETDOWN);
        }
        Ok(tx)
    }

    /// Largest packet in bytes.
    fn packet_max(&self) -> usize {
        let mtu = self.shared.port.attr.mtu();
        match &self.shared.connections {
            Some(all) if self.links.datagrams_first == 0 => all.slot_len,
            Some(all) => all.slot_len.min(mtu),
            None => mtu,
        }
    }

    /// Returns whether all packets and writes are limited to one MTU, because connections were
    /// silent. (A descheduled peer is silent, too.)
    #[inline]
    fn cuts(&self) -> bool {
        self.silences >= SILENCES_MAX
    }

    /// `TooBig` if a packet exceeds one MTU while that limit applies.
    #[inline]
    fn too_big(&self, len: usize) -> Option<SendOutcome> {
        if !self.cuts() {
            return None;
        }
        let mtu = self.shared.port.attr.mtu();
        (len > mtu).then_some(SendOutcome::TooBig(mtu))
    }

    /// Polls send completions and frees the memory of completed requests.
    fn reap(&mut self) {
        let mut completions = [Completion::default(); COMPLETIONS];
        let mut failed = false;
        loop {
            let polled = self.shared.send_queue.poll(&mut completions);
            let count = polled.unwrap_or(0);
            failed |= polled.is_err();
            for completion in &completions[..count] {
                failed |= self.links.completed(completion);
            }
            if count < COMPLETIONS {
                break;
            }
        }
        self.free();
        if failed && !self.dead {
            self.renew();
        }
    }

    /// Releases the memory that completed requests used.
    #[inline]
    fn free(&mut self) {
        while let Some(read) = self.links.over.pop() {
            match read {
                Read::Buffer(buffer) => self.buffers.free(buffer),
                Read::Write(token) => {
                    self.writes.over(read);
                    self.links.events.push_back(RailEvent::Done(token));
                }
                Read::Copy(_) => self.writes.over(read),
                Read::Peer(name) => self.links.events.push_back(RailEvent::Pulled(name, false)),
            }
        }
        self.links.tidy();
    }

    /// Resets the datagram queue pair; requests posted before then read no memory.
    #[cold]
    fn renew(&mut self) {
        match self.shared.renew() {
            Ok(()) => {
                self.links.renewed();
                self.free();
            }
            Err(errno) => self.down(errno),
        }
    }

    #[cold]
    fn down(&mut self, errno: Errno) {
        self.up = false;
        let fault = RailFault::Down(errno);
        self.links.events.push_back(RailEvent::Fault(fault));
    }

    /// Posts requests; polls completions first if there is no room.
    #[inline]
    fn post(
        &mut self,
        link: LinkId,
        count: usize,
        reads: &[Read],
        request: impl Fn(&SendBuffers, usize) -> (Request, Operation),
    ) -> Posted {
        for looked in [false, true] {
            let (buffers, parts) = (&self.buffers, (&mut self.links, &mut self.chain));
            let posted = post(parts, link, count, reads, |at| request(buffers, at));
            match posted {
                Posted::Taken => {
                    self.links.sent(link, count);
                    return posted;
                }
                Posted::NoRoom if !looked => self.reap(),
                Posted::Failed(errno) => return self.refused(link, errno),
                posted => return posted,
            }
        }
        Posted::NoRoom
    }

    #[cold]
    fn refused(&mut self, link: LinkId, errno: Errno) -> Posted {
        match self.links.failed_link(link, errno) {
            true => {
                self.free();
                Posted::Lost // the connection ended
            }
            false => {
                self.renew();
                Posted::Failed(errno)
            }
        }
    }

    /// Sends one inline packet.
    #[inline]
    fn send_inline(&mut self, link: LinkId, address: u64, len: usize) -> Posted {
        let request = Request {
            name: 0,
            signalled: false,
            inline: true,
            address,
            len,
            lkey: 0,
        };
        self.post(link, 1, &[], |_, _| (request, Operation::Send))
    }

    #[cold]
    fn on_notification(&mut self, notification: Notification) {
        match notification {
            Notification::Resolved(name, found) => self.links.resolved(name, found),
            Notification::Heard(handshake, tag) => self.links.heard(&handshake, tag),
            Notification::Foreign(foreign) => self.links.heard_foreign(&foreign),
            Notification::QKeyViolations(more) => {
                let event = RailEvent::QKeyViolations(more.into());
                self.links.events.push_back(event);
            }
            Notification::Broken(number, status) => {
                if status != Completion::FLUSHED {
                    self.links.events.push_back(RailEvent::FailedCompletion);
                }
                self.links.failed(number, status);
            }
            Notification::Failed(life) => {
                if life == self.shared.life.load(Relaxed) && !self.dead {
                    self.renew();
                }
            }
            Notification::Event(event, name) => self.on_event(event, name),
        }
    }

    /// Copies a batch and sends it, if the link has a connection.
    fn send_now(&mut self, link: LinkId, bytes: &[u8], segment: usize) -> Posted {
        if bytes.len() <= segment.min(self.shared.datagrams.inline_max) {
            return self.send_inline(link, bytes.as_ptr() as u64, bytes.len());
        }
        let Some(buffer) = self.lend() else {
            return Posted::NoRoom;
        };
        self.buffer(buffer)[..bytes.len()].copy_from_slice(bytes);
        let posted = self.send_lent(link, buffer, bytes.len(), segment);
        match posted {
            Posted::Taken => self.buffers.in_flight(buffer),
            _ => self.buffers.free(buffer),
        }
        posted
    }

    /// The outcome of sending a lent buffer: it stays lent (`Busy`), is in flight (`read`), or
    /// free.
    #[inline]
    fn gave(
        &mut self,
        link: LinkId,
        buffer: BufId,
        (len, segment): (usize, usize),
        posted: Posted,
        read: bool,
    ) -> SendOutcome {
        match posted {
            Posted::Taken if read => self.buffers.in_flight(buffer),
            Posted::NoRoom => {}
            Posted::Waits => return self.hold_lent(link, buffer, (len, segment)),
            Posted::Taken | Posted::Lost | Posted::Failed(_) => self.buffers.free(buffer),
        }
        outcome(posted)
    }

    #[cold]
    fn hold_lent(
        &mut self,
        link: LinkId,
        buffer: BufId,
        (len, segment): (usize, usize),
    ) -> SendOutcome {
        let waiting = Waiting::packets(&self.buffers.buffer(buffer)[..len], segment);
        let held = self.hold(link, || waiting);
        if held == SendOutcome::Sent {
            self.buffers.free(buffer);
        }
        held
    }

    /// Holds a send for a link without a connection.
    #[cold]
    fn hold(&mut self, link: LinkId, waiting: impl FnOnce() -> Waiting) -> SendOutcome {
        let held = self.links.hold(link, waiting);
        self.free();
        match held {
            true => SendOutcome::Sent,
            false => SendOutcome::Busy,
        }
    }

    /// Sends held packets and writes of links that have connections again.
    #[cold]
    fn send_held(&mut self) {
        for link in std::mem::take(&mut self.links.holding) {
            if let Some(mut held) = self.links.take_held(link) {
                while let Some(first) = held.first() {
                    let posted = match first {
                        Waiting::Packets { bytes, segment } => self.send_now(link, bytes, *segment),
                        Waiting::Write {
                            key,
                            offset,
                            bytes,
                            packet,
                        } => self.write_held(link, (*key, *offset), bytes, packet),
                    };
                    match posted {
                        Posted::NoRoom | Posted::Waits => break,
                        // A lost write counts as complete.
                        Posted::Taken | Posted::Lost | Posted::Failed(_) => held.pop(),
                    };
                }
                self.links.hold_again(link, held);
            }
            if self.links.has_held(link) {
                self.links.holding.push(link);
            }
        }
        self.links.make_room(0);
        self.free();
    }

    /// Sends a lent buffer, which then stays lent (`Busy`), is in flight, or free.
    fn send_lent(&mut self, link: LinkId, buffer: BufId, len: usize, segment: usize) -> Posted {
        let count = len.div_ceil(segment.max(1)).max(1);
        if count > BATCH_MAX {
            return Posted::Lost;
        }
        let reads = [Read::Buffer(buffer)];
        self.post(link, count, &reads, |buffers, at| {
            let from = at * segment;
            let request = buffers.request(buffer, from, segment.min(len - from));
            (request, Operation::Send)
        })
    }
}

fn outcome(posted: Posted) -> SendOutcome {
    match posted {
        Posted::Taken | Posted::Lost => SendOutcome::Sent,
        Posted::NoRoom | Posted::Waits => SendOutcome::Busy,
        Posted::Failed(errno) => SendOutcome::Fault(RailFault::Down(errno)),
    }
}

impl RailTx for VerbsTx {
    fn caps(&self) -> Caps {
        let packet_max = self.packet_max();
        let slots = self.shared.connections.as_ref().map_or(0, |all| all.slots);
        let (ordered, lossless, receives, remote_write) = match self.kind {
            QueueType::Ud => (false, false, RECEIVES as usize, RemoteWrites::None),
            QueueType::Uc => (true, false, slots, RemoteWrites::Ordered),
            QueueType::Rc => {
                let lossless = self.links.datagrams_first == 0;
                (true, lossless, slots, RemoteWrites::Ordered)
            }
        };
        Caps {
            batch_bytes_max: (BATCH_MAX * packet_max).min(marline_wire::PACKET_MAX),
            batch_segments_max: BATCH_MAX,
            receive_buffer_bytes: receives * packet_max,
            bytes_per_s: self.shared.port.attr.bytes_per_s(),
            ordered,
            lossless,
            fixed_mtu: true,
            connected: true,
            remote_write,
            groups: self.shared.port.groups_on.is_some(),
            group_bounds: Some(self.group_bounds()),
            ..Caps::datagrams(packet_max)
        }
    }

    fn move_to(&mut self, _: &InterfaceChoice) -> Option<RailAddr> {
        None
    }

    fn local_addr(&self) -> RailAddr {
        let mut addr = self.shared.address().rail(self.kind);
        if self.kind != QueueType::Ud {
            addr.writes = RailWrites::Keyed;
        }
        addr
    }

    fn send(&mut self, link: LinkId, bytes: &[u8], segment: usize, flow: u8) -> SendOutcome {
        self.links.choose_flow(link, flow);
        if let Some(too_big) = self.too_big(segment.min(bytes.len())) {
            return too_big;
        }
        match self.send_now(link, bytes, segment) {
            Posted::Waits => self.hold(link, || Waiting::packets(bytes, segment)),
            posted => outcome(posted),
        }
    }

    #[inline]
    fn poll_event(&mut self) -> Option<RailEvent> {
        if let Some(notifications) = self.shared.take_notifications() {
            notifications
                .into_iter()
                .for_each(|notification| self.on_notification(notification));
        }
        self.links.tick();
        self.reap();
        if !self.links.holding.is_empty() {
            self.send_held();
        }
        self.links.events.pop_front()
    }
}

impl TxBuffers for VerbsTx {
    #[inline]
    fn lend(&mut self) -> Option<BufId> {
        let lent = self.buffers.lend();
        if lent.is_some() {
            return lent;
        }
        self.reap();
        self.buffers.lend()
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
        flow: u8,
    ) -> SendOutcome {
        debug_assert!(len <= BUFFER_LEN);
        self.links.choose_flow(link, flow);
        if let Some(too_big) = self.too_big(segment.min(len)) {
            self.buffers.free(buffer);
            return too_big;
        }
        if len <= segment.min(self.shared.datagrams.inline_max) {
            let address = self.buffers.request(buffer, 0, len).address;
            let posted = self.send_inline(link, address, len);
            return self.gave(link, buffer, (len, segment), posted, false);
        }
        let posted = self.send_lent(link, buffer, len, segment);
        self.gave(link, buffer, (len, segment), posted, true)
    }

    fn drain(&mut self) {
        self.links.drain();
        self.renew();
    }

    fn given(&self) -> u64 {
        self.links.given
    }

    fn take_done(&mut self) -> u64 {
        std::mem::replace(&mut self.links.done, u64::MAX)
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
    fn silent(&mut self, _: LinkId) {}

    /// Some devices stop delivering on an unreliable connection after losing a part of a message.
    fn reroute(&mut self, link: LinkId) -> bool {
        let renewed = self.kind == QueueType::Uc && self.links.renew(link);
        self.silences += u32::from(renewed);
        self.free();
        renewed
    }

    fn close(&mut self, link: LinkId) {
        self.links.close(link);
        self.free();
    }
}

crate::no_direct_write!(VerbsTx);
