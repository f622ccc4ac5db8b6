//! Memory shared between processes (mapped memfds without a file name), and memory of another
//! process read in one copy.

use super::{check, check_long, Errno, Place};
use crate::shm::{Memory, Page};
use crate::sync::{AtomicU32, AtomicU64};
use crate::Piece;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd};
use std::ptr::NonNull;
use std::sync::Arc;

/// Bytes of a ring: four of the largest batches, so that one is filled while another is emptied.
/// Untouched pages cost no memory.
const RING_LEN: usize = 256 * 1024;
/// Bytes of the words beside the rings: a multiple of any page size.
const WORDS_LEN: usize = 64 * 1024;
/// Distance in bytes between words of different writers: two cache lines, since processors prefetch
/// them in pairs.
const APART: usize = 128;
/// Bytes of a link's file: its words, and a ring for each direction.
const LINK_LEN: usize = WORDS_LEN + 2 * RING_LEN;
/// Bytes of an inbox's file.
const INBOX_LEN: usize = WORDS_LEN;
/// Number of 64-bit words in an inbox's bitmap.
const BITS_WORDS: usize = 64;
/// Most pieces in one read of another process's memory.
pub(crate) const PULL_PIECES_MAX: usize = 16;
/// Seals that fix a file's length, so that access to the mapping cannot fault.
const SEALS: libc::c_int = libc::F_SEAL_SHRINK | libc::F_SEAL_GROW | libc::F_SEAL_SEAL;

/// A mapping of a file that processes share.
pub(super) struct Mapping {
    base: NonNull<u8>,
    len: usize,
}

// SAFETY: the memory is accessed by atomics, or by copies between places that the ring protocol
// gives to one thread at a time.
unsafe impl Send for Mapping {}
// SAFETY: as above.
unsafe impl Sync for Mapping {}

impl Drop for Mapping {
    fn drop(&mut self) {
        // SAFETY: this value owns the mapping, of which no borrow is left.
        unsafe { libc::munmap(self.base.as_ptr().cast(), self.len) };
    }
}

impl Mapping {
    /// Reserves addresses for `len` bytes without backing memory.
    pub(super) fn reserve(len: usize) -> Result<Mapping, Errno> {
        let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE;
        // SAFETY: a new mapping at an address of the kernel's choice touches no existing memory.
        let base = unsafe { libc::mmap(std::ptr::null_mut(), len, libc::PROT_NONE, flags, -1, 0) };
        let base = NonNull::new(base.cast()).filter(|_| base != libc::MAP_FAILED);
        let base = base.ok_or_else(super::errno)?;
        Ok(Mapping { base, len })
    }

    /// Maps a part of a file into reserved addresses.
    pub(super) fn put(
        &self,
        at: usize,
        file: BorrowedFd<'_>,
        from: usize,
        len: usize,
    ) -> Result<(), Errno> {
        assert!(at + len <= self.len);
        // SAFETY: the addresses lie within the mapping that this value owns.
        let placed = unsafe {
            libc::mmap(
                self.base.as_ptr().add(at).cast(),
                len,
                libc::PROT_READ | libc::PROT_WRITE,
                libc::MAP_SHARED | libc::MAP_FIXED,
                file.as_raw_fd(),
                from as libc::off_t,
            )
        };
        match placed == libc::MAP_FAILED {
            true => Err(super::errno()),
            false => Ok(()),
        }
    }

    #[inline]
    pub(super) fn word32(&self, at: usize) -> &AtomicU32 {
        debug_assert!(at % 4 == 0 && at + 4 <= self.len);
        // SAFETY: aligned, within the mapping, and only ever accessed as this atomic.
        unsafe { AtomicU32::from_ptr(self.base.as_ptr().add(at).cast()) }
    }

    #[inline]
    pub(super) fn word64(&self, at: usize) -> &AtomicU64 {
        debug_assert!(at % 8 == 0 && at + 8 <= self.len);
        // SAFETY: aligned and within the mapping. Bytes of a ring are words at one time and bodies
        // at another, never both: the published word decides.
        unsafe { AtomicU64::from_ptr(self.base.as_ptr().add(at).cast()) }
    }
}

