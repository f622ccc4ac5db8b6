//! Packet buffers of a simulated rail. A device that reads them itself, as on verbs rails, occupies
//! them until it has read them.

use marline_rails::{BufId, BufState, Caps, PlainBuffers, SendOutcome, BUFFER_LEN};
use std::collections::VecDeque;

/// Buffers of a rail whose sends copy: one to build in, and one that waits for room.
const COPIED: usize = 2;
/// Buffers of a rail whose device reads them: few, so that the device often occupies all.
const READ: usize = 4;

/// Buffers of a rail.
pub(crate) struct SimBuffers {
    pub(crate) plain: PlainBuffers,
    /// Buffers that the device still reads: until when, and the device's work posted before.
    /// `None`: the rail's sends copy.
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

    /// Frees buffers that the device has read. Returns the work posted before the first of these.
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

    /// Notes whether a buffer's packets were sent. A device reads the buffer until then; `given`:
    /// work posted to the device before.
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

    /// Makes the device stop reading all buffers.
    pub(crate) fn drain(&mut self) {
        self.plain.drain();
        self.reading.iter_mut().for_each(VecDeque::clear);
    }
}
