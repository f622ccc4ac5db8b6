//! Packets of a path that were declared lost lately: some may be acknowledged after all.

use alloc::boxed::Box;
use alloc::vec::Vec;
use core::mem::size_of;

/// Packets that are kept in mind: two super-packets.
const NUMBERS_MAX: usize = 128;

/// A packet that was declared lost.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Lost {
    pub(crate) number: u64,
    /// The longest datagram that it was.
    pub(crate) bytes: u32,
    /// The packet was a probe of the path's size, which counts as no loss.
    pub(crate) probe: bool,
}

/// Packets that were declared lost, oldest first. Few paths lose anything, so one that does not
/// takes a word for it.
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

    /// Bytes of heap that it holds.
    pub(crate) fn heap_bytes(&self) -> usize {
        let numbers = self.0.as_ref();
        numbers.map_or(0, |n| {
            size_of::<Numbers>() + n.0.capacity() * size_of::<Lost>()
        })
    }

    /// One more; the oldest is forgotten for it where there are too many.
    pub(crate) fn push(&mut self, lost: Lost) {
        let numbers = &mut self.0.get_or_insert_default().0;
        if numbers.len() == NUMBERS_MAX {
            numbers.remove(0);
        }
        numbers.push(lost);
    }

    /// Forgets all but those that `keep` names.
    pub(crate) fn retain(&mut self, mut keep: impl FnMut(&Lost) -> bool) {
        let Some(numbers) = &mut self.0 else { return };
        numbers.0.retain(|lost| keep(lost));
        if numbers.0.is_empty() {
            self.0 = None;
        }
    }
}
