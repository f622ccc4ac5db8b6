//! Short messages between two engines of one process, over loopback, for counting what they cost:
//!
//! ```text
//! eager COUNT [WINDOW] [BYTES] [MTU] [RAILS] [message | write | read | add] [key]
//! ```
//!
//! sends COUNT messages of BYTES (8) back and forth, WINDOW (1) at a time, in packets of at most
//! MTU (0: the interface's limit) over RAILS (1), to count their instructions; before them, outside
//! of `counted`, others for first contact, page faults and probes of packet sizes. Like MPICH, it
//! waits for the delivery of messages that are too long to be injected. Other kinds are operations
//! on the other engine's memory, in windows that are waited for; an operation counts as two
//! messages. With `key` packets have tags by a key. One
//! thread does all work, and time advances only with each reading of the clock, so that counts
//! repeat (`tests/e2e/test_instructions.py`, `test_calls.py`): an engine's work depends on the time
//! since its last poll, and machines count at different speeds.

use marline_auth::{JobKey, JOB_KEY_LEN};
use marline_engine::{
    AtomicKind, AtomicReq, AvId, Clock, Completion, CoreConfig, CqId, Engine, EpId, IoVec, LogSink,
    OpFlags, Parts, RecvReq, Region, RemoteReq, SendReq, SubmitError, System, INJECT_MAX,
};
use marline_proto::Config;
use marline_rails::{choose_rails, open_rail, AnyRx, AnyTx, Rail, RailsConfig, UdpConfig};
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::Arc;

/// Duration of a reading of the clock: a message takes 2-3 us and two or three readings.
const LOOK_NS: u64 = 500;

/// A clock that advances with each reading.
#[derive(Clone, Default)]
struct Looks(Arc<AtomicU64>);

impl Clock for Looks {
    fn now_ns(&self) -> u64 {
        self.0.fetch_add(LOOK_NS, Relaxed)
    }
}

impl System for Looks {
    type Tx = AnyTx;
    type Rx = AnyRx;
    type Watch = ();
    fn alarm(&self) {}
    fn yield_now(&self) {
        std::thread::yield_now();
    }
}

/// An engine on the loopback interface.
fn engine(clock: &Looks, id: u64, (mtu, rails): (usize, u8)) -> Engine<Looks> {
    let choices = choose_rails(&["lo".to_owned()]).expect("loopback");
    let looks = clock.clone();
    let time: marline_rails::Clock = Arc::new(move || looks.now_ns());
    let config = UdpConfig {
        cmsg: false,
        ..UdpConfig::default()
    };
    let config = RailsConfig {
        udp: config,
        ..RailsConfig::default()
    };
    let (mut senders, mut halves) = (Vec::new(), Vec::new());
    for index in 0..rails {
        let rail = open_rail(index, &choices[0], &config, &time).expect("rail");
        let (tx, rx) = rail.split();
        senders.push((format!("lo{index}"), tx));
        halves.push(rx);
    }
    let cfg = CoreConfig {
        proto: Config {
            ack_delay_ns: 100_000_000,
            ..Config::default()
        },
        log_bytes: 4 << 20,
        borrow: true,
        aggregate_after: 2,
        rpcs: true,
        mtu,
    };
    let mut random = id;
    let parts = Parts {
        rails: senders,
        halves,
        clock: clock.clone(),
        watch: (),
        tick_ns: 10_000_000,
        threaded: true, // but the thread is never called
        random: Box::new(move || {
            random += 2;
            Ok(random)
        }),
        log: LogSink(Arc::new(|_, _| {})),
    };
    Engine::assemble(cfg, parts)
}

/// Key of the open memory, and libfabric's numbers of a datatype and an operation.
const KEY: u64 = 3;
const UINT64: u8 = 7;
const SUM: u8 = 2;

/// The kinds of operations.
#[derive(Clone, Copy, PartialEq)]
enum Kind {
    Message,
    Write,
    Read,
    Add,
}

struct Side {
    engine: Engine<Looks>,
    cq: CqId,
    ep: EpId,
    av: AvId,
    bytes: Vec<u8>,
    flags: OpFlags,
}

fn side(clock: &Looks, id: u64, len: usize, (rails, keyed): ((usize, u8), bool)) -> Side {
    let engine = engine(clock, id, rails);
    if keyed {
        engine.set_job_key(JobKey::new([7; JOB_KEY_LEN]));
    }
    let (cq, av, ep) = (engine.cq_open(), engine.av_open(), engine.ep_open());
    let ep = ep.expect("endpoint");
    engine.ep_bind_av(ep, av);
    engine.ep_bind_tx_cq(ep, cq);
    engine.ep_bind_rx_cq(ep, cq);
    engine.ep_enable(ep).expect("enable");
    Side {
        engine,
        cq,
        ep,
        av,
        bytes: vec![7; len],
        flags: OpFlags {
            delivery_complete: len > INJECT_MAX,
            ..OpFlags::COMPLETION
        },
    }
}

impl Side {
    fn knows(&self, other: &Side) {
        let (name, len) = other.engine.ep_name(other.ep).expect("name");
        assert_eq!(self.engine.av_insert(self.av, &name[..len]), Ok(0));
    }

    fn poll(&self) -> usize {
        let mut out = [Completion::empty(); 16];
        let read = self.engine.cq_read(self.cq, &mut out);
        read.expect("no operation may fail")
    }

