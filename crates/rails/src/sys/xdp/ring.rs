//! The rings between a process and the kernel: one side writes entries and its index, the other
//! reads them. Indices count entries since the start and wrap around at 32 bits.

use std::sync::atomic::{AtomicU32, Ordering};

/// Where the parts of a ring lie.
pub(super) struct Parts<T> {
    pub(super) producer: *const AtomicU32,
    pub(super) consumer: *const AtomicU32,
    pub(super) flags: *const AtomicU32,
    pub(super) entries: *mut T,
    /// Number of entries, a power of two.
    pub(super) size: u32,
}

/// A ring that this process fills.
pub(super) struct Producer<T> {
    parts: Parts<T>,
    /// Entries written so far, and entries read by the kernel when last looked.
    written: u32,
    read: u32,
}

/// A ring that the kernel fills.
pub(super) struct Consumer<T> {
    parts: Parts<T>,
    /// Entries read so far, and entries written by the kernel when last looked.
    read: u32,
    written: u32,
}

// SAFETY: the memory of a ring outlives the ring (see `new`) and belongs to no thread.
unsafe impl<T: Send> Send for Producer<T> {}
// SAFETY: as above.
unsafe impl<T: Send> Send for Consumer<T> {}

impl<T: Copy> Producer<T> {
    /// # Safety
    /// All parts are valid while the ring lives, `size` entries long; no other ring of this process
    /// has them.
    pub(super) unsafe fn new(parts: Parts<T>) -> Producer<T> {
        // SAFETY: the caller's duty.
        let written = unsafe { &*parts.producer }.load(Ordering::Relaxed);
        // SAFETY: as above.
        let read = unsafe { &*parts.consumer }.load(Ordering::Acquire);
        Producer {
            parts,
            written,
            read,
        }
    }

    /// Number of entries that can be written; looks at the kernel's index only if fewer than
    /// `wanted` are known.
    #[inline]
    pub(super) fn room(&mut self, wanted: u32) -> u32 {
        let free = |ring: &Self| {
            let used = ring.written.wrapping_sub(ring.read);
            ring.parts.size.saturating_sub(used)
        };
        if free(self) < wanted {
            // SAFETY: valid while the ring lives.
            self.read = unsafe { &*self.parts.consumer }.load(Ordering::Acquire);
        }
        free(self)
    }

    /// Writes an entry, which the kernel sees after [`Self::publish`]; `false` if there is no room.
    #[inline]
    pub(super) fn push(&mut self, entry: T) -> bool {
        if self.room(1) == 0 {
            return false;
        }
        let at = self.written & (self.parts.size - 1);
        // SAFETY: within the ring, and the kernel does not read entries beyond the published index.
        unsafe { self.parts.entries.add(at as usize).write(entry) };
        self.written = self.written.wrapping_add(1);
        true
    }

    /// Shows the kernel all entries written so far.
    #[inline]
    pub(super) fn publish(&self) {
        // SAFETY: valid while the ring lives.
        unsafe { &*self.parts.producer }.store(self.written, Ordering::Release);
    }

    /// Returns whether the kernel looks at the ring only when called.
    #[inline]
    pub(super) fn wants_wakeup(&self) -> bool {
        // SAFETY: valid while the ring lives.
        let flags = unsafe { &*self.parts.flags }.load(Ordering::Relaxed);
        flags & libc::XDP_RING_NEED_WAKEUP != 0
    }
}

impl<T: Copy> Consumer<T> {
    /// # Safety
    /// As for [`Producer::new`].
    pub(super) unsafe fn new(parts: Parts<T>) -> Consumer<T> {
        // SAFETY: the caller's duty.
        let read = unsafe { &*parts.consumer }.load(Ordering::Relaxed);
        Consumer {
            parts,
            read,
            written: read,
        }
    }

    /// Takes the next entry. The kernel may reuse its place after [`Self::release`].
    #[inline]
    pub(super) fn take(&mut self) -> Option<T> {
        if self.read == self.written {
            // SAFETY: valid while the ring lives.
            self.written = unsafe { &*self.parts.producer }.load(Ordering::Acquire);
            if self.read == self.written {
                return None;
            }
        }
        let at = self.read & (self.parts.size - 1);
        self.read = self.read.wrapping_add(1);
        // SAFETY: within the ring, and published by the kernel's index.
        Some(unsafe { self.parts.entries.add(at as usize).read() })
    }

    /// Returns the places of all entries taken so far.
    #[inline]
    pub(super) fn release(&self) {
        // SAFETY: valid while the ring lives.
        unsafe { &*self.parts.consumer }.store(self.read, Ordering::Release);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The memory of a ring, and a ring of each side over it.
    struct Fake {
        producer: Box<AtomicU32>,
        consumer: Box<AtomicU32>,
        flags: Box<AtomicU32>,
        entries: Vec<u64>,
    }

    impl Fake {
        /// A ring of four entries whose indices begin at a number.
        fn at(start: u32) -> Fake {
            Fake {
                producer: Box::new(start.into()),
                consumer: Box::new(start.into()),
                flags: Box::default(),
                entries: vec![0; 4],
            }
        }

        fn sides(&mut self) -> (Producer<u64>, Consumer<u64>) {
            let entries = self.entries.as_mut_ptr();
            let parts = || Parts {
                producer: &raw const *self.producer,
                consumer: &raw const *self.consumer,
                flags: &raw const *self.flags,
                entries,
                size: 4,
            };
            // SAFETY: the parts outlive the test's rings; each side writes its own index.
            unsafe { (Producer::new(parts()), Consumer::new(parts())) }
        }
    }

    #[test]
    fn entries_arrive_in_order_also_when_indices_wrap() {
        for start in [0, 3, u32::MAX - 5] {
            let mut fake = Fake::at(start);
            let (mut to, mut from) = fake.sides();
            let (mut sent, mut got) = (0, 0);
            for step in 0..40 {
                for _ in 0..step % 4 + 1 {
                    sent += u64::from(to.push(sent));
                }
                to.publish();
                for _ in 0..step % 3 + 1 {
                    if let Some(entry) = from.take() {
                        assert_eq!(entry, got);
                        got += 1;
                    }
                }
                from.release();
            }
            assert!(got > 40, "{start}");
        }
    }

    #[test]
    fn a_full_ring_takes_nothing_until_places_are_released() {
        let mut fake = Fake::at(u32::MAX - 1);
        let (mut to, mut from) = fake.sides();
        assert_eq!((0..6).filter(|&i| to.push(i)).count(), 4);
        assert_eq!(from.take(), None, "not published");
        to.publish();
        assert_eq!(from.take(), Some(0));
        assert!(!to.push(9), "not released");
        from.release();
        assert_eq!(to.room(1), 1);
        assert!(to.push(9));
    }

    #[test]
    fn the_kernel_says_whether_it_must_be_called() {
        let mut fake = Fake::at(0);
        let (to, _) = fake.sides();
        assert!(!to.wants_wakeup());
        fake.flags.store(1, Ordering::Relaxed);
        assert!(to.wants_wakeup());
    }
}
