//! What a kernel does with the bytes it sums, chosen at compile time.

/// Where copied bytes go.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum CopyMode {
    /// Plain stores: what is copied is in the cache afterwards.
    #[default]
    Cached,
    /// Streaming stores past the caches, and the source prefetched: for copies that are larger
    /// than the cache, or whose reader is another core.
    Streaming,
}

/// One of [`Sum`], [`Far`], [`Cached`], [`Claimed`], [`Paired`] and [`Streaming`].
pub(crate) trait Store {
    /// Bytes are stored at the destination.
    const STORE: bool;
    /// They are stored past the caches, from whole blocks at an aligned destination.
    const STREAM: bool = false;
    /// Lines of the destination are asked for, to be written, well before they are.
    const CLAIM: bool = false;
    /// Two lines are loaded and stored at a time, where otherwise it is many.
    const PAIRS: bool = false;
    /// The source is in no near cache: the kernels of 256 bits for the strong sums ask for it
    /// [`FAR_BYTES`] before they read it, the others do without (with 512 bits, family 26, MPI
    /// messages of 4 MiB have 1.03 times the rate unasked, from the last cache and from memory).
    const FAR: bool = false;
}

/// How far ahead [`Store::FAR`] asks. 63 KB from L3 or memory, summed by a CRC and then copied by
/// the kernel: 14.8 to 15.8 us with this, 14.8 to 16.2 us with 4 KB, 15.3 to 16.7 us unasked (EPYC
/// of family 25, three runs). MPI messages of 4 MiB, summed by products: 1.02 and 1.05 times the
/// rate of those unasked (same processor, medians within 25 to 34 rounds, MPICH and Open MPI).
pub(crate) const FAR_BYTES: usize = 2048;

/// Only sums.
pub(crate) struct Sum;
/// Only sums what comes from far.
pub(crate) struct Far;
/// Copies with plain stores.
pub(crate) struct Cached;
/// Copies with plain stores, more than L1 holds, where [`crate::cpu::claims`].
pub(crate) struct Claimed;
/// Copies with plain stores where it is not, whatever the length.
pub(crate) struct Paired;
/// Copies with non-temporal stores and prefetches the source.
pub(crate) struct Streaming;

impl Store for Sum {
    const STORE: bool = false;
}

impl Store for Far {
    const STORE: bool = false;
    const FAR: bool = true;
}

impl Store for Cached {
    const STORE: bool = true;
}

impl Store for Claimed {
    const STORE: bool = true;
    const CLAIM: bool = true;
}

impl Store for Paired {
    const STORE: bool = true;
    const PAIRS: bool = true;
}

impl Store for Streaming {
    const STORE: bool = true;
    const STREAM: bool = true;
}
