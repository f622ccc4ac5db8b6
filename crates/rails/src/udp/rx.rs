//! Receiving half.

use super::Shared;
use crate::sys::{self, RecvBuffers, RECV_BATCH};
use crate::{RailRx, Received};
use std::sync::atomic::Ordering::Relaxed;
use std::sync::Arc;

/// Mean size in bytes up to which datagrams are fetched many per call. A call for one is 0.13 µs
/// cheaper than one for many that finds one, and each saves 0.3 µs by sharing a call; a
/// super-packet takes ten times that, and is copied faster into a buffer that is in cache.
const MANY_BYTES_MAX: usize = 8 << 10;
/// After so many full polls in a row more may wait, and many are fetched per call. One packet is
/// not enough: whoever plays ping-pong finds nothing after it, and the call for many costs 0.1 µs
/// more than the call for one also where it finds nothing.
const FULL_POLLS_MIN: u8 = 2;

/// Receiving half of a [`super::UdpRail`].
pub struct UdpRx {
    shared: Arc<Shared>,
    buffers: RecvBuffers,
    /// So many polls in a row found all they could, and that was small.
    full_polls: u8,
    drops_seen: u32,
}

impl UdpRx {
    pub(super) fn new(shared: Arc<Shared>) -> UdpRx {
        UdpRx {
            shared,
            buffers: RecvBuffers::new(),
            full_polls: 0,
            drops_seen: 0,
        }
    }
}

impl RailRx for UdpRx {
    #[inline]
    fn recv(&mut self, sink: &mut dyn FnMut(Received<'_>)) -> usize {
        let (mut count, mut bytes) = (0, 0);
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
            bytes += datagram.bytes.len();
            sink(Received {
                from: datagram.from,
                bytes: datagram.bytes,
                segment,
            });
        };
        let many = self.full_polls >= FULL_POLLS_MIN;
        let most = if many { RECV_BATCH } else { 1 };
        let result = if many {
            shared.socket.recv_many(&mut self.buffers, &mut take)
        } else {
            let one = shared.socket.recv_one(&mut self.buffers);
            one.map(|datagram| datagram.into_iter().map(take).count().max(1))
        };
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
        count
    }
}
