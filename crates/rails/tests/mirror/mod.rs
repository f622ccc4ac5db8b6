//! A rail in memory, for faulty rails to stand on: in the tests here, and in the fuzz targets.

use marline_rails::{
    Caps, Clock, FaultScript, Faulty, FaultyRx, FaultyTx, Rail, RailEvent, RailRx, RailTx,
    Received, SendOutcome,
};
use marline_wire::RailAddr;
use std::collections::VecDeque;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Mutex};

/// A mirror with the faults of `script`, and the clock that it goes by: it stands until somebody
/// adds to it.
pub fn faulty(
    script: &FaultScript,
    now_ns: u64,
) -> (FaultyTx<Mirror>, FaultyRx<Mirror>, Arc<AtomicU64>) {
    let now_ns = Arc::new(AtomicU64::new(now_ns));
    let read = now_ns.clone();
    let clock: Clock = Arc::new(move || read.load(Relaxed));
    let (tx, rx) = Faulty::new(Mirror(Queue::default()), script, clock).split();
    (tx, rx, now_ns)
}

type Queue = Arc<Mutex<VecDeque<(Vec<u8>, usize)>>>;

/// A rail that gives back what is sent to it, batch by batch.
pub struct Mirror(Queue);

impl Mirror {
    fn queue(&self) -> std::sync::MutexGuard<'_, VecDeque<(Vec<u8>, usize)>> {
        self.0.lock().expect("one thread")
    }
}

impl Rail for Mirror {
    type Tx = Mirror;
    type Rx = Mirror;
    fn split(self) -> (Mirror, Mirror) {
        (Mirror(self.0.clone()), self)
    }
}

impl RailTx for Mirror {
    fn caps(&self) -> Caps {
        Caps {
            datagram_max: 3_000,
            batch_bytes_max: 64_000,
            batch_segments_max: 64,
            receive_buffer_bytes: 1 << 20,
            bytes_per_s: 0,
            writes: Default::default(),
        }
    }
    fn local_addr(&self) -> RailAddr {
        RailAddr::NONE
    }
    fn send(&mut self, _: &RailAddr, bytes: &[u8], segment: usize, _: u8) -> SendOutcome {
        assert!(!bytes.is_empty() && segment > 0 && segment <= bytes.len());
        self.queue().push_back((bytes.to_vec(), segment));
        SendOutcome::Sent
    }
    fn poll_event(&mut self) -> Option<RailEvent> {
        None
    }
    fn fd(&self) -> Option<i32> {
        None
    }
}

impl RailRx for Mirror {
    fn recv(&mut self, sink: &mut dyn FnMut(Received<'_>)) -> usize {
        let Some((bytes, segment)) = self.queue().pop_front() else {
            return 0;
        };
        sink(Received {
            from: RailAddr::NONE,
            bytes: &bytes,
            segment,
            beside: 0,
            missing: 0,
        });
        bytes.len().div_ceil(segment)
    }
}
