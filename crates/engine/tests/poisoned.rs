//! After a panic an engine sends nothing, for what packets are made of may be gone; and whoever
//! waits for a completion is told that none will come.

#[path = "stand_in/caps.rs"]
mod caps;

use marline_engine::{
    Clock, Completion, CoreConfig, CqId, Engine, EpId, IoVec, LogSink, OpFlags, Parts, RemoteReq,
    SendReq, SubmitError, System,
};
use marline_proto::Config;
use marline_rails::{Caps, RailEvent, RailRx, RailTx, Received, SendOutcome};
use marline_wire::{Address, RailAddr};
use std::panic::{catch_unwind, AssertUnwindSafe};
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::Arc;

/// The one rail of a host in a network of its own.
fn rail_of(host: u8) -> RailAddr {
    let mut ip = [0; 16];
    ip[..4].copy_from_slice(&[10, 0, 0, host]);
    RailAddr {
        kind: 4,
        index: 0,
        port: 4_000,
        mtu: 1_472,
        prefix_len: 16,
        ip,
    }
}

/// A rail that counts what is sent, and on which nothing ever comes.
struct Counted(Arc<AtomicU64>);

impl RailTx for Counted {
    fn caps(&self) -> Caps {
        caps::CAPS
    }
    fn local_addr(&self) -> RailAddr {
        rail_of(1)
    }
    fn send(&mut self, _: &RailAddr, _: &[u8], _: usize, _: u8) -> SendOutcome {
        self.0.fetch_add(1, Relaxed);
        SendOutcome::Sent
    }
    fn poll_event(&mut self) -> Option<RailEvent> {
        None
    }
    fn fd(&self) -> Option<i32> {
        None
    }
}

impl RailRx for Counted {
    fn recv(&mut self, _: &mut dyn FnMut(Received<'_>)) -> usize {
        0
    }
}

/// Time by hand.
#[derive(Clone)]
struct Still(Arc<AtomicU64>);

impl Clock for Still {
    fn now_ns(&self) -> u64 {
        self.0.load(Relaxed)
    }
}

impl System for Still {
    type Tx = Counted;
    type Rx = Counted;
    type Watch = ();
    fn alarm(&self) {}
    fn yield_now(&self) {}
    fn refine(&self) {}
}

/// A completion is wanted, once all has arrived.
fn complete() -> OpFlags {
    OpFlags {
        completion: true,
        delivery_complete: true,
        ..OpFlags::default()
    }
}

/// An engine with an endpoint that knows one peer, and how often it sent.
struct Side {
    engine: Engine<Still>,
    time: Still,
    sent: Arc<AtomicU64>,
    cq: CqId,
    ep: EpId,
}

fn side() -> Side {
    let (time, sent) = (Still(Arc::new(AtomicU64::new(1_000_000))), Arc::default());
    let cfg = CoreConfig {
        proto: Config::default(),
        log_bytes: 1 << 20,
        aggregate_after: 0,
        mtu: 0,
        sum_ahead_bytes: 0,
    };
    let parts = Parts {
        rails: vec![("rail".into(), Counted(Arc::clone(&sent)))],
        halves: vec![Counted(Arc::clone(&sent))],
        clock: time.clone(),
        watch: (),
        tick_ns: 10_000_000,
        threaded: true,
        random: Box::new(|| 7),
        log: LogSink(Arc::new(|_, _| {})),
    };
    let engine = Engine::assemble(cfg, parts);
    let (cq, av) = (engine.cq_open(), engine.av_open());
    let ep = engine.ep_open().unwrap();
    engine.ep_bind_av(ep, av);
    engine.ep_bind_tx_cq(ep, cq);
    engine.ep_enable(ep).unwrap();
    let peer = Address {
        id: 99,
        token: 5,
        rails: [rail_of(2), RailAddr::NONE],
    };
    let (blob, len) = peer.encode();
    assert_eq!(engine.av_insert(av, &blob[..len]), Ok(0));
    Side {
        engine,
        time,
        sent,
        cq,
        ep,
    }
}

impl Side {
    /// Posts a send from the caller's memory. It is left for the next poll, as those of a burst.
    fn post(&self, bytes: &mut [u8]) -> Result<(), SubmitError> {
        let (base, len) = (bytes.as_mut_ptr(), bytes.len());
        let req = SendReq {
            dest: 0,
            iov: &[IoVec { base, len }],
            tag: Some(1),
            data: None,
            context: 1,
            flags: complete(),
        };
        self.engine.send(self.ep, &req)
    }

    /// Everything that makes progress, as often as a healthy engine needs to send.
    fn progress(&self) {
        let mut out = [Completion::empty(); 4];
        for _ in 0..10 {
            self.time.0.fetch_add(20_000_000, Relaxed);
            self.engine.thread_turn(true);
            let read = self.engine.cq_read(self.cq, &mut out);
            assert_eq!(read.is_err(), self.engine.is_unusable(), "{read:?}");
            assert_eq!(self.engine.cq_take_error(self.cq).map(|e| e.context), None);
            self.engine.progress();
        }
    }
}

/// The progress thread panics while the application goes on polling, and closes. What it had
/// posted is taken back by no completion, so its memory may be another's by then.
#[test]
fn what_was_posted_before_a_panic_is_not_sent_after_it() {
    let (healthy, poisoned) = (side(), side());
    let mut bytes = [7; 300];
    for side in [&healthy, &poisoned] {
        side.post(&mut bytes).unwrap();
        assert_eq!(side.sent.load(Relaxed), 0, "it waits");
    }
    let panics = || poisoned.engine.inspect(|_| panic!("on purpose"));
    assert!(catch_unwind(AssertUnwindSafe(panics)).is_err());
    healthy.progress();
    assert!(healthy.sent.load(Relaxed) > 0);
    poisoned.progress();
    assert_eq!(poisoned.post(&mut bytes), Err(SubmitError::Unusable));
    poisoned.engine.ep_close(poisoned.ep);
    assert_eq!(poisoned.sent.load(Relaxed), 0);
}

/// Whoever waits for a completion would wait for ever. What had ended before is still told.
#[test]
fn whoever_waits_hears_of_a_panic() {
    let side = side();
    let peer_memory = RemoteReq {
        dest: 0,
        iov: &[],
        remote: &[(0, 0, 1)],
        context: 9,
        flags: complete(),
    };
    side.engine.put(side.ep, &peer_memory).unwrap(); // of nothing: done at once
    side.engine.progress();
    assert!(!side.engine.is_unusable());
    let panics = || side.engine.inspect(|_| panic!("on purpose"));
    assert!(catch_unwind(AssertUnwindSafe(panics)).is_err());
    let mut out = [Completion::empty(); 4];
    assert_eq!(side.engine.cq_read(side.cq, &mut out), Ok(1));
    assert_eq!((out[0].context, out[0].error), (9, None));
    assert_eq!(side.engine.cq_read(side.cq, &mut out), Err(()));
    assert!(side.engine.is_unusable());
}
