//! What holds while the application's thread has offered its processor and does not get it back.

use marline_engine::{Clock, CoreConfig, Engine, LogSink, Parts, System};
use marline_proto::Config;
use marline_rails::{Caps, RailEvent, RailRx, RailTx, Received, SendOutcome};
use marline_wire::RailAddr;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Mutex};

/// A rail on which nothing ever comes.
struct Silent(Arc<AtomicU64>);

impl RailTx for Silent {
    fn caps(&self) -> Caps {
        Caps {
            datagram_max: 1_472,
            batch_bytes_max: 64_000,
            batch_segments_max: 40,
            receive_buffer_bytes: 212_992,
            bytes_per_s: 0,
        }
    }
    fn local_addr(&self) -> RailAddr {
        RailAddr::NONE
    }
    fn send(&mut self, _: &RailAddr, _: &[u8], _: usize, _: u8) -> SendOutcome {
        SendOutcome::Sent
    }
    fn poll_event(&mut self) -> Option<RailEvent> {
        None
    }
    fn fd(&self) -> Option<i32> {
        None
    }
}

impl RailRx for Silent {
    fn recv(&mut self, _: &mut dyn FnMut(Received<'_>)) -> usize {
        self.0.fetch_add(1, Relaxed);
        0
    }
}

type OnYield = Box<dyn FnMut() + Send>;

/// Time by hand, and a processor that is away for as long as the test wants.
#[derive(Clone)]
struct Slow {
    now_ns: Arc<AtomicU64>,
    on_yield: Arc<Mutex<Option<OnYield>>>,
}

impl Clock for Slow {
    fn now_ns(&self) -> u64 {
        self.now_ns.load(Relaxed)
    }
}

impl System for Slow {
    type Tx = Silent;
    type Rx = Silent;
    type Watch = ();
    fn alarm(&self) {}
    fn yield_now(&self) {
        if let Some(mut action) = self.on_yield.lock().unwrap().take() {
            action();
        }
    }
    fn refine(&self) {}
}

/// Found with 8 ranks and 4 other busy processes on 2 cores (Linux 6.18): `sched_yield` took 5 s,
/// the progress thread was locked out meanwhile, and the peers declared a live process dead.
#[test]
fn the_progress_thread_polls_while_the_application_has_given_its_processor_away() {
    let polls = Arc::new(AtomicU64::new(0));
    let system = Slow {
        now_ns: Arc::new(AtomicU64::new(1_000_000)),
        on_yield: Arc::default(),
    };
    let cfg = CoreConfig {
        proto: Config::default(),
        log_bytes: 1 << 20,
        aggregate_after: 2,
        mtu: 0,
        sum_ahead_bytes: 0,
    };
    let parts = Parts {
        rails: vec![("rail".into(), Silent(polls.clone()))],
        halves: vec![Silent(polls.clone())],
        clock: system.clone(),
        watch: (),
        tick_ns: 10_000_000,
        threaded: true,
        random: Box::new(|| 7),
        log: LogSink(Arc::new(|_, _| {})),
    };
    let engine = Arc::new(Engine::assemble(cfg, parts));
    let seen = Arc::new(Mutex::new(None));
    let (thread, time, out) = (engine.clone(), system.now_ns.clone(), seen.clone());
    *system.on_yield.lock().unwrap() = Some(Box::new(move || {
        time.fetch_add(5_000_000_000, Relaxed);
        let before = polls.load(Relaxed);
        thread.thread_turn(false);
        *out.lock().unwrap() = Some(polls.load(Relaxed) - before);
    }));
    // Enough empty polls for any number of them that the engine may have learnt.
    for _ in 0..10_000 {
        engine.progress();
    }
    let polled = seen
        .lock()
        .unwrap()
        .expect("empty polls never offered the processor");
    assert!(polled > 0, "the thread could not poll the rail");
}
