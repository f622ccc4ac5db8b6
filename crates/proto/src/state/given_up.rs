//! Packets of a path that were declared lost recently; some of them may be acknowledged after all.

use alloc::boxed::Box;
use alloc::vec::Vec;
use core::mem::size_of;

/// Packets retained: two super-packets.
const NUMBERS_MAX: usize = 128;

/// A packet that was declared lost.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Lost {
    pub(crate) number: u64,
    /// Bytes of the longest datagram of the packet.
    pub(crate) bytes: u32,
    /// The packet was a size probe, whose loss is not counted as one.
    pub(crate) probe: bool,
}

/// Packets declared lost, oldest first. Boxed, as few paths lose anything.
#[derive(Debug, Default)]
pub struct GivenUp(Option<Box<Numbers>>);

#[derive(Debug, Default)]
struct Numbers(Vec<Lost>);

impl GivenUp {
    #[inline]
    pub(crate) fn is_empty(&self) -> bool {
        self.0.is_none()
    }

    pub(crate) fn len(&self) -> usize {
        self.0.as_ref().map_or(0, |numbers| numbers.0.len())
    }

    /// Bytes of heap in use.
    pub(crate) fn heap_bytes(&self) -> usize {
        let numbers = self.0.as_ref();
        numbers.map_or(0, |n| {
            size_of::<Numbers>() + n.0.capacity() * size_of::<Lost>()
        })
    }

    /// Adds a packet; when full, drops the oldest.
    pub(crate) fn push(&mut self, lost: Lost) {
        let numbers = &mut self.0.get_or_insert_default().0;
        if numbers.len() == NUMBERS_MAX {
            numbers.remove(0);
        }
        numbers.push(lost);
    }

    /// Drops all packets that `keep` rejects.
    pub(crate) fn retain(&mut self, mut keep: impl FnMut(&Lost) -> bool) {
        let Some(numbers) = &mut self.0 else { return };
        numbers.0.retain(|lost| keep(lost));
        if numbers.0.is_empty() {
            self.0 = None;
        }
    }
}
