//! Reading a socket: one or many datagrams per call, super-packets, direct writes.

use super::shared::Shared;
use super::super_packets::Joins;
use crate::addr::UdpAddr;
use crate::sys::{self, Errno, RecvBuffers, Socket, RECV_BATCH};
use crate::Received;
use marline_wire::{RailAddr, DIRECT_HEAD_LEN};
use std::sync::atomic::Ordering::Relaxed;

/// Mean size in bytes of datagrams up to which many are fetched per call. A call for one datagram
/// is cheaper than a call for many that finds one, but small datagrams gain by sharing a call. A
/// super-packet takes longer than a call, and is copied faster into a buffer in the cache
/// (docs/design/udp.md).
const MANY_BYTES_MAX: usize = 8 << 10;
/// Full polls in a row after which many datagrams are fetched per call. One full poll is not
/// enough: a ping-pong finds nothing after its packet, and an empty call for many costs more than
/// an empty call for one.
const FULL_POLLS_MIN: u8 = 2;

/// Datagrams between reads of the drop count when ancillary data is off: rare enough to cost
/// nothing, frequent enough to notice a burst that overflows the buffer while it lasts.
const DROP_LOOK_PERIOD: u32 = 64;

/// State of a socket's traffic.
#[derive(Default)]
pub(super) struct Feed {
    /// Full polls in a row with small datagrams.
    full_polls: u8,
    drops_seen: u32,
    /// Datagrams since the drop count was last read.
    unwatched: u32,
    /// The source of a sampled datagram; `None` if it was taken since.
    pub(super) source: Option<UdpAddr>,
}

/// A socket to read, with its state.
pub(super) struct Input<'a> {
    pub(super) shared: &'a Shared,
    pub(super) socket: &'a Socket,
    pub(super) feed: &'a mut Feed,
}

/// The reader of all sockets of a rail.
pub(super) struct Reader {
    buffers: RecvBuffers,
    /// Always ask for ancillary data.
    cmsg: bool,
    /// The kernel joins datagrams (GRO).
    gro: bool,
    joins: Joins,
}

impl Reader {
    pub(super) fn new(cmsg: bool, gro: bool) -> Reader {
        Reader {
            buffers: RecvBuffers::new(),
            cmsg,
            gro,
            joins: Joins::default(),
        }
    }