impl Mapping {
    /// The address of an offset in the mapping.
    #[inline]
    pub(super) fn at(&self, place: usize) -> *mut u8 {
        assert!(place < self.len);
        self.base.as_ptr().wrapping_add(place)
    }
}

/// Makes a memfd of `len` zeros with a sealed length.
pub(super) fn create(len: usize) -> Result<OwnedFd, Errno> {
    const NOEXEC_SEAL: libc::c_uint = 8; // some systems require it, old kernels do not know it
    let flags = libc::MFD_CLOEXEC | libc::MFD_ALLOW_SEALING;
    // SAFETY: the name is NUL-terminated.
    let open = |flags| check(unsafe { libc::memfd_create(c"marline".as_ptr(), flags) });
    let fd = open(flags | NOEXEC_SEAL).or_else(|_| open(flags))?;
    // SAFETY: the descriptor is new and has no other owner.
    let file = unsafe { OwnedFd::from_raw_fd(fd) };
    // SAFETY: a call without pointers on our own descriptor.
    check(unsafe { libc::ftruncate(fd, len as libc::off_t) })?;
    // SAFETY: as above.
    check(unsafe { libc::fcntl(fd, libc::F_ADD_SEALS, SEALS) })?;
    Ok(file)
}

/// Rejects a peer's memfd of another size or without a shrink seal.
pub(super) fn check_file(file: BorrowedFd<'_>, len: usize) -> Result<(), Errno> {
    let fd = file.as_raw_fd();
    // SAFETY: a call without pointers on a borrowed descriptor.
    let seals = check(unsafe { libc::fcntl(fd, libc::F_GET_SEALS) })?;
    // SAFETY: all zeros are a valid `stat`, which the call fills.
    let mut stat: libc::stat = unsafe { std::mem::zeroed() };
    // SAFETY: the structure outlives the call.
    check(unsafe { libc::fstat(fd, &mut stat) })?;
    let fits = seals & libc::F_SEAL_SHRINK != 0 && stat.st_size == len as libc::off_t;
    match fits {
        true => Ok(()),
        false => Err(libc::EBADF),
    }
}

/// The memory of a link: a ring for each direction.
pub(crate) struct LinkMemory(Mapping);

impl LinkMemory {
    /// Makes the memory, and its file for the other end.
    pub(crate) fn create() -> Result<(LinkMemory, OwnedFd), Errno> {
        let file = create(LINK_LEN)?;
        Ok((LinkMemory::map(file.as_fd())?, file))
    }

    /// Maps memory that the other end made.
    pub(crate) fn open(file: BorrowedFd<'_>) -> Result<LinkMemory, Errno> {
        check_file(file, LINK_LEN)?;
        LinkMemory::map(file)
    }

    /// Maps each ring twice in succession, so that frames never wrap around.
    fn map(file: BorrowedFd<'_>) -> Result<LinkMemory, Errno> {
        let mapping = Mapping::reserve(WORDS_LEN + 4 * RING_LEN)?;
        mapping.put(0, file, 0, WORDS_LEN)?;
        for ring in 0..2 {
            let from = WORDS_LEN + ring * RING_LEN;
            for copy in 0..2 {
                let at = WORDS_LEN + (2 * ring + copy) * RING_LEN;
                mapping.put(at, file, from, RING_LEN)?;
            }
        }
        Ok(LinkMemory(mapping))
    }

    /// The two rings: first the ring of the end that made the memory, then the ring of the other
    /// end.
    pub(crate) fn rings(self) -> (Ring, Ring) {
        let memory = Arc::new(self);
        let ring = |number| Ring {
            words: number * WORDS_LEN / 2,
            bytes: WORDS_LEN + 2 * number * RING_LEN,
            memory: memory.clone(),
        };
        (ring(0), ring(1))
    }
}

/// A ring of a link, with its words.
#[derive(Clone)]
pub(crate) struct Ring {
    memory: Arc<LinkMemory>,
    words: usize,
    bytes: usize,
}

