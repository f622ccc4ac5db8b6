//! A forked child may close all objects of its parent's engine, as a program's exit handlers do,
//! whatever the parent's threads are doing at the fork.

use marline_engine::settings::Settings;
use marline_engine::{mark_forked, AvId, CqId, Engine, EpId, LogSink, Region};
use std::sync::mpsc::channel;
use std::sync::Arc;

/// Seconds after which a signal ends a child that hangs.
const HANGS_S: u32 = 20;
const KEY: u64 = 42;

struct Opened {
    engine: Engine,
    cq: CqId,
    av: AvId,
    ep: EpId,
}

/// A close call and its name.
type Close = (&'static str, fn(&Opened));

/// The objects that can be closed, one at a time.
const CLOSES: [Close; 5] = [
    ("memory", |o| o.engine.mr_close(KEY)),
    ("endpoint", |o| o.engine.ep_close(o.ep)),
    ("queue", |o| o.engine.cq_close(o.cq)),
    ("address vector", |o| o.engine.av_close(o.av)),
    ("engine", |o| o.engine.close()),
];

/// Runs a close in a forked child; returns its exit status, 0 unless it hung or crashed.
fn in_a_child(opened: &Opened, close: fn(&Opened)) -> i32 {
    // SAFETY: the child only calls the engine, which uses no locks there, and exits without exit
    // handlers.
    unsafe {
        let child = libc::fork();
        assert!(child >= 0);
        if child == 0 {
            libc::alarm(HANGS_S);
            mark_forked(); // the API layer does this in `pthread_atfork`
            close(opened);
            libc::_exit(0);
        }
        let mut status = -1;
        assert_eq!(libc::waitpid(child, &mut status, 0), child);
        status
    }
}

#[test]
fn a_forked_child_closes_everything_while_a_thread_of_its_parent_has_the_lock() {
    let lookup = |name: &str| (name == "rails").then(|| "lo".to_owned());
    let settings = Settings::from_lookup(lookup).unwrap();
    let engine = Engine::open(settings, LogSink(Arc::new(|_, _| ()))).unwrap();
    let (cq, av, ep) = (
        engine.cq_open(),
        engine.av_open(),
        engine.ep_open().unwrap(),
    );
    engine.ep_bind_av(ep, av);
    engine.ep_bind_tx_cq(ep, cq);
    engine.ep_bind_rx_cq(ep, cq);
    engine.ep_enable(ep).unwrap();
    let mut memory = [0; 64];
    let (base, len) = (memory.as_mut_ptr(), memory.len());
    let region = Region {
        key: KEY,
        base,
        len,
        virt_addr: false,
        readable: true,
        writable: true,
    };
    engine.mr_open(&region).unwrap();
    let opened = Opened { engine, cq, av, ep };
    std::thread::scope(|scope| {
        let (locked, is_locked) = channel();
        let (let_go, may_go) = channel::<()>();
        let engine = &opened.engine;
        scope.spawn(move || {
            engine.inspect(|_| {
                locked.send(()).unwrap();
                let _ = may_go.recv(); // returns when the other half is dropped, too
            })
        });
        is_locked.recv().unwrap();
        for (what, close) in CLOSES {
            assert_eq!(in_a_child(&opened, close), 0, "the close of the {what}");
        }
        drop(let_go);
    });
    // The parent continues to work.
    for (_, close) in CLOSES {
        close(&opened);
    }
}
