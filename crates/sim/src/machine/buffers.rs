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
    /// Buffers that the device reads, until when, and what it was given before; `None`: sends copy.
    reading: Option<VecDeque<(BufId, u64, u64)>>,
}

impl SimBuffers {
    pub(crate) fn new(caps: &Caps) -> SimBuffers {
        let device = caps.connected && !caps.one_copy && !caps.copies_writes;
        SimBuffers {
            plain: PlainBuffers::new(BUFFER_LEN, if device { READ } else { COPIED }),
            reading: device.then(VecDeque::new),
        }
    }

    /// Frees what the device has done with; what it was given before the first of these.
    pub(crate) fn reap(&mut self, now: u64) -> u64 {
        let mut first = u64::MAX;
        while let Some(reading) = &mut self.reading {
            let Some(&(id, _, number)) = reading.front().filter(|of| of.1 <= now) else {
                break;
            };
            reading.pop_front();
            self.plain.free(id);
            first = first.min(number);
        }
        first
    }

    pub(crate) fn reads(&self) -> bool {
        self.reading.is_some()
    }

    /// A buffer's packets were sent, or not; a device reads them until then, and was given so many
    /// things before.
    pub(crate) fn sent(
        &mut self,
        (id, memory): (BufId, Box<[u8]>),
        outcome: SendOutcome,
        (until, given): (u64, u64),
    ) {
        let state = match (outcome, &mut self.reading) {
            (SendOutcome::Busy, _) => BufState::Lent,
            (SendOutcome::Sent, Some(reading)) => {
                reading.push_back((id, until, given));
                BufState::InFlight
            }
            _ => BufState::Free,
        };
        self.plain.put(id, memory, state);
    }

    /// The device reads nothing any more.
    pub(crate) fn drain(&mut self) {
        self.plain.drain();
        self.reading.iter_mut().for_each(VecDeque::clear);
    }
}
