//! Packets of a path that were declared lost lately: some may be acknowledged after all.

use alloc::boxed::Box;
use alloc::vec::Vec;
use core::mem::size_of;

/// Packets that are kept in mind: two super-packets.
const NUMBERS_MAX: usize = 128;

/// Numbers of packets that were declared lost, oldest first. Few paths lose anything, so one that
/// does not takes a word for it.
#[derive(Debug, Default)]
pub struct GivenUp(Option<Box<Numbers>>);

#[derive(Debug, Default)]
struct Numbers(Vec<u64>);

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
            size_of::<Numbers>() + n.0.capacity() * size_of::<u64>()
        })
    }

    /// One more; the oldest is forgotten for it where there are too many.
    pub(crate) fn push(&mut self, number: u64) {
        let numbers = &mut self.0.get_or_insert_default().0;
        if numbers.len() == NUMBERS_MAX {
            numbers.remove(0);
        }
        numbers.push(number);
    }

    /// Forgets all but those that `keep` names.
    pub(crate) fn retain(&mut self, keep: impl Fn(u64) -> bool) {
        let Some(numbers) = &mut self.0 else { return };
        numbers.0.retain(|&number| keep(number));
        if numbers.0.is_empty() {
            self.0 = None;
        }
    }
}
