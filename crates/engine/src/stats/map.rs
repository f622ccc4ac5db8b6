//! A growing file of 64-bit words in shared memory.
//!
//! The maximal length is mapped at once, but a word may be accessed only after the file system has
//! allocated it: a write to a hole of a full file system would kill the process.

use std::fs::File;
use std::os::fd::AsRawFd;
use std::os::unix::fs::FileExt;
use std::sync::atomic::AtomicU64;
use std::sync::Arc;

/// Growth step of the file: a few pages of the processor.
const STEP_BYTES: usize = 16 * 1024;

/// A mapping shared by several values; the last of them unmaps it.
#[derive(Debug)]
struct Mapping {
    base: *mut AtomicU64,
    bytes_max: usize,
}

// SAFETY: `base` is a mapping that this value owns; its words are atomics.
unsafe impl Send for Mapping {}
// SAFETY: as above.
unsafe impl Sync for Mapping {}

impl Mapping {
    /// # Safety
    /// The file has room for the first `bytes` bytes.
    unsafe fn words(&self, bytes: usize) -> &[AtomicU64] {
        // SAFETY: so many bytes are mapped and backed by the file; zero is a valid word.
        unsafe { std::slice::from_raw_parts(self.base, bytes / 8) }
    }
}

impl Drop for Mapping {
    fn drop(&mut self) {
        // SAFETY: our mapping, and no reference into it outlives `self`.
        unsafe { libc::munmap(self.base.cast(), self.bytes_max) };
    }
}

/// The file, and the usable part of its mapping.
#[derive(Debug)]
pub struct Map {
    file: File,
    mapping: Arc<Mapping>,
    bytes_usable: usize,
}

/// The part of a [`Map`] that was usable at the time of [`Map::share`].
#[derive(Debug)]
pub struct Mapped {
    mapping: Arc<Mapping>,
    bytes_usable: usize,
}

impl Mapped {
    /// The usable words.
    pub fn words(&self) -> &[AtomicU64] {
        // SAFETY: usable when `self` was created, and our files never shrink.
        unsafe { self.mapping.words(self.bytes_usable) }
    }
}

impl Map {
    /// Maps an empty file that may grow to `bytes_max`.
    pub fn new(file: File, bytes_max: usize) -> std::io::Result<Map> {
        let bytes_max = bytes_max.next_multiple_of(STEP_BYTES);
        // SAFETY: a new shared mapping of our file, placed by the kernel.
        let base = unsafe {
            libc::mmap(
                std::ptr::null_mut(),
                bytes_max,
                libc::PROT_READ | libc::PROT_WRITE,
                libc::MAP_SHARED,
                file.as_raw_fd(),
                0,
            )
        };
        if base == libc::MAP_FAILED {
            return Err(std::io::Error::last_os_error());
        }
        Ok(Map {
            file,
            mapping: Arc::new(Mapping {
                base: base.cast(),
                bytes_max,
            }),
            bytes_usable: 0,
        })
    }

    /// Makes the first `words` words usable; `false` if the file system is full.
    pub fn reserve(&mut self, words: usize) -> bool {
        let wanted = (words * 8).next_multiple_of(STEP_BYTES);
        while self.bytes_usable < wanted {
            // Writes zeros instead of extending the file, so that the file system allocates the
            // blocks now.
            let at = self.bytes_usable as u64;
            let full = self.bytes_usable + STEP_BYTES > self.mapping.bytes_max;
            if full || self.file.write_all_at(&[0; STEP_BYTES], at).is_err() {
                return false;
            }
            self.bytes_usable += STEP_BYTES;
        }
        true
    }

    /// The usable words.
    pub fn words(&self) -> &[AtomicU64] {
        // SAFETY: `reserve` has allocated these bytes.
        unsafe { self.mapping.words(self.bytes_usable) }
    }

    /// The currently usable part, for another thread.
    pub fn share(&self) -> Mapped {
        Mapped {
            mapping: self.mapping.clone(),
            bytes_usable: self.bytes_usable,
        }
    }
}
