//! Short messages between two engines of one process, over loopback, for counting what they cost:
//!
//! ```text
//! eager COUNT [WINDOW] [BYTES]
//! ```
//!
//! sends COUNT messages of BYTES (8) back and forth, WINDOW (1) at a time. One thread does it all,
//! without a progress thread, so that counts repeat (`tests/e2e/test_instructions.py`).

use marline_engine::settings::Settings;
use marline_engine::{
    AvId, Completion, CqId, Engine, EpId, IoVec, LogSink, OpFlags, RecvReq, SendReq, SubmitError,
};
use std::sync::Arc;

const FLAGS: OpFlags = OpFlags {
    completion: true,
    delivery_complete: false,
    inject: false,
    multi_recv: false,
    peek: false,
    claim: false,
    discard: false,
};

struct Side {
    engine: Engine,
    cq: CqId,
    ep: EpId,
    av: AvId,
    bytes: Vec<u8>,
}

fn side(len: usize) -> Side {
    let lookup = |name: &str| match name {
        "rails" => Some("lo".to_owned()),
        "ack_delay_us" => Some("100000".to_owned()),
        "progress_thread" => Some("off".to_owned()),
        _ => None,
    };
    let settings = Settings::from_lookup(lookup).expect("settings");
    let engine = Engine::open(settings, LogSink(Arc::new(|_, _| {}))).expect("engine");
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
            flags: FLAGS,
        };
        self.engine.recv(self.ep, &req).expect("receive");
    }

    /// Sends one; how many operations ended meanwhile.
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
            flags: FLAGS,
        };
        let mut ended = 0;
        while self.engine.send(self.ep, &req) == Err(SubmitError::Again) {
            ended += self.poll();
        }
        ended
    }
}

/// `window` messages one way.
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

fn main() {
    let mut numbers = std::env::args().skip(1).map(|a| match a.parse() {
        Ok(number) => number,
        Err(_) => {
            eprintln!("eager: {a:?} is no number; usage: eager COUNT [WINDOW] [BYTES]");
            std::process::exit(2)
        }
    });
    let count: usize = numbers.next().unwrap_or(1_000);
    let window: usize = numbers.next().unwrap_or(1).max(1);
    let len: usize = numbers.next().unwrap_or(8);
    let (mut a, mut b) = (side(len), side(len));
    a.knows(&b);
    b.knows(&a);
    for _ in 0..count.div_ceil(2 * window) {
        volley(&mut a, &mut b, window);
        volley(&mut b, &mut a, window);
    }
    for side in [&a, &b] {
        side.engine.ep_close(side.ep);
        side.engine.close();
    }
}
