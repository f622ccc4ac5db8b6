//! Buffers of plain memory, for rails whose sends copy.

use crate::tx_buf::BufId;

/// The state of a buffer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BufState {
    /// Unused.
    Free,
    /// Owned by the borrower.
    Lent,
    /// Owned by the rail.
    InFlight,
}

/// Buffers of plain memory.
#[derive(Debug)]
pub struct PlainBuffers {
    len: usize,
    most: usize,
    all: Vec<(BufState, Box<[u8]>)>,
}

impl PlainBuffers {
    /// At most `most` buffers of `len` bytes, allocated when first lent.
    pub fn new(len: usize, most: usize) -> PlainBuffers {
        PlainBuffers {
            len,
            most,
            all: Vec::new(),
        }
    }

    /// Lends a buffer (see [`TxBuffers::lend`]).
    #[inline]
    pub fn lend(&mut self) -> Option<BufId> {
        let free = self.all.iter().position(|b| b.0 == BufState::Free);
        let at = free.or_else(|| self.grow())?;
        self.all[at].0 = BufState::Lent;
        Some(BufId(at as u32))
    }

    #[cold]
    fn grow(&mut self) -> Option<usize> {
        let at = self.all.len();
        (at < self.most).then(|| {
            let memory = vec![0; self.len].into_boxed_slice();
            self.all.push((BufState::Free, memory));
            at
        })
    }

    /// The memory of a buffer.
    #[inline]
    pub fn buffer(&mut self, id: BufId) -> &mut [u8] {
        let (state, memory) = &mut self.all[id.0 as usize];
        debug_assert_eq!(*state, BufState::Lent);
        memory
    }

    /// Takes the memory of a lent buffer out to send it; [`Self::put`] returns it.
    #[inline]
    pub fn take(&mut self, id: BufId) -> Box<[u8]> {
        let (state, memory) = &mut self.all[id.0 as usize];
        debug_assert_eq!(*state, BufState::Lent);
        std::mem::take(memory)
    }

    /// Puts memory back that was taken out, and sets the buffer's state.
    #[inline]
    pub fn put(&mut self, id: BufId, memory: Box<[u8]>, state: BufState) {
        self.all[id.0 as usize] = (state, memory);
    }

    /// Frees a buffer that the rail has finished with, or that its borrower does not use.
    #[inline]
    pub fn free(&mut self, id: BufId) {
        debug_assert_ne!(self.all[id.0 as usize].0, BufState::Free, "freed twice");
        self.all[id.0 as usize].0 = BufState::Free;
    }

    /// Frees all buffers in flight.
    pub fn drain(&mut self) {
        let in_flight = self.all.iter_mut().filter(|b| b.0 == BufState::InFlight);
        in_flight.for_each(|b| b.0 = BufState::Free);
    }

    /// How many buffers are in a state.
    pub fn count(&self, state: BufState) -> usize {
        self.all.iter().filter(|b| b.0 == state).count()
    }
}

/// `plain_buffers!(Tx, field)`: implements [`TxBuffers`](crate::TxBuffers) by `self.field`, a
/// [`PlainBuffers`], for a rail whose sends copy. `drain` also evaluates the optional third
/// argument, `|tx| EXPR`.
#[macro_export]
macro_rules! plain_buffers {
    ($tx:ty, $field:ident) => {
        $crate::plain_buffers!($tx, $field, |_tx| {});
    };
    ($tx:ty, $field:ident, |$me:ident| $drain:expr) => {
        impl $crate::TxBuffers for $tx {
            #[inline]
            fn lend(&mut self) -> Option<$crate::BufId> {
                self.$field.lend()
            }
            #[inline]
            fn buffer(&mut self, id: $crate::BufId) -> &mut [u8] {
                self.$field.buffer(id)
            }
            #[inline]
            fn give_back(&mut self, id: $crate::BufId) {
                self.$field.free(id);
            }
            #[inline]
            fn send_buffer(
                &mut self,
                link: $crate::LinkId,
                buffer: $crate::BufId,
                len: usize,
                segment: usize,
                flow: u8,
            ) -> $crate::SendOutcome {
                let memory = self.$field.take(buffer);
                let outcome = $crate::RailTx::send(self, link, &memory[..len], segment, flow);
                let state = match outcome {
                    $crate::SendOutcome::Busy => $crate::BufState::Lent,
                    _ => $crate::BufState::Free,
                };
                self.$field.put(buffer, memory, state);
                outcome
            }
            fn drain(&mut self) {
                self.$field.drain();
                let $me = self;
                $drain
            }
            fn given(&self) -> u64 {
                0
            }
            fn take_done(&mut self) -> u64 {
                u64::MAX
            }
        }
    };
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_buffer_goes_round() {
        let mut buffers = PlainBuffers::new(10, 2);
        let (a, b) = (buffers.lend().unwrap(), buffers.lend().unwrap());
        assert_eq!((a == b, buffers.lend()), (false, None));
        buffers.buffer(a)[9] = 7;
        let memory = buffers.take(a);
        buffers.put(a, memory, BufState::InFlight);
        assert_eq!(buffers.lend(), None);
        buffers.free(a);
        assert_eq!(buffers.lend(), Some(a));
        assert_eq!(buffers.buffer(a)[9], 7, "the same memory");
        buffers.free(b);
        assert_eq!(buffers.count(BufState::Free), 1);
    }

    #[test]
    fn drained_buffers_are_free_and_lent_ones_stay_lent() {
        let mut buffers = PlainBuffers::new(10, 2);
        let (a, b) = (buffers.lend().unwrap(), buffers.lend().unwrap());
        let memory = buffers.take(a);
        buffers.put(a, memory, BufState::InFlight);
        buffers.drain();
        assert_eq!((buffers.lend(), buffers.lend()), (Some(a), None));
        buffers.free(b);
    }
}
