//! The system that an engine runs on: time, rails, and a wakeable thread. Processes use
//! `progress::process::Process`; the simulator substitutes its own and runs the same engine.

use crate::api::{Completion, OpError};
use crate::platform::clock::Clock;
use marline_proto::{DropReason, Event, Node, PeerId};
use marline_rails::{RailRx, RailTx};
use std::os::fd::RawFd;

/// Time, rails and observer, all known at compile time, so that production code has no indirect
/// calls and the calls of [`Watch`] compile to nothing.
pub trait System: Clock + 'static {
    /// Sending half of a rail.
    type Tx: RailTx;
    /// Receiving half of a rail.
    type Rx: RailRx;
    /// The observer of tests and the simulator.
    type Watch: Watch;
    /// Sets the progress thread's alarm for coalesced sends.
    fn alarm(&self);
    /// Wakes the progress thread immediately.
    fn call(&self) {}
    /// Lets another process run if one is waiting for the core.
    fn yield_now(&self);
    /// Sleeps until one of `descriptors` is readable, or for `timeout_ns`. The simulator yields
    /// instead.
    fn sleep(&self, _descriptors: &[RawFd], _timeout_ns: u64) {
        self.yield_now();
    }
    /// A stopwatch in nanoseconds, for comparing the cost of two methods; it may stand still (in
    /// the simulator).
    fn stopwatch_ns() -> u64 {
        0
    }
}

/// Observes an engine under its lock.
pub trait Watch: Send {
    /// A node processed a datagram.
    #[inline(always)]
    fn ingested(&mut self, _node: &Node, _datagram: &[u8], _result: Result<PeerId, DropReason>) {}
    /// A node reported an event.
    #[inline(always)]
    fn event(&mut self, _node: &Node, _event: &Event) {}
    /// A send has reached its receiver completely, or never will. `context`: the caller's; 0 for
    /// the response to a remote read.
    #[inline(always)]
    fn sent(&mut self, _context: usize, _end: Result<(), OpError>) {}
    /// The bytes of a remote write have arrived, and its data follows in an RPC.
    #[inline(always)]
    fn data_follows(&mut self, _context: usize) {}
    /// All parts of an operation on a peer's memory have succeeded. One RPC per region now tells
    /// the peer.
    #[inline(always)]
    fn parts_done(&mut self, _node: &Node, _peer: PeerId, _key: u64) {}
    /// The short operation that is being posted, or its next part, `joins` the RPC before it, or
    /// begins an RPC that others may join.
    #[inline(always)]
    fn may_share(&mut self, _joins: bool) {}
    /// An entry goes into a queue.
    #[inline(always)]
    fn completed(&mut self, _entry: &Completion) {}
}

impl Watch for () {}
