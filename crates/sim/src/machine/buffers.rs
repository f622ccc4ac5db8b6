//! The buffers in which packets of a simulated rail are built. Where a device reads them, as on
//! verbs rails, they are not free before it has.

use marline_rails::{BufId, BufState, Caps, PlainBuffers, SendOutcome, BUFFER_LEN};
use std::collections::VecDeque;

/// One buffer is built in, one may wait for room.
const COPIED: usize = 2;
/// So few that a device often has them all.
const READ: usize = 4;

/// Buffers of a rail.
pub(crate) struct SimBuffers {
    pub(crate) plain: PlainBuffers,
    /// Buffers that the device reads, and until when; `None`: sends copy.
    reading: Option<VecDeque<(BufId, u64)>>,
    /// Buffers that the device was given, and those that were free again.
    given: u64,
    /// See above.
    freed: u64,
}

impl SimBuffers {
    pub(crate) fn new(caps: &Caps) -> SimBuffers {
        let device = caps.connected && !caps.one_copy && !caps.copies_writes;
        SimBuffers {
            plain: PlainBuffers::new(BUFFER_LEN, if device { READ } else { COPIED }),
            reading: device.then(VecDeque::new),
            given: 0,
            freed: 0,
        }
    }

    /// Buffers that the device was given so far, and those that it has done with.
    pub(crate) fn given_and_done(&self, now: u64) -> (u64, u64) {
        (self.given, self.freed + self.over(now) as u64)
    }

    fn over(&self, now: u64) -> usize {
        let reading = self.reading.iter().flatten();
        reading.take_while(|(_, until)| *until <= now).count()
    }

    pub(crate) fn lend(&mut self, now: u64) -> Option<BufId> {
        let over = self.over(now);
        self.freed += over as u64;
        for (id, _) in self.reading.iter_mut().flat_map(|all| all.drain(..over)) {
            self.plain.free(id);
        }
        self.plain.lend()
    }

    /// A buffer's packets were sent, or not; a device reads them until then.
    pub(crate) fn sent(&mut self, id: BufId, memory: Box<[u8]>, outcome: SendOutcome, until: u64) {
        let state = match (outcome, &mut self.reading) {
            (SendOutcome::Busy, _) => BufState::Lent,
            (SendOutcome::Sent, Some(reading)) => {
                reading.push_back((id, until));
                self.given += 1;
                BufState::InFlight
            }
            _ => BufState::Free,
        };
        self.plain.put(id, memory, state);
    }

    /// The device reads nothing any more.
    pub(crate) fn drain(&mut self) {
        self.plain.drain();
        self.freed = self.given;
        self.reading.iter_mut().for_each(VecDeque::clear);
    }
}
