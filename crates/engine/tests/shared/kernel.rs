//! A model of the kernel: rails, sleep, the alarm, and time, which passes with every poll of a rail
//! and during sleeps. It loses and delays no packets, so that every delay is the engine's.

use crate::progress::thread::ProgressThread;
use crate::ranked;
use crate::sync::Arc;
use crate::{Clock, System};
use marline_rails::{
    addr_links, no_groups, no_remote_write, plain_buffers, AddrLinks, Armed, Caps, InterfaceChoice,
    LinkId, PlainBuffers, RailEvent, RailRx, RailTx, Received, SendOutcome, UdpAddr, BUFFER_LEN,
};
use marline_wire::RailAddr;
use shuttle::rand::Rng;
use shuttle::sync::Mutex;
use std::collections::VecDeque;

/// The progress thread's tick.
pub const TICK_NS: u64 = 10_000_000;
/// Duration of a poll of a rail, and of a computing step of the application.
const POLL_NS: u64 = 1_000;
/// Time that passes whenever the progress thread may wake. Little time passes while it is awake
/// without a processor, so that a delay is the engine's.
const SLEEP_NS: u64 = 50_000;
/// The alarm's descriptor; those of rails start at 0.
const ALARM_FD: i32 = 1_000;
const RAILS: usize = 2;

/// A rail's socket.
#[derive(Default)]
struct Port {
    /// Sent batches of datagrams; all but the last one of a batch have equal lengths.
    inbox: VecDeque<(Vec<u8>, usize)>,
    closed: bool,
}

#[derive(Default)]
struct Kernel {
    now_ns: u64,
    alarm_ns: Option<u64>,
    ports: Vec<Port>,
    /// Number of running progress threads.
    threads: usize,
    broken: Vec<String>,
}

shuttle::lazy_static! {
    static ref KERNEL: Mutex<Kernel> = Mutex::new(Kernel {
        now_ns: 1_000_000_000,
        ..Kernel::default()
    });
}

/// Lets another thread run, then calls `act`.
fn call<R>(act: impl FnOnce(&mut Kernel) -> R) -> R {
    act(&mut KERNEL.lock().unwrap())
}

/// Reports a broken rule: fails the test even if the thread catches the panic.
pub fn broken(what: &str) -> ! {
    call(|k| k.broken.push(what.to_owned()));
    panic!("{what}");
}

/// Asserts that no rule was broken.
pub fn assert_sound() {
    let broken = call(|k| k.broken.clone());
    assert!(broken.is_empty(), "{broken:?}");
}

/// The time, without letting any pass.
pub fn now_ns() -> u64 {
    call(|k| k.now_ns)
}

/// Sleeps until `over` returns a value for the state of the kernel; `step_ns` pass after each call
/// without one.
fn sleep_until<R>(step_ns: u64, mut over: impl FnMut(&Kernel) -> Option<R>) -> R {
    ranked::assert_none_held("sleeps");
    loop {
        let reason = call(|k| {
            let reason = over(k);
            k.now_ns += if reason.is_none() { step_ns } else { 0 };
            reason
        });
        if let Some(reason) = reason {
            return reason;
        }
        shuttle::thread::yield_now();
    }
}

/// Computes until `over`.
pub fn compute_until(mut over: impl FnMut(u64) -> bool) {
    sleep_until(POLL_NS, |k| over(k.now_ns).then_some(()));
}

impl Kernel {
    fn is_readable(&self, fd: i32) -> bool {
        match fd {
            ALARM_FD => self.alarm_ns.is_some_and(|at| at <= self.now_ns),
            rail => !self.ports[rail as usize].inbox.is_empty(),
        }
    }
}

/// Replaces `event.rs`.
pub mod event {
    use super::{call, sleep_until, ALARM_FD, SLEEP_NS};
    use shuttle::sync::atomic::{AtomicBool, Ordering::SeqCst};

    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub enum Woken {
        Called,
        Descriptor,
        Deadline,
    }

    #[derive(Debug)]
    pub struct Event(AtomicBool);

    impl Event {
        pub fn new() -> Result<Event, String> {
            Ok(Event(AtomicBool::new(false)))
        }
        pub fn fd(&self) -> i32 {
            -1
        }
        pub fn raise(&self) {
            self.0.store(true, SeqCst);
        }
        pub fn clear(&self) {
            self.0.store(false, SeqCst);
        }
        pub fn wait(&self, descriptors: &[i32], timeout_ns: u64) -> Woken {
            let end = call(|k| k.now_ns).saturating_add(timeout_ns);
            sleep_until(SLEEP_NS, |k| {
                if self.0.load(SeqCst) {
                    Some(Woken::Called)
                } else if descriptors.iter().any(|&fd| k.is_readable(fd)) {
                    Some(Woken::Descriptor)
                } else {
                    (k.now_ns >= end).then_some(Woken::Deadline)
                }
            })
        }
    }

