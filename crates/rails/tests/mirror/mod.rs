//! An in-memory rail under faulty rails, for these tests and the fuzz targets.

use marline_rails::{
    no_groups, no_remote_write, plain_buffers, Armed, Caps, Clock, Connected, FaultScript, Faulty,
    FaultyRx, FaultyTx, InterfaceChoice, LinkId, Links, PlainBuffers, Rail, RailEvent, RailRx,
    RailTx, Received, SendOutcome, BUFFER_LEN,
};
use marline_wire::RailAddr;
use std::collections::VecDeque;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Mutex};

/// A mirror with the faults of `script`, and its clock, which only advances when the caller adds to
/// it.
pub fn faulty(
    script: &FaultScript,
    now_ns: u64,
) -> (FaultyTx<Mirror>, FaultyRx<Mirror>, Arc<AtomicU64>) {
    let now_ns = Arc::new(AtomicU64::new(now_ns));
    let read = now_ns.clone();
    let clock: Clock = Arc::new(move || read.load(Relaxed));
    let (tx, rx) = Faulty::new(Mirror::new(Queue::default()), script, clock).split();
    (tx, rx, now_ns)
}

type Queue = Arc<Mutex<VecDeque<(Vec<u8>, usize)>>>;

/// A rail that returns each sent batch.
pub struct Mirror {
    queue: Queue,
    buffers: PlainBuffers,
}

impl Mirror {
    fn new(queue: Queue) -> Mirror {
        let buffers = PlainBuffers::new(BUFFER_LEN, 1);
        Mirror { queue, buffers }
    }

    fn queue(&self) -> std::sync::MutexGuard<'_, VecDeque<(Vec<u8>, usize)>> {
        self.queue.lock().expect("one thread")
    }
}

impl Rail for Mirror {
    type Tx = Mirror;
    type Rx = Mirror;
    fn split(self) -> (Mirror, Mirror) {
        (Mirror::new(self.queue.clone()), self)
    }
}

impl RailTx for Mirror {
    fn caps(&self) -> Caps {
        Caps {
            batch_bytes_max: 64_000,
            batch_segments_max: 64,
            receive_buffer_bytes: 1 << 20,
            ..Caps::datagrams(3_000)
        }
    }
    fn move_to(&mut self, _: &InterfaceChoice) -> Option<RailAddr> {
        None
    }

    fn local_addr(&self) -> RailAddr {
        RailAddr::NONE
    }
    fn send(&mut self, _: LinkId, bytes: &[u8], segment: usize, _: u8) -> SendOutcome {
        assert!(!bytes.is_empty() && segment > 0 && segment <= bytes.len());
        self.queue().push_back((bytes.to_vec(), segment));
        SendOutcome::Sent
    }
    fn poll_event(&mut self) -> Option<RailEvent> {
        None
    }
}

no_groups!(Mirror);
no_remote_write!(Mirror);
plain_buffers!(Mirror, buffers);

impl Links for Mirror {
    fn connect(&mut self, _: &RailAddr) -> Connected {
        let link = LinkId(0);
        Connected { link, up: true }
    }
    fn works(&mut self, _: LinkId) {}
    fn silent(&mut self, _: LinkId) {}
    fn reroute(&mut self, _: LinkId) -> bool {
        false
    }
    fn close(&mut self, _: LinkId) {}
}

impl RailRx for Mirror {
    fn recv(&mut self, sink: &mut dyn FnMut(Received<'_>)) -> usize {
        let Some((bytes, segment)) = self.queue().pop_front() else {
            return 0;
        };
        sink(Received {
            link: None,
            from: RailAddr::NONE,
            bytes: &bytes,
            segment,
            beside: 0,
            missing: 0,
        });
        bytes.len().div_ceil(segment)
    }
    fn recv_rest(&mut self, _: &mut dyn FnMut(Received<'_>)) -> usize {
        0
    }
    fn fd(&self) -> Option<i32> {
        None
    }
    fn arm(&mut self) -> Armed {
        Armed::Sleep
    }
}
