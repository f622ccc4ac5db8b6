//! Where packets are built. Long batches are built in pages that the kernel then takes as they are
//! ([`RailTx::send_lent`]), and that are not written again before all their packets are known to
//! have been received: until then what waits in a queue is those very bytes.

use crate::core::{Core, Endpoint, STAGING};
use crate::system::System;
use marline_proto::{Fate, Mark, Transmit};
use marline_rails::{Pages, RailTx, SendOutcome};

/// Batches of fewer bytes are copied, which costs as much as lending at 11 KB (and 0.85 times as
/// much at 6 KB, 1.12 times at 17 to 23 KB, 1.2 to 1.5 times at 63 KB; EPYC 9004, Linux 6.18).
const LEND_MIN_BYTES: usize = 16 << 10;
/// Buffers that may be under way at once, beyond which batches are copied: 1.5 MiB. Of more, fewer
/// stay in the cache until they are written again: 64 KiB and 4 MiB messages had 0.98 and 0.97
/// times the rate with 48, and long ones 0.97 with 12.
const LENT_MAX: usize = 24;

/// A buffer to be lent, and whom it was lent for.
struct Slot {
    pages: Pages,
    lent: Option<Lent>,
}

/// What has to be received before a buffer may be written again.
#[derive(Clone, Copy)]
struct Lent {
    endpoint: usize,
    id: u64,
    mark: Mark,
}

impl Lent {
    fn fate(&self, endpoints: &[Option<Endpoint>]) -> Fate {
        match endpoints.get(self.endpoint) {
            Some(Some(e)) if e.node.id() == self.id => e.node.fate(&self.mark),
            _ => Fate::GivenUp,
        }
    }
}

/// The buffers.
pub(crate) struct Stages {
    plain: Box<[u8]>,
    slots: Vec<Slot>,
    /// The one in which packets are built now; `None`: the plain one, which is never lent.
    current: Option<usize>,
    /// The next batch is to be built elsewhere.
    worn: bool,
}

impl Stages {
    pub(crate) fn new() -> Stages {
        Stages {
            plain: vec![0; STAGING].into_boxed_slice(),
            slots: Vec::new(),
            current: None,
            worn: false,
        }
    }

    /// The buffer in which packets are built now.
    #[inline]
    pub(crate) fn buffer(&mut self) -> &mut [u8] {
        match self.current {
            None => &mut self.plain,
            Some(at) => {
                debug_assert!(self.slots[at].lent.is_none(), "written while it is lent");
                &mut self.slots[at].pages
            }
        }
    }

    /// Between two batches: on to a buffer that nobody reads, if the current one was lent, or was
    /// none to lend.
    #[inline]
    pub(crate) fn prepare(&mut self, endpoints: &[Option<Endpoint>]) {
        if self.worn {
            self.worn = false;
            self.turn(endpoints);
        }
    }

    fn turn(&mut self, endpoints: &[Option<Endpoint>]) {
        // The first that is free: the fewer are in use, the more of them stay in the cache.
        let free = (self.slots.iter_mut()).position(|slot| slot.make_free(endpoints));
        self.current = free.or_else(|| {
            let room = self.slots.len() < LENT_MAX;
            let pages = room.then(|| Pages::new(STAGING)).flatten()?;
            self.slots.push(Slot { pages, lent: None });
            Some(self.slots.len() - 1)
        });
    }
}

impl Slot {
    /// Whether it may be written now.
    fn make_free(&mut self, endpoints: &[Option<Endpoint>]) -> bool {
        let Some(lent) = &self.lent else {
            return true;
        };
        match lent.fate(endpoints) {
            Fate::UnderWay => return false,
            Fate::Received => {}
            // The old pages stay with whoever reads them.
            Fate::GivenUp => match Pages::new(STAGING) {
                Some(pages) => self.pages = pages,
                None => return false,
            },
        }
        self.lent = None;
        true
    }
}

impl<S: System> Core<S> {
    /// Sends the batch just built, `len` bytes, by lending its pages. `None`: that cannot be done;
    /// nothing was sent.
    pub(crate) fn lend(
        &mut self,
        index: usize,
        first: &Transmit,
        len: usize,
    ) -> Option<SendOutcome> {
        let tx = &mut self.rails[first.rail].tx;
        if len < LEND_MIN_BYTES || !self.cfg.proto.reliable || !tx.lends() {
            return None;
        }
        let node = &self.eps.get(index)?.as_ref()?.node;
        let Some(at) = self.stages.current else {
            self.stages.worn = true;
            return None;
        };
        let slot = &mut self.stages.slots[at];
        let mark = node.mark(&first.batch)?;
        let outcome = tx.send_lent(&first.to, &slot.pages, len, first.len, first.flow)?;
        if outcome == SendOutcome::Sent {
            self.rails[first.rail].counters.lent_calls += 1;
            slot.lent = Some(Lent {
                endpoint: index,
                id: node.id(),
                mark,
            });
            self.stages.worn = true;
        }
        Some(outcome)
    }
}