    pub fn sleep(descriptors: &[i32], timeout_ns: u64) {
        let end = call(|k| k.now_ns).saturating_add(timeout_ns);
        sleep_until(SLEEP_NS, |k| {
            let readable = descriptors.iter().any(|&fd| k.is_readable(fd));
            (readable || k.now_ns >= end).then_some(())
        });
    }

    /// Each model has its own.
    pub struct Alarm;

    impl Alarm {
        pub fn new() -> Result<Alarm, String> {
            Ok(Alarm)
        }
        pub fn set(&self, after_ns: u64) {
            call(|k| k.alarm_ns = Some(k.now_ns + after_ns));
        }
        pub fn take(&self) -> bool {
            call(|k| k.is_readable(ALARM_FD) && k.alarm_ns.take().is_some())
        }
        pub fn fd(&self) -> i32 {
            ALARM_FD
        }
    }
}

/// The system of an engine.
#[derive(Clone)]
pub struct Desk(pub Arc<ProgressThread<Desk>>);

impl Clock for Desk {
    fn now_ns(&self) -> u64 {
        now_ns()
    }
}

impl System for Desk {
    type Tx = Rail;
    type Rx = Rail;
    type Watch = ();
    fn alarm(&self) {
        self.0.set_alarm();
    }
    fn yield_now(&self) {
        ranked::assert_none_held("offers the processor");
        shuttle::thread::yield_now();
    }
    fn sleep(&self, descriptors: &[i32], timeout_ns: u64) {
        ranked::assert_none_held("sleeps");
        event::sleep(descriptors, timeout_ns);
    }
}

/// Both halves of a rail: the number of its port, which is also its descriptor.
pub struct Rail {
    port: usize,
    links: AddrLinks,
    buffers: PlainBuffers,
}

addr_links!(Rail, links);
plain_buffers!(Rail, buffers);
no_groups!(Rail);
no_remote_write!(Rail);

/// The ports of a new engine's rails.
pub fn open_rails() -> Vec<usize> {
    call(|k| {
        let first = k.ports.len();
        k.ports.resize_with(first + RAILS, Port::default);
        (first..first + RAILS).collect()
    })
}

/// Checks after all engines are closed that their thread has ended, and closes the rails.
pub fn close_rails() {
    let threads = call(|k| {
        k.ports.iter_mut().for_each(|port| port.closed = true);
        k.threads
    });
    assert_eq!(threads, 0, "the thread outlives the last engine");
}

/// The progress thread.
pub fn run(registry: &ProgressThread<Desk>) {
    let threads = call(|k| {
        k.threads += 1;
        k.threads
    });
    if threads != 1 {
        broken("two threads at once");
    }
    registry.run();
    call(|k| k.threads -= 1);
}

impl Rail {
    pub fn new(port: usize) -> Rail {
        Rail {
            port,
            links: AddrLinks::default(),
            buffers: PlainBuffers::new(BUFFER_LEN, 2),
        }
    }

    fn assert_open(&self) {
        if call(|k| k.ports[self.port].closed) {
            broken("a rail is used after its engine was closed");
        }
    }
}

impl RailTx for Rail {
    fn caps(&self) -> Caps {
        crate::caps::caps()
    }
    fn move_to(&mut self, _: &InterfaceChoice) -> Option<RailAddr> {
        None
    }

    fn local_addr(&self) -> RailAddr {
        let addr = UdpAddr {
            ip: [10, 0, (self.port % RAILS) as u8, self.port as u8].into(),
            port: self.port as u16 + 1, // 0 is no port
            prefix_len: 24,
        };
        addr.rail()
    }
    fn send(&mut self, link: LinkId, bytes: &[u8], segment: usize, _: u8) -> SendOutcome {
        self.assert_open();
        let Some(to) = self.links.key(link) else {
            broken("a send on no link");
        };
        call(|k| {
            let port = UdpAddr::of(&to).expect("an address of ours").port;
            let port = &mut k.ports[port as usize - 1];
            if !port.closed {
                // The kernel may join all datagrams of a batch (GRO), or fewer.
                let datagrams = bytes.len().div_ceil(segment.max(1));
                let joined = shuttle::rand::thread_rng().gen_range(0..=datagrams);
                let (head, rest) = bytes.split_at(bytes.len().min(joined * segment));
                let batches = [head, rest].into_iter().filter(|batch| !batch.is_empty());
                port.inbox
                    .extend(batches.map(|batch| (batch.to_vec(), segment)));
            }
        });
        SendOutcome::Sent
    }
    fn poll_event(&mut self) -> Option<RailEvent> {
        None
    }
}

impl RailRx for Rail {
    fn recv(&mut self, sink: &mut dyn FnMut(Received<'_>)) -> usize {
        self.assert_open();
        let batch = call(|k| {
            k.now_ns += POLL_NS;
            k.ports[self.port].inbox.pop_front()
        });
        let Some((bytes, segment)) = batch else {
            return 0;
        };
        // The last datagram of a batch may arrive alone and be shorter.
        let segment = segment.clamp(1, bytes.len());
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
        Some(self.port as i32)
    }

    fn arm(&mut self) -> Armed {
        Armed::Sleep
    }
}