    fn receive(&mut self) {
        let iov = [IoVec {
            base: self.bytes.as_mut_ptr(),
            len: self.bytes.len(),
        }];
        let req = RecvReq {
            source: 0,
            iov: &iov,
            tag: Some((1, 0)),
            context: 1,
            flags: OpFlags::COMPLETION,
        };
        self.engine.recv(self.ep, &req).expect("receive");
    }

    /// Sends a message; returns the number of operations that ended meanwhile.
    fn send(&mut self) -> usize {
        let iov = [IoVec {
            base: self.bytes.as_mut_ptr(),
            len: self.bytes.len(),
        }];
        let req = SendReq {
            dest: 0,
            iov: &iov,
            tag: Some(1),
            data: None,
            context: 2,
            flags: self.flags,
        };
        let mut ended = 0;
        while self.engine.send(self.ep, &req) == Err(SubmitError::Again) {
            ended += self.poll();
        }
        ended
    }

    /// Opens its memory to the other engine.
    fn open(&mut self) {
        let region = Region {
            key: KEY,
            base: self.bytes.as_mut_ptr(),
            len: self.bytes.len(),
            virt_addr: false,
            readable: true,
            writable: true,
        };
        self.engine.mr_open(&region).expect("region");
    }

    /// Starts an operation on the other engine's memory; returns the number of operations that
    /// ended meanwhile.
    fn operate(&mut self, kind: Kind) -> usize {
        let iov = [IoVec {
            base: self.bytes.as_mut_ptr(),
            len: self.bytes.len(),
        }];
        let req = RemoteReq {
            dest: 0,
            iov: &iov,
            remote: &[(0, iov[0].len, KEY)],
            data: None,
            context: 3,
            flags: OpFlags::COMPLETION,
        };
        let atomic = AtomicReq {
            dest: 0,
            kind: AtomicKind::Plain,
            datatype: UINT64,
            op: SUM,
            operands: &iov,
            compare: &[],
            result: &[],
            remote: &[(0, iov[0].len / 8, KEY)],
            context: 3,
            flags: OpFlags::COMPLETION,
        };
        let begin = || match kind {
            Kind::Read => self.engine.read(self.ep, &req),
            Kind::Add => self.engine.atomic(self.ep, &atomic),
            _ => self.engine.put(self.ep, &req),
        };
        let mut ended = 0;
        loop {
            match begin() {
                Err(SubmitError::Again) => ended += self.poll(),
                begun => break begun.expect("operation"),
            }
        }
        ended
    }
}

/// Runs `window` operations of `from` on the memory of `to` to completion.
#[inline(never)]
fn operations(from: &mut Side, to: &mut Side, kind: Kind, window: usize) {
    let mut ended = 0;
    for _ in 0..window {
        ended += from.operate(kind);
    }
    while ended < window {
        to.poll();
        ended += from.poll();
    }
}

/// Sends `window` messages one way.
fn volley(from: &mut Side, to: &mut Side, window: usize) {
    let (mut sent, mut received) = (0, 0);
    (0..window).for_each(|_| to.receive());
    for _ in 0..window {
        sent += from.send();
    }
    while sent < window || received < window {
        sent += from.poll();
        received += to.poll();
    }
}

/// Messages before those that are counted: as many bytes of long ones.
fn warm_up_messages(len: usize) -> usize {
    ((4 << 20) / len.max(1)).clamp(96, 1_280)
}

/// Sends `count` messages, or operates as often.
fn run((a, b): (&mut Side, &mut Side), kind: Kind, count: usize, window: usize) {
    for _ in 0..count.div_ceil(2 * window) {
        if kind != Kind::Message {
            operations(a, b, kind, window);
            continue;
        }
        volley(a, b, window);
        volley(b, a, window);
    }
}

/// The same, for tools that count between a function's beginning and end.
#[inline(never)]
fn counted(sides: (&mut Side, &mut Side), kind: Kind, count: usize, window: usize) {
    run(sides, kind, count, window);
}

/// A number on the command line, or `otherwise` if it is missing.
fn number(at: usize, otherwise: usize) -> usize {
    let word = std::env::args().nth(at);
    let usage = "usage: eager COUNT [WINDOW] [BYTES] [MTU] [RAILS] \
                 [message | write | read | add] [key]";
    word.map_or(otherwise, |word| match word.parse() {
        Ok(number) => number,
        Err(_) => {
            eprintln!("eager: {word:?} is no number; {usage}");
            std::process::exit(2)
        }
    })
}

fn main() {
    let (count, window, len) = (number(1, 1_000), number(2, 1).max(1), number(3, 8));
    let (mtu, rails) = (number(4, 0), number(5, 1).clamp(1, 8) as u8);
    let kind = match std::env::args().nth(6).as_deref() {
        Some("write") => Kind::Write,
        Some("read") => Kind::Read,
        Some("add") => Kind::Add,
        _ => Kind::Message,
    };
    let clock = Looks::default();
    let keyed = std::env::args().nth(7).as_deref() == Some("key");
    let new = |id| side(&clock, id, len, ((mtu, rails), keyed));
    let (mut a, mut b) = (new(1), new(2));
    a.knows(&b);
    b.knows(&a);
    if kind != Kind::Message {
        b.open();
    }
    run((&mut a, &mut b), kind, warm_up_messages(len), window);
    counted((&mut a, &mut b), kind, count, window);
    for side in [&a, &b] {
        side.engine.ep_close(side.ep);
    }
}
