//! A job of two processes in one thread, each an engine on its own rail; every byte of every
//! message is checked.

use marline_engine::{
    AvId, Clock, Completion, CoreConfig, CqId, Engine, EpId, IoVec, LogSink, OpError, OpFlags,
    Parts, RecvReq, SendReq, SubmitError, System,
};
use marline_proto::Config;
use marline_rails::{RailRx, RailTx};
use std::marker::PhantomData;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::Arc;

/// Lengths of the messages of a round: eager and rendezvous.
const LENS: [usize; 7] = [0, 8, 900, 9_000, 60_000, 200_000, 700_000];
const ROUNDS: usize = 6;
/// Most turns of a job.
const TURNS: usize = 400_000;
/// Duration of a reading of the clock.
const LOOK_NS: u64 = 1_000;

/// A machine with its own clock, which advances with each reading.
pub struct Machine<T = (), R = ()>(Arc<AtomicU64>, PhantomData<fn() -> (T, R)>);

impl<T, R> Clone for Machine<T, R> {
    fn clone(&self) -> Machine<T, R> {
        Machine(self.0.clone(), PhantomData)
    }
}

impl<T, R> Machine<T, R> {
    /// Advances the clock by a millisecond.
    pub fn pass_ms(&self) {
        self.0.fetch_add(1_000_000, Relaxed);
    }
}

impl<T: 'static, R: 'static> Clock for Machine<T, R> {
    fn now_ns(&self) -> u64 {
        self.0.fetch_add(LOOK_NS, Relaxed)
    }
}

impl<T: RailTx + 'static, R: RailRx + 'static> System for Machine<T, R> {
    type Tx = T;
    type Rx = R;
    type Watch = ();
    fn alarm(&self) {}
    fn yield_now(&self) {}
}

/// A process.
struct Side<T: RailTx + 'static, R: RailRx + 'static> {
    engine: Engine<Machine<T, R>>,
    machine: Machine<T, R>,
    cq: CqId,
    ep: EpId,
    av: AvId,
}

/// A completion at delivery.
fn flags() -> OpFlags {
    OpFlags {
        delivery_complete: true,
        ..OpFlags::COMPLETION
    }
}

fn side<T: RailTx + 'static, R: RailRx + 'static>(me: usize, (tx, rx): (T, R)) -> Side<T, R> {
    let machine = Machine(Arc::new(AtomicU64::new(1_000_000)), PhantomData);
    let cfg = CoreConfig {
        proto: Config::default(),
        log_bytes: 4 << 20,
        borrow: false,
        aggregate_after: 4,
        rpcs: true,
        mtu: 0,
    };
    let mut number = 1_000 * (me as u64 + 1);
    let parts = Parts {
        rails: vec![(format!("rail{me}"), tx)],
        halves: vec![rx],
        clock: machine.clone(),
        watch: (),
        tick_ns: 10_000_000,
        threaded: false,
        random: Box::new(move || {
            number += 2;
            Ok(number)
        }),
        log: LogSink(Arc::new(|_, _| {})),
    };
    let engine = Engine::assemble(cfg, parts);
    let (cq, av) = (engine.cq_open(), engine.av_open());
    let ep = engine.ep_open().expect("an endpoint");
    engine.ep_bind_av(ep, av);
    engine.ep_bind_tx_cq(ep, cq);
    engine.ep_bind_rx_cq(ep, cq);
    engine.ep_enable(ep).expect("enabled");
    Side {
        engine,
        machine,
        cq,
        ep,
        av,
    }
}

impl<T: RailTx + 'static, R: RailRx + 'static> Side<T, R> {
    fn knows(&self, other: &Side<T, R>) {
        let (name, len) = other.engine.ep_name(other.ep).expect("a name");
        assert_eq!(self.engine.av_insert(self.av, &name[..len]), Ok(0));
    }

    /// Polls once; returns the number of successful operations.
    fn poll(&self) -> usize {
        let mut out = [Completion::empty(); 16];
        match self.engine.cq_read(self.cq, &mut out) {
            Ok(ended) => ended,
            Err(()) => panic!("{:?}", self.engine.cq_take_error(self.cq)),
        }
    }