    /// Reads once; returns the result of `RailRx::recv`. Always inlined: an empty poll is mostly
    /// calls.
    #[inline(always)]
    pub(super) fn recv(
        &mut self,
        input: &mut Input<'_>,
        sink: &mut dyn FnMut(Received<'_>),
    ) -> usize {
        let shared = input.shared;
        let plain = !self.cmsg && input.feed.is_calm();
        if !plain || shared.registrations.any() || shared.doubted.load(Relaxed) {
            if let Some(count) = self.recv_described(input, sink) {
                return count;
            }
        }
        let Input { socket, feed, .. } = input;
        let result = socket.recv_plain(&mut self.buffers);
        let bytes = match &result {
            Ok(Some(bytes)) => *bytes,
            _ => &[],
        };
        let len = bytes.len();
        if !bytes.is_empty() {
            self.joins.came(len, &shared.whole);
            let segment = if self.gro { 0 } else { len };
            sink(received(shared, RailAddr::NONE, bytes, segment));
            feed.unwatched += 1;
        }
        let found = result.map(|_| 1);
        feed.note(shared, found, 1, len);
        usize::from(len > 0)
    }

    /// Reads with more than the plain call offers: direct writes, drop counts, sources, many
    /// datagrams. `None` if none of these is needed.
    #[inline(never)]
    fn recv_described(
        &mut self,
        input: &mut Input<'_>,
        sink: &mut dyn FnMut(Received<'_>),
    ) -> Option<usize> {
        let shared = input.shared;
        if shared.doubted.load(Relaxed) && shared.doubted.swap(false, Relaxed) {
            self.joins.torn(&shared.whole);
        }
        let registered = shared.registrations.any();
        if registered {
            if let Some(count) = self.recv_direct(input, sink) {
                return Some(count);
            }
        }
        // A direct write may follow the first datagram.
        let many = input.feed.full_polls >= FULL_POLLS_MIN && !registered;
        if !self.cmsg && !many && input.feed.unwatched < DROP_LOOK_PERIOD {
            return None;
        }
        let Input { socket, feed, .. } = input;
        let (mut count, mut bytes) = (0, 0);
        let (joins, drops_seen) = (&mut self.joins, &mut feed.drops_seen);
        let mut source = None;
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
            bytes += datagram.bytes.len();
            joins.came(datagram.bytes.len(), &shared.whole);
            source = datagram.from;
            let from = source.map_or(RailAddr::NONE, |from| from.rail());
            sink(received(shared, from, datagram.bytes, segment));
        };
        let most = if many { RECV_BATCH } else { 1 };
        let result = if many {
            socket.recv_many(&mut self.buffers, &mut take)
        } else {
            let one = socket.recv_one(&mut self.buffers);
            one.map(|datagram| datagram.into_iter().map(take).count().max(1))
        };
        if count > 0 {
            // Sample all datagrams: those whose source is known in any case are not representative.
            feed.source = source.filter(|_| feed.unwatched >= DROP_LOOK_PERIOD);
            feed.unwatched = match feed.source {
                Some(_) => 0,
                None => feed.unwatched + count as u32,
            };
        }
        feed.note(shared, result, most, bytes);
        Some(count)
    }

    /// Receives a direct write into its place, if a write is next; returns the result of `recv`.
    /// `None` if another datagram is next.
    fn recv_direct(
        &mut self,
        input: &mut Input<'_>,
        sink: &mut dyn FnMut(Received<'_>),
    ) -> Option<usize> {
        let Input {
            shared,
            socket,
            feed,
        } = input;
        let mut first = [0; DIRECT_HEAD_LEN];
        let head = match socket.peek(&mut first) {
            Ok(n) => shared.direct_head(&first[..n])?,
            Err(errno) => {
                feed.note(shared, Err(errno), 1, 0);
                return Some(0);
            }
        };
        let buffers = &mut self.buffers;
        let landed = shared.registrations.land(&head, |place| {
            let received = socket.recv_into(buffers, head.lead(), &place);
            let whole = received.as_ref().is_ok_and(|r| r.0 == head.total());
            ((received, whole), whole)
        })?;
        let (n, bytes) = match landed.0 {
            Ok(received) => received,
            Err(errno) => {
                feed.note(shared, Err(errno), 1, 0);
                return Some(0);
            }
        };
        match landed.1 {
            true => self.joins.came(n, &shared.whole),
            false => self.joins.torn(&shared.whole),
        }
        // Packets of messages arrive in between, so drops are looked for here too.
        feed.unwatched += 1;
        let bytes = head.packet(bytes);
        sink(Received {
            link: None,
            from: RailAddr::NONE,
            bytes,
            segment: bytes.len(),
            beside: if landed.1 { head.len as usize } else { 0 },
            missing: head.total().saturating_sub(n),
        });
        Some(1)
    }
}

/// Describes received bytes. Of a direct write without a place, only the packet is used.
#[inline]
fn received<'a>(shared: &Shared, from: RailAddr, bytes: &'a [u8], segment: usize) -> Received<'a> {
    let (bytes, segment, missing) = match shared.direct_head(bytes) {
        None => (bytes, segment, 0),
        Some(head) => {
            let packet = head.packet(bytes);
            (
                packet,
                packet.len(),
                head.total().saturating_sub(bytes.len()),
            )
        }
    };
    Received {
        link: None,
        from,
        bytes,
        segment,
        beside: 0,
        missing,
    }
}

impl Feed {
    /// Returns whether a single datagram is expected and no ancillary data is needed.
    #[inline]
    fn is_calm(&self) -> bool {
        self.full_polls < FULL_POLLS_MIN && self.unwatched < DROP_LOOK_PERIOD
    }

    /// Updates the state after a call that could return `most` datagrams.
    #[inline]
    fn note(&mut self, shared: &Shared, result: Result<usize, Errno>, most: usize, bytes: usize) {
        match result {
            Ok(found) if found == most && bytes <= found * MANY_BYTES_MAX => {
                self.full_polls = FULL_POLLS_MIN.min(self.full_polls + 1);
            }
            Ok(_) => self.full_polls = 0,
            Err(errno) => {
                self.full_polls = 0;
                if errno != libc::EAGAIN && errno != libc::EINTR {
                    // An ICMP error arrived; the sending half reads it.
                    shared.errors_wait.store(true, Relaxed);
                }
            }
        }
    }
}