impl Ring {
    #[inline]
    fn place(&self, at: u64) -> usize {
        self.bytes + (at % RING_LEN as u64) as usize
    }

    /// Number of pulls that the consumer has made or abandoned.
    #[inline]
    pub(crate) fn pulled(&self) -> &AtomicU64 {
        self.memory.0.word64(self.words + 8)
    }

    /// Tells if the consumer can read the producer's memory: 0 unknown, 1 yes, 2 no.
    pub(crate) fn can_pull(&self) -> &AtomicU32 {
        self.memory.0.word32(self.words + 16)
    }

    /// Not 0 if the producer has changed its memory: later pulls are void.
    #[inline]
    pub(crate) fn void(&self) -> &AtomicU32 {
        self.memory.0.word32(self.words + APART)
    }

    /// Copies bytes of the ring into a place, as many as fit.
    pub(crate) fn land(&self, at: u64, place: &Place<'_>) {
        assert!(place.len <= RING_LEN);
        let to = std::ptr::with_exposed_provenance_mut::<u8>(place.base);
        // SAFETY: the ring is mapped twice, so its full length can be read from any place in it.
        // The place is valid while it is lent (see `Place::fill`).
        unsafe {
            let from = self.memory.0.base.as_ptr().add(self.place(at));
            to.copy_from_nonoverlapping(from, place.len);
        }
    }

    /// Copies pieces of memory into the ring, one after another.
    #[inline]
    pub(crate) fn put_pieces(&self, mut at: u64, pieces: &[Piece]) {
        for piece in pieces {
            assert!(piece.len <= RING_LEN);
            // SAFETY: as above; the caller of `crate::RemoteWrite::write` promises a valid piece,
            // or our caller borrows it.
            unsafe {
                let to = self.memory.0.base.as_ptr().add(self.place(at));
                to.copy_from(piece.base, piece.len);
            }
            at += piece.len as u64;
        }
    }
}

impl Memory for Ring {
    const LEN: u64 = RING_LEN as u64;

    #[inline]
    fn word(&self, at: u64) -> &AtomicU64 {
        self.memory.0.word64(self.place(at))
    }

    #[inline]
    fn consumed(&self) -> &AtomicU64 {
        self.memory.0.word64(self.words)
    }

    #[inline]
    fn waits(&self) -> &AtomicU32 {
        self.memory.0.word32(self.words + APART + 8)
    }

    #[inline]
    fn put(&self, at: u64, bytes: &[u8]) {
        let piece = Piece {
            base: bytes.as_ptr(),
            len: bytes.len(),
        };
        self.put_pieces(at, &[piece]);
    }

    #[inline]
    fn get(&self, at: u64, out: &mut [u8]) {
        assert!(out.len() <= RING_LEN);
        // SAFETY: as in `land`; `out` is borrowed mutably.
        unsafe {
            let from = self.memory.0.base.as_ptr().add(self.place(at));
            out.as_mut_ptr().copy_from_nonoverlapping(from, out.len());
        }
    }
}

/// Copies pieces of memory into one vector.
pub(crate) fn gather(pieces: &[Piece]) -> Vec<u8> {
    let mut bytes = Vec::with_capacity(pieces.iter().map(|piece| piece.len).sum());
    for piece in pieces {
        // SAFETY: as in `Ring::put_pieces`.
        bytes.extend_from_slice(unsafe { std::slice::from_raw_parts(piece.base, piece.len) });
    }
    bytes
}

/// Copies lent pieces into `to`, which has their total length.
pub(crate) fn gather_into(pieces: &[Piece], to: &mut [u8]) {
    let mut at = 0;
    for piece in pieces {
        // SAFETY: as in `Ring::put_pieces`.
        let from = unsafe { std::slice::from_raw_parts(piece.base, piece.len) };
        to[at..at + piece.len].copy_from_slice(from);
        at += piece.len;
    }
}

/// A rail's inbox.
pub(crate) struct Inbox(Mapping);

