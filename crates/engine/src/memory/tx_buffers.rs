//! Where packets are built. Long batches are built in pages that the kernel then takes as they are
//! ([`RailTx::send_lent`]), and that are not written again before all their packets are known to
//! have been received: until then what waits in a queue is those very bytes.

use crate::core::state::{Core, Endpoint, STAGING};
use crate::memory::autotune::Autotune;
use crate::platform::system::System;
use marline_proto::{Fate, Mark, Transmit};
use marline_rails::{Lending, Pages, RailTx};

/// Batches of fewer bytes are copied, which costs as much as lending at 11 KB (0.85 times as much
/// at 6 KB, 1.05 to 1.2 times at 17 to 34 KB, 1.1 to 1.5 at 63 KB; EPYC 9004, Linux 6.18).
const LEND_MIN_BYTES: usize = 16 << 10;
/// Buffers that may be under way at once, beyond which batches are copied: 1.5 MiB. Of more, fewer
/// stay in the cache until they are written again: 64 KiB and 4 MiB messages had 0.98 and 0.97
/// times the rate with 48, and long ones 0.94 with 12.
const LENT_MAX: usize = 24;

/// Long batches (4 MB) that are copied after one was given up, so that a lossy path does not pay
/// for new pages with each. Not measured: fewer may do.
const REST_BATCHES: u32 = 64;

/// A buffer to be lent.
struct Slot {
    pages: Pages,
    lent: Option<Lent>,
}

/// What has to be received before a buffer may be written again.
struct Lent {
    endpoint: usize,
    id: u64,
    /// `None`: the kernel said that it failed, and may have part of it in a queue all the same.
    mark: Option<Mark>,
}

impl Slot {
    fn fate(&self, endpoints: &[Option<Endpoint>]) -> Fate {
        let Some(lent) = &self.lent else {
            return Fate::Received;
        };
        match (endpoints.get(lent.endpoint), &lent.mark) {
            (Some(Some(e)), Some(mark)) if e.node.id() == lent.id => e.node.fate(mark),
            _ => Fate::GivenUp,
        }
    }
}

/// The buffers.
pub(crate) struct TxBuffers {
    plain: Box<[u8]>,
    slots: Vec<Slot>,
    /// The one in which packets are built now; `None`: the plain one, which is never lent.
    current: Option<usize>,
    /// The next batch is to be built elsewhere.
    worn: bool,
    /// So many long batches are copied before the next is lent.
    rest: u32,
    /// Whether lending costs less than copying; `None`: nobody asks.
    trial: Option<Autotune>,
    /// The batch being built is long, goes the way that is tried, and was begun at this time.
    begun_ns: Option<u64>,
}

impl TxBuffers {
    /// `always`: what can be lent is, even where copying costs less.
    pub(crate) fn new(always: bool) -> TxBuffers {
        TxBuffers {
            plain: vec![0; STAGING].into_boxed_slice(),
            slots: Vec::new(),
            current: None,
            worn: false,
            rest: 0,
            trial: (!always).then(Autotune::new),
            begun_ns: None,
        }
    }

    /// The buffer in which packets are built now.
    #[inline]
    pub(crate) fn buffer(&mut self) -> &mut [u8] {
        match self.current {
            None => &mut self.plain,
            Some(at) => &mut self.slots[at].pages,
        }
    }

    /// Before a batch is built: on to a buffer that nobody reads, if the current one was lent, or
    /// is none to lend.
    #[inline]
    pub(crate) fn prepare(&mut self, endpoints: &[Option<Endpoint>], stopwatch_ns: fn() -> u64) {
        self.begun_ns = None;
        if self.worn {
            self.worn = false;
            let (lends, wanted) = self.trial.as_mut().map_or((true, false), Autotune::next);
            let begun_ns = wanted.then(stopwatch_ns);
            let slots = self.slots.len();
            self.current = lends.then(|| self.turn(endpoints)).flatten();
            // New memory is no part of the cost, and none free makes a copy of what was to be lent.
            let as_tried = self.current.is_some() == lends && self.slots.len() == slots;
            self.begun_ns = begun_ns.filter(|_| as_tried);
        }
        debug_assert!(self.current.is_none_or(|at| self.slots[at].lent.is_none()));
    }

    /// The batch was sent, `len` bytes, and lent or copied.
    #[inline]
    pub(crate) fn sent(&mut self, lent: bool, len: usize, stopwatch_ns: fn() -> u64) {
        let (Some(begun_ns), Some(trial)) = (self.begun_ns.take(), &mut self.trial) else {
            return;
        };
        if len >= LEND_MIN_BYTES && lent == self.current.is_some() {
            let took_ns = stopwatch_ns() - begun_ns;
            trial.cost(lent, took_ns * 1024 / len as u64);
        }
    }

