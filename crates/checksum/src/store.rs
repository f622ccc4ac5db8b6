//! The ways in which a kernel stores the bytes that it sums, chosen at compile time.

/// How copied bytes are stored.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum CopyMode {
    /// Plain stores: the copy is in the cache afterwards.
    #[default]
    Cached,
    /// Streaming stores past the caches, with the source prefetched: for copies larger than the
    /// cache, or read by another core.
    Streaming,
}

/// Implemented by [`Sum`], [`Far`], [`Cached`], [`Claimed`], [`Paired`] and [`Streaming`].
pub(crate) trait Store {
    /// Bytes are stored at the destination.
    const STORE: bool;
    /// Stores bypass the caches, in whole blocks at an aligned destination.
    const STREAM: bool = false;
    /// Destination lines are prefetched for writing well before the stores.
    const CLAIM: bool = false;
    /// Two lines are loaded and stored at a time instead of many.
    const PAIRS: bool = false;
    /// The source is in no near cache. The 256-bit kernels of the strong sums then prefetch it by
    /// [`FAR_BYTES`]; the 512-bit kernels are faster without prefetching
    /// (docs/design/checksums.md).
    const FAR: bool = false;
}

/// The prefetch distance in bytes for [`Store::FAR`] (docs/design/checksums.md).
pub(crate) const FAR_BYTES: usize = 2048;

/// Sums only.
pub(crate) struct Sum;
/// Sums only, from distant memory.
pub(crate) struct Far;
/// Copies with plain stores.
pub(crate) struct Cached;
/// Copies with plain stores where the data exceeds L1 and [`crate::cpu::claims`] is true.
pub(crate) struct Claimed;
/// Copies with plain stores where [`crate::cpu::claims`] is false.
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
