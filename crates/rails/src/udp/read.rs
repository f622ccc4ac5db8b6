//! Reading a socket: one datagram per call or many, super-packets, direct writes.

use super::joins::Joins;
use super::shared::Shared;
use crate::addr::UdpAddr;
use crate::sys::{self, Errno, RecvBuffers, Socket, RECV_BATCH};
use crate::Received;
use marline_wire::{DirectHead, RailAddr, DIRECT_HEAD_LEN};
use std::sync::atomic::Ordering::Relaxed;

/// Mean size in bytes up to which datagrams are fetched many per call. A call for one is 0.13 µs
/// cheaper than one for many that finds one, and each saves 0.3 µs by sharing a call; a
/// super-packet takes ten times that, and is copied faster into a buffer that is in cache.
const MANY_BYTES_MAX: usize = 8 << 10;
/// After so many full polls in a row more may wait, and many are fetched per call. One packet is
/// not enough: whoever plays ping-pong finds nothing after it, and finding nothing costs 0.04 µs
/// more by the call for many (0.09 µs more than without control messages).
const FULL_POLLS_MIN: u8 = 2;

/// Datagrams after which the count of drops is read again where control messages are not wanted:
/// rare enough to cost nothing, and a burst that overflows the buffer is seen while it lasts.
const DROP_LOOK_PERIOD: u32 = 64;

/// Knowledge of the traffic that comes by a socket.
#[derive(Default)]
pub(super) struct Feed {
    /// This many polls in a row found all they could, and that was small.
    full_polls: u8,
    drops_seen: u32,
    /// Datagrams since the count of drops was read.
    unwatched: u32,
    /// Where one came from; none since it was asked last.
    pub(super) source: Option<UdpAddr>,
}

/// A socket to read, and what is known of it.
pub(super) struct Input<'a> {
    pub(super) shared: &'a Shared,
    pub(super) socket: &'a Socket,
    pub(super) feed: &'a mut Feed,
}

/// Reads one socket or the other.
pub(super) struct Reader {
    buffers: RecvBuffers,
    /// Always ask for control messages.
    cmsg: bool,
    /// The kernel joins datagrams, so that what arrives may be several.
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

    /// Reads once: what `RailRx::recv` answers. Inlined always, as what a poll that finds nothing
    /// costs is mostly calls.
    #[inline(always)]
    pub(super) fn recv(
        &mut self,
        input: &mut Input<'_>,
        sink: &mut dyn FnMut(Received<'_>),
    ) -> usize {
        let shared = input.shared;
        let plain = !self.cmsg && input.feed.is_calm();
        if !plain || shared.registrations.any() || shared.doubted.load(Relaxed) {
            if let Some(count) = self.recv_told(input, sink) {
                return count;
            }
        }
        self.recv_plain(input, sink)
    }

    /// A read that tells more than what is in one packet: direct writes, drops, sources, many
    /// datagrams. `None`: nothing of that is wanted.
    #[inline(never)]
    fn recv_told(
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
        // Behind the first there may be a direct write.
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
            deliver(sink, from, datagram.bytes, segment);
        };
        let most = if many { RECV_BATCH } else { 1 };
        let result = if many {
            socket.recv_many(&mut self.buffers, &mut take)
        } else {
            let one = socket.recv_one(&mut self.buffers);
            one.map(|datagram| datagram.into_iter().map(take).count().max(1))
        };
        if count > 0 {
            // Of all datagrams, not only of those whose source is always told.
            feed.source = source.filter(|_| feed.unwatched >= DROP_LOOK_PERIOD);
            feed.unwatched = match feed.source {
                Some(_) => 0,
                None => feed.unwatched + count as u32,
            };
        }
        feed.note(shared, result, most, bytes);
        Some(count)
    }

    /// Has the kernel put the bytes of a direct write in place, if one is next: what `recv`
    /// answers. `None`: something else is next.
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
            Ok(n) => DirectHead::parse(&first[..n])?,
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
        // Messages have packets beside these, so that drops are looked for all the same.
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

    /// The poll that is cheapest and tells least.
    #[inline(always)]
    fn recv_plain(&mut self, input: &mut Input<'_>, sink: &mut dyn FnMut(Received<'_>)) -> usize {
        let Input {
            shared,
            socket,
            feed,
        } = input;
        let result = socket.recv_plain(&mut self.buffers);
        let bytes = match &result {
            Ok(Some(bytes)) => *bytes,
            _ => &[],
        };
        let len = bytes.len();
        if !bytes.is_empty() {
            self.joins.came(len, &shared.whole);
            let segment = if self.gro { 0 } else { len };
            deliver(sink, RailAddr::NONE, bytes, segment);
            feed.unwatched += 1;
        }
        let found = result.map(|_| 1);
        feed.note(shared, found, 1, len);
        usize::from(len > 0)
    }
}

/// Hands over what was received. Of a direct write that has no place (any more) only its packet is
/// of use.
#[inline]
fn deliver(sink: &mut dyn FnMut(Received<'_>), from: RailAddr, bytes: &[u8], segment: usize) {
    let (bytes, segment, missing) = match DirectHead::parse(bytes) {
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
    sink(Received {
        link: None,
        from,
        bytes,
        segment,
        beside: 0,
        missing,
    });
}

impl Feed {
    /// One datagram is likely next, and nothing has to be asked with it.
    #[inline]
    fn is_calm(&self) -> bool {
        self.full_polls < FULL_POLLS_MIN && self.unwatched < DROP_LOOK_PERIOD
    }

    /// Draws the conclusions from a call that could have found `most`.
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
                    // Something came back from the network; the sending half finds out what.
                    shared.errors_wait.store(true, Relaxed);
                }
            }
        }
    }
}