    fn receive(&self, buffer: &mut [u8], tag: u64) {
        let (base, len) = (buffer.as_mut_ptr(), buffer.len());
        let req = RecvReq {
            source: 0,
            iov: &[IoVec { base, len }],
            tag: Some((tag, 0)),
            context: 1,
            flags: flags(),
        };
        self.engine.recv(self.ep, &req).expect("a receive");
    }

    fn send(&self, buffer: &mut [u8], tag: u64) -> Result<(), SubmitError> {
        let (base, len) = (buffer.as_mut_ptr(), buffer.len());
        let req = SendReq {
            dest: 0,
            iov: &[IoVec { base, len }],
            tag: Some(tag),
            data: None,
            context: 2,
            flags: flags(),
        };
        self.engine.send(self.ep, &req)
    }
}

/// Two processes.
pub struct Job<T: RailTx + 'static, R: RailRx + 'static> {
    sides: [Side<T, R>; 2],
}

fn content(round: usize, from: usize, len: usize) -> Vec<u8> {
    let byte = |at: usize| (at / 3 + 7 * round + 31 * from + len) as u8;
    (0..len).map(byte).collect()
}

impl<T: RailTx + 'static, R: RailRx + 'static> Job<T, R> {
    /// Opens both processes on the rails that `rail` returns for their numbers.
    pub fn new(rail: impl Fn(usize) -> (T, R)) -> Job<T, R> {
        let sides = [0, 1].map(|me| side(me, rail(me)));
        sides[0].knows(&sides[1]);
        sides[1].knows(&sides[0]);
        Job { sides }
    }

    /// Exchanges all lengths in both directions for some rounds; calls `each_turn` between two
    /// polls.
    pub fn run(&mut self, mut each_turn: impl FnMut(&[Machine<T, R>], usize)) {
        let machines: Vec<_> = self.sides.iter().map(|side| side.machine.clone()).collect();
        let mut turn = 0;
        for round in 0..ROUNDS {
            let mut sent = [0, 1].map(|from| LENS.map(|len| content(round, from, len)));
            let mut got = [0, 1].map(|_| LENS.map(|len| vec![0xee; len]));
            for (side, buffers) in self.sides.iter().zip(&mut got) {
                for (tag, buffer) in (0..).zip(buffers) {
                    side.receive(buffer, tag);
                }
            }
            let mut ended = 0;
            for (side, buffers) in self.sides.iter().zip(&mut sent) {
                for (tag, buffer) in (0..).zip(buffers) {
                    while side.send(buffer, tag) == Err(SubmitError::Again) {
                        ended += self.sides.iter().map(Side::poll).sum::<usize>();
                    }
                }
            }
            while ended < 4 * LENS.len() {
                assert!(
                    turn < TURNS,
                    "round {round} does not end: {ended} operations did"
                );
                each_turn(&machines, turn);
                ended += self.sides.iter().map(Side::poll).sum::<usize>();
                turn += 1;
            }
            for (from, buffers) in got.iter().rev().enumerate() {
                for (len, bytes) in LENS.iter().zip(buffers) {
                    assert!(
                        *bytes == content(round, from, *len),
                        "round {round}, {len} bytes"
                    );
                }
            }
        }
    }

    /// Sends to a side that is not there, and returns the error.
    pub fn alone(&mut self) -> OpError {
        let side = &self.sides[0];
        let mut buffer = vec![1; 8];
        side.send(&mut buffer, 1).expect("posted");
        for _ in 0..TURNS {
            let mut out = [Completion::empty(); 4];
            side.machine.pass_ms();
            if side.engine.cq_read(side.cq, &mut out).is_err() {
                let error = side
                    .engine
                    .cq_take_error(side.cq)
                    .and_then(|entry| entry.error);
                return error.expect("an error entry");
            }
        }
        panic!("the send hangs");
    }

    /// Closes both sides; returns the number of operations left open.
    pub fn close(self) -> usize {
        // The side that closes second is polled by hand to answer the first one's BYE, without a
        // thread.
        let open = |side: &Side<T, R>| {
            let (sends, recvs) = side.engine.inspect(|core| core.open_ops());
            sends + recvs
        };
        let left = self.sides.iter().map(open).sum();
        let [a, b] = &self.sides;
        std::thread::scope(|scope| {
            scope.spawn(|| a.engine.ep_close(a.ep));
            b.engine.ep_close(b.ep);
        });
        left
    }
}