impl Inbox {
    /// Makes an inbox, and its file for peers.
    pub(crate) fn create() -> Result<(Inbox, OwnedFd), Errno> {
        let file = create(INBOX_LEN)?;
        Ok((Inbox::map(file.as_fd())?, file))
    }

    /// Maps a peer's inbox.
    pub(crate) fn open(file: BorrowedFd<'_>) -> Result<Inbox, Errno> {
        check_file(file, INBOX_LEN)?;
        Inbox::map(file)
    }

    fn map(file: BorrowedFd<'_>) -> Result<Inbox, Errno> {
        let mapping = Mapping::reserve(INBOX_LEN)?;
        mapping.put(0, file, 0, INBOX_LEN)?;
        Ok(Inbox(mapping))
    }
}

impl Page for Inbox {
    #[inline]
    fn state(&self) -> &AtomicU32 {
        self.0.word32(0)
    }

    #[inline]
    fn summary(&self) -> &AtomicU64 {
        self.0.word64(APART)
    }

    #[inline]
    fn bits(&self, index: u32) -> &AtomicU64 {
        self.0.word64(2 * APART + 8 * (index as usize % BITS_WORDS))
    }
}

/// Random words at a fixed address of this process, by which peers verify that they read the memory
/// of this process in its present life.
#[derive(Debug)]
pub(crate) struct Canary(Box<[u64; 2]>);

/// Address and contents of another process's canary, as that process stated them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct CanaryAt {
    pub(crate) address: u64,
    pub(crate) words: [u64; 2],
}

impl Canary {
    pub(crate) fn new() -> Result<Canary, Errno> {
        Ok(Canary(Box::new([random()?, random()?])))
    }

    /// Address and contents of the canary.
    pub(crate) fn at(&self) -> CanaryAt {
        CanaryAt {
            address: self.0.as_ptr().expose_provenance() as u64,
            words: *self.0,
        }
    }
}

/// A random word.
pub(crate) fn random() -> Result<u64, Errno> {
    let mut word = 0u64;
    let len = size_of::<u64>();
    // SAFETY: the word is valid for its length.
    let got = check_long(unsafe { libc::getrandom((&raw mut word).cast(), len, 0) as _ })?;
    match got == len {
        true => Ok(word),
        false => Err(libc::EAGAIN),
    }
}

/// Reads pieces of another process's memory into a place, one after another, followed by its
/// canary. Succeeds only if all of it was read and the canary matches.
pub(crate) fn pull(
    pid: libc::pid_t,
    pieces: &[(u64, u64)],
    place: Option<&Place<'_>>,
    canary: &CanaryAt,
) -> Result<(), Errno> {
    let mut words = [0u64; 2];
    let none = libc::iovec {
        iov_base: std::ptr::null_mut(),
        iov_len: 0,
    };
    let mut remote = [none; PULL_PIECES_MAX + 1];
    let seen = (canary.address, size_of_val(&words) as u64);
    let mut count = 0;
    for (address, len) in pieces.iter().copied().chain([seen]) {
        let slot = remote.get_mut(count).ok_or(libc::E2BIG)?;
        slot.iov_base = std::ptr::without_provenance_mut(address as usize);
        slot.iov_len = len as usize;
        count += 1;
    }
    let len = place.map_or(0, |place| place.len);
    let base = place.map_or(0, |place| place.base);
    let local = [
        libc::iovec {
            iov_base: std::ptr::with_exposed_provenance_mut(base),
            iov_len: len,
        },
        libc::iovec {
            iov_base: (&raw mut words).cast(),
            iov_len: size_of_val(&words),
        },
    ];
    // SAFETY: the place is valid while it is lent, the words outlive the call, and the kernel
    // checks the addresses in the other process.
    let got = check_long(unsafe {
        libc::syscall(
            libc::SYS_process_vm_readv,
            pid,
            local.as_ptr(),
            local.len(),
            remote.as_ptr(),
            count,
            0 as libc::c_ulong,
        )
    })?;
    match got == len + size_of_val(&words) && words == canary.words {
        true => Ok(()),
        false => Err(libc::EFAULT),
    }
}
