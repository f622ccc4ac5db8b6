//! The system that an engine runs on: time, rails, and a thread that wakes. A
//! process has `progress::process::Process`; the simulator brings its own, and runs the same
//! engine.

use crate::api::{Completion, OpError};
use crate::platform::clock::Clock;
use marline_proto::{DropReason, Event, Node, PeerId};
use marline_rails::{RailRx, RailTx};
use std::os::fd::RawFd;

/// Time, rails, and who looks on. All of it is known at compile time: in production nothing is
/// called through a pointer, and the calls of [`Watch`] are not there.
pub trait System: Clock + 'static {
    /// Sending half of a rail.
    type Tx: RailTx;
    /// Receiving half of a rail.
    type Rx: RailRx;
    /// The observer, which tests and the simulator have.
    type Watch: Watch;
    /// Has the progress thread look for collected sends in a moment.
    fn alarm(&self);
    /// Has the progress thread look at once who needs it.
    fn call(&self) {}
    /// Lets another process run if one waits.
    fn yield_now(&self);
    /// Sleeps until one of `descriptors` can be read, for `timeout_ns` at most. (In the simulator
    /// the processor is as long in coming back as after a yield.)
    fn nap(&self, _descriptors: &[RawFd], _timeout_ns: u64) {
        self.yield_now();
    }
    /// A stopwatch in ns, to compare what two ways of doing the same cost; it may stand still.
    fn stopwatch_ns() -> u64 {
        0
    }
}

/// Sees what an engine does, under its lock.
pub trait Watch: Send {
    /// A datagram went through the node.
    #[inline(always)]
    fn ingested(&mut self, _node: &Node, _datagram: &[u8], _result: Result<PeerId, DropReason>) {}
    /// The node said.
    #[inline(always)]
    fn event(&mut self, _node: &Node, _event: &Event) {}
    /// All of a send is at its receiver, or never will be. `context`: the caller's, 0 for the
    /// answer to a remote read.
    #[inline(always)]
    fn sent(&mut self, _context: usize, _end: Result<(), OpError>) {}
    /// The bytes of a remote write are there, and its data follows in a call.
    #[inline(always)]
    fn trails(&mut self, _context: usize) {}
    /// All parts of an operation on a peer's memory have ended well: the peer is told in a call for
    /// each region.
    #[inline(always)]
    fn tells_over(&mut self, _node: &Node, _peer: PeerId, _key: u64) {}
    /// The short operation that is being posted, or its next part, goes in the call before it, or
    /// in one that others may share.
    #[inline(always)]
    fn may_share(&mut self, _joins: bool) {}
    /// An entry goes into a queue.
    #[inline(always)]
    fn completed(&mut self, _entry: &Completion) {}
}

impl Watch for () {}