    /// The buffer to be lent next; `None`: none now.
    fn turn(&mut self, endpoints: &[Option<Endpoint>]) -> Option<usize> {
        if self.rest > 0 {
            self.rest -= 1;
            return None;
        }
        let before = self.slots.len();
        // The pages stay with whoever reads them.
        self.slots
            .retain(|slot| slot.fate(endpoints) != Fate::GivenUp);
        if self.slots.len() < before {
            self.rest = REST_BATCHES;
            return None;
        }
        // The first that is free: the fewer are in use, the more of them stay in the cache.
        let mut slots = self.slots.iter();
        if let Some(at) = slots.position(|slot| slot.fate(endpoints) == Fate::Received) {
            self.slots[at].lent = None;
            return Some(at);
        }
        let room = self.slots.len() < LENT_MAX;
        let pages = room.then(|| Pages::new(STAGING)).flatten()?;
        self.slots.push(Slot { pages, lent: None });
        Some(self.slots.len() - 1)
    }
}

impl<S: System> Core<S> {
    /// Sends the batch just built, `count` packets of `len` bytes together, by lending its pages;
    /// `false`: it is still to be sent, from the same buffer.
    pub(crate) fn lend(
        &mut self,
        index: usize,
        first: &Transmit,
        (count, len): (usize, usize),
    ) -> bool {
        let (rail, tx_buffers) = (&mut self.rails[first.rail], &mut self.tx_buffers);
        if len < LEND_MIN_BYTES || !self.cfg.proto.reliable || !rail.tx.lends() {
            return false;
        }
        let Some(slot) = tx_buffers.current.map(|at| &mut tx_buffers.slots[at]) else {
            tx_buffers.worn = true;
            return false;
        };
        let node = self.eps[index].as_ref().map(|e| &e.node);
        let Some((id, mark)) = node.and_then(|n| Some((n.id(), n.mark(&first.batch, count)?)))
        else {
            return false;
        };
        let (to, segment, flow) = (&first.to, first.len, first.flow);
        let lending = rail.tx.send_lent(to, &slot.pages, len, segment, flow);
        if lending == Lending::No {
            return false;
        }
        let sent = lending == Lending::Sent;
        rail.counters.lent_calls += sent as u64;
        slot.lent = Some(Lent {
            endpoint: index,
            id,
            mark: sent.then_some(mark),
        });
        tx_buffers.worn = true;
        sent
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::cell::Cell;

    thread_local!(static NOW_NS: Cell<u64> = const { Cell::new(0) });

    fn now_ns() -> u64 {
        NOW_NS.get()
    }

    /// Another long batch is to be built; whether it is to be lent.
    fn next(tx_buffers: &mut TxBuffers) -> bool {
        tx_buffers.worn = true;
        tx_buffers.prepare(&[], now_ns);
        tx_buffers.current.is_some()
    }

    /// Builds and sends as many long batches, each way at its cost; how many were lent.
    fn send(tx_buffers: &mut TxBuffers, batches: usize, lent_ns: u64, copied_ns: u64) -> usize {
        let mut taken = 0;
        for _ in 0..batches {
            let lent = next(tx_buffers);
            taken += lent as usize;
            NOW_NS.set(NOW_NS.get() + if lent { lent_ns } else { copied_ns });
            tx_buffers.sent(lent, STAGING, now_ns);
        }
        taken
    }

    #[test]
    fn what_was_given_up_is_never_written_again_and_brings_a_rest() {
        let mut tx_buffers = TxBuffers::new(true);
        assert!(next(&mut tx_buffers));
        let given = tx_buffers.slots[0].pages.id();
        tx_buffers.slots[0].lent = Some(Lent {
            endpoint: 0, // closed since
            id: 7,
            mark: None,
        });
        for _ in 0..=REST_BATCHES {
            assert!(!next(&mut tx_buffers));
        }
        assert!(next(&mut tx_buffers));
        assert!(tx_buffers.slots.iter().all(|slot| slot.pages.id() != given));
    }

    #[test]
    fn the_cheaper_way_is_taken() {
        let mut tx_buffers = TxBuffers::new(false);
        assert!(send(&mut tx_buffers, 900, 20_000, 15_000) < 20);
        let mut tx_buffers = TxBuffers::new(false);
        assert!(send(&mut tx_buffers, 900, 15_000, 20_000) > 880);
        let mut tx_buffers = TxBuffers::new(true);
        assert_eq!(send(&mut tx_buffers, 900, 20_000, 15_000), 900, "untried");
    }

    #[test]
    fn short_batches_are_no_trial() {
        let mut tx_buffers = TxBuffers::new(false);
        for _ in 0..1_000 {
            let lent = next(&mut tx_buffers);
            assert!(lent, "the first way, as nothing was measured");
            tx_buffers.sent(false, LEND_MIN_BYTES - 1, now_ns);
        }
    }
}
