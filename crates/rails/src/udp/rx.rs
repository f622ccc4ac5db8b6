//! Receiving half.

use super::joins::Joins;
use super::Shared;
use crate::sys::{self, Errno, RecvBuffers, RECV_BATCH};
use crate::{RailRx, Received};
use marline_wire::{DirectHead, RailAddr, DIRECT_HEAD_LEN};
use std::sync::atomic::Ordering::Relaxed;
use std::sync::Arc;

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

/// Receiving half of a [`super::UdpRail`].
pub struct UdpRx {
    shared: Arc<Shared>,
    buffers: RecvBuffers,
    /// So many polls in a row found all they could, and that was small.
    full_polls: u8,
    drops_seen: u32,
    /// Always ask for control messages.
    cmsg: bool,
    /// The kernel joins datagrams, so that what arrives may be several.
    gro: bool,
    /// Datagrams since the count of drops was read.
    unwatched: u32,
    joins: Joins,
}

impl UdpRx {
    pub(super) fn new(shared: Arc<Shared>, cmsg: bool, gro: bool) -> UdpRx {
        UdpRx {
            shared,
            buffers: RecvBuffers::new(),
            full_polls: 0,
            drops_seen: 0,
            cmsg,
            gro,
            unwatched: 0,
            joins: Joins::default(),
        }
    }
}

impl RailRx for UdpRx {
    #[inline]
    fn recv(&mut self, sink: &mut dyn FnMut(Received<'_>)) -> usize {
        let granted = self.shared.grants.any();
        if self.shared.doubted.load(Relaxed) && self.shared.doubted.swap(false, Relaxed) {
            self.joins.torn(&self.shared.whole);
        }
        if granted {
            if let Some(count) = self.recv_direct(sink) {
                return count;
            }
        }
        // Behind the first there may be a direct write.
        let many = self.full_polls >= FULL_POLLS_MIN && !granted;
        if !self.cmsg && !many && self.unwatched < DROP_LOOK_PERIOD {
            return self.recv_plain(sink);
        }
        let (mut count, mut bytes) = (0, 0);
        let (shared, drops_seen) = (&self.shared, &mut self.drops_seen);
        let joins = &mut self.joins;
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
            let from = datagram.from;
            deliver(sink, from, datagram.bytes, segment);
        };
        let most = if many { RECV_BATCH } else { 1 };
        let result = if many {
            shared.socket.recv_many(&mut self.buffers, &mut take)
        } else {
            let one = shared.socket.recv_one(&mut self.buffers);
            one.map(|datagram| datagram.into_iter().map(take).count().max(1))
        };
        if count > 0 {
            self.unwatched = 0;
        }
        self.note(result, most, bytes);
        count
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
        from,
        bytes,
        segment,
        beside: 0,
        missing,
    });
}

impl UdpRx {
    /// Has the kernel put the bytes of a direct write in place, if one is next: what `recv`
    /// answers. `None`: something else is next.
    fn recv_direct(&mut self, sink: &mut dyn FnMut(Received<'_>)) -> Option<usize> {
        let mut first = [0; DIRECT_HEAD_LEN];
        let head = match self.shared.socket.peek(&mut first) {
            Ok(n) => DirectHead::parse(&first[..n])?,
            Err(errno) => {
                self.note(Err(errno), 1, 0);
                return Some(0);
            }
        };
        let (socket, buffers) = (&self.shared.socket, &mut self.buffers);
        let landed = self.shared.grants.land(&head, |place| {
            let received = socket.recv_into(buffers, head.lead(), &place);
            let whole = received.as_ref().is_ok_and(|r| r.0 == head.total());
            ((received, whole), whole)
        })?;
        let (n, bytes) = match landed.0 {
            Ok(received) => received,
            Err(errno) => {
                self.note(Err(errno), 1, 0);
                return Some(0);
            }
        };
        match landed.1 {
            true => self.joins.came(n, &self.shared.whole),
            false => self.joins.torn(&self.shared.whole),
        }
        // Messages have packets beside these, so that drops are looked for all the same.
        self.unwatched += 1;
        let bytes = head.packet(bytes);
        sink(Received {
            from: RailAddr::NONE,
            bytes,
            segment: bytes.len(),
            beside: if landed.1 { head.len as usize } else { 0 },
            missing: head.total().saturating_sub(n),
        });
        Some(1)
    }

    /// The poll that is cheapest and tells least.
    #[inline]
    fn recv_plain(&mut self, sink: &mut dyn FnMut(Received<'_>)) -> usize {
        let result = self.shared.socket.recv_plain(&mut self.buffers);
        let bytes = match &result {
            Ok(Some(bytes)) => *bytes,
            _ => &[],
        };
        let len = bytes.len();
        if !bytes.is_empty() {
            self.joins.came(len, &self.shared.whole);
            let segment = if self.gro { 0 } else { len };
            deliver(sink, RailAddr::NONE, bytes, segment);
            self.unwatched += 1;
        }
        let found = result.map(|_| 1);
        self.note(found, 1, len);
        usize::from(len > 0)
    }

    /// Draws the conclusions from a call that could have found `most`.
    #[inline]
    fn note(&mut self, result: Result<usize, Errno>, most: usize, bytes: usize) {
        match result {
            Ok(found) if found == most && bytes <= found * MANY_BYTES_MAX => {
                self.full_polls = FULL_POLLS_MIN.min(self.full_polls + 1);
            }
            Ok(_) => self.full_polls = 0,
            Err(errno) => {
                self.full_polls = 0;
                if errno != libc::EAGAIN && errno != libc::EINTR {
                    // Something came back from the network; the sending half finds out what.
                    self.shared.errors_wait.store(true, Relaxed);
                }
            }
        }
    }
}
