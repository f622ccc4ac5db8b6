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

/// Receiving half of a [`super::UdpRail`].
pub struct UdpRx {
    shared: Arc<Shared>,
    buffers: RecvBuffers,
    /// The last poll found all it could, and that was small: more may wait.
    many: bool,
    drops_seen: u32,
}

impl UdpRx {
    pub(super) fn new(shared: Arc<Shared>) -> UdpRx {
        UdpRx {
            shared,
            buffers: RecvBuffers::new(),
            many: false,
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
        let most = if self.many { RECV_BATCH } else { 1 };
        let result = if self.many {
            shared.socket.recv_many(&mut self.buffers, &mut take)
        } else {
            let one = shared.socket.recv_one(&mut self.buffers);
            one.map(|datagram| datagram.into_iter().map(take).count().max(1))
        };
        match result {
            Ok(found) => self.many = found == most && bytes <= found * MANY_BYTES_MAX,
            Err(errno) => {
                self.many = false;
                if errno != libc::EAGAIN && errno != libc::EINTR {
                    // Something came back from the network; the sending half finds out what.
                    self.shared.errors_wait.store(true, Relaxed);
                }
            }
        }
        count
    }
}
