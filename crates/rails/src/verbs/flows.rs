//! How packets leave: by a pair of their link's own, by the rail's pair of datagrams, or by another
//! flow of datagrams. That is a queue pair which only sends, and whose packets routers tell from
//! the rail's own, by their source port or flow label. A silent path asks for another flow, as over
//! UDP, and its pair is made when it is first asked for.

use super::send_queue::SendQueue;
use super::shared::{Shared, FLOWS, FLOW_SENDS, QKEY};
use crate::sys::verbs::{AddressHandle, QueuePair, QueueSizes, QueueType};
use crate::sys::Errno;

/// Where what is sent on a link goes.
pub(super) enum To<'a> {
    /// By the pair of datagrams, to this queue pair.
    Datagrams(&'a AddressHandle, u32),
    /// By a pair of its own.
    Peer,
}

/// The queues that a link sends by.
pub(super) struct Lane<'a> {
    pub(super) pair: &'a QueuePair,
    pub(super) queue: &'a mut SendQueue,
    pub(super) to: To<'a>,
}

/// A pair that only sends.
struct Flow {
    pair: QueuePair,
    queue: SendQueue,
}

impl Flow {
    fn new(shared: &Shared, life: u16) -> Result<Flow, Errno> {
        let sizes = QueueSizes {
            sends: FLOW_SENDS,
            receives: 1, // some devices want one
            inline: shared.datagrams.inline_max as u32,
        };
        let queues = [&shared.send_queue, &shared.receive_queue];
        let pair = QueuePair::new(&shared.domain, QueueType::Ud, queues, None, sizes)?;
        if pair.inline_max < shared.datagrams.inline_max {
            return Err(libc::ENOMEM); // what is sent is measured by the rail's own
        }
        pair.begin(shared.port.number, 0, QKEY)?;
        pair.ready()?;
        let depth = FLOW_SENDS.min(shared.port.device.queue_max);
        Ok(Flow {
            pair,
            queue: SendQueue::new(depth, life).telling_each(),
        })
    }
}

/// The handles of a link for other flows, as far as they are known.
#[derive(Default)]
pub(super) struct Handles {
    known: [Option<AddressHandle>; FLOWS],
    asked: [bool; FLOWS],
}

impl Handles {
    /// The handle of a flow is wanted; whether it was before.
    pub(super) fn is_asked(&mut self, flow: usize) -> bool {
        std::mem::replace(&mut self.asked[flow], true)
    }

    /// The handle of a flow was found, or not: then another one goes on serving.
    pub(super) fn found(&mut self, flow: usize, handle: Result<AddressHandle, Errno>) {
        self.known[flow] = handle.ok();
    }

    pub(super) fn into_known(self) -> impl Iterator<Item = AddressHandle> {
        self.known.into_iter().flatten()
    }
}

/// The other flows of a rail.
#[derive(Default)]
pub(super) struct Flows {
    all: [Option<Flow>; FLOWS],
    /// By which the next packet leaves; `None`: by the rail's own pair.
    chosen: Option<usize>,
    /// Pairs that were made.
    lives: u16,
    /// The device makes no more pairs.
    refused: bool,
}

impl Flows {
    /// The next packet leaves by the rail's own pair.
    #[inline]
    pub(super) fn choose_none(&mut self) {
        self.chosen = None;
    }

    /// The next packet leaves by this flow: the number of its pair, which is made for it. `None`:
    /// there is none, and the rail's own pair serves.
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

    /// All pairs and their queues, which are made anew when they are wanted.
    pub(super) fn take(&mut self) -> impl Iterator<Item = (QueuePair, SendQueue)> {
        self.chosen = None;
        let all = std::mem::take(&mut self.all).into_iter().flatten();
        all.map(|Flow { pair, queue }| (pair, queue))
    }

    /// The queues by which the next packet leaves, of these and the rail's own, to a queue pair.
    pub(super) fn lane<'a>(
        &'a mut self,
        own: (&'a QueuePair, &'a mut SendQueue),
        (handle, others): (&'a AddressHandle, &'a Handles),
        number: u32,
    ) -> Lane<'a> {
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
        let to = To::Datagrams(handle, number);
        Lane { pair, queue, to }
    }

    /// The queue of the pair of this number.
    #[cold]
    pub(super) fn queue(&mut self, number: u32) -> Option<&mut SendQueue> {
        let mut all = self.all.iter_mut().flatten();
        let found = all.find(|flow| flow.pair.number() == number);
        found.map(|flow| &mut flow.queue)
    }

    /// All that was posted to them is over.
    pub(super) fn are_empty(&self) -> bool {
        self.all.iter().flatten().all(|flow| flow.queue.is_empty())
    }
}

/// The flow label of datagrams between two queue pairs. (Of connections, devices make one of the
/// numbers of their two pairs in this way; of datagrams some make a source port of the label, and
/// the same one for all without.)
pub(super) fn flow_of(from: u32, to: u32) -> u32 {
    let product = u64::from(from) * u64::from(to);
    let folded = product ^ product >> 20;
    ((folded ^ folded >> 40) & 0xf_ffff) as u32
}
