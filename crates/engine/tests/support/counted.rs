//! An engine with one peer, on one rail that counts sent packets and never receives any. Not every
//! test uses all of this file.
#![allow(dead_code)]

use crate::caps;
use marline_engine::{
    Clock, CoreConfig, CqId, Engine, EpId, IoVec, LogSink, OpFlags, Parts, SendReq, SubmitError,
    System,
};
use marline_proto::Config;
use marline_rails::{
    addr_links, no_groups, no_remote_write, plain_buffers, AddrLinks, Armed, Caps, InterfaceChoice,
    LinkId, PlainBuffers, RailEvent, RailRx, RailTx, Received, SendOutcome, UdpAddr, BUFFER_LEN,
};
use marline_wire::{Address, RailAddr};
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::Arc;

/// The rail of a host in a network of its own.
fn rail_of(host: u8) -> RailAddr {
    let addr = UdpAddr {
        ip: [10, 0, 0, host].into(),
        port: 4_000,
        prefix_len: 16,
    };
    let mut rail = addr.rail();
    rail.datagram_max = 1_472;
    rail
}

/// A rail that counts sent packets and never receives any.
pub struct Counted {
    sent: Arc<AtomicU64>,
    links: AddrLinks,
    buffers: PlainBuffers,
}

impl Counted {
    fn new(sent: &Arc<AtomicU64>) -> Counted {
        Counted {
            sent: Arc::clone(sent),
            links: AddrLinks::default(),
            buffers: PlainBuffers::new(BUFFER_LEN, 2),
        }
    }
}

addr_links!(Counted, links);
plain_buffers!(Counted, buffers);
no_groups!(Counted);
no_remote_write!(Counted);

impl RailTx for Counted {
    fn caps(&self) -> Caps {
        caps::caps()
    }
    fn move_to(&mut self, _: &InterfaceChoice) -> Option<RailAddr> {
        None
    }

    fn local_addr(&self) -> RailAddr {
        rail_of(1)
    }
    fn send(&mut self, _: LinkId, _: &[u8], _: usize, _: u8) -> SendOutcome {
        self.sent.fetch_add(1, Relaxed);
        SendOutcome::Sent
    }
    fn poll_event(&mut self) -> Option<RailEvent> {
        None
    }
}

impl RailRx for Counted {
    fn recv(&mut self, _: &mut dyn FnMut(Received<'_>)) -> usize {
        0
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

/// Time set by hand.
#[derive(Clone)]
pub struct Still(pub Arc<AtomicU64>);

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
}

/// A completion at delivery.
pub fn complete() -> OpFlags {
    OpFlags {
        delivery_complete: true,
        ..OpFlags::COMPLETION
    }
}

/// An engine with an endpoint that knows one peer, and its number of sends.
pub struct Side {
    pub engine: Engine<Still>,
    pub time: Still,
    pub sent: Arc<AtomicU64>,
    pub cq: CqId,
    pub ep: EpId,
}

/// Opens one; up to `aggregate_after` sends of a burst leave immediately.
pub fn side(aggregate_after: u32) -> Side {
    let (time, sent) = (Still(Arc::new(AtomicU64::new(1_000_000))), Arc::default());
    let cfg = CoreConfig {
        proto: Config::default(),
        log_bytes: 1 << 20,
        borrow: false,
        aggregate_after,
        rpcs: true,
        mtu: 0,
    };
    let parts = Parts {
        rails: vec![("rail".into(), Counted::new(&sent))],
        halves: vec![Counted::new(&sent)],
        clock: time.clone(),
        watch: (),
        tick_ns: 10_000_000,
        threaded: true,
        random: Box::new(|| Ok(7)),
        log: LogSink(Arc::new(|_, _| {})),
    };
    let engine = Engine::assemble(cfg, parts);
    let (cq, av) = (engine.cq_open(), engine.av_open());
    let ep = engine.ep_open().unwrap();
    engine.ep_bind_av(ep, av);
    engine.ep_bind_tx_cq(ep, cq);
    engine.ep_enable(ep).unwrap();
    let peer = Address::new(99, 5, &[rail_of(2)]);
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
    /// Posts a send from the caller's memory.
    pub fn post(&self, bytes: &mut [u8]) -> Result<(), SubmitError> {
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
}
