//! The memory of a ring that the processes of a host share ([`crate::udp::host_ring`]), and
//! detection of processes that ended.
//!
//! A process holds a lock on the byte of the file at its slot number, through an open file
//! description of its own. The kernel releases the lock when the process ends for any reason, and
//! every process can query it.

use super::shm::{check_file, create, Mapping};
use super::{check, Errno};
use crate::sync::{AtomicU32, AtomicU64, Ordering};
use crate::udp::host_ring::{HostMemory, SLOTS};
use std::fs::{File, OpenOptions};
use std::os::fd::{AsFd, AsRawFd, OwnedFd};

/// Bytes of a ring: two windows of a root. Untouched pages cost no memory.
const RING_LEN: usize = 4 << 20;
/// Bytes of the words before the ring: a multiple of any page size.
const WORDS_LEN: usize = 64 * 1024;
/// Distance in bytes between words of different writers.
const APART: usize = 128;
/// Largest datagram or GRO batch in bytes.
pub(crate) const BODY_MAX: usize = 64 << 10;
const FILE_LEN: usize = WORDS_LEN + RING_LEN;

/// A process's mapping of a ring, and its slot.
pub(crate) struct SharedRing {
    mapping: Mapping,
    /// Own open file description, which holds the slot's lock.
    own: File,
    /// The file that is passed to other processes.
    file: OwnedFd,
    pub(crate) slot: u32,
}

impl SharedRing {
    /// Makes a ring.
    pub(crate) fn create() -> Result<SharedRing, Errno> {
        SharedRing::map(create(FILE_LEN)?)
    }

    /// Maps a ring that another process made.
    pub(crate) fn open(file: OwnedFd) -> Result<SharedRing, Errno> {
        check_file(file.as_fd(), FILE_LEN)?;
        SharedRing::map(file)
    }

    fn map(file: OwnedFd) -> Result<SharedRing, Errno> {
        // The ring is mapped twice in succession, so that frames never wrap around.
        let mapping = Mapping::reserve(WORDS_LEN + 2 * RING_LEN)?;
        mapping.put(0, file.as_fd(), 0, WORDS_LEN)?;
        for copy in 0..2 {
            let at = WORDS_LEN + copy * RING_LEN;
            mapping.put(at, file.as_fd(), WORDS_LEN, RING_LEN)?;
        }
        let path = format!("/proc/self/fd/{}", file.as_raw_fd());
        let own = OpenOptions::new().read(true).write(true).open(path);
        let own = own.map_err(|e| e.raw_os_error().unwrap_or(libc::EIO))?;
        let slot = mapping.word32(2 * APART).fetch_add(1, Ordering::Relaxed);
        if slot >= SLOTS {
            return Err(libc::EUSERS);
        }
        let ring = SharedRing {
            mapping,
            own,
            file,
            slot,
        };
        let mut lock = ring.lock_of(slot);
        // SAFETY: the structure outlives the call.
        check(unsafe { libc::fcntl(ring.own.as_raw_fd(), libc::F_OFD_SETLK, &raw mut lock) })?;
        Ok(ring)
    }

    fn lock_of(&self, slot: u32) -> libc::flock {
        libc::flock {
            l_type: libc::F_WRLCK as libc::c_short,
            l_whence: libc::SEEK_SET as libc::c_short,
            l_start: slot as libc::off_t,
            l_len: 1,
            l_pid: 0,
        }
    }

    /// Returns whether no living process has the slot.
    #[cold]
    pub(crate) fn is_gone(&self, slot: u32) -> bool {
        let mut lock = self.lock_of(slot);
        // SAFETY: the structure outlives the call, which fills it.
        let asked = unsafe { libc::fcntl(self.own.as_raw_fd(), libc::F_OFD_GETLK, &raw mut lock) };
        asked == 0 && lock.l_type == libc::F_UNLCK as libc::c_short
    }

    /// The file, for another process.
    pub(crate) fn file(&self) -> &OwnedFd {
        &self.file
    }

    /// Rounds a position down to a multiple of eight, since another process may have written any
    /// value.
    #[inline]
    fn place(&self, at: u64) -> usize {
        WORDS_LEN + (at % RING_LEN as u64) as usize / 8 * 8
    }
}

impl HostMemory for SharedRing {
    const BODY_MAX: u64 = BODY_MAX as u64;
    const LEN: u64 = RING_LEN as u64;

    #[inline]
    fn lock(&self) -> &AtomicU32 {
        self.mapping.word32(0)
    }

    #[inline]
    fn head(&self) -> &AtomicU64 {
        self.mapping.word64(APART)
    }

    #[inline]
    fn claimed(&self) -> &AtomicU64 {
        self.mapping.word64(APART + 8)
    }

    #[inline]
    fn sleepers(&self) -> &AtomicU64 {
        self.mapping.word64(3 * APART)
    }

    #[inline]
    fn word(&self, at: u64) -> &AtomicU64 {
        self.mapping.word64(self.place(at))
    }

    #[inline]
    fn put(&self, at: u64, bytes: &[u8]) {
        assert!(bytes.len() <= BODY_MAX);
        // SAFETY: the ring is mapped twice, so this many bytes fit at any place in it. This process
        // holds the lock, and readers check afterwards whether they were overtaken.
        unsafe {
            let to = self.mapping.at(self.place(at));
            to.copy_from_nonoverlapping(bytes.as_ptr(), bytes.len());
        }
    }

    #[inline]
    fn get(&self, at: u64, out: &mut [u8]) {
        assert!(out.len() <= BODY_MAX);
        // SAFETY: the ring is mapped twice, so this many bytes can be read at any place in it.
        // Bytes that change meanwhile are discarded; `out` is borrowed mutably.
        unsafe {
            let from = self.mapping.at(self.place(at));
            out.as_mut_ptr().copy_from_nonoverlapping(from, out.len());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::udp::host_ring;

    #[test]
    fn a_slot_is_gone_exactly_when_its_share_is_dropped() {
        let ours = SharedRing::create().unwrap();
        let others = SharedRing::open(ours.file().try_clone().unwrap()).unwrap();
        assert_eq!((ours.slot, others.slot), (0, 1));
        assert_eq!(host_ring::try_lock(&others, 1), Ok(()));
        assert_eq!(host_ring::try_lock(&ours, 0), Err(1));
        assert!(!ours.is_gone(1));
        assert!(ours.is_gone(2), "nobody has this one");
        drop(others);
        assert!(ours.is_gone(1));
        assert!(host_ring::take_over(&ours, 1, 0));
        host_ring::unlock(&ours);
        assert_eq!(host_ring::try_lock(&ours, 0), Ok(()));
        let later = SharedRing::open(ours.file().try_clone().unwrap()).unwrap();
        assert_eq!(later.slot, 2, "slots are given once");
    }

    #[test]
    fn slots_are_limited() {
        let first = SharedRing::create().unwrap();
        let open = |_| SharedRing::open(first.file().try_clone().unwrap());
        let all: Vec<_> = (1..SLOTS).map(open).collect();
        assert!(all.iter().all(Result::is_ok));
        assert_eq!(open(0).err(), Some(libc::EUSERS));
    }
}
