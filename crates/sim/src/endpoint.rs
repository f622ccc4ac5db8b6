//! One process: a real node with its operations, memory, sockets and application.

use crate::app::App;
use crate::memory::{Op, OpKind};
use crate::truth::Plain;
use marline_proto::{Claim, Event, Node, PeerId};
use marline_wire::RailAddr;
use std::collections::{BTreeMap, HashMap, VecDeque};
use std::fmt;

/// Events that a failure report shows of each endpoint.
const TRACE_MAX: usize = 60;

/// Something that happened, for the failure report.
#[derive(Clone, Debug)]
pub enum Trace {
    /// A packet left: to, path code, number, bytes, frames.
    Sent(u32, u8, u64, usize, String),
    /// A packet came: from, path code, number, result.
    Came(u32, u8, u64, String),
    /// The node said.
    Said(Event),
    /// The application did.
    Did(String),
}

impl fmt::Display for Trace {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Trace::Sent(to, path, number, len, what) => {
                write!(f, "-> {to} path {path:02x} #{number} {len} B: {what}")
            }
            Trace::Came(from, path, number, what) => {
                write!(f, "<- {from} path {path:02x} #{number}: {what}")
            }
            Trace::Said(event) => write!(f, "   {event:?}"),
            Trace::Did(what) => write!(f, "   {what}"),
        }
    }
}

/// A process.
pub struct Endpoint {
    /// Its number among all, dead ones too.
    pub index: u32,
    /// Host it runs on.
    pub host: usize,
    /// The protocol.
    pub node: Node,
    /// Not dead.
    pub alive: bool,
    /// When it died.
    pub died_ns: u64,
    /// Said BYE.
    pub closed: bool,
    /// Every operation it ever had; the handle is the index.
    pub ops: Vec<Op>,
    /// Bounce buffers.
    pub bounces: HashMap<u64, Vec<u8>>,
    /// What matching must do.
    pub plain: Plain,
    /// Socket buffers: (rail, packet slot).
    pub inbox: VecDeque<(usize, u32)>,
    /// Bytes in the socket buffer of each rail.
    pub inbox_bytes: Vec<u64>,
    /// World time of the next run.
    pub run_at: u64,
    /// Reasons not to poll, not to run.
    pub computing: u32,
    /// See `computing`.
    pub stopped: u32,
    /// Reasons not to read each rail's socket.
    pub unread: Vec<u32>,
    /// Start of the computation.
    pub away_since: u64,
    /// Its clock less the world's.
    pub clock_ns: u64,
    /// The application.
    pub app: App,
    /// Claimed messages.
    pub claims: Vec<(Claim, u32)>,
    /// Sends and reads that did not end.
    pub open: u32,
    /// Matched receives that did not end.
    pub owed: u32,
    /// Operations that failed.
    pub failed: u32,
    /// Matched messages of each peer.
    pub matched: BTreeMap<PeerId, u64>,
    /// Last packet number of each path.
    pub numbers: HashMap<(PeerId, u8), u64>,
    /// Endpoints it declared dead, when.
    pub buried: Vec<(u32, u64)>,
    /// Rail changes not yet told.
    pub rail_news: Vec<(usize, bool)>,
    /// When a rail that refused a packet is tried again.
    pub retries: Vec<Option<u64>>,
    /// Errors from the sockets not yet told.
    pub too_big: Vec<(usize, RailAddr, usize)>,
    /// Refusals not yet told.
    pub refused: Vec<RailAddr>,
    /// Turns in a row without any effect, and when they began.
    pub idle_turns: (u32, u64),
    /// Latest events.
    pub trace: VecDeque<(u64, Trace)>,
}

impl Endpoint {
    /// A process that starts now.
    pub fn new(
        index: u32,
        host: usize,
        node: Node,
        rails: usize,
        app: App,
        clock_ns: u64,
    ) -> Endpoint {
        Endpoint {
            index,
            host,
            node,
            alive: true,
            died_ns: 0,
            closed: false,
            ops: Vec::new(),
            bounces: HashMap::new(),
            plain: Plain::default(),
            inbox: VecDeque::new(),
            inbox_bytes: vec![0; rails],
            run_at: u64::MAX,
            computing: 0,
            stopped: 0,
            unread: vec![0; rails],
            away_since: 0,
            clock_ns,
            app,
            claims: Vec::new(),
            open: 0,
            owed: 0,
            failed: 0,
            matched: BTreeMap::new(),
            numbers: HashMap::new(),
            buried: Vec::new(),
            rail_news: Vec::new(),
            retries: vec![None; rails],
            too_big: Vec::new(),
            refused: Vec::new(),
            idle_turns: (0, 0),
            trace: VecDeque::new(),
        }
    }

    /// Remembers an event for the report.
    pub fn note(&mut self, now: u64, what: Trace) {
        if self.trace.len() == TRACE_MAX {
            self.trace.pop_front();
        }
        self.trace.push_back((now, what));
    }

    /// Endpoint that a peer of the node is.
    pub fn endpoint_of(&self, peer: PeerId) -> u32 {
        self.node
            .peer_address(peer)
            .map_or(u32::MAX, |a| (a.id & 0xffff) as u32)
    }

    /// A new operation; its handle.
    pub fn add_op(&mut self, kind: OpKind, now: u64, in_round: bool) -> u32 {
        self.app.pending += in_round as u32;
        self.ops.push(Op {
            kind,
            posted_ns: now,
            done_ns: None,
            in_round,
        });
        self.ops.len() as u32 - 1
    }

    /// An operation ends; `false`: it had ended before.
    pub fn end_op(&mut self, handle: u32, now: u64) -> bool {
        let Some(op) = self.ops.get_mut(handle as usize) else {
            return false;
        };
        if op.done_ns.is_some() {
            return false;
        }
        op.done_ns = Some(now);
        self.app.pending -= op.in_round as u32;
        match &mut op.kind {
            OpKind::Recv(recv) => recv.buf = Vec::new(),
            OpKind::Read { buf, .. } => *buf = Vec::new(),
            _ => {}
        }
        true
    }

    /// Whether it was told that the other is dead.
    pub fn believes_dead(&self, other: u32) -> bool {
        self.buried.iter().any(|b| b.0 == other)
    }
}
