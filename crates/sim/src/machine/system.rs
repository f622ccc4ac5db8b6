//! The machine as the engine's system: clock, alarm, processor, and observer.

use crate::machine::halves::{SimRx, SimTx};
use crate::machine::host::{index_of, Machine};
use crate::machine::log::Entry;
use marline_engine::{Clock, Completion, OpError, System, Watch};
use marline_proto::{DropReason, Event, Node, PeerId};
use marline_rails::Caps;
use marline_wire::{RailAddr, HEADER_LEN};
use std::os::fd::RawFd;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::Arc;

/// The clock, the alarm, the processor.
pub struct SimSystem(pub Arc<Machine>);

impl Clock for SimSystem {
    fn now_ns(&self) -> u64 {
        let machine = &self.0;
        let now = machine.now_ns.load(Relaxed) + machine.look_ns.load(Relaxed);
        machine.now_ns.store(now, Relaxed);
        now
    }
}

impl System for SimSystem {
    type Tx = SimTx;
    type Rx = SimRx;
    type Watch = SimWatch;

    fn alarm(&self) {
        self.0.alarm.store(true, Relaxed);
        self.0.stir();
    }

    fn yield_now(&self) {
        let machine = &self.0;
        let now = machine.now_ns.load(Relaxed) + machine.yield_ns.load(Relaxed);
        machine.now_ns.store(now, Relaxed);
    }

    // Arrivals do not end a sleep, which lasts no longer than a yield.
    fn sleep(&self, _: &[RawFd], timeout_ns: u64) {
        let machine = &self.0;
        if !machine.waiting() {
            let sleep_ns = machine.yield_ns.load(Relaxed).min(timeout_ns);
            machine.now_ns.fetch_add(sleep_ns, Relaxed);
        }
    }
}

/// Writes the log.
pub struct SimWatch(pub Arc<Machine>);

impl Watch for SimWatch {
    fn ingested(&mut self, node: &Node, datagram: &[u8], result: Result<PeerId, DropReason>) {
        let mut id = [0; 8];
        id.copy_from_slice(&datagram[24..32]);
        let id = u64::from_le_bytes(id);
        debug_assert!(datagram.len() >= HEADER_LEN);
        let peer = result.ok().or_else(|| node.peer_named(id));
        let upto = peer.map_or(0, |peer| node.matched_upto(peer));
        self.0.stir();
        let mut log = self.0.log();
        log.entries.push(Entry::Ingested {
            src: index_of(id),
            at: (datagram.as_ptr() as usize, datagram.len()),
            result: result.map(|_| ()),
            upto,
        });
    }

    fn event(&mut self, node: &Node, event: &Event) {
        let peer = match *event {
            Event::PeerDead { peer, .. }
            | Event::PutAsked { peer, .. }
            | Event::ReadAsked { peer, .. }
            | Event::RpcArrived { peer, .. }
            | Event::Pulled { peer, .. }
            | Event::PeerMismatch { peer, .. }
            | Event::PeerVersions { peer, .. }
            | Event::PathChanged { peer, .. } => peer,
            _ => return,
        };
        let who = node.peer_address(peer).map_or(u32::MAX, |a| index_of(a.id));
        self.0.stir();
        self.0.log().entries.push(Entry::Said(*event, who));
    }

    fn sent(&mut self, context: usize, end: Result<(), OpError>) {
        self.0.stir();
        self.0.log().entries.push(Entry::Sent(context, end));
    }

    fn data_follows(&mut self, context: usize) {
        self.0.stir();
        self.0.log().entries.push(Entry::DataFollows(context));
    }

    fn parts_done(&mut self, node: &Node, peer: PeerId, key: u64) {
        let who = node.peer_address(peer).map_or(u32::MAX, |a| index_of(a.id));
        self.0.stir();
        self.0.log().entries.push(Entry::PartsDone(who, key));
    }

    fn may_share(&mut self, joins: bool) {
        self.0.log().joins.push_back(joins);
    }

    fn completed(&mut self, entry: &Completion) {
        self.0.stir();
        self.0.log().entries.push(Entry::Completed(*entry));
    }
}

impl Machine {
    /// The halves of all rails.
    pub fn rails(self: &Arc<Machine>) -> (Vec<(String, SimTx)>, Vec<SimRx>) {
        let ports: Vec<(Caps, RailAddr)> = (self.wires().ports.iter())
            .map(|p| (p.caps, p.addr))
            .collect();
        let tx = |rail: usize| SimTx::new(self.clone(), rail, ports[rail]);
        let rx = |rail| SimRx::new(self.clone(), rail);
        (
            (0..ports.len()).map(|r| (format!("r{r}"), tx(r))).collect(),
            (0..ports.len()).map(rx).collect(),
        )
    }
}
