//! Queues by which packets leave: a connection's queue pair, the rail's datagram queue pair, or an
//! additional datagram flow. A flow is a queue pair that only sends and whose packets have another
//! source port or flow label, so that ECMP routes them differently. A silent path asks for another
//! flow, as over UDP; the flow's queue pair is made on first use.

use super::send_queue::SendQueue;
use super::shared::{Shared, FLOWS, FLOW_SENDS};
use crate::sys::verbs::{AddressHandle, QueuePair, QueueSizes, QueueType};
use crate::sys::Errno;

/// The destination of sends on a link.
pub(super) enum To<'a> {
    /// Datagrams, to a queue pair with a Q_Key.
    Datagrams(&'a AddressHandle, (u32, u32)),
    /// A connection.
    Peer,
}

/// The queues by which a link sends.
pub(super) struct TxQueue<'a> {
    pub(super) pair: &'a QueuePair,
    pub(super) queue: &'a mut SendQueue,
    pub(super) to: To<'a>,
}

/// A queue pair that only sends.
struct Flow {
    pair: QueuePair,
    queue: SendQueue,
}

impl Flow {
    fn new(shared: &Shared, life: u16) -> Result<Flow, Errno> {
        let sizes = QueueSizes {
            sends: FLOW_SENDS,
            receives: 1, // some devices require one
            inline: shared.datagrams.inline_max as u32,
        };
        let queues = [&shared.send_queue, &shared.receive_queue];
        let pair = QueuePair::new(&shared.domain, QueueType::Ud, queues, None, sizes)?;
        if pair.inline_max < shared.datagrams.inline_max {
            return Err(libc::ENOMEM); // callers use the rail's inline limit
        }
        pair.begin(shared.port.number, shared.port.pkey_index, shared.qkey)?;
        pair.ready()?;
        let depth = FLOW_SENDS.min(shared.port.device.queue_max);
        Ok(Flow {
            pair,
            queue: SendQueue::new(depth, life).signalling_each(),
        })
    }
}

/// A link's address handles for additional flows.
#[derive(Default)]
pub(super) struct Handles {
    known: [Option<AddressHandle>; FLOWS],
    asked: [bool; FLOWS],
}

impl Handles {
    /// Marks the address handle of a flow as requested. Returns whether it was requested before.
    pub(super) fn is_asked(&mut self, flow: usize) -> bool {
        std::mem::replace(&mut self.asked[flow], true)
    }

    /// Records the result of a request for a handle; without a handle the rail's own flow is used.
    pub(super) fn found(&mut self, flow: usize, handle: Result<AddressHandle, Errno>) {
        self.known[flow] = handle.ok();
    }

    pub(super) fn into_known(self) -> impl Iterator<Item = AddressHandle> {
        self.known.into_iter().flatten()
    }
}

/// The additional flows of a rail.
#[derive(Default)]
pub(super) struct Flows {
    all: [Option<Flow>; FLOWS],
    /// The flow of the next packet; `None`: the rail's own queue pair.
    chosen: Option<usize>,
    /// Number of queue pairs made so far.
    lives: u16,
    /// The device makes no more queue pairs.
    refused: bool,
}

impl Flows {
    /// Selects the rail's own queue pair for the next packet.
    #[inline]
    pub(super) fn choose_none(&mut self) {
        self.chosen = None;
    }

    /// Selects a flow for the next packet and returns its queue pair number; makes the queue pair
    /// if needed. `None` if it cannot be made; the rail's own queue pair is used.
    pub(super) fn choose(&mut self, shared: &Shared, flow: usize) -> Option<u32> {
        if self.all[flow].is_none() && !self.refused {
            self.lives = self.lives.wrapping_add(1);
            self.all[flow] = Flow::new(shared, self.lives).ok();
            self.refused = self.all[flow].is_none();
        }
        let number = self.all[flow].as_ref()?.pair.number();
        self.chosen = Some(flow);
        Some(number)
    }

    /// Takes all queue pairs and their queues; they are made again on demand.
    pub(super) fn take(&mut self) -> impl Iterator<Item = (QueuePair, SendQueue)> {
        self.chosen = None;
        let all = std::mem::take(&mut self.all).into_iter().flatten();
        all.map(|Flow { pair, queue }| (pair, queue))
    }

    /// The queues of the next packet to a queue pair, of the selected flow or the rail's own.
    pub(super) fn tx_queue<'a>(
        &'a mut self,
        own: (&'a QueuePair, &'a mut SendQueue),
        (handle, others): (&'a AddressHandle, &'a Handles),
        to: (u32, u32),
    ) -> TxQueue<'a> {
        let chosen = self
            .chosen
            .and_then(|at| Some((at, self.all[at].as_mut()?)));
        let ((pair, queue), handle) = match chosen {
            Some((at, flow)) => {
                let known = others.known[at].as_ref();
                ((&flow.pair, &mut flow.queue), known.unwrap_or(handle))
            }
            None => (own, handle),
        };
        let to = To::Datagrams(handle, to);
        TxQueue { pair, queue, to }
    }

    /// The queue of a flow by its queue pair number.
    #[cold]
    pub(super) fn queue(&mut self, number: u32) -> Option<&mut SendQueue> {
        let mut all = self.all.iter_mut().flatten();
        let found = all.find(|flow| flow.pair.number() == number);
        found.map(|flow| &mut flow.queue)
    }

    /// Returns whether all posted requests of the flows have completed.
    pub(super) fn are_empty(&self) -> bool {
        self.all.iter().flatten().all(|flow| flow.queue.is_empty())
    }
}

/// The flow label of datagrams between two queue pairs. (For connections devices derive the label
/// from the two queue pair numbers in this way. For datagrams some devices derive the source port
/// from the label, and use a fixed port without one.)
pub(super) fn flow_of(from: u32, to: u32) -> u32 {
    let product = u64::from(from) * u64::from(to);
    let folded = product ^ product >> 20;
    ((folded ^ folded >> 40) & 0xf_ffff) as u32
}
