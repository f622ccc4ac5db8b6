//! Memory that peers may write directly, with the ranges in which bytes may land.
//!
//! The receiving half lands bytes outside the engine's lock, so it holds this file's lock while the
//! kernel copies: after [`Registrations::remove`] returns, no byte lands.
//!
//! No byte lands twice in one place: a duplicate or late datagram may be damaged, while the bytes
//! in place may already have been summed and counted.

use crate::sys::Place;
use marline_wire::DirectHead;
use std::marker::PhantomData;
use std::ops::Range;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::sync::{Mutex, MutexGuard, PoisonError};

/// Registered memory.
#[derive(Debug)]
struct Registration {
    key: u64,
    base: usize,
    len: usize,
    /// Disjoint ranges, not adjacent, in which bytes have landed or are known to be right.
    done: Vec<Range<u64>>,
}

/// All registered memory of a rail; also used by the simulator.
#[derive(Debug, Default)]
pub struct Registrations {
    all: Mutex<Vec<Registration>>,
    count: AtomicUsize,
}

impl Registration {
    fn is_free(&self, range: &Range<u64>) -> bool {
        let mut done = self.done.iter();
        !done.any(|d| d.start < range.end && range.start < d.end)
    }

    /// Adds a range and merges the ranges that it touches.
    fn add(&mut self, mut range: Range<u64>) {
        self.done.retain(|d| {
            let apart = d.start > range.end || range.start > d.end;
            if !apart {
                range = range.start.min(d.start)..range.end.max(d.end);
            }
            apart
        });
        self.done.push(range);
    }
}

impl Registrations {
    fn lock(&self) -> MutexGuard<'_, Vec<Registration>> {
        self.all.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns whether any memory is registered.
    #[inline]
    pub fn any(&self) -> bool {
        self.count.load(Relaxed) > 0
    }

    /// Registers `len` bytes at `base` under a key that was never used before.
    pub fn add(&self, key: u64, base: *mut u8, len: usize) {
        let base = base.expose_provenance();
        let mut all = self.lock();
        all.push(Registration {
            key,
            base,
            len,
            done: Vec::new(),
        });
        self.count.store(all.len(), Relaxed);
    }

    /// Ends a registration: afterwards no byte lands under the key.
    pub fn remove(&self, key: u64) {
        let mut all = self.lock();
        all.retain(|g| g.key != key);
        self.count.store(all.len(), Relaxed);
    }

    /// Marks bytes as verified: afterwards no byte lands on them.
    pub fn seal(&self, key: u64, range: Range<u64>) {
        if let Some(row) = self.lock().iter_mut().find(|g| g.key == key) {
            row.add(range);
        }
    }

    /// Returns whether all of the range has landed or is known to be right.
    pub fn landed(&self, key: u64, range: &Range<u64>) -> bool {
        let all = self.lock();
        let row = all.iter().find(|g| g.key == key);
        let within = |d: &Range<u64>| d.start <= range.start && range.end <= d.end;
        row.is_some_and(|g| g.done.iter().any(within))
    }

    /// Calls `land` to receive a direct write into its place, and records the range if `land`
    /// returns `true` (all bytes arrived). `None` if the write has no place, or no longer.
    pub fn land<T>(
        &self,
        head: &DirectHead,
        land: impl FnOnce(Place<'_>) -> (T, bool),
    ) -> Option<T> {
        let mut all = self.lock();
        let row = all.iter_mut().find(|g| g.key == head.key)?;
        let range = head.offset..head.offset.checked_add(head.len as u64)?;
        if range.end > row.len as u64 || !row.is_free(&range) {
            return None;
        }
        let (answer, whole) = land(Place {
            base: row.base + range.start as usize,
            len: head.len as usize,
            held: PhantomData,
        });
        if whole {
            row.add(range);
        }
        Some(answer)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The place where a direct write lands; `None` if it may not land.
    fn land(all: &Registrations, key: u64, offset: u64, len: u32) -> Option<(usize, usize)> {
        let head = DirectHead {
            key,
            offset,
            len,
            packet_len: 0,
            spare: 0,
        };
        all.land(&head, |place| ((place.base, place.len), true))
    }

    fn registered(key: u64, base: usize, len: usize) -> Registrations {
        let all = Registrations::default();
        all.add(key, std::ptr::without_provenance_mut(base), len);
        all
    }

    #[test]
    fn bytes_land_once_within_their_registration_until_it_ends() {
        let key = 7;
        let all = registered(key, 0x1000, 1000);
        assert!(all.any());
        assert_eq!(land(&all, key, 100, 200), Some((0x1064, 200)));
        assert!(all.landed(key, &(100..300)) && !all.landed(key, &(99..300)));
        for (offset, len) in [(100, 200), (299, 1), (0, 101), (900, 101), (u64::MAX, 2)] {
            assert_eq!(land(&all, key, offset, len), None, "{len} at {offset}");
        }
        assert_eq!(land(&all, key ^ 1, 500, 10), None);
        all.seal(key, 300..400);
        assert_eq!(land(&all, key, 399, 1), None);
        assert_eq!(land(&all, key, 400, 600), Some((0x1190, 600)));
        assert_eq!(land(&all, key, 0, 100), Some((0x1000, 100)));
        assert!(all.landed(key, &(0..1000)));
        all.remove(key);
        assert!(!all.any());
        assert_eq!(land(&all, key, 0, 1), None);
    }

    #[test]
    fn a_partial_write_may_land_again() {
        let all = registered(1, 0, 10);
        let head = DirectHead {
            key: 1,
            offset: 0,
            len: 10,
            packet_len: 0,
            spare: 0,
        };
        assert_eq!(all.land(&head, |_| (5, false)), Some(5));
        assert!(!all.landed(1, &(0..10)));
        assert_eq!(all.land(&head, |_| (10, true)), Some(10));
        assert_eq!(all.land(&head, |_| (10, true)), None);
    }
}
