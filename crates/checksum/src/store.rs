//! The ways in which a kernel stores the bytes it sums, chosen at compile time.

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
    /// [`FAR_BYTES`] before they read it. The kernels of 512 bits are faster without
    /// (docs/design/checksums.md).
    const FAR: bool = false;
}

/// The distance in bytes by which [`Store::FAR`] asks ahead of the loads
/// (docs/design/checksums.md).
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
